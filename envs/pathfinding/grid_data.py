"""Parameters and state of `GridPathfinding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import struct

from flockax.envs.parameters import as_arrays, parameter
from flockax.envs.pathfinding.distances import UNREACHABLE
from flockax.envs.pathfinding.map_sets import MapSet
from flockax.envs.pathfinding.map_tables import MapTables

Array = jax.Array

DISTANCES = UNREACHABLE + 1  # more than any distance; as many steps of waiting are told apart


@struct.dataclass
class GridParams:
    """Numbers, maps and instances of `GridPathfinding`.

    Attributes:
        horizon: steps until truncation.
        arrival_reward: for reaching a goal ("finish", "restart"), or to all when all stand on their
            goals ("nothing").
        step_reward: each step to an agent that does not stand on its goal after it.
        goal_reward: each step to an agent that stands on its goal after it.
        collision_reward: each time an obstacle or another agent stops a move.
        progress_reward: for each step nearer to the goal (negative for going away); with a guide only.
        tables: the maps, see `MapTables`.
        guide: distances that agents see, or an empty tuple.
        instance_map: ``int[I]``, the map of each given instance.
        starts: ``int[I, A, 2]``.
        goals: ``int[I, A, K, 2]``, goals in their order; after the last comes the first again.
        queue_length: ``int[I, A]``, how many of the K are there.
    """

    tables: MapTables
    guide: Any
    instance_map: Any
    starts: Any
    goals: Any
    queue_length: Any
    horizon: int = parameter(64, 1, 2**30)
    arrival_reward: float = parameter(1.0, -1e6, 1e6)
    step_reward: float = parameter(0.0, -1e6, 1e6)
    goal_reward: float = parameter(0.0, -1e6, 1e6)
    collision_reward: float = parameter(0.0, -1e6, 1e6)
    progress_reward: float = parameter(0.0, -1e6, 1e6)


@struct.dataclass
class GridState:
    """State of `GridPathfinding`; positions are (row, column), 0-based, without margin.

    Attributes:
        time: ``int[]``.
        map: ``int[]``, which map.
        instance: ``int[]``, which given instance; 0 where starts are drawn.
        position: ``int[A, 2]``.
        goal: ``int[A, 2]``.
        alive: ``bool[A]``; False after the arrival in "finish".
        queue: ``int[A]``, goals reached in "restart".
        visible: ``bool[A]``; False where the fault of `compat_visibility` hides an agent.
        urgency: ``int[A]``; with waypoints the priorities of PIBT, in the order that pypibt has: steps
            since the agent last stood on its goal, times `DISTANCES`, plus its distance to the first
            one; without, 0.
    """

    time: Array
    map: Array
    instance: Array
    position: Array
    goal: Array
    alive: Array
    queue: Array
    visible: Array
    urgency: Array


def make_params(
    found: MapSet, num_agents: int, instances: Mapping[str, np.ndarray] | None = None
) -> GridParams:
    """The parameters for a set of maps.

    Args:
        found: the maps with their tables.
        num_agents: ``A``.
        instances: the fields of `GridParams` that describe given instances, or None for none.
    """
    none = {
        "instance_map": np.zeros(0, np.int64),
        "starts": np.zeros((0, num_agents, 2), np.int64),
        "goals": np.zeros((0, num_agents, 1, 2), np.int64),
        "queue_length": np.zeros((0, num_agents), np.int64),
    }
    guide = () if found.guide is None else found.guide
    params: GridParams = as_arrays(
        GridParams(tables=found.tables, guide=guide, **(instances or none))
    )
    return params
