"""Sets of maps for `GridPathfinding`: generated ones, made once for equal settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flockax.envs.pathfinding import benchmark_maps, generators
from flockax.envs.pathfinding.map_tables import (
    GuideTable,
    MapTables,
    build_guide,
    build_tables,
    capacity,
)
from flockax.envs.pathfinding.maps import GridMap


@dataclasses.dataclass(frozen=True)
class MapSource:
    """What generated maps depend on: fields of `GridPathfinding` of the same names."""

    maps: str
    size: int
    width: int
    num_maps: int
    density: float
    map_seed: int
    obs_radius: int
    guide: bool


@dataclasses.dataclass(frozen=True, eq=False)
class MapSet:
    """Maps with their tables, in NumPy.

    Attributes:
        maps: the maps.
        tables: for the device.
        guide: distances that agents see, or None.
        capacity: ``int[M]``, how many agents fit into each.
    """

    maps: tuple[GridMap, ...]
    tables: MapTables
    guide: GuideTable | None
    capacity: np.ndarray


def make_set(maps: Sequence[GridMap], radius: int, guide: bool) -> MapSet:
    """The tables of some maps.

    Args:
        maps: at least one.
        radius: how far agents see.
        guide: whether they see distances.

    Raises:
        ValueError: there is no map, or one is too large for a guide.
    """
    if not maps:
        raise ValueError("there are no maps: at least 1 is needed")
    walls = [m.obstacles for m in maps]
    tables = build_tables(walls, [m.starts for m in maps], [m.goals for m in maps], radius)
    guide_table = build_guide(walls, radius) if guide else None
    return MapSet(tuple(maps), tables, guide_table, capacity(tables))


@functools.lru_cache(maxsize=8)
def read(path: str, kinds: tuple[str, ...]) -> tuple[GridMap, ...]:
    """The maps of a file or folder.

    Args:
        path: of the file or folder.
        kinds: what may stand in its place, for the message.

    Raises:
        ValueError: there is no such file, or it holds no maps.
    """
    from flockax.envs.pathfinding.formats import load_maps

    if not isinstance(path, str) or not Path(path).exists():
        raise ValueError(
            f"GridPathfinding: maps={path!r} is neither a file nor one of {', '.join(kinds)}"
        )
    return tuple(load_maps(path).values())


@functools.lru_cache(maxsize=8)
def generated(source: MapSource) -> MapSet:
    """The maps of some settings, generated or read."""
    seeds = range(source.map_seed, source.map_seed + source.num_maps)
    shape = (source.size, source.width, source.density)
    if source.maps == "benchmark":
        kinds = benchmark_maps.benchmark_random, benchmark_maps.benchmark_maze
        maps = [kinds[seed % 2](seed) for seed in seeds]
    elif source.maps not in generators.KINDS:
        maps = list(read(source.maps, generators.KINDS))
    else:
        maps = [generators.generate(source.maps, seed, *shape) for seed in seeds]
    return make_set(maps, source.obs_radius, source.guide)


def require_room(found: MapSet, num_agents: int) -> None:
    """Refuses maps into which the agents don't fit.

    Raises:
        ValueError: naming the map, how many fit and how many were wanted.
    """
    short = np.flatnonzero(found.capacity < num_agents)
    if short.size:
        worst = int(short[np.argmin(found.capacity[short])])
        raise ValueError(
            f"num_agents={num_agents} is too many for map {found.maps[worst].name!r}, in which "
            f"{found.capacity[worst]} fit with a start and a goal of their own in one component"
        )
