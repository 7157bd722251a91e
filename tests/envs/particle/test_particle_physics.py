import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.envs import make
from flockax.envs.space import particle

pytestmark = pytest.mark.usefixtures("float64")

PHYSICS = particle.PhysicsParams()


@jax.jit
def force_among(position, radius):
    return particle.contact_force(position, radius, position, radius, PHYSICS)


def contact(position):
    """The forces among discs of radius .1."""
    return np.asarray(force_among(jnp.asarray(position, float), jnp.full(len(position), 0.1)))


def test_coincident_bodies_do_not_push_each_other():
    assert not np.any(contact([(0.3, 0.2)] * 3))


def test_coincident_bodies_push_a_third():
    force = contact([(0, 0), (0, 0), (0.1, 0)])
    np.testing.assert_allclose(force, [(-10, 0), (-10, 0), (20, 0)], atol=1e-9)


def test_contacts_push_apart_with_equal_forces():
    force = contact(np.random.default_rng(0).uniform(-0.1, 0.1, (6, 2)))
    assert np.all(np.abs(force).max(axis=1) > 1)
    np.testing.assert_allclose(force.sum(axis=0), 0, atol=1e-9)


def test_nothing_is_felt_at_a_distance():
    assert np.max(np.abs(contact([(0, 0), (0.3, 0)]))) < 1e-40


def test_a_body_moves_with_its_old_velocity():
    x, v, f = jnp.array([[1.0, 2.0]]), jnp.array([[0.5, -1.0]]), jnp.array([[2.0, 0.0]])
    position, velocity = particle.integrate(x, v, f, PHYSICS)
    np.testing.assert_allclose(position, [[1.05, 1.9]], atol=1e-12)
    np.testing.assert_allclose(velocity, [[0.575, -0.75]], atol=1e-12)


def test_the_speed_limit_keeps_the_direction():
    v = jnp.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    limit = jnp.array([2.0, 2.0, 0.0])
    params = PHYSICS.replace(damping=0.0)
    velocity = particle.integrate(jnp.zeros((3, 2)), v, jnp.zeros((3, 2)), params, limit)[1]
    np.testing.assert_allclose(velocity, [[1.2, 1.6], [0.3, 0.4], [0, 0]], atol=1e-12)


LAYOUTS = {
    "apart": lambda rng, n: rng.uniform(-0.9, 0.9, (n, 2)),
    "crowded": lambda rng, n: rng.uniform(-0.12, 0.12, (n, 2)),
    "at one place": lambda rng, n: np.full((n, 2), 0.25),
    "at the origin": lambda rng, n: np.zeros((n, 2)),
    "far outside": lambda rng, n: rng.uniform(400, 500, (n, 2)),
}

IDS = ("tag", "spread", "world_comm")


@functools.cache
def scored_step(id):
    """Value and gradient of a random mix of all that a step gives, of all that goes into it."""
    env = make(id, actions="continuous")
    start = env.initial_state(jax.random.key(0), env.default_params)
    weights = np.random.default_rng(1).standard_normal(2000)

    def score(position, velocity, landmark, action, params):
        state = start.replace(position=position, velocity=velocity, landmark=landmark)
        observation, state, reward, *_ = env.step(jax.random.key(0), state, action, params)
        parts = (observation.features, state.position, state.velocity, reward)
        mixed = jnp.concatenate([jnp.ravel(part) for part in parts])
        return mixed @ weights[: len(mixed)]

    gradient = jax.value_and_grad(score, argnums=range(5), allow_int=True)
    options = {"xla_backend_optimization_level": 0}
    return env, jax.jit(gradient, compiler_options=options)


def layout_arguments(env, layout, speed):
    rng = np.random.default_rng(0)
    agents = env.num_agents
    return [
        LAYOUTS[layout](rng, agents),
        speed * rng.uniform(-1, 1, (agents, 2)),
        LAYOUTS[layout](rng, env.num_landmarks_total),
        rng.uniform(0.1, 0.9, (agents, env.action_spec.size)) * (speed > 0),
    ]


@pytest.mark.parametrize("speed", (0.0, 0.5))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("id", IDS)
def test_gradients_are_finite(id, layout, speed):
    env, gradient = scored_step(id)
    value, slopes = gradient(*layout_arguments(env, layout, speed), env.default_params)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(x)) for x in slopes[:4])
    names = [name for name in vars(env.default_params) if name != "horizon"]
    assert all(np.isfinite(getattr(slopes[4], name)) for name in names)


@pytest.mark.parametrize("layout", ("apart", "crowded"))
@pytest.mark.parametrize("id", IDS)
def test_gradients_are_right(id, layout):
    env, gradient = scored_step(id)
    arguments = layout_arguments(env, layout, 0.5)
    slopes = gradient(*arguments, env.default_params)[1]
    for index, argument in enumerate(arguments):
        direction = np.random.default_rng(2).standard_normal(argument.shape)
        values = []
        for h in (1e-6, -1e-6):
            moved = [*arguments[:index], argument + h * direction, *arguments[index + 1 :]]
            values.append(gradient(*moved, env.default_params)[0])
        expected = (values[0] - values[1]) / 2e-6
        got = np.sum(slopes[index] * direction)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
