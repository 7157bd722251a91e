"""The scripted policies of `navigation`, `discovery`, `dispersion` and `sampling`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.agents import find
from flockax.agents.core.evaluation import play_episodes, summarise
from flockax.agents.planners.share_food import assign
from flockax.agents.planners.steering import action_for, away, push_for, toward
from flockax.envs import make
from flockax.envs.space import particle
from flockax.envs.space.semi_implicit import advance

# Policy, environment, fields, and scores between those of random actions and of the policy, as
# measured over 128 episodes.
PLAYED = (
    ("seek_goal", "navigation", {}, 0.3),
    ("seek_goal", "navigation", {"axes": "own", "actions": "continuous"}, 0.4),
    ("pair_up", "discovery", {}, 0.8),
    ("pair_up", "discovery", {"on_cover": "vanish", "actions": "continuous"}, 0.7),
    ("share_food", "dispersion", {"num_agents": 2, "num_food": 8}, 0.8),
    ("share_food", "dispersion", {"actions": "continuous"}, 0.9),
    ("climb_field", "sampling", {}, 0.2),
    ("climb_field", "sampling", {"actions": "continuous", "shared_reward": False}, 0.2),
)


def score(name, env, id_, episodes=16):
    player = find(name, env, id_)
    played = play_episodes(player.policy, env, player.params, episodes, False, False)
    return summarise(env, played)["scores"]["score"]


@pytest.mark.parametrize(("name", "id_", "fields", "least"), PLAYED, ids=str)
def test_a_script_scores_far_above_random_actions(name, id_, fields, least):
    env = make(id_, **fields)
    assert score("random", env, id_) < least / 3
    assert score(name, env, id_) > least


@pytest.mark.parametrize("name", ["seek_goal", "pair_up", "share_food", "climb_field"])
def test_a_script_plays_its_own_environment_only(name):
    with pytest.raises(ValueError, match=f"policy '{name}' plays .* only"):
        find(name, make("spread"), "spread")


@pytest.mark.parametrize("name_id", [x[:2] for x in PLAYED[::2]], ids=str)
@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_a_lone_agent_gets_valid_actions(name_id, actions):
    name, id_ = name_id
    env = make(id_, num_agents=1, actions=actions)
    player = find(name, env, id_)
    observation, state = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3))
    reset = jnp.ones(3, bool)
    act = jax.jit(player.policy.act, static_argnames="greedy")
    action, _ = act(jax.random.key(0), (), observation, state, player.params, reset, greedy=True)
    spec = env.action_spec
    if actions == "discrete":
        assert action.shape == (3, 1) and ((action >= 0) & (action < spec.n)).all()
    else:
        assert action.shape == (3, 1, spec.size)
        assert ((action >= spec.low) & (action <= spec.high)).all()


def test_the_frame_of_the_actions_makes_no_difference():
    """Continuous pushes in the own frame move bodies as those in the world's do."""
    both = []
    for axes in ("world", "own"):
        env = make("navigation", actions="continuous", axes=axes)
        policy, params = find("seek_goal", env, "navigation").policy, env.default_params
        observation, state = jax.vmap(env.reset)(jax.random.split(jax.random.key(3), 4))
        reset = jnp.ones(4, bool)

        def step(state, policy=policy, params=params, env=env, seen=observation, reset=reset):
            action, _ = policy.act(jax.random.key(0), (), seen, state, params, reset, greedy=True)
            # The own frame cuts pushes along other axes: keep them small enough for both.
            small = lambda s, a: env.step(jax.random.key(0), s, a / 2)[1]  # noqa: E731
            return jax.vmap(small)(state, action)

        step = jax.jit(step)
        for _ in range(5):
            state = step(state)
        both.append(np.asarray(state.position))
    np.testing.assert_allclose(both[0], both[1], atol=1e-5)


def test_a_push_gives_the_velocity_that_is_wanted():
    params = make("discovery").default_params
    velocity = jnp.array([[0.1, 0.0], [0.0, 0.0], [0.2, -0.1]])
    wanted = jnp.array([[0.12, 0.02], [9.0, 4.5], [0.2, -0.05]])
    push = push_for(velocity, wanted, params)
    assert float(jnp.abs(push).max()) <= 1
    position = jnp.zeros((3, 2))
    _, after = advance(position, velocity, lambda _: params.agent_accel * push, params)
    np.testing.assert_allclose(after[::2], wanted[::2], atol=1e-6)
    np.testing.assert_allclose(push[1], [1, 0.5], atol=1e-6)  # the direction is kept
    np.testing.assert_allclose(toward(jnp.array([[0.2, 0]]), params), [[1, 0]], atol=1e-6)


def test_actions_for_pushes():
    push = jnp.array([[0.9, 0.1], [-0.8, 0.7], [0.1, 0.6], [0.5, -0.9], [0.4, -0.4]])
    assert action_for(make("spread", num_agents=5), push).tolist() == [2, 1, 4, 3, 0]
    env = make("spread", num_agents=5, actions="continuous")
    np.testing.assert_array_equal(particle.thrust(action_for(env, push)), push)


def test_away_is_a_sum_over_what_is_near():
    position = jnp.array([[0.0, 0.0], [0.3, 0.0]])
    other = jnp.array([[0.0, 0.0], [0.0, -0.15], [0.3, 5.0]])
    # The second thing is halfway through the reach of the first agent, the first beyond that of the
    # second; oneself, or what is at the same place, does not count.
    pushed = away(position, other, jnp.asarray(0.1), 0.1)
    np.testing.assert_allclose(pushed, [[0, 0.5], [0, 0]], atol=1e-6)


def greedy_assignment(cost):
    """Pairs taken out one by one, in plain Python."""
    chosen = cost.argmin(1)
    pairs = sorted(itertools.product(*map(range, cost.shape)), key=lambda x: (cost[x], x))
    rows, columns = set(), set()
    for row, column in pairs:
        if row not in rows and column not in columns and np.isfinite(cost[row, column]):
            chosen[row] = column
            rows.add(row)
            columns.add(column)
    return chosen


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 3), (4, 4)], ids=str)
def test_greedy_assignment(shape):
    rng = np.random.default_rng(0)
    for trial in range(20):
        cost = rng.integers(0, 6, shape).astype(np.float32)  # with many equal ones
        if trial % 2:
            cost[:, rng.integers(shape[1])] = np.inf
        np.testing.assert_array_equal(assign(jnp.asarray(cost)), greedy_assignment(cost))
