"""Every back end of the neighbour search against a float64 oracle."""

import math

import jax
import jax.numpy as jnp
import neighbour_cases as cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbour_cases import BACKENDS, BATCH, Shape

# Odd multiples of 1/8, so that on a lattice no two points are apart by half a box.
TORUS = Shape(12, (4.125, 5.125), 1.0, (4, 5))
WALLS = Shape(11, (9.125, 7.125), 1.0, (5, 4), periodic=(False, False))
FLAT = Shape(12, (5.125, 1.125), 1.25, (4, 1), periodic=(True, False))
TALL = Shape(12, (1.125, 5.125), 1.0, (1, 5), periodic=(False, True))
FOUR = Shape(10, (4.125, 4.125), 1.875, (2, 2))
NINE = Shape(10, (3.875, 3.375), 1.0, (3, 3))
TWO_BY_THREE = Shape(10, (3.125, 4.125), 1.25, (2, 3), periodic=(False, True))
HALF = Shape(9, (2.125, 1.875), 1.25, (1, 1))  # the radius is longer than half the box
WHOLE = Shape(9, (2.125, 1.875), 4.0, (1, 1), k=12)
EVEN = Shape(8, (4.0, 3.0), 2.0, (1, 1), periodic=(True, True))  # ties between images
MANY = Shape(40, (6.125, 5.0), 1.25, (4, 3), k=5)
MANY_WALLED = Shape(40, (3.0, 7.0), 0.75, (3, 9), periodic=(False, False), k=4)
SPARSE = Shape(14, (12.0, 12.0), 0.25, (5, 5), periodic=(False, True), k=1)
NEEDLE = Shape(14, (1.125, 16.125), 1.0, (1, 16))
SPLINTER = Shape(3, (0.125, 16.125), 0.25, (1, 6))  # fewer cells than the radius would allow
SHAPES = (TORUS, WALLS, FLAT, TALL, FOUR, NINE, TWO_BY_THREE, HALF, WHOLE, EVEN, SPARSE)
SHAPES += (NEEDLE, SPLINTER, MANY, MANY_WALLED)
FULL = Shape(15, (5.125, 1.125), 1.0, (5, 1), capacity=1)
FULLER = Shape(13, (5.125, 2.125), 1.0, (5, 2), periodic=(False, True), capacity=2)

QUICK_BACKENDS = ("pairs", "cells", "sorted elsewhere", "exact")
# What is compiled for the quick tests; each takes up to a second of processor time.
QUICK = (
    *[(TORUS, backend) for backend in QUICK_BACKENDS],
    (WALLS, "exact"),
    (FLAT, "sorted"),
    (TALL, "exact elsewhere"),
    (FOUR, "cells"),
    (HALF, "exact"),
    (WHOLE, "pairs"),
    (FULL, "cells"),
    (FULLER, "sorted"),
)
NAMES = {id(shape): name for name, shape in globals().items() if isinstance(shape, Shape)}


def of(cases_):
    return pytest.mark.parametrize(
        ("shape", "backend"), cases_, ids=lambda x: NAMES[id(x)] if isinstance(x, Shape) else x
    )


def compare(shape, backend, rounds, seed):
    rng = np.random.default_rng(seed)
    boxes = 0
    for number in range(rounds):
        exact = shape.capacity is None and number % 2 == 0
        x, y = (cases.on_lattice if exact else cases.anywhere)(rng, shape)
        present = rng.random(x.shape) < rng.choice([0.3, 0.9, 1.0], (BATCH, 1))
        # Positions outside are rounded when wrapped, and differences again.
        rounding = 0.0 if exact else 1e-6 * (8 + max(shape.size))
        found = cases.run(shape, backend, x, y, present)
        cases.check(shape, backend, found, x, y, present, rounding)
        boxes += BATCH
    return boxes


@pytest.mark.parametrize("shape", [*SHAPES, FULL, FULLER], ids=lambda shape: NAMES[id(shape)])
def test_shapes_have_the_cells_they_are_for(shape):
    cells = shape.search("cells").cells
    assert (cells.columns, cells.rows) == shape.grid


@of(QUICK)
def test_neighbours_are_those_of_the_oracle(shape, backend):
    assert compare(shape, backend, rounds=8, seed=0) == 128


@pytest.mark.slow
@of([(shape, backend) for shape in SHAPES for backend in BACKENDS])
def test_neighbours_are_those_of_the_oracle_everywhere(shape, backend):
    assert compare(shape, backend, rounds=30, seed=1) == 480


@pytest.mark.slow
@of([(shape, b) for shape in (FULL, FULLER) for b in ("cells", "sorted", "sorted elsewhere")])
def test_overflow_is_that_of_the_oracle_everywhere(shape, backend):
    compare(shape, backend, rounds=30, seed=2)


