"""Distances against a queue in plain Python and SciPy, on mazes, walls, borders and tables."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, shortest_path

from flockax.envs.batching import merge_batches
from flockax.envs.pathfinding import distances as module
from flockax.envs.pathfinding.distances import (
    UNREACHABLE,
    GoalTable,
    all_goals,
    components,
    from_goals,
)

SEARCHES = [module._search_queue, module._search_wavefront]
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def breadth_first(walls, goal):
    """The distances to one goal."""
    height, width = walls.shape
    distance = np.full(walls.shape, UNREACHABLE)
    row, column = goal
    if not (0 <= row < height and 0 <= column < width) or walls[row, column]:
        return distance
    distance[row, column] = 0
    queue = deque([(row, column)])
    while queue:
        row, column = queue.popleft()
        for down, right in MOVES:
            r, c = row + down, column + right
            inside = 0 <= r < height and 0 <= c < width
            if inside and not walls[r, c] and distance[r, c] == UNREACHABLE:
                distance[r, c] = distance[row, column] + 1
                queue.append((r, c))
    return distance


def graph(walls):
    """Adjacency of the free cells, for SciPy."""
    cell = np.arange(walls.size).reshape(walls.shape)
    down = ~(walls[:-1] | walls[1:])
    right = ~(walls[:, :-1] | walls[:, 1:])
    ends = [
        np.concatenate([cell[:-1][down], cell[:, :-1][right]]),
        np.concatenate([cell[1:][down], cell[:, 1:][right]]),
    ]
    return coo_array((np.ones(len(ends[0])), ends), (walls.size, walls.size)).tocsr()


def serpentine(height, width):
    """One corridor through the whole map."""
    walls = np.zeros((height, width), bool)
    walls[1::2] = True
    walls[1::4, -1] = False
    walls[3::4, 0] = False
    return walls


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 3), (7, 5), (16, 21)])
def test_equal_to_a_plain_search(search, shape):
    rng = np.random.default_rng(sum(shape))
    walls = rng.random((6, *shape)) < np.linspace(0, 0.6, 6)[:, None, None]
    goals = np.stack([rng.integers(0, n, (6, 4)) for n in shape], axis=-1)
    result = np.asarray(jax.jit(search)(walls, jnp.asarray(goals, jnp.int32)))
    assert result.dtype == np.int16 and result.shape == (6, 4, *shape)
    for b, g in np.ndindex(6, 4):
        np.testing.assert_array_equal(result[b, g], breadth_first(walls[b], goals[b, g]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_map_and_any_goal(data):
    """Goals may be in walls and outside, where nothing reaches them."""
    bits = data.draw(st.lists(st.booleans(), min_size=24, max_size=24))
    walls = np.array(bits).reshape(4, 6)
    goals = np.array(
        data.draw(
            st.lists(st.tuples(st.integers(-3, 6), st.integers(-3, 8)), min_size=5, max_size=5)
        )
    )
    expected = [breadth_first(walls, goal) for goal in goals]
    np.testing.assert_array_equal(FROM_GOALS(walls, goals), expected)
    np.testing.assert_array_equal(
        WAVEFRONT(walls[None], jnp.asarray(goals[None], jnp.int32))[0], expected
    )


FROM_GOALS = jax.jit(from_goals)
WAVEFRONT = jax.jit(module._search_wavefront)


@pytest.mark.parametrize("search", SEARCHES)
def test_long_paths(search):
    walls = serpentine(41, 40)
    goals = np.array([[0, 0], [40, 39], [20, 7]])
    result = np.asarray(jax.jit(search)(walls[None], jnp.asarray(goals[None], jnp.int32)))[0]
    expected = shortest_path(graph(walls), directed=False, unweighted=True, indices=goals @ [40, 1])
    free = ~walls
    np.testing.assert_array_equal(result[:, free], expected.reshape(3, *walls.shape)[:, free])
    assert result[:, free].max() > 800
    assert (result[:, walls] == UNREACHABLE).all()


def test_a_large_map():
    rng = np.random.default_rng(0)
    walls = rng.random((256, 256)) < 0.35
    goals = np.argwhere(~walls)[rng.integers(0, (~walls).sum(), 3)]
    expected = shortest_path(
        graph(walls), directed=False, unweighted=True, indices=goals @ [256, 1]
    )
    expected = np.where(np.isinf(expected), UNREACHABLE, expected).reshape(3, 256, 256)
    np.testing.assert_array_equal(FROM_GOALS(walls, goals), expected)


def test_paths_longer_than_int16_are_cut():
    result = FROM_GOALS(jnp.zeros((1, 33_000), bool), jnp.zeros((1, 2), jnp.int32))
    np.testing.assert_array_equal(result[0, 0], np.minimum(np.arange(33_000), UNREACHABLE - 1))


@pytest.mark.parametrize("search", SEARCHES)
def test_paths_are_cut_below_the_mark_of_the_unreachable(search, monkeypatch):
    monkeypatch.setattr(module, "UNREACHABLE", 20)
    walls = jnp.zeros((1, 1, 40), bool).at[0, 0, 35].set(True)
    result = search(walls, jnp.zeros((1, 1, 2), jnp.int32))
    expected = np.where(np.arange(40) < 35, np.minimum(np.arange(40), 19), 20)
    np.testing.assert_array_equal(result[0, 0, 0], expected)


def test_leading_axes_and_vmap():
    rng = np.random.default_rng(1)
    walls = rng.random((2, 3, 6, 5)) < 0.3
    goals = rng.integers(0, 5, (2, 3, 4, 2))
    result = FROM_GOALS(walls, goals)
    assert result.shape == (2, 3, 4, 6, 5)
    np.testing.assert_array_equal(result[1, 2, 3], breadth_first(walls[1, 2], goals[1, 2, 3]))
    mapped = jax.jit(jax.vmap(jax.vmap(from_goals)))(walls, goals)
    np.testing.assert_array_equal(mapped, result)
    shared = jax.jit(jax.vmap(from_goals, (None, 0)))(walls[0, 0], goals[:, 0])
    np.testing.assert_array_equal(shared[1], FROM_GOALS(walls[0, 0], goals[1, 0]))


@pytest.mark.parametrize("goals", [(4, 2), (3, 4, 2), (2, 4, 3), (2,)])
def test_shapes_that_do_not_fit_are_refused(goals):
    message = r"goals has shape .* not \(2, G, 2\) as obstacles of \(2, 5, 6\) want"
    with pytest.raises(ValueError, match=message):
        from_goals(np.zeros((2, 5, 6), bool), np.zeros(goals, int))


def test_table_of_all_goals():
    rng = np.random.default_rng(2)
    walls = rng.random((3, 5, 7)) < np.array([0.0, 0.3, 0.7])[:, None, None]
    walls[2, 0] = [True, False, True, False, True, True, False]
    table = all_goals(walls)
    assert isinstance(table, GoalTable)
    assert table.rank.shape == walls.shape and table.rank.dtype == jnp.int32
    assert table.distance.shape == (3, 35, 5, 7) and table.distance.dtype == jnp.int16
    of = jax.jit(table.of)
    for m, row, column in np.ndindex(walls.shape):
        np.testing.assert_array_equal(
            of(m, jnp.array([row, column])), breadth_first(walls[m], (row, column))
        )
    for m in range(3):
        free = int((~walls[m]).sum())
        np.testing.assert_array_equal(table.rank[m][~walls[m]], np.arange(free))
        assert (table.rank[m][walls[m]] == -1).all()
        assert (table.distance[m, free:] == UNREACHABLE).all()
    pairs = jax.vmap(of)(jnp.array([0, 1]), jnp.array([[1, 1], [2, 2]]))
    np.testing.assert_array_equal(pairs[0], breadth_first(walls[0], (1, 1)))


def test_table_of_a_map_without_free_cells():
    table = all_goals(np.ones((1, 2, 2), bool))
    assert (np.asarray(table.distance) == UNREACHABLE).all()


def test_tables_too_large_are_refused(monkeypatch):
    walls = np.ones((2, 65, 64), bool)
    walls[1, :64] = False
    walls[1, 64, 0] = False
    with pytest.raises(
        ValueError, match=r"map 1 of obstacles has 4097 free cells.*4096.*from_goals"
    ):
        all_goals(walls)
    monkeypatch.setattr(module, "MAX_GOAL_CELLS", 3)
    all_goals(np.array([[[False, False, False, True]]]))
    with pytest.raises(ValueError, match="4 free cells"):
        all_goals(np.zeros((1, 2, 2), bool))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=60, max_size=60))
def test_components(bits):
    walls = np.array(bits).reshape(2, 5, 6)
    label = components(walls)
    assert label.dtype == np.int32
    for m in range(2):
        assert (label[m][walls[m]] == -1).all()
        _, group = connected_components(graph(walls[m]), directed=False)
        for cell in np.flatnonzero(~walls[m].reshape(-1)):
            assert label[m].reshape(-1)[cell] == np.flatnonzero(group == group[cell])[0]


def test_merged_batches_see_one_leading_axis():
    seen = []

    def double(x, y):
        seen.append((x.shape, y.shape))
        return x * 2 + y[:, :1]

    x, y = jnp.arange(24.0).reshape(2, 3, 4), jnp.arange(6.0).reshape(3, 2)
    result = jax.vmap(merge_batches(double), (0, None))(x, y)
    assert seen[-1] == ((6, 4), (6, 2))
    np.testing.assert_array_equal(result, jax.vmap(double, (0, None))(x, y))
