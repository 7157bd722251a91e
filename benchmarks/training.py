"""Whole training: environment steps/s, and seconds until a return is reached.

    python benchmarks/training.py --env spread --until -40
    python benchmarks/training.py --env spread --preset jaxmarl --peer jaxmarl --json

Ours is IPPO with one of its presets. The peer is JaxMARL's environment under a stand-in for JaxMARL's
IPPO (`workers/jaxmarl_training.py`), always with JaxMARL's settings; the preset "jaxmarl" gives ours the
same. Both train in turn, a second each, in processes of their own; compiling is timed apart and is no
part of any rate. Returns are those of training: sampled actions, the rewards of all agents added up
(where groups compete, of the first group), averaged over the latest episodes that ended. An episode of
JaxMARL has 26 steps, one of ours 25.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import peers
import tyro
from rich.console import Console
from rich.table import Table
from turns import Worker, finish, jax_warnings, ratio, require_at_least, say, summary

from flockax.agents import ippo
from flockax.envs import registered

# JaxMARL's settings of ippo_ff_mpe, but for the length of the run; two tanh layers, linear annealing.
JAXMARL = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_steps": 128,
    "epochs": 4,
    "minibatches": 4,
    "hidden": 64,
    "lr": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
# The stand-in gives all agents one network, and `spread` alone has equal agents.
PEER_ENVIRONMENTS = ("spread",)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is trained, and for how long."""

    env: str = "spread"
    """A registered environment, with its default sizes."""
    preset: str = "default"
    """Settings of our IPPO: a preset of it."""
    total_steps: int | None = None
    """Environment steps of a seed on each side, instead of those of the preset."""
    until: float | None = None
    """A return; each side stops where it is reached."""
    window: int = 500
    """Returns are averaged over at least so many of the latest episodes of each seed."""
    seeds: int = 1
    """Seeds that train at once; rates count the steps of all, returns are averaged over them."""
    turn: float = 1.0
    """Seconds of a turn."""
    peer: Literal["jaxmarl"] | None = None
    """Train this peer in turn; `peers.py setup` installs it."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def validate(self) -> None:
        """Refuses what makes no sense.

        Raises:
            ValueError: naming the field, its value and what is allowed.
            peers.PeerError: if the peer is not set up.
        """
        ids = [entry.id for entry in registered()]
        if self.env not in ids:
            raise ValueError(f"env={self.env!r} is not one of {', '.join(ids)}")
        if self.preset not in ippo.PRESETS:
            raise ValueError(f"preset={self.preset!r} is not one of {', '.join(ippo.PRESETS)}")
        require_at_least(1, seeds=self.seeds, window=self.window)
        require_at_least(0, turn=self.turn)
        if self.total_steps is not None:
            require_at_least(1, total_steps=self.total_steps)
        if self.peer is not None:
            if self.env not in PEER_ENVIRONMENTS:
                allowed = ", ".join(PEER_ENVIRONMENTS)
                raise ValueError(
                    f"env={self.env!r} with peer={self.peer!r} is not one of {allowed}"
                )
            peers.python_of(self.peer)


class Progress:
    """What one side has done so far.

    Args:
        until: the return that is waited for, or None.
        window: episodes of all seeds that a mean return needs at least.
    """

    def __init__(self, until: float | None, window: int) -> None:
        self._until, self._window = math.inf if until is None else until, window
        self._latest: deque[tuple[np.ndarray, np.ndarray]] = deque()
        self.steps, self.seconds = 0, 0.0
        self.rates: list[float] = []
        self.curve: list[tuple[float, int, list[float]]] = []
        self.seconds_to_return: float | None = None
        self.steps_to_return: int | None = None
        self.finished = False

    def add(self, turn: dict[str, Any]) -> None:
        """Takes in a turn as a worker answers it (see `training_turns.Run.turn`)."""
        steps = turn["steps"] // len(turn["updates"])
        for i, (seconds, returns, episodes) in enumerate(turn["updates"]):
            self._latest.append((np.asarray(returns), np.asarray(episodes)))
            while self._episodes() - self._latest[0][1].sum() >= self._window:
                self._latest.popleft()
            if self._just_reached():
                self.seconds_to_return = self.seconds + seconds
                self.steps_to_return = self.steps + steps * (i + 1)
        self.steps += turn["steps"]
        self.seconds += turn["seconds"]
        self.rates.append(turn["steps"] / turn["seconds"])
        if self.returns is not None:
            self.curve.append((self.seconds, self.steps, self.returns))
        self.finished = turn["finished"] or self.seconds_to_return is not None

    @property
    def returns(self) -> list[float] | None:
        """Of each seed over the latest episodes, None before `window` of them have ended."""
        if self._episodes() < self._window:
            return None
        sums, episodes = (np.sum(x, axis=0) for x in zip(*self._latest, strict=True))
        return (sums / np.maximum(episodes, 1)).tolist()

    @property
    def mean_return(self) -> float | None:
        """The mean of `returns` over seeds."""
        return None if self.returns is None else float(np.mean(self.returns))

    def _episodes(self) -> float:
        return float(sum(episodes.sum() for _, episodes in self._latest))

    def _just_reached(self) -> bool:
        mean = self.mean_return
        return self.seconds_to_return is None and mean is not None and mean >= self._until

    def report(self, prepared: dict[str, Any]) -> dict[str, Any]:
        """What is printed of this side; `prepared` is the worker's answer to ``prepare``."""
        rate = summary(self.rates)
        return {
            "steps_per_second": rate["median"],
            "agent_steps_per_second": rate["median"] * prepared["num_agents"],
            "compile_seconds": prepared["compile_seconds"],
            "seconds": self.seconds,
            "steps": self.steps,
            "return_mean": self.mean_return,
            "return_per_seed": self.returns,
            "seconds_to_return": self.seconds_to_return,
            "steps_to_return": self.steps_to_return,
            "steps_per_second_of_turns": rate,
            "curve_seconds_steps_return": self.curve,
            **prepared,
        }


