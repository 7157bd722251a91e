"""Solvers of mean-field games, and the policy that plays their solution with finitely many agents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.agents.core.policy import RandomPolicy
from flockax.agents.core.runs import POLICIES, find
from flockax.agents.planners import mean_field as planner
from flockax.envs import VectorEnv, make
from flockax.envs.swarm import mean_field as mf
from flockax.envs.swarm import mean_field_games as games

GAMES = {
    "beach": lambda: games.crowd_modelling(),
    "crowd": lambda: games.crowd_modelling_2d(5, 6),
    "prey": lambda: games.predator_prey(4, 6),
}


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.usefixtures("float64")
def test_exploitability_falls_and_is_that_of_the_policy(name):
    game = GAMES[name]()
    for solver, count, arguments in (
        (planner.fictitious_play, 200, ()),
        (planner.online_mirror_descent, 400, (0.1,)),
    ):
        solution = solver(game, count, *arguments)
        gains = np.asarray(solution.exploitability)
        assert gains.shape == (count + 1,) and (gains > -1e-9).all()
        assert gains[-1] < 0.05 * gains[0] and gains[-1] < gains[count // 2] < gains[5]
        np.testing.assert_allclose(mf.exploitability(game, solution.policy), gains[-1], rtol=1e-10)
        policy = np.asarray(solution.policy)
        np.testing.assert_allclose(policy.sum(axis=2), 1)
        assert (policy >= 0).all()


@pytest.mark.usefixtures("float64")
def test_solvers_agree_on_the_density():
    """The game is monotone, so that there is one equilibrium."""
    game = GAMES["crowd"]()
    one = mf.flow(game, planner.fictitious_play(game, 2000).policy)
    other = mf.flow(game, planner.online_mirror_descent(game, 2000, 0.5).policy)
    np.testing.assert_allclose(one, other, atol=2e-3)
    uniform = mf.flow(game, mf.uniform_policy(game))
    assert np.abs(uniform - other).max() > 2e-2


@pytest.mark.usefixtures("float64")
def test_fictitious_play_averages_densities():
    """After two iterations at 1/2 and 1/3 the density is the mean of that of three policies."""
    game = GAMES["prey"]()
    uniform = mf.uniform_policy(game)
    first = mf.best_response(game, mf.flow(game, uniform))
    half = planner.fictitious_play(game, 1).policy
    second = mf.best_response(game, mf.flow(game, half))
    mean = (mf.flow(game, uniform) + mf.flow(game, first) + mf.flow(game, second)) / 3
    found = planner.fictitious_play(game, 2).policy
    np.testing.assert_allclose(mf.flow(game, found), mean, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_mirror_descent_sums_values():
    game = GAMES["beach"]()
    uniform = mf.uniform_policy(game)
    values = mf.action_values(game, uniform, mf.flow(game, uniform))
    first = jax.nn.softmax(0.2 * values, axis=2)
    found = planner.online_mirror_descent(game, 1, 0.2).policy
    np.testing.assert_allclose(found, first, rtol=1e-12)
    more = values + mf.action_values(game, first, mf.flow(game, first))
    found = planner.online_mirror_descent(game, 2, 0.2).policy
    np.testing.assert_allclose(found, jax.nn.softmax(0.2 * more, axis=2), rtol=1e-12)


def test_no_iterations_are_the_uniform_policy():
    game = GAMES["beach"]()
    for solver in planner.SOLVERS.values():
        solution = solver(game, 0)
        np.testing.assert_allclose(solution.policy, mf.uniform_policy(game))
        assert solution.exploitability.shape == (1,)


def play(env, params, policy, num_envs=20, greedy=False):
    """Mean return of the agents, mean efficiency, and how many actions were invalid."""
    vector = VectorEnv(env, num_envs)

    def step(carry, key):
        observation, state = carry
        act, go = jax.random.split(key)
        inner = vector.env_state(state)
        reset = jnp.zeros(num_envs, bool)
        action, _ = policy.act(act, (), observation, inner, params, reset, greedy)
        observation, state, reward, *_, info = vector.step(go, state, action, params)
        return (observation, state), (reward, info["metrics"], info["invalid_action"])

    @jax.jit
    def run():
        start, key = jax.random.split(jax.random.key(5))
        keys = jax.random.split(key, int(params.horizon))
        return jax.lax.scan(step, vector.reset(start, params), keys)[1]

    reward, metrics, invalid = jax.device_get(run())
    total = {name: value.sum(0) for name, value in metrics.items()}
    score = env.scores(total, total, np.full(num_envs, len(reward)))["efficiency"]
    return reward.sum(0).mean(), score.mean(), invalid.sum()


@pytest.mark.parametrize(
    "fields",
    [
        {"num_agents": 100, "size": 5},
        {"num_agents": 100, "task": "beach"},
        {"num_agents": 60, "task": "predator_prey"},
        {"num_agents": 100, "layout": "four_rooms", "size": 7},
    ],
)
def test_the_equilibrium_beats_chance(fields):
    env = make("crowd", **fields)
    params = env.default_params
    policy = POLICIES["mean_field"][1](env, params)
    earned, score, invalid = play(env, params, policy)
    by_chance, chance_score, _ = play(env, params, RandomPolicy(env))
    assert earned > by_chance + 0.1 and score > chance_score and not invalid


def test_many_agents_earn_what_the_mean_field_says():
    """With what the policy was made for, and the more agents the nearer."""
    gaps = []
    for agents, num_envs in ((30, 200), (6000, 4)):
        env = make("crowd", num_agents=agents, size=4)
        params = env.default_params
        game = env.game(params, int(params.horizon))
        solution = planner.online_mirror_descent(game, 200, 0.1).policy
        limit = mf.policy_value(game, solution, mf.flow(game, solution))[0]
        policy = planner.MeanField(env, params)
        gaps.append(abs(play(env, params, policy, num_envs)[0] - float(limit)))
    assert gaps[0] > 20 * gaps[1] and gaps[1] < 0.05


def test_actions_follow_the_table():
    """In the numbers of the environment, at the right time and place, whatever `greedy` says."""
    env = make("crowd", num_agents=30_000, task="beach", size=4)
    params = env.make_params(horizon=3)
    policy = planner.MeanField(env, params, iterations=50, learning_rate=1.0)
    game = env.game(params, 3)
    table = np.asarray(planner.online_mirror_descent(game, 50, 1.0).policy)
    _, state = env.reset(jax.random.key(0), params)
    state = jax.tree.map(lambda x: x[None], state.replace(time=jnp.ones_like(state.time)))
    for greedy in (False, True):
        action, _ = policy.act(
            jax.random.key(1), (), None, state, params, jnp.zeros(1, bool), greedy
        )
        for x in range(4):
            here = np.asarray(action[0])[np.asarray(state.position[0, :, 0]) == x]
            share = np.bincount(here, minlength=3) / len(here)
            expected = table[1, 0, env.action_order, x, 0]
            assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / len(here))
    assert np.abs(table[1] - table[0]).max() > 0.05
    late = state.replace(time=state.time + 100)
    policy.act(jax.random.key(1), (), None, late, params, jnp.zeros(1, bool), False)


def test_refused():
    env = make("crowd", size=3)
    with pytest.raises(ValueError, match="iterations=0 is not >= 1"):
        planner.MeanField(env, env.default_params, iterations=0)
    with pytest.raises(ValueError, match="learning_rate=0 is not positive"):
        planner.MeanField(env, env.default_params, learning_rate=0)
    with pytest.raises(ValueError, match="plays crowd only"):
        find("mean_field", make("tag"), "tag")
    assert find("mean_field", env, "crowd").env == env
