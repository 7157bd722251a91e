"""Windowed prioritized planning: no conflicts, followed exactly, better than what it starts from."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from space_time_oracle import distances

from flockax.agents.planners import pibt as pibt_module
from flockax.agents.planners.neighbourhood import Crowd
from flockax.agents.planners.pibt import Pibt
from flockax.agents.planners.prioritized import Prioritized
from flockax.envs import VectorEnv
from flockax.envs.pathfinding.formats import load_instances, load_maps
from flockax.envs.pathfinding.given import from_instances, from_maps

MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])


def crowded(on_target, agents=9, collision="soft", seed=0, size=(6, 7)):
    """Maps full of agents."""
    rng = np.random.default_rng(seed)
    maps = [rng.random(size) < 0.2 for _ in range(6)]
    fields = {"num_agents": agents, "on_target": on_target, "collision": collision}
    return from_maps(maps, **fields)


def starts(env, params, envs, seed=0):
    keys = jax.random.split(jax.random.key(seed), envs)
    return jax.jit(jax.vmap(env.initial_state, (0, None)))(keys, params)


def act(policy):
    return jax.jit(lambda *x: policy.act(x[0], x[1], None, x[2], None, x[3], False))


def play(env, params, policy, steps, envs=3, seed=0):
    """States before each step, actions, carries after and what the environment tells of them."""
    vector = VectorEnv(env, envs)
    observation, state = vector.reset(jax.random.key(seed), params)

    def step(loop, key):
        carry, observation, state, reset = loop
        before = vector.env_state(state)
        action, carry = policy.act(key, carry, observation, before, params, reset, True)
        observation, state, _, terminated, truncated, info = vector.step(key, state, action, params)
        out = (before, action, reset, carry, info["metrics"])
        return (carry, observation, state, terminated | truncated), out

    start = (policy.init(envs), observation, state, jnp.ones(envs, bool))
    keys = jax.random.split(jax.random.key(seed + 1), steps)
    return jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(start)


def assert_no_conflicts(plan, board, walls):
    """``plan int[w + 1, A]`` of one environment."""
    for t, cells in enumerate(plan):
        here = cells[cells < board.size]
        assert len(set(here)) == len(here), f"two agents in a cell at {t}"
        row, column = here // board.columns - board.window, here % board.columns - board.window
        assert (row >= 0).all() and (column >= 0).all() and not walls[row, column].any()
    for t, (before, after) in enumerate(pairwise(plan)):
        stays_gone = (before < board.size) | (after == board.size)
        assert stays_gone.all()
        moved = (before != after) & (after < board.size)
        assert np.isin(np.abs(after - before)[moved], (1, board.columns)).all()
        moves = set(zip(before[moved], after[moved], strict=True))
        assert not any((b, a) in moves for a, b in moves), f"a swap at {t}"


@pytest.mark.parametrize("on_target", ["finish", "nothing", "restart"])
@pytest.mark.parametrize("orders", [1, 3])
def test_windows_have_no_conflicts(on_target, orders):
    env, params = crowded(on_target, agents=12)
    policy = Prioritized(env, params, window=6, orders=orders, rounds=6)
    state = starts(env, params, 30)
    assert len(set(np.asarray(state.map))) == 6
    _, carry = act(policy)(jax.random.key(0), policy.init(30), state, jnp.ones(30, bool))
    walls = np.asarray(env.obstacles(params))
    for e, plan in enumerate(np.asarray(carry.plan)):
        assert_no_conflicts(plan, policy.board, walls[state.map[e]])
        np.testing.assert_array_equal(plan[0], policy.board.cell(np.asarray(state.position[e])))
        arrived = plan[1:] == np.asarray(policy.board.cell(state.goal[e]))
        before = np.cumsum(arrived, axis=0) - arrived > 0
        gone = plan[1:] == policy.board.size
        np.testing.assert_array_equal(gone, before & (on_target == "finish"))


def test_the_dead_are_in_nobodys_way():
    env, params = from_maps([np.zeros((1, 4), bool)], num_agents=2, on_target="finish")
    policy = Prioritized(env, params, window=3)
    state = starts(env, params, 1)
    state = state.replace(
        position=jnp.asarray([[[0, 0], [0, 1]]], state.position.dtype),
        goal=jnp.asarray([[[0, 3], [0, 1]]], state.goal.dtype),
        alive=jnp.asarray([[True, False]]),
    )
    action, carry = act(policy)(jax.random.key(0), policy.init(1), state, jnp.ones(1, bool))
    np.testing.assert_array_equal(action, [[4, 0]])
    assert (np.asarray(carry.plan)[0, :, 1] == policy.board.size).all()


@pytest.mark.parametrize("on_target", ["finish", "nothing", "restart"])
def test_plans_are_followed_exactly(on_target):
    """Under "soft" nobody is stopped, for as long as a plan is followed and over episodes."""
    env, params = crowded(on_target)
    params = params.replace(horizon=jnp.asarray(23, params.horizon.dtype))
    policy = Prioritized(env, params, window=5, replan=3, rounds=4)
    _, _, resets, carries, metrics = play(env, params, policy, 60)
    assert float(metrics["agent_collisions"].sum()) == 0
    assert float(metrics["obstacle_collisions"].sum()) == 0
    assert float(metrics["arrivals"].sum()) > 30
    assert int(resets[1:].sum()) >= 6
    done = np.asarray(carries.done)
    assert (done[np.asarray(resets)] == 1).all()  # an episode begins with a new plan
    if on_target == "restart":
        np.testing.assert_array_equal(done[:7, 0], [1, 2, 3, 1, 2, 3, 1])


@pytest.mark.parametrize("collision", ["priority", "block_both"])
def test_who_is_stopped_plans_anew(collision):
    env, params = crowded("restart", collision=collision)
    policy = Prioritized(env, params, window=5, replan=5, rounds=4)
    states, _, _, carries, metrics = play(env, params, policy, 60)
    assert float(metrics["agent_collisions"].sum()) > 0
    assert float(metrics["arrivals"].sum()) > 30
    cell = np.asarray(policy.board.cell(states.position))
    plan, done = np.asarray(carries.plan), np.asarray(carries.done)
    steps, envs = done.shape
    early = 0
    for t in range(1, steps):
        for e in range(envs):
            here = plan[t, e, done[t, e] - 1]
            np.testing.assert_array_equal(here, cell[t, e])
            stopped = (plan[t - 1, e, done[t - 1, e]] != cell[t, e]).any()
            early += stopped and done[t - 1, e] < 5
            assert not stopped or done[t, e] == 1
    assert early > 0


def test_alone_the_way_is_shortest():
    rng = np.random.default_rng(3)
    walls = rng.random((9, 9)) < 0.3
    env, params = from_maps([walls], num_agents=1, on_target="finish", collision="soft")
    policy = Prioritized(env, params, window=3)
    states, _, resets, _, metrics = play(env, params, policy, 80, envs=4)
    resets, arrivals = np.asarray(resets), np.asarray(metrics["arrivals"])
    episodes = 0
    for e in range(4):
        begins = np.flatnonzero(resets[:, e])
        for begin, end in pairwise(begins):
            start, goal = (
                tuple(map(int, np.asarray(x)[begin, e, 0])) for x in (states.position, states.goal)
            )
            assert distances(walls, goal)[start] == end - begin
            assert arrivals[end - 1, e] == 1
            episodes += 1
    assert episodes > 12


def test_more_rounds_lessen_the_delay():
    """Planning again never makes the weighted sum of delays larger, and on the whole smaller."""
    env, params = crowded("restart", agents=12)
    state = starts(env, params, 6)
    totals = []
    for rounds in (0, 3, 30):
        policy = Prioritized(env, params, rounds=rounds)
        _, carry = act(policy)(jax.random.key(2), policy.init(6), state, jnp.ones(6, bool))
        board, plan = policy.board, jnp.moveaxis(carry.plan, 0, -1)
        _, (distance, row) = policy.pibt.recall(policy.init(6).search, state, jnp.ones(6, bool))
        goal = board.cell(state.goal).T.astype(jnp.int32)
        crowd = Crowd(distance, row.T, goal, jnp.ones_like(goal), board, "restart")
        totals.append(np.asarray(crowd.delay(plan)).sum(axis=0))
    # All weights are equal in the first step; the paths to begin with are the same.
    assert (totals[1] <= totals[0]).all() and (totals[2] <= totals[0]).all()
    assert totals[2].sum() < totals[1].sum() < totals[0].sum()


@pytest.mark.slow
def test_more_goals_are_reached_than_with_pibt():
    env, params = crowded("restart", agents=16, size=(8, 8))
    params = params.replace(horizon=jnp.asarray(1000, params.horizon.dtype))
    reached = [
        float(play(env, params, make(env, params), 100, envs=4)[4]["arrivals"].sum())
        for make in (Pibt, Prioritized)
    ]
    assert reached[1] > 1.1 * reached[0]


@pytest.mark.slow
def test_equal_without_a_table_of_distances(monkeypatch):
    env, params = crowded("restart")
    plans = []
    for _ in range(2):
        policy = Prioritized(env, params, rounds=4)
        plans.append(play(env, params, policy, 12)[3].plan)
        monkeypatch.setattr(pibt_module, "TABLE_BYTES", 0)
    assert policy.pibt.distance is None
    np.testing.assert_array_equal(*plans)


def test_the_key_decides():
    env, params = crowded("restart", agents=12)
    policy = Prioritized(env, params)
    state = starts(env, params, 4)
    one, same, other = (
        np.asarray(act(policy)(jax.random.key(k), policy.init(4), state, jnp.ones(4, bool))[1].plan)
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_seeds_can_be_mapped():
    env, params = crowded("restart")
    policy = Prioritized(env, params, rounds=3)
    states = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), starts(env, params, 4))
    keys = jax.random.split(jax.random.key(5), 2)
    carries = jax.tree.map(lambda x: jnp.stack([x, x]), policy.init(2))
    action, _ = jax.jit(jax.vmap(act(policy)))(keys, carries, states, jnp.ones((2, 2), bool))
    for i in range(2):
        state = jax.tree.map(lambda x, i=i: x[i], states)
        alone, _ = act(policy)(keys[i], policy.init(2), state, jnp.ones(2, bool))
        np.testing.assert_array_equal(action[i], alone)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 0),
        ("window", 65),
        ("replan", 0),
        ("replan", 6),
        ("orders", 0),
        ("group", 0),
        ("rounds", -1),
    ],
)
def test_refusals(name, value):
    env, params = crowded("restart")
    with pytest.raises(ValueError, match=f"Prioritized: {name}={value} is not in"):
        Prioritized(env, params, **{name: value})


@pytest.mark.slow
def test_throughput_on_the_benchmark(data):
    """Eight instances of Random-64, the first 64 steps; Follower reaches 2.465 over 256 steps."""
    folder = data / "pogema_benchmark"
    maps = load_maps(folder / "01-random.maps.yaml")
    instances = load_instances(folder / "01-random-lmapf.json.gz", maps)[::16]
    fields = {"num_agents": 64, "collision": "soft", "on_target": "restart"}
    env, params = from_instances(maps, instances, **fields)
    policy = Prioritized(env, params)
    state = jax.vmap(env.instance_state, (None, 0))(params, jnp.arange(8))

    def step(loop, key):
        carry, state, reset = loop
        action, carry = policy.act(key, carry, None, state, params, reset, True)
        batch = jax.vmap(env.step, (0, 0, 0, None))
        _, after, reward, *_ = batch(jax.random.split(key, 8), state, action, params)
        stopped = jnp.any(after.position != state.position + jnp.asarray(MOVES)[action])
        return (carry, after, jnp.zeros(8, bool)), (reward.sum(), stopped)

    start = (policy.init(8), state, jnp.ones(8, bool))
    keys = jax.random.split(jax.random.key(0), 64)
    reward, stopped = jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(start)
    assert not np.asarray(stopped).any()
    assert float(reward.sum()) / (8 * 64) > 3
