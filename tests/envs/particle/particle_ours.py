"""Our side of the parity tests: all transitions of a record in one compiled step, and the comparison."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.predator_prey.world_comm import WorldCommState
from flockax.envs.space.particle import ParticleState


@functools.cache
def compiled_step(env, optimise=False):
    """One compiled step for each environment, shared by all tests of a process.

    Compiling is nearly all the time of these tests: where many sizes are swept it is done at the
    lowest level, while the slow sweep and the float32 tests take the step as users get it.
    """
    options = {} if optimise else {"xla_backend_optimization_level": 0}
    return jax.jit(env.step, compiler_options=options)


def batch_last(x, kind=float):
    return jnp.moveaxis(jnp.asarray(np.asarray(x, kind)), 0, -1)


def state_of(env, record, time=0):
    """The worlds of a record before its steps, batched last."""
    bodies = (batch_last(record.position), batch_last(record.velocity), batch_last(record.landmark))
    steps = jnp.full(len(record), time, int)
    if env.symbols:
        return WorldCommState(*bodies, steps, message=batch_last(record.message))
    return ParticleState(*bodies, steps)


def play(env, record, params=None, time=0, optimise=False):
    """Steps all transitions of a record; a dict of arrays with a leading axis over transitions."""
    params = env.default_params if params is None else params
    kind = int if env.actions == "discrete" else float
    state, action = state_of(env, record, time), batch_last(record.action, kind)
    result = compiled_step(env, optimise)(jax.random.key(0), state, action, params)
    observation, state, reward, terminated, truncated, info = jax.tree.map(
        lambda x: np.moveaxis(np.asarray(x), -1, 0), result
    )
    assert not np.any(info["invalid_action"])
    assert np.all(state.time == time + 1)
    np.testing.assert_array_equal(state.landmark, np.moveaxis(batch_last(record.landmark), -1, 0))
    return {
        "position": state.position,
        "velocity": state.velocity,
        "message": getattr(state, "message", None),
        "reward": reward,
        "features": observation.features,
        "terminated": terminated,
        "truncated": truncated,
        "metrics": info["metrics"],
    }


def differences(env, record, result):
    """The largest absolute difference in each compared quantity; NaN counts as infinite."""
    pairs = {
        "position": (record.next_position, result["position"]),
        "velocity": (record.next_velocity, result["velocity"]),
        "reward": (record.reward, result["reward"]),
    }
    if env.symbols:
        pairs["message"] = (record.next_message, result["message"])
    sizes = np.repeat([g.observation_size for g in env.groups], [g.size for g in env.groups])
    for i, expected in enumerate(record.observation):
        assert expected.shape[1] == sizes[i], (i, expected.shape, sizes[i])
        pairs[f"observation {i}"] = (expected, result["features"][:, i, : sizes[i]])
        pairs[f"padding {i}"] = (0, result["features"][:, i, sizes[i] :])
    return {
        name: float(np.nan_to_num(np.abs(a - b), nan=np.inf).max(initial=0))
        for name, (a, b) in pairs.items()
    }


def assert_agrees(env, record, result, tolerance):
    """Fails with the quantities in which ours and the peer differ."""
    wrong = {k: v for k, v in differences(env, record, result).items() if not v <= tolerance}
    assert not wrong, f"{env}: differs by {wrong} over {len(record)} transitions"
    assert not np.any(result["terminated"]) and not np.any(result["truncated"])


def assert_mutants_differ(env, record, inert, tolerance=1e-9):
    """Changes every parameter by 1 %: each must change what is compared, but those in `inert`."""
    defaults = env.default_params
    assert_agrees(env, record, play(env, record), tolerance)
    unseen = set()
    for name in defaults.__dataclass_fields__:
        if name == "horizon":
            continue
        params = env.make_params(**{name: float(getattr(defaults, name)) * 1.01})
        if max(differences(env, record, play(env, record, params)).values()) <= tolerance:
            unseen.add(name)
    assert unseen == set(inert)
