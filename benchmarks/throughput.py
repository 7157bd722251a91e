"""Random-policy throughput of an environment, alone or against a peer.

    python benchmarks/throughput.py --env tag --num-envs 1024
    python benchmarks/throughput.py --env tag --num-envs 1024 --peer jaxmarl --json

Both sides run the same loop (`workers/rollout.py`) with their own environment and their own sampling of
actions, each in its own process, and are timed in turn: ours, peer, ours, peer, ... Compiling is timed
apart. An environment step advances all agents of one environment; agent steps count each agent. Seeds
multiply the environments and run under one `jax.vmap`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import Any, Literal

import peers
import tyro
from rich.console import Console
from rich.table import Table
from turns import Worker, finish, jax_warnings, ratio, require_at_least, say, summary

from flockax.envs import make, registered

# What is timed where an environment's defaults are smaller than what people run.
SIZES: dict[str, dict[str, Any]] = {
    "grid_pathfinding": {
        "num_agents": 64,
        "size": 32,
        "density": 0.3,
        "obs_radius": 5,
        "collision": "soft",
        "on_target": "nothing",
    }
}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is timed, and how often."""

    env: str = "spread"
    """A registered environment, with its default sizes, or those of `SIZES` if it is in there."""
    field: tuple[str, ...] = ()
    """NAME=VALUE: other sizes and switches of our environment; the peer pogema gets them too."""
    num_envs: int = 1024
    """Environments of one seed."""
    seeds: int = 1
    """Seeds that run at once, each with its own environments."""
    steps: int = 250
    """Steps of each environment in one call of the compiled program."""
    repeats: int = 5
    """Timed repetitions of each side; the median counts."""
    seconds: float = 0.5
    """A repetition calls the program until this much time has passed, at least once."""
    stagger: bool = False
    """Spread the ends of our first episodes evenly over time (peers have no such thing)."""
    peer: Literal["jaxmarl", "pogema"] | None = None
    """Time this peer in turn; `peers.py setup` installs it."""
    json: bool = False
    """Print one JSON object instead of a table."""

    @property
    def fields(self) -> dict[str, Any]:
        """The sizes and switches of the environment.

        Raises:
            ValueError: for a word that is not NAME=VALUE.
        """
        fields = dict(SIZES.get(self.env, {}))
        for word in self.field:
            name, separator, value = word.partition("=")
            if not separator:
                raise ValueError(f"field={word!r} is not NAME=VALUE")
            try:
                fields[name] = json.loads(value)
            except ValueError:
                fields[name] = value
        return fields

    def validate(self) -> None:
        """Refuses what makes no sense.

        Raises:
            ValueError: naming the field, its value and what is allowed.
            peers.PeerError: if the peer lacks the environment or is not set up.
        """
        ids = [entry.id for entry in registered()]
        if self.env not in ids:
            raise ValueError(f"env={self.env!r} is not one of {', '.join(ids)}")
        require_at_least(
            1, num_envs=self.num_envs, seeds=self.seeds, steps=self.steps, repeats=self.repeats
        )
        require_at_least(0, seconds=self.seconds)
        make(self.env, **self.fields)
        if self.peer is not None:
            peers.peer_environment(self.peer, self.env)
            peers.python_of(self.peer)


