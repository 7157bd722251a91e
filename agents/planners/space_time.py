"""Paths of one agent through space and time, around those that others have reserved.

A window of ``w`` steps is planned. The batch of environments, ``B``, is the last axis of every array, so
that the dynamic programme runs over contiguous numbers. Cells are numbered row by row on a board with a
margin of ``w`` obstacles on every side: no path of a window leaves it. The cell ``V``, one behind the
last of the board, is that of an agent that is gone; it is in nobody's way.

Reservations of a step are a byte for each cell: bit ``k - 1`` is set where nobody may arrive by move
``k`` (that would be a swap with the agent that leaves), `TAKEN` where an agent arrives, `WALL` in
obstacles. No two agents set the same bit of a cell, so that adding and subtracting set and clear.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flockax.envs.space.grid import MOVES, NUM_MOVES

Array = jax.Array

TAKEN, WALL = 16, 32
NUM_ORDERS = 120  # permutations of the five moves

_STEP = 8  # the cost of a step; below it is room for the order of equally good moves
_NO_PATH = 1 << 13
_ORDERS = np.array(list(itertools.permutations(range(NUM_MOVES))), np.int32)


@dataclasses.dataclass(frozen=True)
class Board:
    """A map with its margin.

    Attributes:
        shape: ``(H, W)`` of the map.
        window: ``w``, the width of the margin.
    """

    shape: tuple[int, int]
    window: int

    @property
    def columns(self) -> int:
        """Cells of a row with its margins."""
        return self.shape[1] + 2 * self.window

    @property
    def size(self) -> int:
        """``V``, the number of cells; as the number of a cell, that of agents that are gone."""
        return (self.shape[0] + 2 * self.window) * self.columns

    @property
    def side(self) -> int:
        """``S = 2w + 1``, of the square that an agent can reach."""
        return 2 * self.window + 1

    def cell(self, position: Array) -> Array:
        """``int32[...]``: numbers of positions ``int32[..., 2]``."""
        return (position[..., 0] + self.window) * self.columns + position[..., 1] + self.window

    def on_map(self, cell: Array) -> Array:
        """``int32[...]``: numbers on the map without margin, of the nearest cell for those in it."""
        row = jnp.clip(cell // self.columns - self.window, 0, self.shape[0] - 1)
        column = jnp.clip(cell % self.columns - self.window, 0, self.shape[1] - 1)
        return row * self.shape[1] + column

    def square(self, cell: Array) -> Array:
        """``int32[S * S, B]``: the cells around those of ``int32[B]``."""
        along = np.arange(-self.window, self.window + 1, dtype=np.int32)
        return cell + (along[:, None] * self.columns + along).reshape(-1, 1)

    def margined(self, walls: np.ndarray) -> np.ndarray:
        """``int8[M, V]``: `WALL` where maps ``bool[M, H, W]`` have obstacles and in the margin."""
        width = (self.window, self.window)
        board = np.pad(walls, ((0, 0), width, width), constant_values=True)
        return board.reshape(len(walls), -1) * np.int8(WALL)


def reserve(table: Array, cells: Array, sign: int, board: Board) -> Array:
    """Enters paths into a table of reservations, or takes them out.

    Args:
        table: ``int8[w, V, B]``.
        cells: ``int32[w + 1, ..., B]``, paths from now on.
        sign: 1 to enter, -1 to take out.
        board: the board.

    Returns:
        The table.
    """
    before, after = cells[:-1], cells[1:]
    time = jnp.arange(len(after)).reshape((-1,) + (1,) * (after.ndim - 1))
    batch = jnp.arange(cells.shape[-1])
    taken = jnp.full(after.shape, sign * TAKEN, jnp.int8)
    # After a move up (a row less) nobody may come down into the cell, and so on. To be gone is like no
    # move: the last row is margin.
    swaps = {-board.columns: 1 << 1, board.columns: 1 << 0, -1: 1 << 3, 1: 1 << 2}
    swap = sum(jnp.where(after - before == step, bit, 0) for step, bit in swaps.items())
    table = table.at[time, after, batch].add(taken, mode="drop")
    return table.at[time, before, batch].add(jnp.asarray(sign * swap, jnp.int8), mode="drop")


def delay(cells: Array, goal: Array, at_start: Array, at_end: Array, on_target: str) -> Array:
    """How many steps later than without others an agent arrives, at best.

    Args:
        cells: ``int32[w + 1, ..., B]``, paths.
        goal: ``int32[..., B]``.
        at_start: ``int32[..., B]``, the distance from the first cell to the goal.
        at_end: ``int32[..., B]``, the distance from the last cell to the goal.
        on_target: as in `GridPathfinding`. With "nothing" each step counts after which the agent does
            not rest on its goal, with the others each step until it first arrives; to be on the goal
            before the first step is no arrival.

    Returns:
        ``int32[..., B]``, at least 0.
    """
    window = len(cells) - 1
    there = cells[1:] == goal
    if on_target == "nothing":
        rests = jnp.sum((cells[:-1] == goal) & there, axis=0, dtype=jnp.int32)
        return window - rests + at_end - at_start
    first = 1 + jnp.argmax(there, axis=0).astype(jnp.int32)
    return jnp.where(jnp.any(there, axis=0), first, window + at_end) - at_start


def best_path(
    table: Array,
    start: Array,
    goal: Array,
    ahead: Array,
    order: Array,
    board: Board,
    on_target: str,
) -> tuple[Array, Array]:
    """The path of least cost that keeps clear of what is reserved.

    The cost is the steps until the arrival; without an arrival it is the length of the window and the
    distance that is left. With "restart" the agent must have a cell to go to until the end of the window
    after it arrived; with "finish" it is then gone, with "nothing" it rests on the goal for nothing.

    Args:
        table: ``int8[w, V, B]``, the reservations of the others.
        start: ``int32[B]``.
        goal: ``int32[B]``.
        ahead: ``int[S * S, B]``, the distance to the goal from each cell of the square of ``S = 2w + 1``
            cells around `start`, less that from `start`.
        order: ``int32[B]`` below `NUM_ORDERS`: which permutation of the moves, in lexicographic order,
            decides between equally good ones.
        board: the board.
        on_target: as in `GridPathfinding`.

    Returns:
        ``(cells int32[w + 1, B], found bool[B])``; cells mean nothing where no path was found.
    """
    window, shape = board.window, (board.side, board.side, start.shape[0])
    # Nobody gets farther than the window is long: the rest of the board does not matter.
    square = board.square(start)
    layers = table.at[:, square, jnp.arange(shape[2])].get(mode="clip").reshape(window, *shape)
    end = jnp.clip(ahead, -window, window).astype(jnp.int16).reshape(shape) * _STEP
    ranks = jnp.asarray(np.argsort(_ORDERS, axis=1), jnp.int16)[order].T
    value, ways = _programme(layers, end, (square == goal).reshape(shape), ranks, on_target)
    moves = jnp.stack([jnp.asarray(_ORDERS)[order].T, _first_order(shape[2])])
    cells = _follow(ways, moves, start, goal, board, on_target)
    return cells, value[window, window] < _NO_PATH // 2


def _first_order(size: int) -> Array:
    return jnp.broadcast_to(jnp.arange(NUM_MOVES, dtype=jnp.int32)[:, None], (NUM_MOVES, size))


def _programme(
    layers: Array, end: Array, is_goal: Array, ranks: Array, on_target: str
) -> tuple[Array, Array]:
    """From the last step to the first.

    Args:
        layers: ``int8[w, S, S, B]``, reservations.
        end: ``int16[S, S, B]``, the cost of standing in a cell at the end.
        is_goal: ``bool[S, S, B]``.
        ranks: ``int16[5, B]``, of equally good moves the one of the lowest rank is taken.
        on_target: as in `GridPathfinding`.

    Returns:
        ``(value int16[S, S, B], ways int8[w, P, S, S, B])``: the cost at the start and the ranks of the
        best moves; with "restart" ``P`` is 2, before and after the arrival, else 1.
    """
    nothing = jnp.zeros((), jnp.int16)
    step = jnp.full((), _STEP, jnp.int16)
    rest = jnp.where(is_goal, nothing, step) if on_target == "nothing" else step
    after_ranks = jnp.arange(NUM_MOVES, dtype=jnp.int16)

    def back(values: tuple[Array, Array], layer: Array) -> Any:
        before, after = values
        if on_target != "nothing":
            before = jnp.where(is_goal, after + end, before)
        before, way = _best_moves(layer, before, rest, step, ranks)
        if on_target != "restart":
            return (before, after), way[None]
        after, way_after = _best_moves(layer, after, nothing, nothing, after_ranks)
        return (before, after), jnp.stack([way, way_after])

    (value, _), ways = lax.scan(back, (end, jnp.zeros_like(end)), layers, reverse=True)
    return value, ways


def _best_moves(
    layer: Array, value: Array, rest: Array, step: Array, ranks: Array
) -> tuple[Array, Array]:
    """``(int16[S, S, B], int8[S, S, B])``: values one step earlier, ranks of the best moves."""
    blocked = layer >= TAKEN
    closed = jnp.asarray(_NO_PATH, value.dtype)
    best = jnp.where(blocked, closed, value) + rest + ranks[0]
    for move in range(1, NUM_MOVES):
        refused = blocked | (((layer >> (move - 1)) & 1) == 1)
        there = jnp.where(refused, closed, value)
        row, column = (int(x) for x in MOVES[move])
        padding = ((-row, row, 0), (-column, column, 0), (0, 0, 0))
        best = jnp.minimum(best, lax.pad(there, closed, padding) + step + ranks[move])
    rank = best & (_STEP - 1)
    return best - rank, rank.astype(jnp.int8)


def _follow(
    ways: Array,
    moves: Array,
    start: Array,
    goal: Array,
    board: Board,
    on_target: str,
) -> Array:
    """``int32[w + 1, B]``: the cells to which the best moves lead.

    Args:
        ways: ``int8[w, P, S, S, B]``.
        moves: ``int32[2, 5, B]``, the move of each rank, before and after the arrival.
        start: ``int32[B]``.
        goal: ``int32[B]``.
        board: the board.
        on_target: as in `GridPathfinding`.
    """
    phases, side = ways.shape[1:3]
    batch = jnp.arange(start.shape[0])
    steps = jnp.asarray(MOVES @ np.array([board.columns, 1]), jnp.int32)
    steps_here = jnp.asarray(MOVES @ np.array([side, 1]), jnp.int32)

    def forth(state: tuple[Array, Array, Array], way: Array) -> Any:
        cell, here, arrived = state
        phase = arrived if phases == 2 else jnp.zeros_like(arrived)
        rank = way.reshape(phases, side * side, -1)[phase, here, batch]
        move = moves[phase, rank.astype(jnp.int32), batch]
        cell, here = cell + steps[move], here + steps_here[move]
        seen = jnp.where(arrived == 1, board.size, cell) if on_target == "finish" else cell
        return (cell, here, arrived | (cell == goal)), seen

    middle = jnp.full(start.shape, side * side // 2, jnp.int32)
    state = (start, middle, jnp.zeros(start.shape, jnp.int32))
    return jnp.concatenate([start[None], lax.scan(forth, state, ways)[1]])
