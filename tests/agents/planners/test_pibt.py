"""PIBT as a policy: priorities over episodes, distances to goals, the dead, real maps."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pibt_reference import conflicts, pibt, preferences

from flockax.agents.planners import pibt as module
from flockax.agents.planners.pibt import Pibt
from flockax.agents.planners.pibt_step import NUM_SHUFFLES
from flockax.envs import VectorEnv
from flockax.envs.pathfinding.distances import from_goals
from flockax.envs.pathfinding.given import from_instances, from_maps
from flockax.envs.pathfinding.movingai import parse_map, parse_scenario

# A ring with a chamber, and an open room with a column; the second map is smaller.
RING = np.array([[c == "#" for c in row] for row in ("......", ".####.", ".#..#.", "......")])
ROOM = np.array([[c == "#" for c in row] for row in (".....", "..#..", ".....")])


def play(env, params, policy, steps, envs=3, seed=0, greedy=False):
    """Plays; returns the keys and for each step state, actions, reset flags and metrics."""
    vector = VectorEnv(env, envs)
    observation, state = vector.reset(jax.random.key(seed), params)
    start = (policy.init(envs), observation, state, jnp.ones(envs, bool))

    def step(loop, key):
        carry, observation, state, reset = loop
        before = vector.env_state(state)
        rest = (before, params, reset, greedy)
        action, carry = policy.act(key, carry, observation, *rest)
        observation, state, _, terminated, truncated, info = vector.step(key, state, action, params)
        done = terminated | truncated
        return (carry, observation, state, done), (before, action, reset, info["metrics"])

    keys = jax.random.split(jax.random.key(seed + 1), steps)
    return keys, jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(start)


def starts(env, params, envs):
    """Random starts of several environments."""
    keys = jax.random.split(jax.random.key(3), envs)
    return jax.jit(jax.vmap(env.initial_state, (0, None)))(keys, params)


def act(policy):
    """The compiled policy as a function of key, carry, state and reset."""
    return jax.jit(lambda *x: policy.act(x[0], x[1], None, x[2], None, x[3], False))


def make(on_target, agents=4, horizon=25):
    env, params = from_maps([RING, ROOM], num_agents=agents, on_target=on_target, collision="soft")
    return env, params.replace(horizon=jnp.asarray(horizon, params.horizon.dtype))


def drawn_shuffles(key, shape):
    bits = np.asarray(jax.random.bits(key, shape, jnp.uint32)).astype(np.uint64)
    return (bits >> 7) * NUM_SHUFFLES >> 25


class PythonPibt:
    """The policy for one environment with the priorities of pypibt."""

    def start(self, positions, distance):
        size = distance[0].size
        self.priority = [d[p] / size for p, d in zip(positions, distance, strict=True)]
        self.moved = False

    def act(self, walls, positions, distance, shuffle, alive):
        if self.moved:
            for agent, arrived in enumerate(self.arrived(positions)):
                self.priority[agent] = (
                    self.priority[agent] % 1 if arrived else self.priority[agent] + 1
                )
        self.moved = True
        self.goals = [tuple(map(int, np.argwhere(d == 0)[0])) for d in distance]
        living = [agent for agent in range(len(positions)) if alive[agent]]
        order = [preferences(positions[a], walls, distance[a], shuffle[a]) for a in living]
        moves = pibt([positions[a] for a in living], order, [self.priority[a] for a in living])
        result = [0] * len(positions)
        for agent, move in zip(living, moves, strict=True):
            result[agent] = move
        return result

    def arrived(self, positions):
        return [position == goal for position, goal in zip(positions, self.goals, strict=True)]


@pytest.mark.parametrize(
    ("on_target", "table", "greedy"),
    [
        ("nothing", True, False), ("finish", True, False), ("restart", True, False),
        ("restart", False, False), ("restart", True, True),
    ],
)  # fmt: skip
def test_equal_to_the_recursive_policy_over_episodes(on_target, table, greedy, monkeypatch):
    """Over several episodes, on two maps, with priorities that grow, fall and begin anew.

    The environment stops nobody, since no two want the same cell.
    """
    if not table:
        monkeypatch.setattr(module, "TABLE_BYTES", 0)
        monkeypatch.setattr(module, "_SEARCHES", 5)
    env, params = make(on_target)
    policy = Pibt(env, params)
    assert (policy.distance is not None) == table
    keys, (states, actions, resets, metrics) = play(env, params, policy, 80, greedy=greedy)
    assert int(resets.sum()) > 6
    assert float(metrics["agent_collisions"].sum()) == 0
    assert float(metrics["obstacle_collisions"].sum()) == 0
    assert float(metrics["arrivals"].sum()) >= 40
    walls = np.asarray(env.obstacles(params))
    distance = np.asarray(jax.jit(from_goals)(walls[states.map], states.goal))
    position = np.asarray(states.position)
    players = [PythonPibt() for _ in range(3)]
    for t, key in enumerate(keys):
        # If greedy the moves are tried in their order: the first permutation.
        shuffle = drawn_shuffles(key, actions.shape[1:]) * (not greedy)
        for e, player in enumerate(players):
            places = [tuple(map(int, p)) for p in position[t, e]]
            if resets[t, e]:
                player.start(places, distance[t, e])
            move = player.act(
                walls[states.map[t, e]], places, distance[t, e], shuffle[e], states.alive[t, e]
            )
            np.testing.assert_array_equal(actions[t, e], move, err_msg=f"step {t} of {e}")


def test_goals_are_searched_only_where_they_changed(monkeypatch):
    monkeypatch.setattr(module, "TABLE_BYTES", 0)
    env, params = make("restart")
    policy = Pibt(env, params)
    state = starts(env, params, 3)
    carry = policy.init(3)
    poison = carry.replace(goal=state.goal.at[1, 2].add(1), distance=carry.distance * 0 + 7)
    # Not the beginning of an episode: three agents of each environment keep their distances.
    _, carry = act(policy)(jax.random.key(0), poison, state, jnp.array([True, False, False]))
    kept = np.all(np.asarray(carry.distance) == 7, axis=1).reshape(3, 4)
    np.testing.assert_array_equal(kept, [[False] * 4, [True, True, False, True], [True] * 4])


@pytest.mark.parametrize("table", [True, False])
def test_seeds_can_be_mapped(table, monkeypatch):
    if not table:
        monkeypatch.setattr(module, "TABLE_BYTES", 0)
    env, params = make("restart")
    policy = Pibt(env, params)
    states = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), starts(env, params, 6))
    keys = jax.random.split(jax.random.key(5), 2)
    reset = jnp.array([[True, True, True], [True, False, True]])
    carries = jax.tree.map(lambda x: jnp.stack([x, x]), policy.init(3))
    action, _ = jax.jit(jax.vmap(act(policy)))(keys, carries, states, reset)
    for i in range(2):
        state = jax.tree.map(lambda x, i=i: x[i], states)
        alone, _ = act(policy)(keys[i], policy.init(3), state, reset[i])
        np.testing.assert_array_equal(action[i], alone)


def test_equal_moves_are_drawn_uniformly():
    """From the middle of an empty room two moves lead to a corner, from its goal nothing does."""
    env, params = from_maps([np.zeros((5, 5), bool)], num_agents=1, on_target="nothing")
    policy = Pibt(env, params)
    envs = 4000
    state = starts(env, params, envs)
    state = state.replace(
        position=jnp.full_like(state.position, 2), goal=jnp.full_like(state.goal, 4)
    )
    reset = jnp.ones(envs, bool)
    action, _ = act(policy)(jax.random.key(1), policy.init(envs), state, reset)
    counts = np.bincount(np.asarray(action)[:, 0], minlength=5)
    assert counts[[0, 1, 3]].sum() == 0
    # Five standard deviations.
    assert abs(counts[2] - envs / 2) < 5 * np.sqrt(envs) / 2


def test_agents_whose_goal_is_walled_off_make_way():
    """In the walled-off part all moves are equal to them; they still step aside, and never collide."""
    walls = np.zeros((2, 7), bool)
    walls[:, 3] = True
    env, params = from_maps([walls], num_agents=3, on_target="restart", collision="soft")
    policy = Pibt(env, params)
    state = starts(env, params, 1)
    state = state.replace(
        position=jnp.asarray([[[0, 0], [0, 1], [1, 0]]], state.position.dtype),
        goal=jnp.asarray([[[0, 5], [0, 5], [0, 2]]], state.goal.dtype),
    )
    step = act(policy)
    for seed in range(20):
        action, _ = step(jax.random.key(seed), policy.init(1), state, jnp.ones(1, bool))
        moves = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
        before = np.asarray(state.position[0])
        after = before + moves[np.asarray(action[0])]
        assert conflicts([tuple(p) for p in before], [tuple(p) for p in after]) == (0, 0)
        assert (after >= 0).all() and (after[:, 0] < 2).all() and (after[:, 1] < 3).all()


def read(data, name):
    return (data / "movingai" / name).read_text()


def one_environment(env, params, state, steps):
    """Positions over time, under one compiled program."""
    policy = Pibt(env, params)

    def step(loop, key):
        carry, position, reset = loop
        now = jax.tree.map(lambda x: x[None], state).replace(position=position)
        action, carry = policy.act(key, carry, None, now, params, reset, False)
        moves = jnp.asarray([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], position.dtype)
        position = position + moves[action]
        return (carry, position, jnp.zeros(1, bool)), position[0]

    start = (policy.init(1), state.position[None], jnp.ones(1, bool))
    keys = jax.random.split(jax.random.key(0), steps)
    path = jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(start)
    return np.concatenate([np.asarray(state.position)[None], path])


def assert_no_conflict(path, walls):
    for before, after in pairwise(path):
        assert conflicts(list(map(tuple, before)), list(map(tuple, after))) == (0, 0)
    assert not walls[path[..., 0], path[..., 1]].any()


@pytest.mark.parametrize("agents", [10, 100, 400])
def test_the_scenario_file_is_solved(data, agents):
    grid_map = parse_map(read(data, "random-32-32-10.map"), "random-32-32-10", "map")
    maps = {grid_map.name: grid_map}
    instance = parse_scenario(read(data, "random-32-32-10-random-1.scen"), "scen", maps)
    env, params = from_instances(maps, [instance], num_agents=agents, on_target="nothing")
    state = env.instance_state(params, 0)
    path = one_environment(env, params, state, 120)
    assert_no_conflict(path, grid_map.obstacles)
    assert (path == np.asarray(state.goal)).all(axis=(1, 2)).any()


@pytest.mark.parametrize("name", ["warehouse-20-40-10-2-1", "den520d"])
def test_a_thousand_agents(data, name):
    grid_map = parse_map(read(data, f"{name}.map"), name, "map")
    env, params = from_maps([grid_map], num_agents=1000, on_target="nothing")
    state = env.initial_state(jax.random.key(0), params)
    path = one_environment(env, params, state, 30)
    assert_no_conflict(path, grid_map.obstacles)
    before, after = (np.abs(path[t] - np.asarray(state.goal)).sum() for t in (0, 30))
    assert after < before
