"""What the tests of the neighbour search share: shapes, compiled searches, positions, comparisons."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import neighbour_oracle
import numpy as np

from flockax.envs.space.neighbours import Neighbours

BATCH = 16  # boxes looked at by one compiled call
WORD = 15  # neighbours whose bits go into one number: sums of these are exact in float32

# What "exact" and the sort do on other devices is tried on CPU too.
BACKENDS = ("pairs", "cells", "sorted", "exact", "sorted elsewhere", "exact elsewhere")


@dataclasses.dataclass(frozen=True)
class Shape:
    """A box with points, all of which fit into one cell unless `capacity` says otherwise.

    Attributes:
        n: number of points.
        size: width and height.
        radius: how far neighbours are at most.
        grid: columns and rows of the cells.
        periodic: whether x and y wrap around.
        capacity: of a cell.
        k: how many nearest neighbours are asked for.
    """

    n: int
    size: tuple[float, float]
    radius: float
    grid: tuple[int, int]
    periodic: tuple[bool, bool] = (True, True)
    capacity: int | None = None
    k: int = 2

    def search(self, backend: str) -> Neighbours:
        return Neighbours(
            num_points=self.n,
            width=self.size[0],
            height=self.size[1],
            radius=self.radius,
            periodic=self.periodic,
            backend=backend.split()[0],
            capacity=self.n if self.capacity is None else self.capacity,
        )

    def oracle(self, backend: str, x: Any, y: Any, present: Any) -> neighbour_oracle.Pairs:
        capacity = self.capacity if backend.startswith(("cells", "sorted")) else None
        return neighbour_oracle.pairs(
            x, y, present, self.size, self.radius, self.periodic, self.grid, capacity
        )


def bits(n: int) -> tuple[np.ndarray, ...]:
    """The bit of each point in each of a number of words: sums of them tell who was summed over."""
    number = np.arange(n)
    words = range(-(-n // WORD))
    return tuple(np.where(number // WORD == w, 1 << number % WORD, 0) for w in words)


def terms(dx, dy, own, other):
    weight, words = other
    return (dx, dy, own * weight, *words)


def look(search: Neighbours, k: int, x: Any, y: Any, present: Any) -> Any:
    """Sums and nearest neighbours."""
    number = jnp.arange(search.num_points)
    words = tuple(jnp.asarray(word) for word in bits(search.num_points))
    sums = search.sums(terms, x, y, number % 7, (number % 5 - 2, words), present)
    return sums, search.nearest(k, x, y, present)


def elsewhere(backend: str) -> Any:
    """Takes the CPU for something else while a search with such a back end is traced."""
    return mock.patch("jax.default_backend", lambda: "gpu" if "elsewhere" in backend else "cpu")


@functools.cache
def compiled(shape: Shape, backend: str) -> Any:
    search = shape.search(backend)
    return jax.jit(jax.vmap(functools.partial(look, search, shape.k)))


def run(shape: Shape, backend: str, x: Any, y: Any, present: Any) -> Any:
    with elsewhere(backend):
        return jax.device_get(compiled(shape, backend)(x, y, present))


def check(shape: Shape, backend: str, found: Any, x, y, present, rounding: float = 0.0) -> None:
    """What was found is what the oracle finds.

    Args:
        shape: the box.
        backend: how it was searched.
        found: of `look`.
        x: ``[B, N]``.
        y: ``[B, N]``.
        present: ``bool[B, N]``.
        rounding: how far distances may be off; 0 for positions where nothing is rounded.
    """
    sums, near = found
    pairs = shape.oracle(backend, x, y, present)
    for result in found:
        np.testing.assert_array_equal(result.invalid, pairs.invalid, backend)
        np.testing.assert_array_equal(result.overflow, pairs.overflow, backend)
    dx, dy, weight, *words = sums.value
    n = shape.n
    seen = np.stack([words[j // WORD].astype(int) >> j % WORD & 1 for j in range(n)], -1) == 1
    unclear = pairs.near_threshold(shape.radius, rounding)
    np.testing.assert_array_equal(seen & ~unclear, pairs.inside & ~unclear, backend)
    assert (seen == np.swapaxes(seen, 1, 2)).all(), f"{backend}: neighbours that are not mutual"
    number = np.arange(n)
    expected = seen * (number % 7)[:, None] * (number % 5 - 2)
    np.testing.assert_array_equal(weight, expected.sum(-1), backend)
    clear = ~(pairs.halfway & seen).any(-1)
    close = functools.partial(
        np.testing.assert_allclose, rtol=0, atol=rounding * n, err_msg=backend
    )
    for value, each in ((dx, pairs.dx), (dy, pairs.dy)):
        close(value[clear], (seen * each).sum(-1)[clear])
    _check_nearest(shape, backend, near.value, pairs, seen, rounding)


def _check_nearest(shape, backend, near, pairs, seen, rounding):
    if rounding == 0:
        index, mask = pairs.nearest(shape.k)
        np.testing.assert_array_equal(near.mask, mask, backend)
        np.testing.assert_array_equal(near.index, index, backend)
    np.testing.assert_array_equal(near.mask.sum(-1), np.minimum(seen.sum(-1), shape.k), backend)
    assert (near.mask[..., :-1] >= near.mask[..., 1:]).all(), f"{backend}: a gap"
    for part in (near.index, near.dx, near.dy):
        assert (part[~near.mask] == 0).all(), f"{backend}: something where there is none"
    box, point, place = np.nonzero(near.mask)
    pair = box, point, near.index[near.mask]
    assert seen[pair].all(), f"{backend}: near but no neighbour"
    ties = pairs.halfway[pair]
    for part, each in ((near.dx, pairs.dx), (near.dy, pairs.dy)):
        difference = part[near.mask] - each[pair]
        assert np.all((np.abs(difference) <= rounding) | ties), f"{backend}: another way there"
    # The distances are the k smallest, whoever is chosen of equally near ones.
    order = np.sort(np.where(seen, np.sqrt(pairs.square), np.inf), -1)
    order = np.pad(order, ((0, 0), (0, 0), (0, shape.k)), constant_values=np.inf)
    distance = np.sqrt(pairs.square[pair])
    assert np.all(np.abs(distance - order[box, point, place]) <= rounding), (
        f"{backend}: not nearest"
    )


def on_lattice(rng, shape: Shape, boxes: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of 1/8 in and around the box, often at its edges, often on top of each other."""
    kind = rng.integers(4, size=(2, boxes, 1))
    axes = []
    for axis, length in enumerate(shape.size):
        steps = int(length * 8)
        anywhere = rng.integers(-steps, 2 * steps + 1, (boxes, shape.n))
        within = rng.integers(0, steps + 1, (boxes, shape.n))
        edges = steps * rng.integers(-1, 3, (boxes, shape.n)) + rng.integers(
            -1, 2, (boxes, shape.n)
        )
        crowd = rng.integers(0, steps, (boxes, 1)) + rng.integers(-4, 5, (boxes, shape.n))
        axes.append(np.choose(kind[axis], [anywhere, within, edges, crowd]) / 8.0)
    return axes[0], axes[1]


def anywhere(rng, shape: Shape, boxes: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Any float32 numbers in and around the box, spread evenly or in clusters."""
    size = np.array(shape.size)[:, None, None]
    spread = rng.uniform(-1, 2, (2, boxes, shape.n)) * size
    within = rng.uniform(0, 1, (2, boxes, shape.n)) * size
    centre = rng.uniform(0, 1, (2, boxes, 3)) * size
    chosen = rng.integers(3, size=(boxes, shape.n))
    scatter = rng.normal(0, 0.5 * shape.radius, (2, boxes, shape.n))
    clusters = np.take_along_axis(centre, np.stack([chosen, chosen]), -1) + scatter
    kind = rng.integers(3, size=(1, boxes, 1))
    x, y = np.choose(kind, [spread, within, clusters]).astype(np.float32)
    return x, y
