"""Neighbour search among up to millions of points of the plane, in fixed shapes.

    search = Neighbours(num_points=1000, width=20.0, height=20.0, radius=1.0)
    count = search.sums(lambda dx, dy, own, other: (jnp.ones_like(dx),), x, y).value[0]
    nearest = search.nearest(5, x, y).value

Neighbours of a point are the others whose distance is at most `radius`; on periodic axes it is the
distance to the nearest image, also where the radius is longer than half the box. Points at the same
place are neighbours. A point that is not finite has no neighbours and is nobody's; it is counted.
Of a point many boxes away nothing is known but to its own rounding: it is somewhere in the box.

Back ends, all of which find the same neighbours:

* ``pairs``: all pairs, for some hundred points at most.
* ``cells``: a dense buffer of `capacity` places a cell. No gathers; the work grows with the square of
  the capacity.
* ``sorted``: points sorted by cell, three runs of ``3 capacity`` candidates each.
* ``exact``: the same without a capacity. On CPU one native loop over the true candidates, elsewhere as
  slow as the fullest cells.

Where a cell holds more points than `capacity`, those with the highest numbers are left out, see nothing
and are seen by nobody, so that forces stay mutual; ``overflow`` counts them.

Under `jax.vmap` the points of all environments are sorted at once. Derivatives are not defined: loops
have no fixed length.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.batching import merge_batches
from flockax.envs.parameters import require_choice, require_int, require_number
from flockax.envs.space import neighbour_backends as backends
from flockax.envs.space.cell_lists import Box, Cells, positions, sort_into_cells
from flockax.envs.space.neighbour_folds import Fold, NearestFold, Pair, Sums
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array

BACKENDS = ("auto", "pairs", "cells", "sorted", "exact")
# Measured on CPU: from 32 points a step of `flock` is faster with "exact". Elsewhere nothing was
# measured; there wide operations are cheap and steps that wait for each other dear.
PAIRS_UP_TO = {"cpu": 16, "other": 512}
LENGTHS = (1e-15, 1e15)  # squares of these are ordinary float32 numbers


@struct.dataclass
class Found:
    """What a search found.

    Attributes:
        value: the sums, or `Nearest`.
        overflow: ``int[]``, points left out since their cell was full.
        invalid: ``int[]``, points left out since their position is not finite.
    """

    value: Any
    overflow: Array
    invalid: Array


@struct.dataclass
class Nearest:
    """The k nearest neighbours of each point, the nearest first, equally near ones by number.

    Attributes:
        index: ``int[N, k]``, which points they are; 0 where there is none.
        dx: ``f[N, k]``, how far along x, by the shortest way; 0 where there is none.
        dy: ``f[N, k]``, how far along y.
        mask: ``bool[N, k]``, whether there is one.
    """

    index: Array
    dx: Array
    dy: Array
    mask: Array


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """A search for the neighbours of every one of a number of points in a box.

    Attributes:
        num_points: ``N``.
        width: length of the box along x, in [1e-15, 1e15]. Points may be outside of walled sides.
        height: length of the box along y.
        radius: how far neighbours are at most; in the same range.
        periodic: whether x and y wrap around.
        backend: one of `BACKENDS`; "auto" takes "pairs" for few points, else "exact" on CPU and
            "sorted" elsewhere.
        capacity: points a cell can hold in the back ends "cells" and "sorted"; None for enough where
            points are spread evenly.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    num_points: int
    width: float
    height: float
    radius: float
    periodic: tuple[bool, bool] = (True, True)
    backend: str = "auto"
    capacity: int | None = None

    def __post_init__(self) -> None:
        require_int(self, "num_points", 1)
        for name in ("width", "height", "radius"):
            require_number(self, name, *LENGTHS)
        require_choice(self, "backend", BACKENDS)
        axes = self.periodic if isinstance(self.periodic, tuple) else ()
        if [type(axis) for axis in axes] != [bool, bool]:
            raise ValueError(f"Neighbours: periodic={self.periodic!r} is not a pair of bools")
        if self.capacity is not None:
            require_int(self, "capacity", 1)

    @property
    def box(self) -> Box:
        """The box."""
        return Box(self.width, self.height, self.periodic)

    @property
    def cells(self) -> Cells:
        """The grid that points are sorted into."""
        return Cells.of(self.box, self.radius, self.num_points)

    @property
    def chosen(self) -> str:
        """The back end that is used."""
        if self.backend != "auto":
            return self.backend
        cpu = jax.default_backend() == "cpu"
        if self.num_points <= PAIRS_UP_TO["cpu" if cpu else "other"]:
            return "pairs"
        return "exact" if cpu else "sorted"

    @property
    def places(self) -> int:
        """The capacity that is used, at most ``N``."""
        if self.capacity is not None:
            return min(self.capacity, self.num_points)
        mean = self.num_points / self.cells.count
        # Of points spread evenly, fewer than one cell in ten million has more.
        enough = math.ceil(mean + 5 * math.sqrt(mean) + 5)
        return min(enough, self.num_points)

    def grown(self) -> Neighbours:
        """The search with doubled capacity.

        Raises:
            ValueError: where the back end has no capacity.
        """
        if self.chosen not in ("cells", "sorted"):
            raise ValueError(f"the back end {self.chosen!r} has no capacity to grow")
        return dataclasses.replace(self, capacity=2 * self.places)

    def sums(
        self,
        pair: Pair,
        x: Array,
        y: Array,
        own: Any = (),
        other: Any = (),
        present: Array | None = None,
    ) -> Found:
        """Sums over the neighbours of each point.

        Args:
            pair: ``(dx, dy, own, other) -> terms``, a tuple of what a pair adds to the sums of the
                one: elementwise operations on arrays of any one shape. ``dx, dy`` point from the one
                to the other. It must not close over traced arrays: what it needs comes in as values,
                broadcast to ``[N]``. What it makes of pairs that are not neighbours is ignored.
            x: ``f[N]``.
            y: ``f[N]``.
            own: a tree of ``[N]``, values of the one.
            other: a tree of ``[N]``, values of the other.
            present: ``bool[N]``, False for points that are not there; None for all.

        Returns:
            `Found` with a tuple of ``[N]``, the sums; 0 for points left out. Truths are counted.

        Raises:
            ValueError: for an array that is not ``[N]``.
        """
        self._require_shapes(x=x, y=y, own=own, other=other)
        one = jax.tree.map(lambda z: jax.ShapeDtypeStruct((), z.dtype), (own, other))
        length = jax.ShapeDtypeStruct((), float_dtype())
        terms = jax.eval_shape(pair, length, length, *one)
        dtypes = tuple(int_dtype() if t.dtype == bool else t.dtype for t in terms)
        return self._search(Sums(pair, dtypes), x, y, own, other, present)

    def nearest(self, k: int, x: Array, y: Array, present: Array | None = None) -> Found:
        """The k nearest neighbours of each point.

        Args:
            k: how many, at least 1; the work grows with it.
            x: ``f[N]``.
            y: ``f[N]``.
            present: ``bool[N]``, False for points that are not there; None for all.

        Returns:
            `Found` with `Nearest`.

        Raises:
            ValueError: for a k that is not an integer above 0, or an array that is not ``[N]``.
        """
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise ValueError(f"k={k!r} is not an integer >= 1")
        fold = NearestFold(k, float_dtype(), self.num_points)
        found = self._search(fold, x, y, (), (), present)
        squares, numbers = (jnp.stack(part, axis=-1) for part in found.value)
        mask = jnp.isfinite(squares)
        index = jnp.where(mask, numbers, 0)
        px, py = self.box.wrap(*positions(x, y, jnp.ones(x.shape, bool))[:2])
        dx, dy = self.box.shortest(px[index] - px[:, None], py[index] - py[:, None])
        value = Nearest(index, jnp.where(mask, dx, 0), jnp.where(mask, dy, 0), mask)
        return Found(value, found.overflow, found.invalid)

    def _search(
        self, fold: Fold, x: Array, y: Array, own: Any, other: Any, present: Array | None
    ) -> Found:
        present = jnp.ones(self.num_points, bool) if present is None else present
        self._require_shapes(x=x, y=y, present=present)
        if present.dtype != bool:
            raise ValueError(f"present has dtype {present.dtype}, not bool")
        x, y, valid, invalid = positions(x, y, present)
        x, y = self.box.wrap(x, y)
        search = merge_batches(lambda *boxes: self._gather(fold, backends.Points(*boxes)))
        result, dropped = search(*jax.tree.map(lambda z: z[None], (x, y, valid, own, other)))
        dtype = int_dtype()
        return Found(
            value=jax.tree.map(lambda z: z[0], result),
            overflow=dropped[0].astype(dtype),
            invalid=jnp.sum(invalid, dtype=dtype),
        )

    def _require_shapes(self, **trees: Any) -> None:
        wanted = (self.num_points,)
        for name, tree in trees.items():
            for leaf in jax.tree.leaves(tree):
                if jnp.shape(leaf) != wanted:
                    raise ValueError(f"{name} has shape {jnp.shape(leaf)}, not {wanted}")

    def _gather(self, fold: Fold, points: backends.Points) -> tuple[Any, Array]:
        """``(what the fold gathered [B, N], points left out int32[B])``."""
        radius, cells = self.radius, self.cells
        kept, dropped = points.valid, jnp.zeros(points.x.shape[0], jnp.int32)
        nothing = fold.join(fold.start((1,)))
        if self.chosen == "pairs":
            result = fold.matrix(backends.all_pairs(self.box, radius, points))
        else:
            capacity = None if self.chosen == "exact" else self.places
            order = sort_into_cells(cells, points.x, points.y, points.valid, capacity)
            kept, dropped = order.kept.reshape(kept.shape), order.dropped
            if capacity is not None and self.chosen == "cells":
                result = backends.in_buffer(fold, cells, radius, points, order, capacity)
            elif capacity is None and jax.default_backend() == "cpu":
                result = backends.one_by_one(fold, cells, radius, points, order)
            else:
                result = backends.in_order(fold, cells, radius, points, order, capacity)
        return jax.tree.map(lambda z, none: jnp.where(kept, z, none), result, nothing), dropped