def coordinates(length):
    steps = int(length * 8)
    edges = [0, steps, -steps, 2 * steps, 1, -1, steps - 1, steps + 1, steps // 2]
    lattice = st.one_of(st.sampled_from(edges), st.integers(-steps, 2 * steps))
    number = lattice.map(lambda step: step / 8)
    return st.one_of(*[number] * 7, st.sampled_from([math.nan, math.inf, -math.inf]))


@st.composite
def configurations(draw):
    shape, backend = draw(st.sampled_from([case for case in QUICK if case[0].capacity is None]))
    places = st.tuples(*[coordinates(length) for length in shape.size])
    # Points share a few places: coincidences are the rule.
    few = draw(st.lists(places, min_size=1, max_size=shape.n))
    chosen = draw(st.lists(st.sampled_from(few), min_size=shape.n, max_size=shape.n))
    present = draw(st.lists(st.booleans(), min_size=shape.n, max_size=shape.n))
    x, y = np.array(chosen, np.float32).T
    return shape, backend, x, y, np.array(present)


@settings(max_examples=60, deadline=None)
@given(configurations(), st.integers(0, 2**32 - 1))
def test_any_configuration_however_ordered_and_wherever_wrapped(configuration, seed):
    shape, backend, x, y, present = configuration
    rng = np.random.default_rng(seed)
    order = np.stack([np.arange(shape.n), *(rng.permutation(shape.n) for _ in range(BATCH - 1))])
    images = rng.integers(-2, 3, (2, BATCH, shape.n)) * np.array(shape.size)[:, None, None]
    images *= np.array(shape.periodic)[:, None, None]
    images[:, 0] = 0
    present = present[order]
    places = [(z[order] + images[axis]).astype(np.float32) for axis, z in enumerate((x, y))]
    found = cases.run(shape, backend, *places, present)
    cases.check(shape, backend, found, *places, present)
    finite = np.isfinite(places[0]) & np.isfinite(places[1])
    without = cases.run(shape, backend, *places, present & finite)
    for one, two in zip(found, without, strict=True):
        np.testing.assert_array_equal(one.invalid, (present & ~finite).sum(1))
        assert (two.invalid == 0).all()
        jax.tree.map(np.testing.assert_array_equal, one.value, two.value)


def test_one_place_for_all():
    zeros = np.zeros((BATCH, TORUS.n), np.float32)
    present = np.ones(zeros.shape, bool)
    for corner in ((0, 0), TORUS.size, (0, TORUS.size[1])):
        for backend in QUICK_BACKENDS:
            sums, near = cases.run(TORUS, backend, zeros + corner[0], zeros + corner[1], present)
            everyone = sum(1 << j for j in range(TORUS.n))
            others = everyone - (1 << np.arange(TORUS.n))
            np.testing.assert_array_equal(sums.value[3][0], others, backend)
            np.testing.assert_array_equal(near.value.index[0, :3], [[1, 2], [0, 2], [0, 1]])


@pytest.mark.parametrize("backend", QUICK_BACKENDS)
def test_points_many_boxes_away_spoil_nothing(backend):
    x, y = cases.anywhere(np.random.default_rng(3), TORUS)
    x[:, 0], y[::2, 1], x[1::3, 2], y[:, 3] = 3e38, -3e38, 1e30, -9e15
    far = (np.abs(x) > 1e6) | (np.abs(y) > 1e6)
    present = np.ones(x.shape, bool)
    sums, near = cases.run(TORUS, backend, x, y, present)
    jax.tree.map(lambda z: np.testing.assert_(np.isfinite(z).all()), (sums.value, near.value))
    assert (sums.invalid == 0).all() and (sums.overflow == 0).all()
    pairs = TORUS.oracle(backend, x, y, present & ~far)
    near_ones = ((~far) << np.arange(TORUS.n)).sum(-1, keepdims=True)
    expected = (pairs.inside << np.arange(TORUS.n)).sum(-1)
    np.testing.assert_array_equal((sums.value[3].astype(int) & near_ones)[~far], expected[~far])


@of([(FULL, "cells"), (FULLER, "sorted")])
def test_whoever_is_left_out_is_seen_by_nobody(shape, backend):
    x, y = cases.anywhere(np.random.default_rng(4), shape)
    present = np.ones(x.shape, bool)
    sums, _ = cases.run(shape, backend, x, y, present)
    pairs = shape.oracle(backend, x, y, present)
    assert pairs.overflow.min() > 0 and pairs.inside.any()
    for force in sums.value[:2]:
        # Forces are mutual: what is not left over is rounding.
        np.testing.assert_allclose(force.sum(-1), 0, atol=1e-4)
        assert (force[~pairs.kept] == 0).all() and (force != 0).any()
    # Without those left out nothing changes.
    again, _ = cases.run(shape, backend, x, y, pairs.kept)
    assert (again.overflow == 0).all()
    jax.tree.map(np.testing.assert_array_equal, sums.value, again.value)


@pytest.mark.parametrize("backend", ["cells", "sorted"])
def test_growing_ends_without_overflow(backend):
    search = Shape(3, (2.0, 2.0), 1.0, (1, 1), capacity=1).search(backend)
    zeros = jnp.zeros(3)
    places, left_out = [], []
    for _ in range(3):
        count = jax.jit(lambda x, y, s=search: s.sums(lambda dx, *_: (dx,), x, y).overflow)
        places.append(search.places)
        left_out.append(int(count(zeros, zeros)))
        search = search.grown()
    assert (places, left_out) == ([1, 2, 3], [2, 1, 0])
    assert [search.capacity, search.grown().capacity] == [6, 6]
