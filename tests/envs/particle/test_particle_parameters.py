"""Parameters do what they say: against an oracle in plain loops, which is itself held against mpe2."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import particle_oracle
import pytest
from particle_ours import play
from particle_peer import record

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

FIELDS = {
    "tag": {"num_predators": 3, "num_prey": 2, "num_obstacles": 2},
    "spread": {"num_agents": 4},
    "world_comm": {
        "num_predators": 3,
        "num_prey": 2,
        "num_obstacles": 2,
        "num_food": 2,
        "num_forests": 1,
    },
}


def oracle_step(id, fields, worlds, index, values):
    """One transition of a record by the oracle: positions, velocities, rewards."""
    world = [worlds.position, worlds.velocity, worlds.landmark, worlds.action]
    arguments = [x[index] for x in world]
    if id == "tag":
        arguments += [fields["num_predators"]]
    elif id == "world_comm":
        arguments += [fields[k] for k in ("num_predators", "num_obstacles", "num_food")]
    return getattr(particle_oracle, id)(*arguments, values)


def assert_oracle_agrees(env, id, fields, worlds, params):
    result = play(env, worlds, params)
    values = {name: float(getattr(params, name)) for name in params.__dataclass_fields__}
    steps = [oracle_step(id, fields, worlds, index, values) for index in range(len(worlds))]
    columns = zip(*steps, strict=True)
    for name, expected in zip(("position", "velocity", "reward"), columns, strict=True):
        np.testing.assert_allclose(result[name], np.array(expected), rtol=1e-9, atol=1e-9)
    return result


@pytest.mark.parametrize("actions", ("discrete", "continuous"))
@pytest.mark.parametrize("id", FIELDS)
def test_oracle_agrees_with_mpe2(id, actions):
    env = make(id, actions=actions)
    fields, worlds = FIELDS[id], record(id, actions, **FIELDS[id])
    values = {name: float(value) for name, value in vars(env.default_params).items()}
    for index in range(len(worlds)):
        position, velocity, reward = oracle_step(id, fields, worlds, index, values)
        np.testing.assert_allclose(position, worlds.next_position[index], atol=1e-10)
        np.testing.assert_allclose(velocity, worlds.next_velocity[index], atol=1e-10)
        np.testing.assert_allclose(reward, worlds.reward[index], atol=1e-10)


@pytest.mark.parametrize("id", FIELDS)
def test_other_parameters(id):
    env, fields = make(id, **FIELDS[id]), FIELDS[id]
    worlds = record(id, "discrete", **fields)
    rng = np.random.default_rng(0)
    for _ in range(3):
        defaults = {k: float(v) for k, v in vars(env.default_params).items() if k != "horizon"}
        changed = {k: v * rng.uniform(0.5, 1.8) for k, v in defaults.items()}
        params = env.make_params(**changed)
        assert_oracle_agrees(env, id, fields, worlds, params)


@pytest.mark.parametrize("num_landmarks", (1, 2, 6))
def test_spread_with_other_numbers_of_landmarks(num_landmarks):
    fields = {"num_agents": 4}
    env = make("spread", num_landmarks=num_landmarks, **fields)
    worlds = record("spread", "discrete", **fields)
    rng = np.random.default_rng(num_landmarks)
    landmark = rng.uniform(-1, 1, (len(worlds), num_landmarks, 2))
    worlds = dataclasses.replace(worlds, landmark=landmark)
    result = assert_oracle_agrees(env, "spread", fields, worlds, env.default_params)
    for index in range(len(worlds)):
        position, velocity = result["position"][index], result["velocity"][index]
        for i in range(4):
            expected = particle_oracle.spread_observation(
                position, velocity, worlds.landmark[index], i
            )
            np.testing.assert_allclose(result["features"][index, i], expected, atol=1e-12)


def test_world_comm_without_food_pays_nothing_for_it():
    fields = {**FIELDS["world_comm"], "num_food": 0}
    env = make("world_comm", **fields)
    worlds = record("world_comm", "discrete", **FIELDS["world_comm"])
    worlds = dataclasses.replace(worlds, landmark=worlds.landmark[:, [0, 1, 4]])
    result = assert_oracle_agrees(env, "world_comm", fields, worlds, env.default_params)
    assert not np.any(result["metrics"]["food_eaten"])


@pytest.mark.parametrize("id", FIELDS)
def test_horizon(id):
    env = make(id, **FIELDS[id])
    worlds = record(id, "discrete", **FIELDS[id])
    for horizon in (1, 24, 25, 26):
        params = env.make_params(horizon=horizon)
        for time in (horizon - 2, horizon - 1, horizon):
            result = play(env, worlds, params, time)
            assert not np.any(result["terminated"])
            np.testing.assert_array_equal(result["truncated"], time + 1 >= horizon)


def test_parameters_can_be_vmapped():
    env = make("tag")
    state = env.initial_state(jax.random.key(0), env.default_params)
    state = state.replace(velocity=jnp.ones_like(state.velocity) / 4)
    damping = jnp.array([0.0, 0.25, 1.0])
    params = jax.vmap(lambda x: env.default_params.replace(damping=x, contact_force=0 * x))(damping)
    action = jnp.zeros(4, int)
    step = jax.jit(jax.vmap(env.step, (None, None, None, 0)))
    velocity = step(jax.random.key(0), state, action, params)[1].velocity
    expected = np.array([0.25, 0.1875, 0.0])[:, None, None] * np.ones((4, 2))
    np.testing.assert_allclose(velocity, expected, atol=1e-12)
