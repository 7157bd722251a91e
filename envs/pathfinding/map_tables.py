"""What `GridPathfinding` keeps of its maps on the device, built once on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.pathfinding.distances import all_goals, components
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array

PACKED_CELLS = 2**14


@struct.dataclass
class MapTables:
    """Maps as arrays; ``M`` maps of at most ``H`` by ``W`` cells seen with radius ``r``.

    A board is ``(H + 2r)`` by ``(W + 2r)``; ``B`` is its number of cells, counted row by row. Free
    cells are listed by component (cells that can reach each other), so that drawing a cell of one's
    own component is drawing an integer.

    Attributes:
        board: ``int8[M, H + 2r, W + 2r]``, 1 where blocked. One ring of obstacles surrounds the map;
            what lies beyond it is 0, as POGEMA shows it.
        cells: ``int[M, H * W]``, the free cells (numbered on the board), component by component; -1
            after the last.
        component: ``int[M, H * W]``, number of the component of each of `cells`.
        component_first: ``int[M, H * W]``, where in `cells` each one's component begins.
        start_allowed: ``bool[M, H * W]``, which of `cells` an agent may start in.
        goal_allowed: ``bool[M, H * W]``, which of `cells` may be a goal.
        goal_cells: ``int[M, H * W]``, the cells that may be goals, component by component.
        goal_first: ``int[M, B]``, where the goals of a cell's component begin in `goal_cells`.
        goal_count: ``int[M, B]``, how many there are.
        goal_rank: ``int[M, B]``, where among them the cell itself is; a large number if it is none.
    """

    board: Any
    cells: Any
    component: Any
    component_first: Any
    start_allowed: Any
    goal_allowed: Any
    goal_cells: Any
    goal_first: Any
    goal_count: Any
    goal_rank: Any


@struct.dataclass
class GuideTable:
    """Distances that agents see, padded like boards (see `flockax.envs.pathfinding.distances`).

    Attributes:
        rank: ``int[M, B]``, the row of `distance` for a goal in a cell.
        distance: ``int16[M, G, H + 2r, W + 2r]``, steps to the goal.
    """

    rank: Any
    distance: Any


def build_tables(
    maps: Sequence[np.ndarray],
    starts: Sequence[np.ndarray | None],
    goals: Sequence[np.ndarray | None],
    radius: int,
) -> MapTables:
    """Builds the tables in NumPy.

    Args:
        maps: ``bool[h, w]`` each, True where blocked.
        starts: cells where agents may start, ``bool[h, w]``, or None for all free ones.
        goals: cells that may be goals, likewise.
        radius: ``r``.
    """
    height = max(m.shape[0] for m in maps)
    width = max(m.shape[1] for m in maps)
    tables = [
        _tables_of(np.asarray(m, bool), start, goal, (height, width), radius)
        for m, start, goal in zip(maps, starts, goals, strict=True)
    ]
    return jax.tree.map(lambda *rows: np.stack(rows), *tables)


def _tables_of(
    obstacles: np.ndarray,
    starts: np.ndarray | None,
    goals: np.ndarray | None,
    size: tuple[int, int],
    radius: int,
) -> MapTables:
    (height, width), columns = obstacles.shape, size[1] + 2 * radius
    board = np.zeros((size[0] + 2 * radius, columns), np.int8)
    ring = slice(radius - 1, radius + height + 1), slice(radius - 1, radius + width + 1)
    board[ring] = 1
    board[radius : radius + height, radius : radius + width] = obstacles

    label = components(obstacles[None])[0].reshape(-1)
    free = np.flatnonzero(label >= 0)
    free = free[np.argsort(label[free], kind="stable")]
    on_board = (free // width + radius) * columns + free % width + radius

    def padded(values: np.ndarray, fill: int | bool, length: int = size[0] * size[1]) -> np.ndarray:
        dtype: Any = bool if isinstance(fill, bool) else np.int64
        result = np.full(length, fill, dtype)
        result[: len(values)] = values
        return result

    everywhere = np.ones(obstacles.shape, bool)
    start_ok = (everywhere if starts is None else starts).reshape(-1)[free]
    goal_ok = (everywhere if goals is None else goals).reshape(-1)[free]
    group = label[free]
    goal_group, goal_cell = group[goal_ok], on_board[goal_ok]
    first, count, rank = (np.zeros(board.size, np.int64) for _ in range(3))
    first[on_board] = np.searchsorted(goal_group, group, "left")
    count[on_board] = np.searchsorted(goal_group, group, "right") - first[on_board]
    rank[:] = board.size
    rank[goal_cell] = np.arange(len(goal_cell)) - first[goal_cell]
    label_of = padded(group, size[0] * size[1])
    return MapTables(
        board=board,
        cells=padded(on_board, -1),
        component=label_of,
        component_first=np.searchsorted(label_of, label_of, "left"),
        start_allowed=padded(start_ok, False),
        goal_allowed=padded(goal_ok, False),
        goal_cells=padded(goal_cell, -1),
        goal_first=first,
        goal_count=count,
        goal_rank=rank,
    )


def build_guide(maps: Sequence[np.ndarray], radius: int) -> GuideTable:
    """The distances that agents see.

    Args:
        maps: ``bool[h, w]`` each.
        radius: ``r``.

    Raises:
        ValueError: for a map with more free cells than `all_goals` takes.
    """
    height, width = max(m.shape[0] for m in maps), max(m.shape[1] for m in maps)
    walls = np.ones((len(maps), height, width), bool)
    for i, m in enumerate(maps):
        walls[i, : m.shape[0], : m.shape[1]] = m
    table = all_goals(walls)
    margin = ((radius, radius), (radius, radius))
    rank = np.pad(np.asarray(table.rank), ((0, 0), *margin), constant_values=-1)
    distance = np.pad(
        np.asarray(table.distance),
        ((0, 0), (0, 0), *margin),
        constant_values=np.iinfo(np.int16).max,
    )
    return GuideTable(rank.reshape(len(maps), -1).astype(np.int64), distance)


def capacity(tables: MapTables) -> np.ndarray:
    """``int[M]``: how many agents fit, each with a start and a goal of its own in one component."""
    result = []
    for m in range(len(tables.board)):
        used = tables.cells[m] >= 0
        group, start, goal = (
            x[m][used] for x in (tables.component, tables.start_allowed, tables.goal_allowed)
        )
        both, only_start, only_goal = (
            np.bincount(group, kind) for kind in (start & goal, start & ~goal, goal & ~start)
        )
        pairs = np.minimum(only_start + (both + 1) // 2, only_goal + both // 2)
        result.append(int(pairs.sum()))
    return np.array(result)


def draw_pairs(key: Array, tables: MapTables, index: Array, count: int) -> tuple[Array, Array]:
    """Draws starts and goals: all different cells, each goal in the component of its start.

    Without limits on starts and goals the law is that of POGEMA 1.4.0: free cells come in random
    order; in each component they are in turn the start of an agent and its goal, until there are
    `count` agents. A cell that may be one of the two only is that; the k-th start of a component gets
    its k-th goal.

    Args:
        key: a typed key.
        tables: the maps.
        index: ``int[]``, which map.
        count: ``A``, at most the map's `capacity`.

    Returns:
        ``(start int[A], goal int[A])``: cells of the board.
    """
    component, first = tables.component[index], tables.component_first[index]
    size = component.shape[0]
    bits = jax.random.bits(key, (size,), jnp.uint32)
    n = jnp.arange(size, dtype=int_dtype())
    if size <= PACKED_CELLS:
        # One integer a cell sorts four times as fast as two keys, and leaves random bits enough.
        label_bits = size.bit_length()
        label = component.astype(jnp.uint32) << (32 - label_bits)
        _, order = jax.lax.sort((label | (bits >> label_bits), n), num_keys=1)
    else:
        _, _, order = jax.lax.sort((component, bits, n), num_keys=2)
    # Cells are listed by component: what is shuffled are the cells within components.
    cells = tables.cells[index, order]
    may_start, may_goal = tables.start_allowed[index, order], tables.goal_allowed[index, order]

    def rank_in_group(chosen: Array) -> Array:
        before = jnp.cumsum(chosen, dtype=int_dtype()) - chosen
        return before - before[first]

    both = may_start & may_goal
    odd = rank_in_group(both) % 2 == 1
    is_start, is_goal = may_start & ~(both & odd), may_goal & ~(both & ~odd)
    start_rank = rank_in_group(is_start)
    # The k-th goal of a component is written k places after the component's first cell.
    slot = jnp.where(is_goal, first + rank_in_group(is_goal), size)
    goals = jnp.full(size, -1, cells.dtype).at[slot].set(cells, mode="drop")
    goal_total = jnp.zeros(size, int_dtype()).at[first].add(is_goal)
    valid = is_start & (start_rank < goal_total[first])
    # The first of all in the random order become agents.
    late = jnp.where(valid, (bits[order] >> 8).astype(float_dtype()), jnp.inf)
    _, chosen = jax.lax.top_k(-late, count)
    return cells[chosen], goals[first[chosen] + start_rank[chosen]]
