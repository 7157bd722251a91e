"""Shortest distances on 4-connected grids: to given goals, to every goal, and components.

On a CPU each goal is searched breadth first with a queue, in a scalar loop that XLA compiles into one
kernel: its time does not depend on how long the paths are, and on long ones it is many times less than
that of a wavefront. Elsewhere all goals advance together as a wavefront.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from flockax.envs.batching import merge_batches

Array = jax.Array

UNREACHABLE = 2**15 - 1
MAX_GOAL_CELLS = 4096

_WALL = -1


@struct.dataclass
class GoalTable:
    """Distances from every free cell of every map.

    Attributes:
        rank: ``int32[M, H, W]``, the index of a free cell among those of its map, row-major; -1 in
            walls.
        distance: ``int16[M, C, H, W]``, from the free cell of that rank, C being the largest number of
            free cells; `UNREACHABLE` in walls, where no path leads, and beyond the last rank of a map.
    """

    rank: Any
    distance: Any

    def of(self, map: Array, goal: Array) -> Array:
        """``int16[H, W]``: distances to one goal.

        Args:
            map: ``int[]``, the index of the map.
            goal: ``int[2]``, (row, column) within the map; a wall is reached from nowhere.
        """
        rank = self.rank[map, goal[0], goal[1]]
        distance = self.distance[map, jnp.maximum(rank, 0)]
        return jnp.where(rank < 0, jnp.int16(UNREACHABLE), distance)


def from_goals(obstacles: Array, goals: Array) -> Array:
    """Breadth-first distances to goals, for moves up, down, left and right.

    Args:
        obstacles: ``bool[..., H, W]``, True for walls.
        goals: ``int[..., G, 2]``, (row, column); the leading axes are those of `obstacles`.

    Returns:
        ``int16[..., G, H, W]`` in steps. `UNREACHABLE` in walls and where no path leads; everywhere for
        a goal in a wall or outside. Paths longer than ``UNREACHABLE - 1`` count as that long.

    Raises:
        ValueError: for shapes that do not fit together.
    """
    obstacles, goals = jnp.asarray(obstacles, bool), jnp.asarray(goals, jnp.int32)
    batch, (height, width) = obstacles.shape[:-2], obstacles.shape[-2:]
    if goals.ndim < 2 or goals.shape[-1] != 2 or goals.shape[:-2] != batch:
        wanted = f"({', '.join(map(str, (*batch, 'G', 2)))}) as obstacles of {obstacles.shape} want"
        raise ValueError(f"goals has shape {goals.shape}, not {wanted}")
    count, maps = goals.shape[-2], math.prod(batch)
    boards = obstacles.reshape(maps, height, width)
    distance = _search(boards, goals.reshape(maps, count, 2))
    return distance.reshape(*batch, count, height, width)


def all_goals(obstacles: Array | np.ndarray) -> GoalTable:
    """Distances from every free cell of every map; takes ``2 M C H W`` bytes.

    Args:
        obstacles: ``bool[M, H, W]``, concrete, True for walls.

    Returns:
        The table.

    Raises:
        ValueError: for a map with more than `MAX_GOAL_CELLS` free cells.
    """
    obstacles = np.asarray(obstacles, bool)
    free = ~obstacles.reshape(len(obstacles), -1)
    cells = free.sum(axis=1)
    for index, number in enumerate(cells):
        if number > MAX_GOAL_CELLS:
            raise ValueError(
                f"map {index} of obstacles has {number} free cells; a table of all goals takes at most "
                f"{MAX_GOAL_CELLS}: use from_goals for the goals in use instead"
            )
    rank = np.where(free, np.cumsum(free, axis=1) - 1, -1).astype(np.int32)
    # Maps with fewer cells are filled with goals outside, which nothing reaches.
    goals = np.full((len(obstacles), max(1, int(cells.max())), 2), -1, np.int32)
    index, cell = np.nonzero(free)
    goals[index, rank[index, cell]] = np.stack(np.divmod(cell, obstacles.shape[2]), axis=1)
    distance = jax.jit(from_goals)(obstacles, goals)
    return GoalTable(rank=jnp.asarray(rank.reshape(obstacles.shape)), distance=distance)


def components(obstacles: Array | np.ndarray) -> np.ndarray:
    """Labels of the 4-connected components of free cells.

    Args:
        obstacles: ``bool[M, H, W]``, concrete, True for walls.

    Returns:
        ``int32[M, H, W]``: the smallest row-major index of a cell of the component; -1 in walls.
    """
    from scipy import ndimage

    obstacles = np.asarray(obstacles, bool)
    structure = np.zeros((3, 3, 3), bool)
    structure[1] = ndimage.generate_binary_structure(2, 1)
    label, _ = ndimage.label(~obstacles, structure)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    cell = first[inverse].reshape(obstacles.shape) % (obstacles.shape[1] * obstacles.shape[2])
    return np.where(obstacles, -1, cell).astype(np.int32)


@merge_batches
def _search(obstacles: Array, goals: Array) -> Array:
    """``bool[B, H, W]`` and ``int32[B, G, 2]`` to ``int16[B, G, H, W]``."""
    return lax.platform_dependent(obstacles, goals, cpu=_search_queue, default=_search_wavefront)


def _search_queue(obstacles: Array, goals: Array) -> Array:
    """`_search` one goal after the other, in a scalar loop each."""
    _, height, width = obstacles.shape
    count = goals.shape[1]
    unknown = jnp.where(obstacles, jnp.int16(_WALL), jnp.int16(UNREACHABLE))
    board = jnp.pad(unknown, ((0, 0), (1, 1), (1, 1)), constant_values=_WALL)
    cell = (goals[..., 0] + 1) * (width + 2) + goals[..., 1] + 1
    cell = jnp.where(_inside(obstacles, goals), cell, -1)

    def one(index: Array) -> Array:
        flat = board[index // count].reshape(-1)
        filled = _flood(flat, cell.reshape(-1)[index], width + 2)
        inner = filled.reshape(height + 2, width + 2)[1:-1, 1:-1]
        return jnp.where(inner == _WALL, jnp.int16(UNREACHABLE), inner)

    distance = lax.map(one, jnp.arange(cell.size, dtype=jnp.int32))
    return distance.reshape(*cell.shape, height, width)


def _flood(board: Array, goal: Array, stride: int) -> Array:
    """Distances from one cell of a board ``int16[V]`` with a border of walls; none from cell -1."""

    # Each iteration first writes what the one before has read, then reads for the next. A read before a
    # write of the same array would make XLA copy the array in every iteration, and only a body that
    # accesses little memory is compiled into one kernel (measured on a CPU: 40 times faster).
    def around(cell: Array) -> list[Array]:
        return [cell - stride, cell + stride, cell - 1, cell + 1]

    def look(head: Array, queue: Array, board: Array) -> tuple[Array, Array, list[Array]]:
        cell = _get(queue, head)
        return cell, _get(board, cell), [_get(board, other) for other in around(cell)]

    def body(state: Any) -> Any:
        head, tail, queue, board, (cell, distance, known) = state
        further = jnp.minimum(distance, UNREACHABLE - 2) + jnp.int16(1)
        for other, value in zip(around(cell), known, strict=True):
            is_new = value == UNREACHABLE
            board = _put(board, other, jnp.where(is_new, further, value))
            queue = _put(queue, tail, other)
            tail = tail + is_new
        return head + 1, tail, queue, board, look(head + 1, queue, board)

    head, tail = jnp.int32(0), (goal >= 0).astype(jnp.int32)
    start = jnp.maximum(goal, 0)
    board = _put(board, start, jnp.where(goal >= 0, jnp.int16(0), _get(board, start)))
    queue = _put(jnp.zeros(board.size + 1, jnp.int32), head, start)
    state = (head, tail, queue, board, look(head, queue, board))
    return lax.while_loop(lambda state: state[0] < state[1], body, state)[3]


def _search_wavefront(obstacles: Array, goals: Array) -> Array:
    """`_search` with all goals advancing at once until nothing changes."""
    batch, height, width = obstacles.shape
    count = goals.shape[1]
    far = jnp.int16(UNREACHABLE)
    safe = jnp.where(_inside(obstacles, goals)[..., None], goals, jnp.array([height, width]))
    index = jnp.arange(batch * count).reshape(batch, count)
    start = jnp.full((batch * count, height, width), far)
    start = start.at[index, safe[..., 0], safe[..., 1]].set(0, mode="drop")
    walls = obstacles[:, None]

    def body(state: tuple[Array, Array]) -> tuple[Array, Array]:
        distance, _ = state
        padded = jnp.pad(distance, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=UNREACHABLE)
        rows = jnp.minimum(padded[..., :-2, 1:-1], padded[..., 2:, 1:-1])
        columns = jnp.minimum(padded[..., 1:-1, :-2], padded[..., 1:-1, 2:])
        nearest = jnp.minimum(rows, columns)
        further = jnp.where(nearest == far, far, jnp.minimum(nearest, far - 2) + jnp.int16(1))
        new = jnp.where(walls, far, jnp.minimum(distance, further))
        return new, jnp.any(new != distance)

    state = (start.reshape(batch, count, height, width), jnp.array(True))
    return lax.while_loop(lambda state: state[1], body, state)[0]


def _inside(obstacles: Array, goals: Array) -> Array:
    """``bool[B, G]``: which goals are free cells."""
    _, height, width = obstacles.shape
    row, column = goals[..., 0], goals[..., 1]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    batch = jnp.arange(len(obstacles))[:, None]
    blocked = obstacles[batch, jnp.clip(row, 0, height - 1), jnp.clip(column, 0, width - 1)]
    return inside & ~blocked


def _get(x: Array, index: Array) -> Array:
    return lax.dynamic_slice(x, (index,), (1,), allow_negative_indices=False)[0]


def _put(x: Array, index: Array, value: Array) -> Array:
    return lax.dynamic_update_slice(x, value[None], (index,), allow_negative_indices=False)
