"""The pathfinding protocol: a policy on every instance of a set, in one batched program.

    python benchmarks/pathfinding.py --policy pibt --maps maps.yaml --instances instances.json \
        --num-agents 8,16,32,64 --task mapf

`--maps` is a file or folder of maps (MovingAI ``.map``, or the YAML of the POGEMA benchmark),
`--instances` a ``.scen`` or ``.json`` file, gzipped or not. `--policy` is the name of a policy or the
folder of a trained run. For n agents the first n of each instance are taken. "mapf": all agents stand on
their goals at the same time within the horizon; "lmapf": an agent gets its next goal on arrival.

Rows have the means over instances of CSR, ISR, sum of costs, makespan and throughput (see
`flockax.envs.pathfinding.metrics`), the seconds of one run of the compiled program, and a hash of the
maps and instances. What the task has no value for is null.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from turns import finish, require_at_least, say

from flockax.agents.core import runs
from flockax.agents.core.checkpoint import CheckpointError
from flockax.agents.core.files import RunError
from flockax.envs.pathfinding import metrics
from flockax.envs.pathfinding.formats import load_instance_set, load_maps
from flockax.envs.pathfinding.given import from_instances
from flockax.envs.pathfinding.instance_sets import InstanceSet
from flockax.envs.pathfinding.instance_tables import check_instances, check_queues
from flockax.envs.pathfinding.maps import GridMap, Instance, instance_hash

HORIZONS = {"mapf": 128, "lmapf": 256}
ON_TARGET = {"mapf": "nothing", "lmapf": "restart"}
COLUMNS = ("csr", "isr", "soc", "makespan", "throughput", "agent_collisions", "obstacle_collisions")


@dataclasses.dataclass(frozen=True)
class Config:
    """What is run."""

    policy: str
    """Name of a policy, or folder of a trained run."""
    maps: Path
    """File or folder of maps."""
    instances: Path
    """File of instances."""
    num_agents: str = ""
    """Numbers of agents, with commas; by default those that the file names, else all."""
    task: Literal["mapf", "lmapf"] | None = None
    """One goal each, at the same time; or one after the other; by default what the file says."""
    horizon: int = 0
    """Steps; 0 for what the file says, else 128 (mapf) or 256 (lmapf)."""
    collision: Literal["priority", "block_both", "soft"] | None = None
    """The collision rule; by default that of the file, else "soft"."""
    greedy: bool = False
    """Most probable actions of a trained run instead of samples."""
    seed: int | None = None
    """Which trained seed plays; the first by default."""
    key: int = 0
    """Random key of the policy."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def counts(self, given: InstanceSet) -> list[int]:
        """The numbers of agents.

        Raises:
            ValueError: for words that are no numbers, or more agents than an instance has.
        """
        fewest = min(instance.num_agents for instance in given.instances)
        if not self.num_agents:
            return sorted(n for n in given.num_agents if n <= fewest) or [fewest]
        counts = []
        for word in self.num_agents.split(","):
            if not word.strip().isdecimal() or not 1 <= int(word) <= fewest:
                raise ValueError(f"num_agents={word!r} is not an integer in 1 .. {fewest}")
            counts.append(int(word))
        return counts


def measure(config: Config) -> dict[str, Any]:
    """Runs every number of agents.

    Raises:
        ValueError: for files or settings that make no sense.

    Returns:
        The object that ``--json`` prints.
    """
    require_at_least(0, horizon=config.horizon, key=config.key)
    for name, most in (("horizon", 2**30), ("key", 2**32 - 1)):
        if getattr(config, name) > most:
            raise ValueError(f"{name}={getattr(config, name)} is more than {most}")
    runs.require_target(config.policy)
    maps = load_maps(config.maps)
    given = load_instance_set(config.instances, maps)
    counts = config.counts(given)
    warnings = []
    said = {"nothing": "mapf", "restart": "lmapf"}.get(given.on_target or "")
    task = config.task or said or "mapf"
    if said not in (None, task):
        warnings.append(f"the task is {task}, but {config.instances} is made for {said}")
    collision = config.collision or given.collision_system or "soft"
    if given.collision_system not in (None, collision):
        warnings.append(f"the rule is {collision}, the file says {given.collision_system}")
    try:
        check_instances(maps, given.instances, max(counts), ON_TARGET[task])
        if task == "lmapf":
            check_queues(given.instances, max(counts))
    except ValueError as error:
        raise ValueError(f"{config.instances}: {error}") from None
    horizon = config.horizon or given.max_episode_steps or HORIZONS[task]
    if horizon > 2**30:
        raise ValueError(f"{config.instances}: max_episode_steps={horizon} is more than 2^30")
    config = dataclasses.replace(config, task=task, collision=collision)
    rows = []
    for count in counts:
        say(f"{count} agents")
        rows.append(run(config, maps, [i.first(count) for i in given.instances], horizon))
    device = jax.devices()[0]
    return {
        "benchmark": "pathfinding",
        "policy": config.policy,
        "task": config.task,
        "collision": config.collision,
        "horizon": horizon,
        "maps": str(config.maps),
        "instances": str(config.instances),
        "rows": rows,
        "device": f"{device.platform}: {device.device_kind}",
        "versions": {"jax": jax.__version__, "python": sys.version.split()[0]},
        "warnings": warnings,
    }


