"""What agents of `GridPathfinding` see: windows of the map, as small integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from flockax.envs.pathfinding.distances import UNREACHABLE
from flockax.envs.pathfinding.grid_data import GridParams, GridState
from flockax.envs.space import grid
from flockax.envs.spec import ArraySpec, int_dtype

Array = jax.Array

OBSTACLE, AGENT, GOAL = 1, 2, 4  # bits of a cell
WAYPOINTS = 3  # the first of four bits more: which of up, down, left, right lead an agent nearer
FIRST = 128  # one more bit: an agent that comes first
UNKNOWN = 15  # the relative distance of a cell from which there is no way
GUIDES = ("none", "distance", "waypoints")


def flags(guide: str) -> int:
    """How many bits of a cell are flags; above them is the relative distance."""
    return 8 if guide == "waypoints" else 3


def dtype(guide: str) -> str:
    """Of the cells of a window: the smallest integer with room for them."""
    return "int16" if guide == "waypoints" else "int8"


def spec(num_agents: int, radius: int, guide: str) -> ArraySpec:
    """The specification of the windows, ``[A, 1, 2 * radius + 1, 2 * radius + 1]``."""
    bits, side = flags(guide), 2 * radius + 1
    most = 2**bits - 1
    low, high = (0, most) if guide == "none" else (-UNKNOWN << bits, (UNKNOWN << bits) + most)
    return ArraySpec((num_agents, 1, side, side), dtype(guide), low, high, flags=bits)


def board_cell(position: Array, radius: int, stride: int) -> Array:
    """The number of ``int[..., 2]`` positions on the board, which has a margin of the radius.

    Args:
        position: (row, column).
        radius: how far agents see.
        stride: cells in a row of the board.
    """
    return (position[..., 0] + radius) * stride + position[..., 1] + radius


def draw(params: GridParams, state: GridState, radius: int, guide: str) -> Array:
    """The windows around all agents, see `GridPathfinding`.

    Args:
        params: the maps.
        state: where the agents are.
        radius: how far they see, ``r``.
        guide: what they see of ways, as in `GridPathfinding`.

    Returns:
        ``int8[A, 1, 2r + 1, 2r + 1]``, ``int16`` with waypoints.
    """
    side, small = 2 * radius + 1, dtype(guide)
    board = params.tables.board[state.map].astype(small)
    cell = board_cell(state.position, radius, board.shape[1])
    seen = state.alive & state.visible
    agents = jnp.full(cell.shape, AGENT, small)
    if guide == "waypoints":
        agents += _waypoints(params, state, radius).astype(small)
    there = grid.place(cell, seen, agents, board.size, 0)
    row, column = state.position[:, 0], state.position[:, 1]
    window = grid.windows(board + there.reshape(board.shape), row, column, side)
    away = jnp.clip(state.goal - state.position, -radius, radius) + radius
    middle = away[:, 0] * side + away[:, 1]
    cells = jnp.arange(side * side).reshape(side, side)
    window |= jnp.where(cells == middle[:, None, None], GOAL, 0).astype(small)
    if guide == "waypoints":
        rank = _ranks(state.urgency)
        ranks = grid.place(cell, seen, rank, board.size, len(rank)).reshape(board.shape)
        first = grid.windows(ranks, row, column, side) < rank[:, None, None]
        window |= jnp.where(first, FIRST, 0).astype(small)
    if guide != "none":
        window += _relative_distance(params, state, radius).astype(small) << flags(guide)
    return window[:, None]


def steps_to_goal(params: GridParams, state: GridState, position: Array, radius: int) -> Array:
    """``int[..., A]``: steps from positions ``int[..., A, 2]`` to the agents' goals, with a guide."""
    row, column = position[..., 0] + radius, position[..., 1] + radius
    steps = params.guide.distance[state.map, _goal_rank(params, state, radius), row, column]
    return steps.astype(int_dtype())


def _waypoints(params: GridParams, state: GridState, radius: int) -> Array:
    """``int[A]``: the bits of the moves that lead each agent nearer to its goal."""
    moves = jnp.asarray(grid.MOVES, int_dtype())[:, None]
    steps = steps_to_goal(params, state, state.position + moves, radius)
    bits = 1 << (WAYPOINTS + jnp.arange(len(grid.MOVES) - 1))
    return jnp.sum(jnp.where(steps[1:] < steps[0], bits[:, None], 0), axis=0)


def _ranks(urgency: Array) -> Array:
    """``int[A]``: how many agents come before each: the more urgent, of equal ones the lower index."""
    order = jnp.argsort(-urgency, stable=True)
    numbers = jnp.arange(len(urgency), dtype=int_dtype())
    return jnp.zeros_like(numbers).at[order].set(numbers)


def _relative_distance(params: GridParams, state: GridState, radius: int) -> Array:
    """``int[A, S, S]``: steps to the goal from each cell less those from the middle."""
    side = 2 * radius + 1

    def one(rank: Array, position: Array) -> Array:
        start = (state.map, rank, position[0], position[1])
        return jax.lax.dynamic_slice(params.guide.distance, start, (1, 1, side, side))[0, 0]

    distance = jax.vmap(one)(_goal_rank(params, state, radius), state.position)
    own = distance[:, radius, radius][:, None, None]
    relative = jnp.clip(distance - own, -UNKNOWN, UNKNOWN - 1)
    return jnp.where(distance == UNREACHABLE, UNKNOWN, relative)


def _goal_rank(params: GridParams, state: GridState, radius: int) -> Array:
    """``int[A]``: which of its map's tables of distances is that of each agent's goal."""
    stride = params.tables.board.shape[-1]
    return params.guide.rank[state.map, board_cell(state.goal, radius, stride)]
