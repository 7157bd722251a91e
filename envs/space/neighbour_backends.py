"""Ways to visit the neighbours of every point (see `flockax.envs.space.neighbours`).

All take points of many boxes, arrays ``[B, N]``, and return what a fold gathered as arrays ``[B, N]``,
with anything for points that were left out. They visit the same pairs at the same distances; only the
order differs, so that sums differ by rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flockax.envs.space.cell_lists import Box, Cells, Sorted
from flockax.envs.space.neighbour_folds import Candidate, Fold
from flockax.envs.spec import float_dtype

Array = jax.Array


class Points(NamedTuple):
    """Points of many boxes.

    Attributes:
        x: ``f[B, N]``, finite.
        y: ``f[B, N]``, finite.
        valid: ``bool[B, N]``, False for points that neither see nor are seen.
        own: a tree of ``[B, N]``, values a point has when it looks.
        other: a tree of ``[B, N]``, values a point has when it is seen.
    """

    x: Array
    y: Array
    valid: Array
    own: Any
    other: Any


def _candidate(
    box: Box,
    radius: Array | float,
    one: tuple[Array, Array, Any],
    two: tuple[Array, Array, Array, Any],
    possible: Array,
    shift: tuple[Array | None, Array | None] = (None, None),
) -> Candidate:
    """A pair of points ``(x, y, own)`` and ``(x, y, number, other)``, inside where near enough."""
    dx, dy = box.shortest(two[0] - one[0], two[1] - one[1], shift)
    inside = possible & (dx * dx + dy * dy <= radius * radius)
    return Candidate(dx, dy, inside, one[2], two[3], two[2])


def all_pairs(box: Box, radius: float, points: Points) -> Candidate:
    """Every pair: arrays ``[B, N, N]``, the one on axis 1 and the other on axis 2."""
    number = jnp.arange(points.x.shape[1], dtype=jnp.int32)[None]
    one = jax.tree.map(lambda z: z[:, :, None], (points.x, points.y, points.own))
    two = jax.tree.map(lambda z: z[:, None, :], (points.x, points.y, number, points.other))
    different = number[:, :, None] != number[:, None, :]
    both = points.valid[:, :, None] & points.valid[:, None, :]
    return _candidate(box, radius, one, two, both & different)


def in_buffer(
    fold: Fold, cells: Cells, radius: float, points: Points, order: Sorted, capacity: int
) -> Any:
    """Over a dense buffer of ``capacity`` places in every cell: no gathers, whatever the crowding.

    The work is ``9 B cells capacity**2``, so it suits points that keep their distance.
    """
    boxes, size = points.x.shape[0], points.x.size
    shape = (capacity, boxes, cells.rows, cells.columns)
    rank = order.slot - order.start[jnp.minimum(order.cell, order.start.size - 1)]
    total = boxes * cells.count
    place = jnp.where(order.cell < total, rank * total + order.cell, capacity * total)

    def spread(z: Array) -> Array:
        empty = jnp.zeros(capacity * total, z.dtype)
        return empty.at[place].set(z.reshape(size), mode="drop").reshape(shape)

    number = jnp.broadcast_to(jnp.arange(points.x.shape[1], dtype=jnp.int32), points.x.shape)
    x, y, number, own, other = jax.tree.map(
        spread, (points.x, points.y, number, points.own, points.other)
    )
    taken = spread(points.valid)
    across = _offsets(cells.columns)
    along = _offsets(cells.rows)

    def visit(rank: Array, carry: Any) -> Any:
        layer = jax.tree.map(lambda z: z[rank], (x, y, number, other, taken))
        for row in along:
            for column in across:
                there = jax.tree.map(lambda z: jnp.roll(z, (-row, -column), (1, 2)), layer)  # noqa: B023
                *two, possible = there
                possible &= taken & (there[2] != number)
                pair = _candidate(cells.box, radius, (x, y, own), tuple(two), possible)
                carry = fold.visit(carry, pair)
        return carry

    result = lax.fori_loop(0, capacity, visit, fold.start(shape))
    return jax.tree.map(
        lambda z: z.reshape(-1).at[place].get(mode="clip").reshape(points.x.shape), result
    )


def _offsets(cells: int) -> tuple[int, ...]:
    """The cells of an axis where neighbours can be, each once."""
    return (-1, 0, 1) if cells >= 3 else tuple(range(cells))


def _ordered(points: Points, order: Sorted) -> tuple[Array, Array, Array, Any, Any]:
    """``(x, y, number, own, other)`` as flat arrays in the order of cells."""
    number = jnp.broadcast_to(jnp.arange(points.x.shape[1], dtype=jnp.int32), points.x.shape)
    everything = points.x, points.y, number, points.own, points.other
    return jax.tree.map(lambda z: z.reshape(-1)[order.point], everything)


def _unordered(result: Any, points: Points, order: Sorted) -> Any:
    """Back to ``[B, N]``; anything for points that were left out."""

    def back(z: Array) -> Array:
        return z.at[order.slot].get(mode="clip").reshape(points.x.shape)

    return jax.tree.map(back, result)


def _places(cells: Cells, order: Sorted) -> tuple[Array, Array, Array]:
    """``(box, row, column)`` of the cell of each point in the order, each ``int32[M]``."""
    cell = jnp.zeros(order.slot.shape, jnp.int32).at[order.slot].set(order.cell, mode="drop")
    box, local = jnp.divmod(cell, cells.count)
    return box, *jnp.divmod(local, cells.columns)


class _Range(NamedTuple):
    """A run of cells in one row, from the first to one past the last, and where their points are.

    There are `width` cells at most; `shift` is that of `Box.shortest`.
    """

    first: Array
    end: Array
    width: int
    shift: tuple[Array | None, Array | None]


def _ranges(cells: Cells, place: tuple[Array, Array, Array], number: Array | int) -> list[_Range]:
    """The cells around a cell in one of the rows around it.

    Args:
        cells: the grid.
        place: ``(box, row, column)`` of the cell, ``int32[...]``.
        number: which of the rows, ``0 .. min(rows, 3) - 1``.

    Returns:
        One range, or two where the row goes on at its other end.
    """
    (box, own_row, column), columns, rows = place, cells.columns, cells.rows
    dtype, (width, height) = float_dtype(), (cells.box.width, cells.box.height)
    row, empty, up = jnp.full_like(own_row, number), jnp.zeros_like(own_row, bool), None
    if rows > 3:
        there = own_row + number - 1
        below, above = there < 0, there >= rows
        row = jnp.where(below, rows - 1, jnp.where(above, 0, there))
        empty = empty if cells.box.periodic[1] else below | above
        up = jnp.where(below, height, jnp.where(above, -height, 0)).astype(dtype)
    base = box * cells.count + row * columns
    if columns <= 3:
        return [_Range(base, jnp.where(empty, base, base + columns), columns, (None, up))]
    first = base + jnp.maximum(column - 1, 0)
    end = jnp.where(empty, first, base + jnp.minimum(column + 2, columns))
    ranges = [_Range(first, end, 3, (jnp.zeros((), dtype), up))]
    if cells.box.periodic[0]:
        left = column == 0
        other = base + jnp.where(left, columns - 1, 0)
        edge = (left | (column == columns - 1)) & ~empty
        right = jnp.where(left, width, -width).astype(dtype)
        ranges.append(_Range(other, jnp.where(edge, other + 1, other), 1, (right, up)))
    return ranges


def in_order(
    fold: Fold, cells: Cells, radius: float, points: Points, order: Sorted, capacity: int | None
) -> Any:
    """Over the points of neighbouring cells, which lie side by side in the order of cells.

    All points look at their first candidate, then at their second, and so on: gathers, as wide as there
    are points.

    Args:
        fold: what to gather.
        cells: the grid.
        radius: how far neighbours are at most.
        points: the points.
        order: the points in the order of their cells.
        capacity: how many points a cell has at most; None to look at as many as there are, which takes
            as long as the fullest cells need.
    """
    x, y, number, own, other = _ordered(points, order)
    last = x.size - 1
    place = jnp.arange(x.size, dtype=jnp.int32)
    used = place < order.start[-1]
    home = _places(cells, order)
    carry = fold.start(x.shape)
    for row in range(min(cells.rows, 3)):
        for part in _ranges(cells, home, row):
            begin, stop = order.start[part.first], order.start[part.end]
            stop = jnp.where(used, stop, begin)

            def visit(
                step: Array,
                carry: Any,
                begin: Array = begin,
                stop: Array = stop,
                part: _Range = part,
            ) -> Any:
                at = begin + step
                j = jnp.minimum(at, last)
                two = jax.tree.map(lambda z: z[j], (x, y, number, other))
                possible = (at < stop) & (at != place)
                pair = _candidate(cells.box, radius, (x, y, own), two, possible, part.shift)
                return fold.visit(carry, pair)

            limit = jnp.max(stop - begin) if capacity is None else part.width * capacity
            carry = lax.fori_loop(0, limit, visit, carry)
    return _unordered(carry, points, order)


def one_by_one(fold: Fold, cells: Cells, radius: float, points: Points, order: Sorted) -> Any:
    """As `in_order`, but a point after the other: exact, and on CPU the fastest.

    XLA on CPU makes one kernel of the nested loops, which looks at the true candidates only. Elsewhere
    it would be the slowest of all.
    """
    lanes = fold.lanes
    flat = _ordered(points, order)
    x, y, number, own, other = flat
    size = x.size
    # A read beyond the last point would move to the left instead.
    padded = jax.tree.map(lambda z: jnp.pad(z, (0, lanes)), (x, y, number, other))
    homes = _places(cells, order)
    lane = np.arange(lanes, dtype=np.int32)

    def read(z: Array, i: Array) -> Array:
        return lax.dynamic_index_in_dim(z, i, keepdims=False)

    def gather(point: Array) -> Any:
        one = jax.tree.map(lambda z: read(z, point), (x, y, own))
        home = jax.tree.map(lambda z: read(z, point), homes)

        def look(part: _Range, carry: Any) -> Any:
            begin, stop = read(order.start, part.first), read(order.start, part.end)

            def visit(state: tuple[Array, Any]) -> tuple[Array, Any]:
                at, carry = state
                two = jax.tree.map(lambda z: lax.dynamic_slice(z, (at,), (lanes,)), padded)
                possible = (lane < stop - at) & (lane != point - at)
                pair = _candidate(cells.box, radius, one, two, possible, part.shift)
                return at + lanes, fold.visit(carry, pair)

            return lax.while_loop(lambda state: state[0] < stop, visit, (begin, carry))[1]

        def row(number: Array, carry: Any) -> Any:
            for part in _ranges(cells, home, number):
                carry = look(part, carry)
            return carry

        return fold.join(lax.fori_loop(0, min(cells.rows, 3), row, fold.start((lanes,))))

    def put(point: Array, result: Any) -> Any:
        return jax.tree.map(
            lambda z, value: lax.dynamic_update_index_in_dim(z, value, point, 0),
            result,
            gather(point),
        )

    shapes = jax.eval_shape(gather, jnp.zeros((), jnp.int32))
    result = jax.tree.map(lambda s: jnp.zeros(size, s.dtype), shapes)
    return _unordered(lax.fori_loop(0, order.start[-1], put, result), points, order)
