"""`flock`: its rules against an oracle, known values, its search, its scripted players."""

import dataclasses

import flock_oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from flockax.agents.core.evaluation import play_episodes
from flockax.agents.core.runs import POLICIES
from flockax.envs import make
from flockax.envs.swarm.flock import MOVES
from flockax.envs.swarm.flock_state import order

SWITCHES = [
    {"num_agents": 12},
    {"num_agents": 9, "control": "acceleration", "num_obstacles": 2, "periodic": False},
    {"num_agents": 7, "actions": "continuous", "num_predators": 2, "density": 8.0},
    {
        "num_agents": 10,
        "actions": "continuous",
        "control": "acceleration",
        "num_obstacles": 1,
        "num_predators": 1,
        "density": 20.0,
    },
    {"num_agents": 8, "dynamics": "vicsek", "periodic": False},
]


def plain(state):
    return {
        f.name: np.asarray(getattr(state, f.name))
        for f in dataclasses.fields(state)
        if f.name not in ("view", "time")
    }


def numbers(params):
    return {f.name: float(getattr(params, f.name)) for f in dataclasses.fields(params)}


@pytest.mark.parametrize("fields", SWITCHES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_rules_are_those_of_the_oracle(fields):
    with jax.enable_x64(True):
        env = make("flock", **fields)
        params = env.make_params(max_speed=0.3, body=0.3, max_accel=0.1)
        key = jax.random.key(3)
        state = jax.jit(env.initial_state)(key, params)
        step = jax.jit(env.step)
        events = np.zeros(3, int)
        for t in range(40):
            key, act_key = jax.random.split(key)
            action = env.action_spec.sample(
                act_key, jnp.ones(env.observation_spec.action_mask.shape, bool)
            )
            expected, reward, moments = flock_oracle.step(
                env, numbers(params), plain(state), np.asarray(action)
            )
            observation, state, actual, _, _, info = step(key, state, action, params)
            for name, value in plain(state).items():
                np.testing.assert_allclose(value, expected[name], atol=1e-9, err_msg=f"{t} {name}")
            np.testing.assert_allclose(actual, reward, atol=1e-9, err_msg=f"{t}")
            np.testing.assert_allclose(observation.features, moments, atol=1e-9, err_msg=f"{t}")
            np.testing.assert_allclose(info["metrics"]["score"], reward.mean(), atol=1e-9)
            events += [int(x) for x in (info["metrics"]["collisions"], info["metrics"]["hits"], 1)]
        assert events[0] > 20, "hardly anybody collides"
        if env.num_obstacles or env.num_predators:
            assert events[1] > 5, "hardly anybody meets a hazard"


def test_walls_and_edges_are_met():
    env = make("flock", num_agents=30, periodic=False, density=30.0)
    params = env.make_params(max_speed=0.3)
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    step, met = jax.jit(env.step), 0
    for t in range(60):
        before = state
        _, state, *_ = step(jax.random.key(t), state, jnp.zeros(30, int), params)
        met += int(jnp.sum(jnp.sign(before.ux) != jnp.sign(state.ux)))
        assert bool(jnp.all((state.x >= 0) & (state.x <= env.side) & (state.y >= 0)))
        np.testing.assert_allclose(state.ux**2 + state.uy**2, 1, atol=1e-5)
    assert met > 50


def test_a_perfect_flock_earns_one():
    env = make("flock", num_agents=5)
    params = env.default_params
    _, state = jax.jit(env.reset)(jax.random.key(0))
    ones, zeros = jnp.ones(5), jnp.zeros(5)
    place = jnp.asarray([0.5, 0.7, 0.9, 1.1, 1.3])
    state = state.replace(x=place, y=ones, ux=ones, uy=zeros, speed=0.1 * ones)
    _, state, reward, *_, info = jax.jit(env.step)(
        jax.random.key(0), state, jnp.zeros(5, int), params
    )
    np.testing.assert_allclose(reward, 1, atol=1e-6)
    np.testing.assert_allclose(info["metrics"]["order"], 1, atol=1e-6)
    assert info["metrics"]["cohesion"] == 1 and info["metrics"]["collisions"] == 0


def test_noise_is_uniform_and_as_wide_as_said():
    env = make("flock", num_agents=2000, dynamics="vicsek")
    params = env.make_params(noise=1.5)
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    _, after, *_ = jax.jit(env.step)(jax.random.key(5), state, jnp.zeros(2000, int), params)
    turned = np.angle(
        (np.asarray(after.ux) + 1j * after.uy) / (np.asarray(state.ux) + 1j * state.uy)
    )
    assert scipy.stats.kstest(turned, scipy.stats.uniform(-0.75, 1.5).cdf).pvalue > 1e-3
    np.testing.assert_allclose(after.speed, params.max_speed)


@pytest.mark.parametrize("search", ["pairs", "cells", "sorted", "exact"])
def test_every_search_gives_the_same_step(search):
    env = make("flock", num_agents=90, search="auto", density=9.0)
    other = dataclasses.replace(env, search=search, capacity=90)
    params, key = env.default_params, jax.random.key(1)
    _, state = jax.jit(env.reset)(key)
    action = jax.random.randint(key, (90,), 0, len(MOVES))
    expected, actual = (jax.jit(e.step)(key, state, action, params) for e in (env, other))
    assert int(actual[-1]["overflow"]) == 0
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_too_full_cells_are_counted_and_capacity_grows():
    env = make("flock", num_agents=60, search="sorted", capacity=2)
    key = jax.random.key(0)
    overflow = []
    for _ in range(8):
        _, state = jax.jit(env.reset)(key)
        *_, info = jax.jit(env.step)(key, state, jnp.zeros(60, int))
        overflow.append(int(info["overflow"]))
        if not overflow[-1]:
            break
        capacity = env.capacity
        env = env.grown()
        assert env.capacity == 2 * capacity
    assert overflow[0] > 10 and overflow[-1] == 0 and sorted(overflow, reverse=True) == overflow
    with pytest.raises(ValueError, match="'exact' has no capacity"):
        make("flock", search="exact").grown()


def test_nearest_neighbours_are_seen_in_the_own_frame():
    env = make("flock", num_agents=4, observation="nearest", num_nearest=2)
    _, state = jax.jit(env.reset)(jax.random.key(0))
    x, y = jnp.asarray([0.2, 0.2, 0.5, 1.9]), jnp.asarray([0.3, 0.7, 0.3, 0.3])
    up = jnp.ones(4)
    state = state.replace(x=x, y=y, ux=0 * up, uy=up, speed=0.05 * up)
    features = jax.jit(env.observe)(state).features
    # Agent 3 is at distance 0.3 across the edge, to the left of all, who look up; the lower index
    # of two equally near ones comes first.
    np.testing.assert_allclose(features.entities[0, 0], [0, -0.3, 0.5, 0], atol=1e-6)
    np.testing.assert_allclose(features.entities[0, 1], [0, 0.3, 0.5, 0], atol=1e-6)
    np.testing.assert_allclose(features.entities[1, 0], [-0.4, 0, 0.5, 0], atol=1e-6)
    assert features.mask[0].all()


def test_scripted_flocks_beat_random_ones():
    env = make("flock", num_agents=40)
    params = env.make_params(horizon=100)
    score = {}
    for name in ("random", "boids", "vicsek"):
        policy = POLICIES[name][1](env, params)
        played = play_episodes(policy, env, params, 4, False, False)
        score[name] = played.scores["score"].mean()
    assert score["random"] < 0.1 < 0.6 < score["vicsek"] < score["boids"] < 1


@pytest.mark.parametrize("control", ["heading", "acceleration"])
@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_boids_form_a_flock_with_every_control(control, actions):
    env = make("flock", num_agents=30, control=control, actions=actions, num_obstacles=1)
    params = env.make_params(horizon=120)
    policy = POLICIES["boids"][1](env, params)
    played = play_episodes(policy, env, params, 2, True, False)
    assert played.scores["order"].mean() > 0.8


def test_order_is_the_length_of_the_mean_heading():
    angle = jnp.asarray([0.0, np.pi / 2])
    np.testing.assert_allclose(order(jnp.cos(angle), jnp.sin(angle)), np.sqrt(0.5), atol=1e-6)


def test_impossible_flocks_are_refused():
    for fields, text in (
        ({"density": 0.0}, "density=0.0 is not a number in"),
        ({"density": "dense"}, "density='dense' is not a number in"),
        ({"num_agents": 0}, "num_agents=0 is not an integer >= 1"),
        ({"search": "tree"}, "search='tree' is not one of"),
    ):
        with pytest.raises(ValueError, match=text):
            make("flock", **fields)