def run(
    config: Config, maps: Mapping[str, GridMap], instances: list[Instance], horizon: int
) -> dict[str, Any]:
    """One row: all instances with their number of agents."""
    fields = {"collision": config.collision, "on_target": ON_TARGET[str(config.task)]}
    trained = config.policy not in runs.POLICIES
    if trained:
        fields.update(runs.view_of(config.policy))
    env, params = from_instances(maps, instances, **fields)
    params = params.replace(horizon=jnp.full_like(params.horizon, horizon))
    if trained:
        player = runs.transfer(config.policy, env, params)
        policy = player.one(0 if config.seed is None else player.position(config.seed))
    else:
        policy = runs.find(config.policy, env, "grid_pathfinding", params).policy
    number = len(instances)

    def play(policy: Any, params: Any, key: jax.Array) -> dict[str, jax.Array]:
        state = jax.vmap(env.instance_state, (None, 0))(params, jnp.arange(number))
        start = state, policy.init(number), jnp.zeros(number, bool), jnp.zeros(number, int)

        def step(carry: Any, inputs: Any) -> Any:
            state, memory, over, length = carry
            key, first = inputs
            act_key, env_key = jax.random.split(key)
            observation = jax.vmap(env.observe, (0, None))(state, params)
            reset = jnp.full(number, first)
            action, memory = policy.act(
                act_key, memory, observation, state, params, reset, config.greedy
            )
            keys = jax.random.split(env_key, number)
            _, after, _, terminated, _, info = jax.vmap(env.step, (0, 0, 0, None))(
                keys, state, action, params
            )
            length = length + ~over
            seen = {
                "on_goal": jnp.all(after.position == after.goal, axis=-1),
                "arrivals": after.queue - state.queue,
                **{
                    name: jnp.where(over, 0, info["metrics"][name])
                    for name in ("agent_collisions", "obstacle_collisions")
                },
            }
            return (after, memory, over | terminated, length), seen

        keys = jax.random.split(key, horizon)
        (_, _, _, length), seen = jax.lax.scan(step, start, (keys, jnp.arange(horizon) == 0))
        by_episode = {name: jnp.moveaxis(x, 0, 1) for name, x in seen.items()}
        result: dict[str, Any] = {
            name: jnp.sum(by_episode[name], axis=1)
            for name in ("agent_collisions", "obstacle_collisions")
        }
        if config.task == "mapf":
            result.update(metrics.one_shot(by_episode["on_goal"], length))
        else:
            result.update(metrics.lifelong(by_episode["arrivals"], jnp.full(number, horizon)))
        return result

    program = jax.jit(play).lower(policy, params, jax.random.key(config.key)).compile()
    began = time.perf_counter()
    result = jax.device_get(program(policy, params, jax.random.key(config.key)))
    seconds = time.perf_counter() - began
    hashes = [instance_hash(maps[i.map_name], i) for i in instances]
    means = {name: float(np.mean(result[name])) if name in result else None for name in COLUMNS}
    return {
        "num_agents": env.num_agents,
        "instances": number,
        **means,
        "seconds": seconds,
        "agent_steps_per_second": number * horizon * env.num_agents / seconds,
        "instance_hash": hashlib.sha256("".join(hashes).encode()).hexdigest()[:16],
    }


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    table = Table(title=f"{result['policy']}: {result['task']}, {result['horizon']} steps")
    names = ("num_agents", "instances", "csr", "isr", "soc", "makespan", "throughput", "seconds")
    rows = result["rows"]
    shown = [name for name in names if any(row[name] is not None for row in rows)]
    for name in shown:
        table.add_column(name.replace("num_", ""), justify="right")
    for row in rows:
        table.add_row(*[f"{row[name]:.4g}" for name in shown])
    Console().print(table)


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    try:
        return finish(lambda: measure(config), print_table, config.json)
    except (RunError, CheckpointError, OSError) as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
