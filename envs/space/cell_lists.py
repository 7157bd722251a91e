"""Points of the plane sorted into the cells of a regular grid.

Many boxes are sorted at once: the arrays have shape ``[B, N]``, and the number of a cell is
``box * cells_per_box + row * columns + column``.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from flockax.envs.spec import float_dtype

Array = jax.Array

CELLS_PER_POINT = 2  # more cells than this cost more to walk over than they save


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle ``[0, width] x [0, height]`` whose axes are periodic or walled.

    Attributes:
        width: length along x.
        height: length along y.
        periodic: whether x and y wrap around.
    """

    width: float
    height: float
    periodic: tuple[bool, bool] = (True, True)

    def wrap(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Positions with periodic axes brought into ``[0, length]``, walled ones as they are."""
        if self.periodic[0]:
            x = _wrapped(x, self.width)
        if self.periodic[1]:
            y = _wrapped(y, self.height)
        return x, y

    def shortest(
        self, dx: Array, dy: Array, shift: tuple[Array | None, Array | None] = (None, None)
    ) -> tuple[Array, Array]:
        """The shortest way between two points of the box that are apart by ``(dx, dy)``.

        Args:
            dx: ``f[...]``.
            dy: ``f[...]``.
            shift: how far away the nearest image is from the point itself, where that is known: the
                length of the axis, 0 or minus the length. The result is the same.
        """
        parts = zip((dx, dy), (self.width, self.height), self.periodic, shift, strict=True)
        dx, dy = (_nearest(*part) for part in parts)
        return dx, dy


def _wrapped(z: Array, length: float) -> Array:
    # Many boxes away the rounding of the product is itself a large part of a box.
    return jnp.clip(z - length * jnp.floor(z / length), 0, length)


def _nearest(d: Array, length: float, periodic: bool, shift: Array | None) -> Array:
    if not periodic:
        return d
    if shift is None:
        return d - length * jnp.round(d * (1 / length))
    return d - shift


@dataclasses.dataclass(frozen=True)
class Cells:
    """A grid of cells over a box, none smaller than a radius.

    Two points within the radius of each other are in the same cell or in two that touch, also if both
    are outside a walled side: they count to the cells along it.

    Attributes:
        box: the box.
        columns: cells along x.
        rows: cells along y.
    """

    box: Box
    columns: int
    rows: int

    @classmethod
    def of(cls, box: Box, radius: float, num_points: int) -> Cells:
        """The smallest cells that hold a radius, but not many more of them than points."""
        # Coordinates are rounded, so a cell must be a little wider than the radius.
        rounding = 8 * float(np.finfo(np.float32).eps) * max(box.width, box.height)
        side = radius * (1 + 1e-6) + rounding
        side = max(side, math.sqrt(box.width * box.height / (CELLS_PER_POINT * num_points)))
        # A box narrower than a cell would otherwise be cut into as many as it is long.
        most = CELLS_PER_POINT * num_points
        rows = min(max(1, int(box.height / side)), most)
        return cls(box, min(max(1, int(box.width / side)), most // rows), rows)

    @property
    def count(self) -> int:
        """Cells of one box."""
        return self.columns * self.rows

    def index(self, x: Array, y: Array) -> Array:
        """``int32[...]``: the cell of each point of a box."""
        column = jnp.clip(x * (self.columns / self.box.width), 0, self.columns - 1)
        row = jnp.clip(y * (self.rows / self.box.height), 0, self.rows - 1)
        return row.astype(jnp.int32) * self.columns + column.astype(jnp.int32)


@struct.dataclass
class Sorted:
    """Points in the order of their cells; within a cell in the order of their numbers.

    Attributes:
        cell: ``int32[M]``, the cell of each point as given, M = B N; B * cells for those left out.
        slot: ``int32[M]``, where each point as given is in the order; M for those left out.
        point: ``int32[M]``, which point is at each place of the order; 0 beyond the last.
        start: ``int32[B * cells + 1]``, where each cell begins in the order.
        dropped: ``int32[B]``, points left out since their cell was full.
    """

    cell: Array
    slot: Array
    point: Array
    start: Array
    dropped: Array

    @property
    def kept(self) -> Array:
        """``bool[M]``: the points as given that were not left out."""
        return self.slot < self.slot.size


def sort_into_cells(
    cells: Cells, x: Array, y: Array, valid: Array, capacity: int | None = None
) -> Sorted:
    """Sorts points by their cells.

    Args:
        cells: the grid.
        x: ``f[B, N]``.
        y: ``f[B, N]``.
        valid: ``bool[B, N]``, False for points that are left out.
        capacity: how many points a cell holds; further ones, the last in the order of their numbers,
            are left out and counted.

    Raises:
        ValueError: for more cells than an int32 can count.
    """
    boxes, points = x.shape
    size, total = boxes * points, boxes * cells.count
    if max(size, total) >= 2**31 - 1:
        raise ValueError(f"{boxes} boxes of {cells.count} cells and {points} points are too many")
    cell = cells.index(x, y) + cells.count * jnp.arange(boxes, dtype=jnp.int32)[:, None]
    cell = jnp.where(valid, cell, total).reshape(size)
    count = jnp.zeros(total + 1, jnp.int32).at[cell].add(1)
    start = _starts(count)
    place = _places(cell, start)
    dropped = jnp.zeros(boxes, jnp.int32)
    kept = cell < total
    if capacity is not None:
        rank = place - start[cell]
        full = kept & (rank >= capacity)
        dropped = jnp.sum(full.reshape(boxes, points), axis=1, dtype=jnp.int32)
        kept &= ~full
        start = _starts(jnp.minimum(count, capacity))
        place = start[cell] + rank
    slot = jnp.where(kept, place, size)
    number = jnp.arange(size, dtype=jnp.int32)
    point = jnp.zeros(size, jnp.int32).at[slot].set(number, mode="drop")
    return Sorted(jnp.where(kept, cell, total), slot, point, start[:-1], dropped)


def _starts(count: Array) -> Array:
    """``int32[K + 1]``: where each of K runs of the given lengths begins, and where the last ends."""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(count, dtype=jnp.int32)])


def _places(cell: Array, start: Array) -> Array:
    """``int32[M]``: the place of each point when stably sorted by `cell`."""
    size = cell.shape[0]
    number = jnp.arange(size, dtype=jnp.int32)
    if jax.default_backend() != "cpu":
        _, order = lax.sort((cell, number), num_keys=1, is_stable=True)
        return jnp.zeros(size, jnp.int32).at[order].set(number, unique_indices=True)

    # Counting, a point at a time: on CPU one kernel, twelve times as fast as a sort.
    def put(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        place, following = carry
        own = lax.dynamic_index_in_dim(cell, i, keepdims=False)
        free = lax.dynamic_index_in_dim(following, own, keepdims=False)
        # Without the barrier both writes read `following`, which is then copied for each point.
        free, i = lax.optimization_barrier((free, i))
        place = lax.dynamic_update_index_in_dim(place, free, i, 0)
        return place, lax.dynamic_update_index_in_dim(following, free + 1, own, 0)

    return lax.fori_loop(0, size, put, (jnp.zeros(size, jnp.int32), start))[0]


def positions(x: Array, y: Array, present: Array) -> tuple[Array, Array, Array, Array]:
    """Positions that can be reckoned with, and what was wrong with the others.

    Returns:
        ``(x, y, valid bool[...], invalid bool[...])``: finite positions (0 instead of others), who
        is present and somewhere, and who is present and nowhere (NaN or infinite).
    """
    finite = jnp.isfinite(x) & jnp.isfinite(y)
    valid = present & finite
    dtype = float_dtype()
    x, y = (jnp.where(valid, z, 0).astype(dtype) for z in (x, y))
    return x, y, valid, present & ~finite
