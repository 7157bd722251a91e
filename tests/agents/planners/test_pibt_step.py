"""One step of PIBT against the recursion of the paper, and what it promises."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pibt_reference import MOVES, SHUFFLES, conflicts, pibt, preferences

from flockax.agents.planners import pibt_step as module
from flockax.agents.planners.pibt_step import CLOSED, NUM_SHUFFLES, pibt_step
from flockax.envs.pathfinding.distances import UNREACHABLE, from_goals

# Rows, columns, share of walls, share of free cells with agents, environments.
WORLDS = [
    (1, 6, 0.0, 0.5, 800),
    (2, 3, 0.0, 0.9, 800),
    (3, 3, 0.1, 0.9, 1000),
    (4, 5, 0.2, 0.9, 1000),
    (6, 6, 0.3, 0.7, 800),
    (5, 8, 0.1, 0.9, 500),
    (9, 7, 0.45, 0.6, 300),
    (12, 12, 0.2, 0.8, 60),
]


def draw_world(seed, height, width, density, share, envs):
    """Random boards with random agents and goals, all with equally many agents."""
    rng = np.random.default_rng(seed)
    walls = rng.random((envs, height, width)) < density
    free = [np.argwhere(~wall) for wall in walls]
    agents = max(2, round(share * height * width * (1 - density)))
    for wall, cells in zip(walls, free, strict=True):
        wall.reshape(-1)[rng.permutation(height * width)[: max(0, agents - len(cells))]] = False
    while min((~wall).sum() for wall in walls) < agents:
        for wall in walls:
            if (~wall).sum() < agents:
                wall.reshape(-1)[rng.integers(height * width)] = False
    free = [np.argwhere(~wall) for wall in walls]
    position = np.stack([cells[rng.permutation(len(cells))[:agents]] for cells in free])
    goal = np.stack([cells[rng.integers(len(cells), size=agents)] for cells in free])
    priority = rng.integers(0, 2 * agents, (envs, agents))
    shuffle = rng.integers(0, NUM_SHUFFLES, (envs, agents))
    return walls, position, goal, priority, shuffle


def costs(walls, position, distance):
    """``int[5, E, A]``."""
    closed = np.pad(walls, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    around = np.pad(distance, ((0, 0), (0, 0), (1, 1), (1, 1)))
    e, a = np.ogrid[: len(position), : position.shape[1]]
    cost = []
    for move in MOVES:
        row, column = np.moveaxis(position + move, -1, 0) + 1
        cost.append(np.where(closed[e, row, column], CLOSED, around[e, a, row, column]))
    return np.array(cost)


def expected(walls, position, distance, priority, shuffle):
    result = []
    for e in range(len(position)):
        places = [tuple(map(int, p)) for p in position[e]]
        order = [
            preferences(p, walls[e], distance[e, a], shuffle[e, a]) for a, p in enumerate(places)
        ]
        result.append(pibt(places, order, list(priority[e])))
    return np.array(result)


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_equal_to_the_recursion(world):
    walls, position, goal, priority, shuffle = draw_world(WORLDS.index(world), *world)
    distance = np.asarray(jax.jit(from_goals)(walls, goal))
    cost = costs(walls, position, distance)
    alive = np.ones(priority.shape, bool)
    step = jax.jit(partial(pibt_step, shape=world[:2]))
    action = np.asarray(step(position, cost, priority, shuffle, alive))
    np.testing.assert_array_equal(action, expected(walls, position, distance, priority, shuffle))
    after = position + np.array(MOVES)[action]
    for before, end, wall in zip(position, after, walls, strict=True):
        assert conflicts([tuple(p) for p in before], [tuple(p) for p in end]) == (0, 0)
        assert not wall[end[:, 0], end[:, 1]].any()


def test_the_worlds_have_the_steps_and_the_crowds():
    assert sum(world[4] for world in WORLDS) >= 5000
    assert max(world[3] for world in WORLDS) == 0.9


def test_side_by_side_is_the_same(monkeypatch):
    """What runs off the CPU, on the CPU."""
    world = WORLDS[3]
    walls, position, goal, priority, shuffle = draw_world(7, *world)
    cost = costs(walls, position, np.asarray(jax.jit(from_goals)(walls, goal)))
    alive = np.random.default_rng(0).random(priority.shape) < 0.9
    arguments = (position, cost, priority, shuffle, alive)
    in_turn = jax.jit(partial(pibt_step, shape=world[:2]))(*arguments)
    monkeypatch.setattr(module.lax, "platform_dependent", lambda *x, cpu, default: default(*x))
    side_by_side = jax.jit(partial(pibt_step, shape=world[:2]))(*arguments)
    np.testing.assert_array_equal(in_turn, side_by_side)


def test_vmap_is_a_wider_batch():
    world = WORLDS[3]
    walls, position, goal, priority, shuffle = draw_world(8, *world)
    cost = costs(walls, position, np.asarray(jax.jit(from_goals)(walls, goal)))
    alive = np.ones(priority.shape, bool)

    def split(x):
        return x.reshape(4, -1, *x.shape[1:])

    step = partial(pibt_step, shape=world[:2])
    quarter = priority[: len(priority) // 4]
    plain = jax.jit(step)(position, cost, np.tile(quarter, (4, 1)), shuffle, alive)
    wide = jax.jit(jax.vmap(step, (0, 1, None, 0, 0)))
    cost = cost.reshape(5, 4, -1, cost.shape[2])
    result = wide(split(position), cost, quarter, split(shuffle), split(alive))
    np.testing.assert_array_equal(result.reshape(plain.shape), plain)


def test_the_dead_are_in_nobodys_way():
    world = WORLDS[3]
    walls, position, goal, priority, shuffle = draw_world(9, *world)
    distance = np.asarray(jax.jit(from_goals)(walls, goal))
    cost = costs(walls, position, distance)
    alive = np.random.default_rng(1).random(priority.shape) < 0.5
    step = jax.jit(partial(pibt_step, shape=world[:2]))
    action = np.asarray(step(position, cost, priority, shuffle, alive))
    assert (action[~alive] == 0).all()
    for e in range(0, len(alive), 10):
        rest = [x[e : e + 1, alive[e]] for x in (position, distance, priority, shuffle)]
        np.testing.assert_array_equal(
            action[e, alive[e]], expected(walls[e : e + 1], *rest)[0], err_msg=str(e)
        )


def test_dead_agents_may_share_the_cell_of_a_living_one():
    position = np.array([[[0, 1], [0, 1], [0, 1]]])
    cost = np.full((5, 1, 3), CLOSED)
    cost[0], cost[3] = 1, 0
    alive = np.array([[False, True, False]])
    zero = np.zeros((1, 3), int)
    action = pibt_step(position, cost, zero, zero, alive, (1, 3))
    np.testing.assert_array_equal(action, [[0, 3, 0]])


@pytest.mark.parametrize("shuffle", range(0, NUM_SHUFFLES, 7))
def test_equal_costs_are_tried_in_the_order_of_the_shuffle(shuffle):
    cost = np.full((5, 1, 1), 4)
    zero = np.zeros((1, 1), int)
    alive = np.ones((1, 1), bool)
    action = pibt_step(np.array([[[1, 1]]]), cost, zero, zero + shuffle, alive, (3, 3))
    assert int(action[0, 0]) == SHUFFLES[shuffle].index(0)


def test_large_costs_and_priorities_keep_their_order():
    """The largest values of int16 distances and of 30-bit priorities."""
    position = np.array([[[0, 0], [0, 2]]])
    cost = np.full((5, 1, 2), CLOSED)
    cost[0] = UNREACHABLE
    cost[4, 0, 0] = cost[3, 0, 1] = UNREACHABLE - 1
    alive, zero = np.ones((1, 2), bool), np.zeros((1, 2), int)
    for priority, action in (([0, 2**30 - 1], [0, 3]), ([2**30 - 1, 2**30 - 2], [4, 0])):
        result = pibt_step(position, cost, np.array([priority]), zero, alive, (1, 3))
        np.testing.assert_array_equal(result, [action])


def test_double_precision_changes_nothing():
    world = WORLDS[2]
    walls, position, goal, priority, shuffle = draw_world(10, *world)
    cost = costs(walls, position, np.asarray(jax.jit(from_goals)(walls, goal)))
    alive = np.ones(priority.shape, bool)
    plain = jax.jit(partial(pibt_step, shape=world[:2]))(position, cost, priority, shuffle, alive)
    with jax.enable_x64(True):
        arguments = [jnp.asarray(x) for x in (position, cost, priority, shuffle, alive)]
        wide = jax.jit(partial(pibt_step, shape=world[:2]))(*arguments)
    assert wide.dtype == plain.dtype == np.int32
    np.testing.assert_array_equal(plain, wide)
