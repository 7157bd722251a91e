"""Starts and goals are drawn by the law of POGEMA, new goals uniformly from those in reach."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from flockax.envs.pathfinding.given import from_maps
from flockax.envs.pathfinding.map_tables import build_tables, capacity, draw_pairs
from flockax.envs.pathfinding.maps import GridMap

MAP = np.array(
    [
        [0, 0, 1, 0],
        [0, 0, 1, 0],
        [1, 1, 1, 1],
        [0, 1, 0, 0],
    ],
    bool,
)  # components of 4, 2, 1 and 2 cells
RADIUS = 2


def labels(free):
    """Component of each free cell, by flood fill."""
    label, count = {}, 0
    for start in zip(*np.nonzero(free), strict=True):
        if start in label:
            continue
        todo = [start]
        while todo:
            cell = todo.pop()
            if cell in label or not (0 <= cell[0] < free.shape[0] and 0 <= cell[1] < free.shape[1]):
                continue
            if free[cell]:
                label[cell] = count
                r, c = cell
                todo += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
        count += 1
    return label


def reference_draw(rng, count):
    """POGEMA's procedure, cell by cell."""
    label = labels(~MAP)
    cells = list(label)
    rng.shuffle(cells)
    room = collections.Counter(label.values())
    waiting, starts, goals = collections.defaultdict(list), [], {}
    for cell in cells:
        component = label[cell]
        if waiting[component]:
            goals[waiting[component].pop()] = cell
        elif len(starts) < count and room[component] >= 2:
            room[component] -= 2
            waiting[component].append(len(starts))
            starts.append(cell)
    return tuple((starts[i], goals[i]) for i in range(count))


@functools.partial(jax.jit, static_argnames="count")
def drawn(tables, keys, count):
    return jax.vmap(lambda key: draw_pairs(key, tables, jnp.int32(0), count))(keys)


def pairs_of(tables, keys, count):
    start, goal = jax.device_get(drawn(tables, keys, count))
    columns = tables.board.shape[2]
    position = lambda cell: (cell // columns - RADIUS, cell % columns - RADIUS)  # noqa: E731
    return [
        tuple((position(a), position(b)) for a, b in zip(s, g, strict=True))
        for s, g in zip(start.tolist(), goal.tolist(), strict=True)
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_starts_and_goals_follow_the_law_of_the_reference(count):
    tables = jax.tree.map(jnp.asarray, build_tables([MAP], [None], [None], RADIUS))
    number, rng = 20_000, np.random.default_rng(0)
    ours = collections.Counter(pairs_of(tables, jax.random.split(jax.random.key(0), number), count))
    theirs = collections.Counter(reference_draw(rng, count) for _ in range(number))
    assert set(ours) <= set(theirs) | set(ours)
    outcomes = sorted(set(ours) | set(theirs))
    common = [o for o in outcomes if ours[o] + theirs[o] >= 20]
    table = [[ours[o] for o in common], [theirs[o] for o in common]]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-4
    rare = sum(ours[o] for o in outcomes if o not in common)
    assert abs(rare - sum(theirs[o] for o in outcomes if o not in common)) < 6 * number**0.5


def test_all_pairs_that_fit_are_drawn_and_no_cell_twice():
    tables = build_tables([MAP], [None], [None], RADIUS)
    assert capacity(tables).tolist() == [4]
    on_device = jax.tree.map(jnp.asarray, tables)
    label = labels(~MAP)
    for pairs in pairs_of(on_device, jax.random.split(jax.random.key(1), 200), 4):
        cells = [cell for pair in pairs for cell in pair]
        assert len(set(cells)) == 8
        assert all(label[a] == label[b] for a, b in pairs)


def test_cells_for_starts_and_goals_only_are_kept_apart():
    free = np.zeros((3, 6), bool)
    starts, goals = np.zeros((3, 6), bool), np.zeros((3, 6), bool)
    starts[:, :3], goals[:, 2:] = True, True  # a column may be both
    tables = build_tables([free], [starts], [goals], RADIUS)
    assert capacity(tables).tolist() == [8]
    on_device = jax.tree.map(jnp.asarray, tables)
    for pairs in pairs_of(on_device, jax.random.split(jax.random.key(1), 100), 8):
        assert len({cell for pair in pairs for cell in pair}) == 16
        assert all(starts[a] and goals[b] for a, b in pairs)


def test_new_goals_are_uniform_over_the_component_without_the_own_cell():
    env, params = from_maps([MAP], num_agents=1, on_target="restart", obs_radius=RADIUS)
    state = env.reset(jax.random.key(0), params)[1]
    state = state.replace(position=jnp.array([[0, 0]]), goal=jnp.array([[0, 1]]))

    @jax.jit
    @jax.vmap
    def new_goal(key):
        return env.step(key, state, jnp.array([4]), params)[1].goal[0]

    goals = np.asarray(new_goal(jax.random.split(jax.random.key(3), 6000)))
    counts = collections.Counter(map(tuple, goals.tolist()))
    assert set(counts) == {(0, 0), (1, 0), (1, 1)}
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_new_goals_are_among_the_allowed_ones():
    goals = np.zeros((1, 5), bool)
    goals[0, 3:] = True
    named = GridMap("row", np.zeros((1, 5), bool), None, goals)
    env, params = from_maps([named], num_agents=1, on_target="restart", obs_radius=1)
    state = env.reset(jax.random.key(0), params)[1]
    state = state.replace(position=jnp.array([[0, 2]]), goal=jnp.array([[0, 3]]))
    step = jax.jit(lambda key: env.step(key, state, jnp.array([4]), params)[1].goal[0])
    found = {
        tuple(np.asarray(step(key)).tolist()) for key in jax.random.split(jax.random.key(0), 9)
    }
    assert found == {(0, 4)}