def measure(config: Config) -> dict[str, Any]:
    """Trains ours and, if asked for, the peer.

    Raises:
        ValueError: for settings that make no sense.
        peers.PeerError: if the peer is not set up.
        WorkerError: if a side fails.

    Returns:
        The object that ``--json`` prints: ``env``; ``ours`` and ``peer`` with at least
        ``steps_per_second`` (median over turns), ``compile_seconds``, ``seconds_to_return``; ``ratio``
        of the rates; the configuration; ``warnings``.
    """
    config.validate()
    options: dict[str, dict[str, Any]] = {
        "ours": {"preset": config.preset, "total_steps": config.total_steps, "env": config.env}
    }
    with contextlib.ExitStack() as stack:
        workers = {"ours": stack.enter_context(Worker("flockax_training.py"))}
        if config.peer is not None:
            script = f"{config.peer}_training.py"
            workers["peer"] = stack.enter_context(Worker(script, config.peer))
            settings = dict(JAXMARL)
            if config.total_steps is not None:
                settings["total_steps"] = config.total_steps
            name = peers.peer_environment(config.peer, config.env)
            options["peer"] = {"env": name, "settings": settings}
        prepared, sides = {}, {}
        for name, worker in workers.items():
            say(f"{name}: compiling")
            prepared[name] = worker.ask("prepare", seeds=config.seeds, **options[name])
            sides[name] = Progress(config.until, config.window * config.seeds)
        while waiting := [name for name in workers if not sides[name].finished]:
            for name in waiting:
                sides[name].add(workers[name].ask("turn", seconds=config.turn))
                say(progress_line(name, sides[name]))
    return report(config, sides, prepared)


def progress_line(name: str, side: Progress) -> str:
    """How far a side is."""
    mean = "" if side.mean_return is None else f", return {side.mean_return:.2f}"
    return f"{name}: {side.steps:,} steps, {side.rates[-1]:,.0f} environment steps/s{mean}"


def report(
    config: Config, sides: dict[str, Progress], prepared: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Makes the result of what both sides did."""
    result: dict[str, Any] = {"benchmark": "training", "env": config.env}
    result |= {name: side.report(prepared[name]) for name, side in sides.items()}
    result |= {"peer": result.get("peer"), "ratio": None}
    warnings = jax_warnings(prepared)
    if "peer" in sides:
        rates = [sides[name].rates for name in ("ours", "peer")]
        # The faster side is done earlier: only turns that both had are compared.
        both = min(map(len, rates))
        compared = ratio(rates[0][:both], rates[1][:both])
        result["ratio"] = compared.pop("ratio")
        result["ratio_of_turns"] = compared
        result["peer"]["learner"] = "a stand-in of ours for JaxMARL's IPPO, with JaxMARL's settings"
        if config.preset != "jaxmarl":
            warnings.append(f"ours trains with its preset {config.preset}, the peer with JaxMARL's")
    settings = {k: v for k, v in dataclasses.asdict(config).items() if k not in ("json", "peer")}
    return {**result, **settings, "peer_name": config.peer, "warnings": warnings}


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    table = Table(title=f"{result['env']}: training {result['seeds']} seeds")
    for column in ("", "environment steps/s", "compile s", "trained s", "return", "reached"):
        table.add_column(column)
    for name in ("ours", "peer"):
        side = result[name]
        if side is None:
            continue
        until, reached = result["until"], side["seconds_to_return"]
        never = "-" if until is None else f"never {until}"
        table.add_row(
            name if name == "ours" else f"{result['peer_name']} (stand-in)",
            f"{side['steps_per_second']:,.0f}",
            f"{side['compile_seconds']:.1f}",
            f"{side['seconds']:.1f}",
            "-" if side["return_mean"] is None else f"{side['return_mean']:.2f}",
            never if reached is None else f"{until} after {reached:.1f} s",
        )
    console = Console()
    console.print(table)
    ours = result["ours"]
    console.print(
        f"{ours['device']}, {ours['cores']} x {ours['cpu']}, jax {ours['versions']['jax']}"
    )
    if result["ratio"] is not None:
        console.print(f"ratio {result['ratio']:.2f}")


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    return finish(lambda: measure(config), print_table, config.json)


if __name__ == "__main__":
    sys.exit(main())
