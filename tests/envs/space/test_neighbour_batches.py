"""The neighbour search under transformations and in float64, and what it refuses."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import neighbour_cases as cases
import numpy as np
import pytest
from neighbour_cases import BACKENDS, Shape

from flockax.envs.batching import merge_batches
from flockax.envs.space.cell_lists import Box
from flockax.envs.space.neighbours import PAIRS_UP_TO, Neighbours

SMALL = Shape(9, (5.125, 1.125), 1.25, (4, 1), periodic=(True, False), capacity=2)


def gaps(search, x, y, weight):
    """A sum of everything at once: whom a point sees, how far away, what they and it weigh."""
    return search.sums(lambda dx, dy, a, b: (dx + 3 * dy + a * b,), x, y, weight, weight + 1)


def places(*boxes):
    """Lattice positions with a cluster, so that a capacity of 2 overflows now and then."""
    steps = np.random.default_rng(5).integers(0, 24, (2, *boxes, SMALL.n))
    return jnp.asarray(steps / 8.0)


def same(actual, expected):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


@pytest.mark.parametrize("backend", ["pairs", "cells", "sorted", "exact"])
def test_vmap_and_nested_vmap_are_loops(backend):
    one = functools.partial(gaps, SMALL.search(backend))
    (x, y), weight = places(2, 3), jnp.arange(9.0)
    compiled = jax.jit(one)
    loop = [compiled(x[a, b], y[a, b], weight) for a, b in np.ndindex(2, 3)]
    loop = jax.tree.map(lambda *z: np.stack(z).reshape(2, 3, *z[0].shape), *loop)
    twice = jax.vmap(jax.vmap(one, (0, 0, None)), (0, 0, None))
    same(jax.jit(twice)(x, y, weight), loop)
    if backend in ("cells", "sorted"):
        assert len(np.unique(loop.overflow)) > 1


def test_an_argument_without_the_batch_axis_is_that_of_all():
    one = functools.partial(gaps, SMALL.search("pairs"))
    (x, y), weight = places(3), jnp.arange(27.0).reshape(3, 9)
    mixed = jax.jit(jax.vmap(jax.vmap(one, (None, None, 0)), (0, None, None)))(x, y[1], weight)
    every = jax.jit(jax.vmap(one))
    for a in range(3):
        rows = every(jnp.stack([x[a]] * 3), jnp.stack([y[1]] * 3), weight)
        same(jax.tree.map(lambda z, a=a: z[a], mixed), rows)
    last = jax.jit(jax.vmap(one, (-1, -1, 0)))(x.T, y.T, weight)
    same(last, every(x, y, weight))


def test_merged_batches_take_and_give_trees():
    sizes = []

    def function(tree, z):
        sizes.append(len(z))
        # A loop that depends on the batch is run once for all of it.
        total = jax.lax.fori_loop(0, jnp.max(tree["n"]), lambda i, c: c + (i < tree["n"]), z)
        return {"total": total, "first": tree["pair"][0][:, 0] - z}

    def row(n, pair, z):
        one = {"n": n[None], "pair": (pair[None], ())}
        return jax.tree.map(lambda r: r[0], merge_batches(function)(one, z[None]))

    n, pair, z = jnp.arange(6).reshape(2, 3), jnp.arange(24).reshape(2, 3, 4), jnp.array([7, -2])
    found = jax.vmap(jax.vmap(row, (0, 0, None)))(n, pair, z)
    same(found, {"total": z[:, None] + n, "first": pair[..., 0] - z[:, None]})
    assert sizes[-1] == 6
    same(row(n[1, 2], pair[1, 2], z[0]), {"total": 12, "first": 13})


@pytest.mark.parametrize("backend", ["pairs", "exact"])
def test_compiled_or_not_is_the_same(backend):
    search, (x, y), weight = SMALL.search(backend), places(), jnp.arange(9.0)
    one = functools.partial(gaps, search)
    same(one(x, y, weight), jax.jit(one)(x, y, weight))


@pytest.mark.parametrize(
    "backend",
    [pytest.param(b, marks=[] if b in ("pairs", "exact") else pytest.mark.slow) for b in BACKENDS],
)
def test_float64(backend):
    shape = Shape(12, (4.1, 5.3), 1.0, (4, 5))
    rng = np.random.default_rng(6)
    x, y = rng.uniform(-1, 2, (2, cases.BATCH, 12)) * np.array(shape.size)[:, None, None]
    present = np.ones(x.shape, bool)
    with jax.enable_x64(True):
        found = cases.run(shape, backend, x, y, present)
    cases.check(shape, backend, found, x, y, present, rounding=1e-11)
    sums, near = found
    assert {z.dtype for z in (*sums.value[:2], near.value.dx, near.value.dy)} == {np.dtype(float)}
    assert sums.overflow.dtype == sums.invalid.dtype == np.int64
    cases.compiled.cache_clear()


def test_dtypes_are_those_of_the_terms_whatever_the_back_end():
    x = y = jnp.zeros(3)

    def pair(dx, dy, own, other):
        return dx, own + other, dx <= other

    for backend in ("pairs", "cells", "exact"):
        search = Neighbours(3, 2.0, 2.0, 1.5, backend=backend)
        number = jnp.arange(3)
        far, whole, truth = jax.jit(lambda *z, s=search: s.sums(pair, *z).value)(
            x, y, number, number - 1
        )
        assert (far.dtype, whole.dtype, truth.dtype) == (jnp.float32, jnp.int32, jnp.int32)
        np.testing.assert_array_equal(whole, [1, 2, 3])
        # Truths are counted: of -1, 0, 1 the others that are not below 0.
        np.testing.assert_array_equal(truth, [2, 1, 1])


def test_one_point_and_nobody():
    alone = Neighbours(1, 4.0, 4.0, 9.0)
    assert alone.chosen == "pairs"
    for backend in ("pairs", "cells", "exact"):
        search = dataclasses.replace(alone, backend=backend)
        nearest = jax.jit(lambda *z, s=search: s.nearest(2, *z))
        for x, here, invalid in ((1.0, True, 0), (jnp.nan, True, 1), (jnp.nan, False, 0)):
            found = nearest(jnp.full(1, x), jnp.ones(1), jnp.full(1, here))
            assert not found.value.mask.any() and found.value.index.shape == (1, 2)
            assert (int(found.invalid), int(found.overflow)) == (invalid, 0)


def test_the_default_has_a_back_end_and_a_capacity_for_points_spread_evenly():
    most = PAIRS_UP_TO["cpu"]
    assert Neighbours(most, 9.0, 9.0, 1.0).chosen == "pairs"
    assert Neighbours(most + 1, 9.0, 9.0, 1.0).chosen == "exact"
    with cases.elsewhere("exact elsewhere"):
        most = PAIRS_UP_TO["other"]
        assert Neighbours(most, 9.0, 9.0, 1.0).chosen == "pairs"
        assert Neighbours(most + 1, 9.0, 9.0, 1.0).chosen == "sorted"
    search = Neighbours(10_000, 40.0, 30.0, 1.0, backend="sorted")
    x, y = np.random.default_rng(7).uniform(0, 1, (2, 10_000)) * [[40.0], [30.0]]
    column, row = (np.floor(z / s * n) for z, s, n in ((x, 40.0, 39), (y, 30.0, 29)))
    assert (search.cells.columns, search.cells.rows) == (39, 29)
    assert np.unique(row * 39 + column, return_counts=True)[1].max() <= search.places < 30


@pytest.mark.parametrize("size", [(1e6, 1e-6), (1e-6, 1e6), (3.0, 3.0), (1.0, 100.0), (1e15, 1e15)])
def test_cells_are_not_many_more_than_points_and_hold_a_radius(size):
    for n in (1, 2, 10, 1000):
        for radius in (1e-9, 0.1, 1e3):
            cells = Neighbours(n, *size, radius).cells
            assert 1 <= cells.count <= 2 * n
            assert cells.columns == 1 or size[0] / cells.columns > radius
            assert cells.rows == 1 or size[1] / cells.rows > radius


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("num_points", [0, -1, 2.0, True, "3", None]),
        ("width", [0, -1.0, math.nan, math.inf, True, "1", None, 1e300, 1e-300, 10**400]),
        ("height", [0.0, math.inf, False, np.float32(np.nan)]),
        ("radius", [math.nan, 0, math.inf, -math.inf, True, None, [1.0], 1e-30]),
        ("periodic", [True, (True,), (True, True, True), (1, 0), [True, False], None, ("x", "y")]),
        ("backend", ["all", None, 1, "PAIRS", ""]),
        ("capacity", [0, -3, 1.5, True, "2"]),
    ],
)
def test_wrong_fields_are_refused(field, values):
    good = {"num_points": 3, "width": 2.0, "height": 2.0, "radius": 0.5}
    for value in values:
        with pytest.raises(ValueError, match=rf"Neighbours: {field}=.* is not ") as error:
            Neighbours(**{**good, field: value})
        assert repr(value) in str(error.value)


def test_numbers_of_numpy_are_numbers():
    search = Neighbours(np.int64(3), np.float32(2.0), 4, np.float64(0.5), capacity=np.int8(2))
    assert search == Neighbours(3, 2.0, 4.0, 0.5, capacity=2)
    assert hash(search) == hash(Neighbours(3, 2.0, 4.0, 0.5, capacity=2))
    assert type(search.width) is type(search.height) is float


def test_wrong_arrays_are_refused():
    search, good = Neighbours(3, 2.0, 2.0, 0.5), jnp.zeros(3)

    def total(dx, dy, own, other):
        return (dx,)

    for bad in (jnp.zeros(2), jnp.zeros(4), jnp.zeros((3, 1)), jnp.zeros(())):
        for x, y in ((bad, good), (good, bad)):
            with pytest.raises(ValueError, match=r"[xy] has shape .* not \(3,\)"):
                search.sums(total, x, y)
            with pytest.raises(ValueError, match=r"[xy] has shape .* not \(3,\)"):
                search.nearest(1, x, y)
        for name in ("own", "other", "present"):
            with pytest.raises(ValueError, match=rf"{name} has shape .* not \(3,\)"):
                search.sums(total, good, good, **{name: bad})
    with pytest.raises(ValueError, match="present has dtype float32, not bool"):
        search.nearest(1, good, good, good)
    for k in (0, -1, True, 1.5, "1", None):
        with pytest.raises(ValueError, match=rf"k={k!r} is not an integer >= 1"):
            search.nearest(k, good, good)


@pytest.mark.parametrize("backend", ["pairs", "exact", "auto"])
def test_only_what_has_a_capacity_grows(backend):
    with pytest.raises(ValueError, match="has no capacity to grow"):
        Neighbours(3, 2.0, 2.0, 0.5, backend=backend).grown()


@pytest.mark.parametrize("length", [0.3, 0.5, 4.125, 1e15])
def test_wrapping_ends_in_the_box_wherever_it_starts(length):
    far = np.array([3e38, 1e30, 1.2345678e7, 7 * length, length, length / 3, 1e-30, 0])
    z = jnp.asarray(np.concatenate([far, -far]), jnp.float32)
    x, y = jax.jit(Box(length, length, (True, False)).wrap)(z, z)
    assert (x >= 0).all() and (x <= np.float32(length)).all()
    np.testing.assert_array_equal(y, z)
    assert abs(x[5] - length / 3) <= 1e-6 * length and abs(x[13] - 2 * length / 3) <= 1e-6 * length
