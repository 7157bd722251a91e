"""PIBT on the device, alone or against pypibt: agent steps/s on the map of a file.

    python benchmarks/planning.py --maps random-32-32-10.map --num-agents 64 --num-envs 256
    python benchmarks/planning.py --maps random-32-32-10.map --num-agents 64 --pypibt CLONE

CLONE is a clone of github.com/Kei18/pypibt, which is on no package index. Both sides plan from the
same starts to the same goals and are timed in turn: ours all environments in one compiled program,
planner and rules; pypibt some of them one after the other, planner alone, on a second call, when the
distances that it looks up are known already.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from turns import finish, ratio, require_at_least, say, summary

from flockax.agents.planners.pibt import Pibt
from flockax.envs import make


@dataclasses.dataclass(frozen=True)
class Config:
    """What is timed, and how often."""

    maps: Path
    """File of one map."""
    num_agents: int = 64
    """Agents of each environment."""
    num_envs: int = 256
    """Environments of ours, planned at once."""
    pypibt: Path | None = None
    """Clone of pypibt to time in turn."""
    peer_envs: int = 8
    """Environments that pypibt plans, one after the other."""
    steps: int = 100
    """Steps of each environment; pypibt stops when all have arrived."""
    repeats: int = 5
    """Timed repetitions of each side; the median counts."""
    json: bool = False
    """Print one JSON object instead of a table."""


def measure(config: Config) -> dict[str, Any]:
    """Times us and, if asked for, pypibt.

    Raises:
        ValueError: for settings that make no sense.

    Returns:
        The object that ``--json`` prints: ``ours``, ``peer`` (agent steps/s, medians), their ``ratio``,
        the samples, the configuration and ``warnings``.
    """
    require_at_least(
        1, num_envs=config.num_envs, peer_envs=config.peer_envs, steps=config.steps,
        repeats=config.repeats,
    )  # fmt: skip
    if not config.maps.is_file():
        raise ValueError(f"maps={str(config.maps)!r} is no file")
    env = make(
        "grid_pathfinding", maps=str(config.maps), num_agents=config.num_agents, collision="soft",
        on_target="nothing",
    )  # fmt: skip
    if env.num_maps != 1:
        raise ValueError(f"maps={str(config.maps)!r} holds {env.num_maps} maps, not one")
    say("ours: compiling")
    states, run_ours = ours(config, env)
    sides = {"ours": run_ours}
    if config.pypibt is not None:
        sides["peer"] = theirs(config, env, states)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(config.repeats):
        for name, run in sides.items():
            began = time.perf_counter()
            done = run()
            samples[name].append(done / (time.perf_counter() - began))
            say(f"{name}: {turn + 1}/{config.repeats}: {samples[name][-1]:,.0f} agent steps/s")
    rates = {name: summary(values) for name, values in samples.items()}
    result: dict[str, Any] = {
        "benchmark": "planning",
        "unit": "agent steps/s",
        "ours": rates["ours"]["median"],
        "peer": rates["peer"]["median"] if "peer" in rates else None,
        "ratio": ratio(samples["ours"], samples["peer"])["ratio"] if "peer" in rates else None,
        "samples": samples,
        "versions": {"jax": jax.__version__, "python": sys.version.split()[0]},
        "device": str(jax.devices()[0].device_kind),
        "warnings": [],
    }
    for name in ("num_agents", "num_envs", "peer_envs", "steps", "repeats"):
        result[name] = getattr(config, name)
    return {**result, "maps": str(config.maps)}


def ours(config: Config, env: Any) -> tuple[Any, Callable[[], int]]:
    """The first states ``[num_envs]``, and a function that plans all and returns its agent steps."""
    params = env.default_params
    policy = Pibt(env, params)
    keys = jax.random.split(jax.random.key(0), max(config.num_envs, config.peer_envs))
    states = jax.jit(jax.vmap(env.initial_state, (0, None)))(keys, params)
    number = config.num_envs
    first = jax.tree.map(lambda x: x[:number], states)

    def play(policy: Any, params: Any, state: Any, key: jax.Array) -> Any:
        def step(carry: Any, inputs: Any) -> Any:
            state, memory = carry
            key, begins = inputs
            reset = jax.numpy.full(number, begins)
            action, memory = policy.act(key, memory, None, state, params, reset, False)
            state = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(key, number), state, action, params
            )[1]
            return (state, memory), None

        keys = jax.random.split(key, config.steps)
        begins = np.arange(config.steps) == 0
        return jax.lax.scan(step, (state, policy.init(number)), (keys, begins))[0][0].position

    program = jax.jit(play).lower(policy, params, first, jax.random.key(0)).compile()

    def run() -> int:
        jax.block_until_ready(program(policy, params, first, jax.random.key(0)))
        return number * config.steps * config.num_agents

    run()
    return jax.device_get(states), run


def theirs(config: Config, env: Any, states: Any) -> Callable[[], int]:
    """A function that has pypibt plan from some of our states and returns its agent steps."""
    sys.path.insert(0, str(config.pypibt))
    try:
        from pypibt.pibt import PIBT
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"pypibt={str(config.pypibt)!r} is no clone of pypibt: {error}") from None
    finally:
        sys.path.pop(0)
    free = ~np.asarray(env.obstacles(env.default_params)[0], bool)
    planners = []
    for i in range(config.peer_envs):
        starts, goals = ([tuple(c) for c in x[i].tolist()] for x in (states.position, states.goal))
        planners.append(PIBT(free, starts, goals))

    def run() -> int:
        plans = [planner.run(max_timestep=config.steps) for planner in planners]
        return sum(len(plan) - 1 for plan in plans) * config.num_agents

    say("peer: distances")
    run()
    return run


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    table = Table(title=f"PIBT, {result['num_agents']} agents on {Path(result['maps']).name}")
    for column in ("", "environments", "agent steps/s"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("ours", f"{result['num_envs']}", f"{result['ours']:,.0f}")
    if result["peer"] is not None:
        table.add_row("pypibt", f"{result['peer_envs']}", f"{result['peer']:,.0f}")
    console = Console()
    console.print(table)
    if result["ratio"] is not None:
        console.print(f"ratio {result['ratio']:.1f}")


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    return finish(lambda: measure(config), print_table, config.json)


if __name__ == "__main__":
    sys.exit(main())
