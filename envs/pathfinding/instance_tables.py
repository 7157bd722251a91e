"""Given instances as the arrays from which `GridPathfinding` starts its episodes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from flockax.envs.pathfinding.checks import check_distinct, check_instance, find_map
from flockax.envs.pathfinding.maps import GridMap, Instance


def instance_tables(
    names: Sequence[str], instances: Sequence[Instance], num_agents: int
) -> dict[str, np.ndarray]:
    """The fields of `GridParams` that describe instances.

    Args:
        names: of the maps, in their order.
        instances: at least one, each with at least `num_agents` agents, whose first are taken.
        num_agents: ``A``.

    Returns:
        ``instance_map int[I]``, ``starts int[I, A, 2]``, ``goals int[I, A, K, 2]`` and ``queue_length
        int[I, A]``.
    """
    chosen = [instance.first(num_agents) for instance in instances]
    longest = max(instance.goals.shape[1] for instance in chosen)
    goals = np.zeros((len(chosen), num_agents, longest, 2), np.int64)
    for i, instance in enumerate(chosen):
        goals[i, :, : instance.goals.shape[1]] = instance.goals
    index = {name: i for i, name in enumerate(names)}
    return {
        "instance_map": np.array([index[instance.map_name] for instance in chosen]),
        "starts": np.stack([instance.starts for instance in chosen]).astype(np.int64),
        "goals": goals,
        "queue_length": np.stack([instance.queue_lengths for instance in chosen]).astype(np.int64),
    }


def check_instances(
    maps: Mapping[str, GridMap], instances: Sequence[Instance], num_agents: int, on_target: str
) -> None:
    """Refuses instances that cannot be played.

    Args:
        maps: by name.
        instances: the instances.
        num_agents: how many agents of each play.
        on_target: as in `GridPathfinding`.

    Raises:
        ValueError: an instance has too few agents or goals, or one of its agents starts or goes where it
            cannot be.
    """
    fewest = min((instance.num_agents for instance in instances), default=0)
    whole = isinstance(num_agents, int | np.integer) and not isinstance(num_agents, bool)
    if not whole or not 1 <= num_agents <= fewest:
        raise ValueError(f"num_agents={num_agents!r} is not an integer in 1 .. {fewest}")
    for i, instance in enumerate(instances):
        first, where = instance.first(num_agents), f"instance {i}"
        check_instance(find_map(maps, instance.map_name, where), first, where)
        if on_target == "nothing":
            check_distinct(first, where, goals=True)


def check_queues(instances: Sequence[Instance], num_agents: int) -> None:
    """Refuses instances that are made for the one-shot task where the lifelong one is to be played.

    The rules would allow them: an agent that has one goal only arrives there in every step.

    Args:
        instances: the instances.
        num_agents: how many agents of each play.

    Raises:
        ValueError: an agent has one goal only.
    """
    for i, instance in enumerate(instances):
        if int(instance.first(num_agents).queue_lengths.min()) < 2:
            raise ValueError(
                f"instance {i} has an agent with one goal only; the lifelong task needs more"
            )


@functools.lru_cache(maxsize=8)
def read_instances(
    path: str, maps_path: str, num_agents: int, on_target: str
) -> dict[str, np.ndarray]:
    """The instances of a file, read once in a process.

    Args:
        path: of the file, see `flockax.envs.pathfinding.formats.load_instances`.
        maps_path: of the file or folder with their maps.
        num_agents: how many agents of each instance play.
        on_target: as in `GridPathfinding`.

    Returns:
        As `instance_tables`, for the maps in the order of their file.

    Raises:
        ValueError: the file cannot be read, or an instance cannot be played.
    """
    from flockax.envs.pathfinding.formats import load_instances, load_maps

    maps = load_maps(maps_path)
    instances = load_instances(path, maps)
    try:
        check_instances(maps, instances, num_agents, on_target)
        if on_target == "restart":
            check_queues(instances, num_agents)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return instance_tables(list(maps), instances, num_agents)