def measure(config: Config) -> dict[str, Any]:
    """Times us and, if asked for, the peer.

    Raises:
        ValueError: for settings that make no sense.
        peers.PeerError: if the peer is not set up.
        WorkerError: if a side fails.

    Returns:
        The object that ``--json`` prints: ``env``; ``ours``, ``peer`` (environment steps/s, medians) and
        their ``ratio``; ``agent_steps``, the same in agent steps/s; the configuration; under ``sides``
        all samples, compile seconds, checksums, versions and devices; ``warnings``.
    """
    config.validate()
    with contextlib.ExitStack() as stack:
        workers = {"ours": stack.enter_context(Worker("flockax_throughput.py"))}
        options: dict[str, dict[str, Any]] = {
            "ours": {"env": config.env, "stagger": config.stagger, "fields": config.fields}
        }
        if config.peer is not None:
            script = f"{config.peer}_throughput.py"
            workers["peer"] = stack.enter_context(Worker(script, config.peer))
            options["peer"] = {"env": peers.peer_environment(config.peer, config.env)}
            if config.peer == "pogema":
                env = make(config.env, **config.fields)
                fields = {f.name: getattr(env, f.name) for f in dataclasses.fields(env)}
                horizon = int(env.default_params.horizon)
                options["peer"]["fields"] = {**fields, "horizon": horizon}
        sizes = {"num_envs": config.num_envs, "seeds": config.seeds, "steps": config.steps}
        sides = {}
        for name, worker in workers.items():
            say(f"{name}: compiling")
            sides[name] = worker.ask("prepare", **sizes, **options[name])
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for turn in range(config.repeats):
            for name, worker in workers.items():
                turns[name].append(worker.ask("repeat", seconds=config.seconds))
                rate = turns[name][-1]["steps"] / turns[name][-1]["seconds"]
                say(f"{name}: {turn + 1}/{config.repeats}: {rate:,.0f} environment steps/s")
    return report(config, sides, turns)


def report(
    config: Config, sides: dict[str, dict[str, Any]], turns: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Makes the result of what the workers answered to ``prepare`` and ``repeat``."""
    rates = {name: [t["steps"] / t["seconds"] for t in turns[name]] for name in sides}
    warnings = jax_warnings(sides)
    for name, side in sides.items():
        checksums = [turn["checksum"] for turn in turns[name]]
        side["environment_steps"] = summary(rates[name])
        side["checksum"] = checksums[0]
        if any(checksum != checksums[0] for checksum in checksums):
            warnings.append(f"{name}: the checksum differs between repetitions: {checksums}")
    medians = {name: side["environment_steps"]["median"] for name, side in sides.items()}
    result: dict[str, Any] = {
        "benchmark": "throughput",
        "env": config.env,
        "unit": "environment steps/s",
        "ours": medians["ours"],
        "peer": medians.get("peer"),
        "ratio": None,
        "agent_steps": {name: medians[name] * sides[name]["num_agents"] for name in sides},
        "peer_name": config.peer,
        "fields": config.fields,
    }
    for name in ("num_envs", "seeds", "steps", "repeats", "seconds", "stagger"):
        result[name] = getattr(config, name)
    if "peer" in sides:
        compared = ratio(rates["ours"], rates["peer"])
        result["ratio"] = compared.pop("ratio")
        result["ratio_of_turns"] = compared
        if sides["ours"]["num_agents"] != sides["peer"]["num_agents"]:
            warnings.append("the sides have different numbers of agents; the ratio is not fair")
    return {**result, "sides": sides, "warnings": warnings}


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    title = f"{result['env']}: {result['num_envs']} environments x {result['seeds']} seeds"
    table = Table(title=title, caption=f"{result['repeats']} repetitions in turn, medians")
    for column in ("", "environment steps/s", "agent steps/s", "compile s", "checksum", "runs on"):
        table.add_column(column)
    for name, side in result["sides"].items():
        low, high = side["environment_steps"]["low"], side["environment_steps"]["high"]
        table.add_row(
            name if name == "ours" else str(result["peer_name"]),
            f"{result[name]:,.0f}\n({low:,.0f} .. {high:,.0f})",
            f"{result['agent_steps'][name]:,.0f}",
            f"{side['compile_seconds']:.1f}",
            "\n".join(f"{key} {value:.6g}" for key, value in side["checksum"].items()),
            f"{side['device']}, {side['cores']} x {side['cpu']}\n"
            f"jax {side['versions'].get('jax', 'not used')}",
        )
    console = Console()
    console.print(table)
    if result["ratio"] is not None:
        console.print(f"ratio {result['ratio']:.2f}")


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    return finish(lambda: measure(config), print_table, config.json)


if __name__ == "__main__":
    sys.exit(main())
