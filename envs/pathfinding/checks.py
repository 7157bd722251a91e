"""Whether an instance can be carried out on its map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flockax.envs.pathfinding.maps import GridMap, Instance, MapError

Refuse = Callable[[int, str], MapError]


def find_map(maps: Mapping[str, GridMap], name: str, where: str) -> GridMap:
    """The map of a name.

    Args:
        maps: by name.
        name: the name that an instance gives.
        where: what the message begins with, as ``file`` or ``file:line``.

    Raises:
        MapError: if there is none.
    """
    if name in maps:
        return maps[name]
    known = ", ".join(repr(n) for n in list(maps)[:4]) + (", ..." if len(maps) > 4 else "")
    raise MapError(f"{where}: map {name!r} is not among the {len(maps)} maps: {known or 'none'}")


def check_distinct(
    instance: Instance, where: str | Sequence[str] = "instance", *, goals: bool = False
) -> None:
    """Checks what needs no map: no two agents start in one cell.

    Args:
        instance: what to check.
        where: what a message begins with; one for all agents or one for each.
        goals: whether the agents' first goals must differ too.

    Raises:
        MapError: naming both agents and the cell.
    """
    refuse = _refusal(where)
    kinds = [("starts", instance.starts)] + [("has its goal", instance.goals[:, 0])] * goals
    for verb, cells in kinds:
        _, first, group = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        earlier = first[group.reshape(-1)]
        for agent in np.flatnonzero(earlier != np.arange(len(cells)))[:1]:
            cell = _text(cells[agent])
            raise refuse(int(agent), f"{verb} in cell {cell} like agent {earlier[agent]}")


def check_instance(
    grid_map: GridMap,
    instance: Instance,
    where: str | Sequence[str] = "instance",
    *,
    distinct_goals: bool = False,
) -> None:
    """Checks that all agents can start and that each can reach all its goals.

    Starts and goals may be outside the map's masks of allowed cells, which only say where new ones are
    drawn: instances of the POGEMA benchmark are.

    Args:
        grid_map: the map.
        instance: the instance on it.
        where: what a message begins with; one for all agents or one for each, as ``file:line``.
        distinct_goals: whether the agents' first goals must differ, as they must where agents stay on
            their goals until all have arrived.

    Raises:
        MapError: naming agent, cell and reason: out of bounds, in a wall, two starts (or goals) in a
            cell, goal not reachable.
    """
    refuse = _refusal(where)
    agents, slots = np.nonzero(np.arange(instance.goals.shape[1]) < instance.queue_lengths[:, None])
    goals = instance.goals[agents, slots]
    _check_free(grid_map, "start", instance.starts, np.arange(instance.num_agents), refuse)
    _check_free(grid_map, "goal", goals, agents, refuse)
    check_distinct(instance, where, goals=distinct_goals)

    from scipy.ndimage import label

    component, _ = label(~grid_map.obstacles)
    own = component[tuple(instance.starts.T)][agents]
    for i in np.flatnonzero(component[tuple(goals.T)] != own)[:1]:
        start = _text(instance.starts[agents[i]])
        goal = _text(goals[i])
        raise refuse(int(agents[i]), f"goal {goal} cannot be reached from its start {start}")


def _check_free(
    grid_map: GridMap, kind: str, cells: np.ndarray, agents: np.ndarray, refuse: Refuse
) -> None:
    """Checks that cells ``int[N, 2]`` of the agents ``int[N]`` are on the map and not blocked."""
    height, width = grid_map.shape
    for i in np.flatnonzero(np.any(cells >= grid_map.shape, axis=1))[:1]:
        bounds = f"out of bounds of map {grid_map.name!r} ({height} rows, {width} columns)"
        raise refuse(int(agents[i]), f"{kind} {_text(cells[i])} is {bounds}")
    for i in np.flatnonzero(grid_map.obstacles[tuple(cells.T)])[:1]:
        wall = f"in a wall of map {grid_map.name!r}"
        raise refuse(int(agents[i]), f"{kind} {_text(cells[i])} is {wall}")


def _refusal(where: str | Sequence[str]) -> Refuse:
    """Makes errors for agents that say where the agent stands in a file."""

    def refuse(agent: int, reason: str) -> MapError:
        place = where if isinstance(where, str) else where[agent]
        return MapError(f"{place}: agent {agent}: {reason}")

    return refuse


def _text(cell: np.ndarray) -> str:
    return f"(row {cell[0]}, column {cell[1]})"
