"""Environments by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flockax.envs.environment import Environment
from flockax.envs.pathfinding.grid_pathfinding import GridPathfinding
from flockax.envs.predator_prey.tag import Tag
from flockax.envs.predator_prey.world_comm import WorldComm
from flockax.envs.swarm.coverage import Spread
from flockax.envs.swarm.crowd import Crowd
from flockax.envs.swarm.discovery import Discovery
from flockax.envs.swarm.dispersion import Dispersion
from flockax.envs.swarm.flock import Flock
from flockax.envs.swarm.navigation import Navigation
from flockax.envs.swarm.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the suite knows of an environment before it is made.

    Attributes:
        id: snake_case name for `make`.
        cls: the class.
        description: one line.
        sizes: fields to test it with: 1, 2, 3 and 17 agents where possible, and odd sizes.
        fixed_start: True where every key gives the same first state; where that depends on the fields,
            one such for each of `sizes`.
        index_rules: True where the rules depend on the order of slots, so that permuting the slots of
            a group may change the outcome.
    """

    id: str
    cls: type[Environment]
    description: str
    sizes: tuple[Mapping[str, Any], ...]
    fixed_start: bool | tuple[bool, ...] = False
    index_rules: bool = False


_ENTRIES = (
    Entry(
        "tag",
        Tag,
        "Predators chase faster prey among obstacles (mpe2 simple_tag_v3).",
        (
            {},
            {"actions": "continuous"},
            {"num_predators": 1, "num_prey": 1, "num_obstacles": 0},
            {"num_predators": 2, "num_prey": 1, "num_obstacles": 1, "actions": "continuous"},
            {"num_predators": 13, "num_prey": 4, "num_obstacles": 3},
        ),
    ),
    Entry(
        "spread",
        Spread,
        "Agents share out landmarks without touching each other (mpe2 simple_spread_v3).",
        (
            {},
            {"actions": "continuous"},
            {"num_agents": 1},
            {"num_agents": 2, "num_landmarks": 5, "actions": "continuous"},
            {"num_agents": 17, "num_landmarks": 3},
        ),
    ),
    Entry(
        "world_comm",
        WorldComm,
        "A speaking leader guides predators after prey that feed and hide in forests "
        "(mpe2 simple_world_comm_v3).",
        (
            {},
            {"actions": "continuous"},
            {
                "num_predators": 1,
                "num_prey": 1,
                "num_obstacles": 0,
                "num_food": 0,
                "num_forests": 0,
            },
            {"num_predators": 1, "num_prey": 2, "num_food": 3, "actions": "continuous"},
            {"num_predators": 12, "num_prey": 5, "num_food": 1, "num_forests": 3},
        ),
    ),
    Entry(
        "flock",
        Flock,
        "Agents keep together, head the same way and don't collide (Reynolds 1987; Vicsek 1995).",
        (
            {},
            {"num_agents": 1, "control": "acceleration", "actions": "continuous"},
            {
                "num_agents": 2,
                "num_obstacles": 1,
                "num_predators": 3,
                "observation": "nearest",
                "actions": "continuous",
            },
            {
                "num_agents": 3,
                "num_obstacles": 2,
                "dynamics": "vicsek",
                "periodic": False,
                "search": "sorted",
            },
            {"num_agents": 17, "control": "acceleration", "observation": "nearest"},
        ),
    ),
    Entry(
        "grid_pathfinding",
        GridPathfinding,
        "Agents on a grid reach their goals without collisions, once or for ever (POGEMA 1.4.0).",
        (
            {},
            {"num_agents": 1, "size": 5, "num_maps": 2, "obs_radius": 1, "on_target": "nothing"},
            {
                "num_agents": 2,
                "size": 7,
                "width": 5,
                "maps": "maze",
                "num_maps": 3,
                "obs_radius": 2,
                "collision": "block_both",
                "on_target": "restart",
                "guide": "distance",
            },
            {
                "num_agents": 3,
                "size": 4,
                "width": 9,
                "num_maps": 2,
                "density": 0.1,
                "collision": "soft",
                "mask_obstacles": True,
            },
            {
                "num_agents": 17,
                "size": 9,
                "num_maps": 2,
                "density": 0.2,
                "collision": "soft",
                "on_target": "restart",
                "guide": "waypoints",
                "obs_radius": 3,
                "compat_visibility": True,
            },
        ),
        index_rules=True,
    ),
    Entry(
        "navigation",
        Navigation,
        "Agents go to their own goals among obstacles and each other (InforMARL navigation_graph).",
        (
            {},
            {"actions": "continuous", "axes": "own"},
            {"num_agents": 1, "num_obstacles": 0, "num_seen": 2, "observation": "graph"},
            {
                "num_agents": 2,
                "num_obstacles": 5,
                "num_seen": 12,
                "shared_reward": False,
                "axes": "own",
            },
            {
                "num_agents": 17,
                "num_obstacles": 2,
                "observation": "graph",
                "axes": "own",
                "actions": "continuous",
            },
        ),
    ),
    Entry(
        "discovery",
        Discovery,
        "Pairs of agents cover targets, which appear elsewhere (VMAS 1.5.2 discovery).",
        (
            {},
            {"actions": "continuous", "on_cover": "vanish", "shared_reward": True},
            {"num_agents": 1, "num_targets": 3, "seen_targets": 5, "view": "moments"},
            {"num_agents": 2, "num_targets": 1, "seen_agents": 0, "on_cover": "vanish"},
            {"num_agents": 3, "num_targets": 4, "view": "moments", "seen_agents": 0},
            {"num_agents": 17, "num_targets": 5, "seen_agents": 20, "actions": "continuous"},
        ),
    ),
    Entry(
        "dispersion",
        Dispersion,
        "Agents that start together part to eat scattered food (VMAS 1.5.2 dispersion).",
        (
            {},
            {"actions": "continuous", "view": "moments"},
            {"num_agents": 1, "num_food": 5, "seen_food": 2},
            {"num_agents": 2, "num_food": 3, "shared_reward": True, "seen_agents": 0},
            {"num_agents": 3, "num_food": 1, "actions": "continuous", "seen_food": 3},
            {"num_agents": 17, "num_food": 6, "view": "moments", "seen_agents": 0},
        ),
    ),
    Entry(
        "sampling",
        Sampling,
        "Agents collect a field of Gaussian bumps, each cell once (VMAS 1.5.2 sampling).",
        (
            {},
            {"actions": "continuous", "view": "moments", "num_gaussians": 5},
            {"num_agents": 1, "num_gaussians": 2, "cells": 10, "seen_agents": 0},
            {"num_agents": 2, "num_gaussians": 1, "cells": 7, "shared_reward": False},
            {"num_agents": 17, "num_gaussians": 4, "cells": 9, "actions": "continuous"},
        ),
    ),
    Entry(
        "crowd",
        Crowd,
        "Agents avoid the crowd near a bar or among hunters: mean-field games (OpenSpiel 2.0.2).",
        (
            {},
            {"num_agents": 1, "size": 23, "observation": "local", "obs_radius": 1},
            {"num_agents": 2, "task": "beach", "size": 31},
            {"num_agents": 3, "task": "predator_prey"},
            {"num_agents": 9, "task": "beach", "size": 5, "observation": "local"},
            {
                "num_agents": 17,
                "task": "predator_prey",
                "num_populations": 4,
                "size": 6,
                "observation": "local",
                "obs_radius": 3,
            },
            {"num_agents": 17, "layout": "four_rooms", "size": 8, "observation": "local"},
        ),
        fixed_start=(False, False, False, True, False, True, True),
    ),
)
_BY_ID = {entry.id: entry for entry in _ENTRIES}


def registered() -> tuple[Entry, ...]:
    """All environments of the suite."""
    return _ENTRIES


def entry(id: str) -> Entry:
    """The entry of one environment.

    Raises:
        ValueError: for an unknown id, with the known ones.
    """
    if not isinstance(id, str) or id not in _BY_ID:
        raise ValueError(f"there is no environment {id!r}; there are {', '.join(_BY_ID)}")
    return _BY_ID[id]


def make(id: str, **fields: Any) -> Environment:
    """Makes an environment by name.

    Args:
        id: such as "tag"; `registered` lists all.
        **fields: sizes and switches, the fields of the environment's dataclass.

    Returns:
        The environment.

    Raises:
        ValueError: for an unknown id or field, or a value that makes no sense.
    """
    cls = entry(id).cls
    known = [field.name for field in dataclasses.fields(cls)]
    for name in fields:
        if name not in known:
            raise ValueError(f"environment {id!r} has no field {name!r}; it has {', '.join(known)}")
    return cls(**fields)
