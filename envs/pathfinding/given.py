"""`GridPathfinding` on maps and instances of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flockax.envs.pathfinding import map_sets
from flockax.envs.pathfinding.grid_data import GridParams, make_params
from flockax.envs.pathfinding.grid_pathfinding import GridPathfinding
from flockax.envs.pathfinding.instance_tables import check_instances, instance_tables
from flockax.envs.pathfinding.maps import GridMap, Instance


def from_maps(
    maps: Sequence[GridMap | np.ndarray], **fields: Any
) -> tuple[GridPathfinding, GridParams]:
    """An environment on maps of one's own; starts and goals are drawn.

    Args:
        maps: maps, or ``bool[h, w]`` arrays that are True where blocked; sizes may differ.
        **fields: further fields of `GridPathfinding`.

    Returns:
        ``(env, params)``; pass these parameters to everything.

    Raises:
        ValueError: for a map into which the agents don't fit, or a field that makes no sense.
    """
    named = tuple(_named(m, i) for i, m in enumerate(maps))
    env = _given(named, fields)
    found = map_sets.make_set(named, env.obs_radius, env.guide != "none")
    map_sets.require_room(found, env.num_agents)
    return env, make_params(found, env.num_agents)


def from_instances(
    maps: Mapping[str, GridMap], instances: Sequence[Instance], **fields: Any
) -> tuple[GridPathfinding, GridParams]:
    """An environment whose episodes are given instances.

    Args:
        maps: maps by name.
        instances: all with the same number of agents.
        **fields: further fields of `GridPathfinding`; `num_agents` may be smaller than that of the
            instances, whose first agents are then taken.

    Returns:
        ``(env, params)``; pass these parameters to everything.

    Raises:
        ValueError: there is no instance, one lacks its map or agents, an agent starts or goes where it
            cannot be, or a field makes no sense or follows from maps and instances.
    """
    if not instances:
        raise ValueError("there are no instances: at least 1 is needed")
    fewest = min(instance.num_agents for instance in instances)
    fields = {"num_agents": fewest, "on_target": GridPathfinding.on_target, **fields}
    agents = fields["num_agents"]
    check_instances(maps, instances, agents, fields["on_target"])
    names = sorted({instance.map_name for instance in instances})
    tables = instance_tables(names, instances, agents)
    used = tuple(maps[name] for name in names)
    longest = tables["goals"].shape[2]
    env = _given(used, fields, num_instances=len(instances), queue_length=longest)
    found = map_sets.make_set(used, env.obs_radius, env.guide != "none")
    return env, make_params(found, agents, tables)


def _named(given: GridMap | np.ndarray, index: int) -> GridMap:
    if isinstance(given, GridMap):
        return given
    walls = np.asarray(given)
    if walls.ndim != 2 or walls.dtype.kind not in "bui" or not np.isin(walls, (0, 1)).all():
        raise ValueError(
            f"maps[{index}] of shape {walls.shape} and dtype {walls.dtype} is not a GridMap or "
            "bool[h, w], True where blocked"
        )
    return GridMap(f"map {index}", walls.astype(bool))


def _given(maps: Sequence[GridMap], fields: Mapping[str, Any], **derived: int) -> GridPathfinding:
    known = [field.name for field in dataclasses.fields(GridPathfinding)]
    size = {
        "maps": "given",
        "instances": None,
        "size": max((m.shape[0] for m in maps), default=1),
        "width": max((m.shape[1] for m in maps), default=1),
        "num_maps": max(len(maps), 1),
        "num_instances": 0,
        "queue_length": 1,
        **derived,
    }
    for name in fields:
        if name not in known:
            raise ValueError(f"grid_pathfinding has no field {name!r}; it has {', '.join(known)}")
        if name in size:
            raise ValueError(f"{name}={fields[name]!r}: it follows from the maps and instances")
    return GridPathfinding(**size, **fields)
