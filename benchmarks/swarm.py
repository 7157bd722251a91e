"""Steps of a swarm of many agents, and its neighbour search beside a peer's.

    python benchmarks/swarm.py --num-agents 100000
    python benchmarks/swarm.py --num-agents 100000 --peer esquilax --json

Times steps of the environment (neighbour search, rules, reward, observation; agents move on straight, so
that they stay evenly spread), and with a peer the same interaction on both sides in turn: each agent
turns to the mean heading of those within a distance of 1 (`workers/swarm_loop.py`), the agents of four
in a square of that side. Compiling is timed apart. `dropped` counts agents that exceeded a capacity.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from typing import Any, Literal

import peers
import tyro
from rich.console import Console
from rich.table import Table
from turns import Worker, finish, jax_warnings, ratio, require_at_least, say, summary

from flockax.envs import make


@dataclasses.dataclass(frozen=True)
class Config:
    """What is timed, and how often."""

    env: Literal["flock"] = "flock"
    """The environment."""
    num_agents: int = 100_000
    """Agents."""
    density: float = 4.0
    """Agents in a square whose side is the radius of perception."""
    search: Literal["auto", "pairs", "cells", "sorted", "exact"] = "auto"
    """Back end of the environment's neighbour search."""
    steps: int = 10
    """Steps in one call of a compiled program."""
    repeats: int = 5
    """Timed repetitions of each side; the median counts."""
    seconds: float = 0.5
    """A repetition calls the program until this much time has passed, at least once."""
    peer: Literal["esquilax"] | None = None
    """Time this peer's neighbour search in turn with ours; `peers.py setup` installs it."""
    json: bool = False
    """Print one JSON object instead of a table."""

    @property
    def fields(self) -> dict[str, Any]:
        """The sizes and switches of the environment."""
        return {"num_agents": self.num_agents, "density": self.density, "search": self.search}


def measure(config: Config) -> dict[str, Any]:
    """Times the environment and, if asked for, both neighbour searches.

    Raises:
        ValueError: for settings that make no sense.
        peers.PeerError: if the peer is not set up.
        WorkerError: if a side fails.

    Returns:
        The object that ``--json`` prints: ``milliseconds_per_step``, ``agents_per_second``, ``dropped``
        and ``peak_megabytes`` of the environment; under ``interaction`` ``ours`` and ``peer``
        (milliseconds a step) and their ``ratio``, which is also at the top; samples, versions,
        ``warnings``.
    """
    require_at_least(1, num_agents=config.num_agents, steps=config.steps, repeats=config.repeats)
    require_at_least(0, seconds=config.seconds)
    make(config.env, **config.fields)
    if config.peer is not None:
        peers.python_of(config.peer)
    result: dict[str, Any] = {"benchmark": "swarm", "env": config.env, "ratio": None}
    with Worker("flockax_swarm.py") as worker:
        say("environment: compiling")
        side = worker.ask("prepare_env", env=config.env, fields=config.fields, steps=config.steps)
        samples, last = [], {}
        for turn in range(config.repeats):
            last = worker.ask("repeat_env", seconds=config.seconds)
            samples.append(1000 * last["seconds"] / last["steps"])
            say(f"environment: {turn + 1}/{config.repeats}: {samples[-1]:.3f} ms a step")
    typical = summary(samples)["median"]
    result |= {
        "num_agents": config.num_agents,
        "milliseconds_per_step": typical,
        "agents_per_second": 1000 * config.num_agents / typical,
        **{name: last[name] for name in ("dropped", "peak_megabytes", "checksum")},
        "samples": samples,
        "sides": {"ours": side},
        "warnings": [],
    }
    if config.peer is not None:
        result |= compare(config)
    return {**result, **{k: getattr(config, k) for k in ("density", "search", "steps", "repeats")}}


def compare(config: Config) -> dict[str, Any]:
    """Times the interaction of both sides in turn."""
    sizes = {"num_agents": config.num_agents, "density": config.density, "steps": config.steps}
    with contextlib.ExitStack() as stack:
        workers = {
            "ours": stack.enter_context(Worker("flockax_swarm.py")),
            "peer": stack.enter_context(Worker(f"{config.peer}_swarm.py", config.peer)),
        }
        sides = {}
        for name, worker in workers.items():
            say(f"{name}: compiling")
            sides[name] = worker.ask("prepare", **sizes)
        times: dict[str, list[float]] = {name: [] for name in workers}
        for turn in range(config.repeats):
            for name, worker in workers.items():
                done = worker.ask("repeat", seconds=config.seconds)
                times[name].append(1000 * done["seconds"] / done["steps"])
                say(f"{name}: {turn + 1}/{config.repeats}: {times[name][-1]:.3f} ms a step")
    rates = {name: [1 / ms for ms in values] for name, values in times.items()}
    quotient = ratio(rates["ours"], rates["peer"])
    pairs = zip(sides["ours"]["squares"], sides["peer"]["squares"], strict=True)
    warnings = jax_warnings(sides)
    if not all(math.isclose(a, b, rel_tol=1e-4) for a, b in pairs):
        warnings.append("the sides find different neighbours; the ratio is not fair")
    interaction = {name: summary(values)["median"] for name, values in times.items()}
    return {
        "ratio": quotient["ratio"],
        "peer": config.peer,
        "interaction": {**interaction, **quotient, "samples": times},
        "sides": sides,
        "warnings": warnings,
    }


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    table = Table(title=f"{result['env']}, {result['num_agents']:,} agents")
    for column in ("", "ms a step", "agents/s"):
        table.add_column(column, justify="left" if not column else "right")

    def row(name: str, milliseconds: float) -> None:
        rate = 1000 * result["num_agents"] / milliseconds
        table.add_row(name, f"{milliseconds:.2f}", f"{rate:,.0f}")

    row("environment", result["milliseconds_per_step"])
    if result["ratio"] is not None:
        row("interaction, ours", result["interaction"]["ours"])
        row(f"interaction, {result['peer']}", result["interaction"]["peer"])
    console = Console()
    console.print(table)
    console.print(f"dropped {result['dropped']}, peak {result['peak_megabytes']:,.0f} MB")
    if result["ratio"] is not None:
        console.print(f"ratio {result['ratio']:.1f}")


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    return finish(lambda: measure(config), print_table, config.json)


if __name__ == "__main__":
    sys.exit(main())
