"""`VectorEnv`: starts that are drawn ahead; `cond_any`: branches that survive a vmap."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from colony import Colony, ColonyLast

from flockax.envs import Environment, VectorEnv, cond_any, make

ENVS = {"spread": make("spread"), "colony": Colony(), "colony_last": ColonyLast()}
SEEDS = 3


@functools.cache
def rollout(env: Environment, num_envs: int = 5, steps: int = 30, transform: Any = lambda f: f):
    """Compiled: ``(key, horizon, first) -> record`` of random play; leading axes ``[T, E]``."""
    vector = VectorEnv(env, num_envs)

    def play(key: Any, horizon: Any, first: Any, stagger: bool = False) -> Any:
        params = dataclasses.replace(env.default_params, horizon=horizon)
        start, key = jax.random.split(key)
        observation, state = vector.reset(start, params, stagger=stagger, first=first)

        def one(carry: Any, key: Any) -> Any:
            observation, state = carry
            # Each environment's own actions, so that they do not depend on how many there are.
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, state.index + 1000)
            action = jax.vmap(env.action_spec.sample)(keys, observation.action_mask)
            before = vector.env_state(state)
            observation, state, reward, terminated, truncated, info = vector.step(
                key, state, action, params
            )
            done = terminated | truncated
            record = {"state": before, "reward": reward, "done": done, "truncated": truncated}
            record |= {"info": info, "internal": state, "observation": observation}
            return (observation, state), record

        return jax.lax.scan(one, (observation, state), jax.random.split(key, steps))[1]

    # Without optimisation a compilation takes a quarter of the time.
    options = {"xla_backend_optimization_level": 0}
    return jax.jit(transform(play), static_argnames="stagger", compiler_options=options)


def leaves(tree: Any) -> list[np.ndarray]:
    """The leaves as NumPy arrays, keys as their data."""
    plain = [jax.random.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(tree)]
    return [np.asarray(x) for x in plain]


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def assert_equal(actual: Any, expected: Any) -> None:
    """Equal bit for bit."""
    for x, y in zip(leaves(actual), leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y)


def assert_close(actual: Any, expected: Any) -> None:
    """Integers equal, floats to rounding."""
    for x, y in zip(leaves(actual), leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def starts_of(record: Any) -> dict[int, list[Any]]:
    """The states in which the episodes of each environment began, in order."""
    done = np.asarray(record["done"])
    begins = np.concatenate([np.ones_like(done[:1]), done[:-1]])
    states = jax.device_get(record["state"])
    return {
        e: [jax.tree.map(lambda x, t=t, e=e: x[t, e], states) for t in np.flatnonzero(begins[:, e])]
        for e in range(done.shape[1])
    }


@pytest.mark.parametrize("horizon", [1, 2, 7])
@pytest.mark.parametrize("name", ENVS)
def test_every_start_is_used_once_and_in_order(name, horizon):
    """Also where episodes end at every step, or early, before others have used their first start."""
    env = ENVS[name]
    record = rollout(env)(jax.random.key(0), horizon, 0)
    key = jax.random.split(jax.random.key(0))[0]
    draw = jax.jit(env.initial_state)
    for e, starts in starts_of(record).items():
        assert len(starts) >= 30 // horizon
        own_key = jax.random.fold_in(key, e)
        for number, start in enumerate(starts):
            expected = draw(jax.random.fold_in(own_key, number), env.default_params)
            assert_close(start, expected)
    every = [
        np.concatenate([x.ravel() for x in leaves(s)])
        for ss in starts_of(record).values()
        for s in ss
    ]
    assert len({x.tobytes() for x in every}) == len(every)


def test_episodes_shorter_than_a_refill_occur():
    """Else the test above would not show that they get fresh starts."""
    record = rollout(ENVS["colony"])(jax.random.key(0), 7, 0)
    length = np.asarray(record["info"]["episode"]["length"])[np.asarray(record["done"])]
    assert (length <= 5).sum() >= 3 and (length == 7).sum() >= 3


@pytest.mark.parametrize("name", ENVS)
def test_the_batch_in_front_and_the_batch_behind_agree(name):
    env = ENVS[name]
    if name == "colony":
        first = rollout(env)(jax.random.key(1), 7, 0)
        last = rollout(ENVS["colony_last"])(jax.random.key(1), 7, 0)
        del first["internal"], last["internal"]
        assert_close(first, last)
    shapes = jax.eval_shape(rollout(env), jax.random.key(0), 7, 0)
    assert all(x.shape[:2] == (30, 5) for x in jax.tree.leaves(shapes["observation"]))
    assert all(x.shape[:2] == (30, 5) for x in jax.tree.leaves(shapes["state"]))
    assert all(x.shape[:2] == (30, 5) for x in jax.tree.leaves(shapes["info"]))


@pytest.mark.parametrize("name", ENVS)
def test_a_seed_does_not_depend_on_the_others(name):
    """Alone, under a vmap over seeds and under a nested one; the internal state too."""
    env = ENVS[name]
    keys = jax.random.split(jax.random.key(2), SEEDS)
    many = rollout(env, transform=over_seeds)(keys, 7, 0)
    other = jax.random.split(jax.random.key(3), SEEDS).at[1].set(keys[1])
    again = rollout(env, transform=over_seeds)(other, 7, 0)
    assert_equal(jax.tree.map(lambda x: x[1], many), jax.tree.map(lambda x: x[1], again))
    if name == "colony_last":
        nested = rollout(env, transform=nested_vmap)(keys[None], 7, 0)
        assert_close(jax.tree.map(lambda x: x[0], nested), many)
    for seed in range(SEEDS):
        alone = rollout(env)(keys[seed], 7, 0)
        assert_close(jax.tree.map(lambda x, seed=seed: x[seed], many), alone)


def over_seeds(f: Any) -> Any:
    return jax.vmap(f, (0, None, None))


def nested_vmap(f: Any) -> Any:
    return over_seeds(over_seeds(f))


def two_horizons(f: Any) -> Any:
    return jax.vmap(f, (None, 0, None))


def test_parameters_under_vmap():
    """Seeds whose episodes end at different times."""
    env = ENVS["spread"]
    both = rollout(env, transform=two_horizons)(jax.random.key(4), jnp.array([3, 7]), 0)
    for i, horizon in enumerate([3, 7]):
        alone = rollout(env)(jax.random.key(4), horizon, 0)
        assert_close(jax.tree.map(lambda x, i=i: x[i], both), alone)


@pytest.mark.parametrize("name", ENVS)
def test_an_environment_does_not_depend_on_how_many_there_are(name):
    env = ENVS[name]
    whole = rollout(env)(jax.random.key(5), 7, 0)
    part = rollout(env, num_envs=2)(jax.random.key(5), 7, 3)
    for record in (whole, part):
        del record["internal"]  # when starts are drawn depends on the others
    assert_close(jax.tree.map(lambda x: x[:, 3:], whole), part)


def test_global_indices_beyond_int32_fit():
    vector = VectorEnv(ENVS["spread"], 2)
    first = 2**32 - 2
    state = jax.jit(lambda key: vector.reset(key, first=first)[1].replace(env=(), start=()))(
        jax.random.key(0)
    )
    assert state.index.dtype == jnp.uint32 and state.index.tolist() == [2**32 - 2, 2**32 - 1]


# --- stagger --------------------------------------------------------------------------------------


def test_stagger_spreads_the_first_ends():
    record = rollout(ENVS["spread"])(jax.random.key(6), 20, 0, stagger=True)
    done, episode = np.asarray(record["done"]), jax.device_get(record["info"]["episode"])
    first = done.argmax(0)
    assert first.tolist() == [19, 15, 11, 7, 3]
    assert episode["length"][first, np.arange(5)].tolist() == [20, 16, 12, 8, 4]
    # Only the first environment played an episode from its start; then all do.
    assert episode["done"][first, np.arange(5)].tolist() == [True, False, False, False, False]
    later = done.copy()
    later[first, np.arange(5)] = False
    assert later.sum() == 2 and (episode["done"][later]).all()
    assert (episode["length"][later] == 20).all()


def test_without_stagger_all_episodes_are_reported():
    record = rollout(ENVS["spread"])(jax.random.key(6), 10, 0)
    assert (np.asarray(record["info"]["episode"]["done"]) == np.asarray(record["done"])).all()
    assert np.asarray(record["done"]).sum() == 15


@pytest.mark.parametrize(
    ("horizon", "num_envs"), [(1, 7), (25, 7), (25, 1024), (2**30, 3), (2**30, 4096), (7, 70000)]
)
def test_offsets_are_even_and_do_not_overflow(horizon, num_envs):
    offsets = VectorEnv(ENVS["spread"], num_envs)._offsets(jnp.asarray(horizon))
    expected = [i * horizon // num_envs for i in range(num_envs)]
    assert offsets.tolist() == expected


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [0, -1, True, 2.0, "3", None])
def test_impossible_numbers_are_refused(num_envs):
    with pytest.raises(ValueError, match=f"num_envs={num_envs!r} is not an integer >= 1"):
        VectorEnv(ENVS["spread"], num_envs)


def test_other_things_than_environments_are_refused():
    with pytest.raises(
        TypeError, match=r"env='spread' is not an Environment; use flockax\.envs\.make"
    ):
        VectorEnv("spread", 2)


def test_numpy_integers_are_integers():
    assert VectorEnv(ENVS["spread"], np.int64(3)) == VectorEnv(ENVS["spread"], 3)
    assert type(VectorEnv(ENVS["spread"], np.int64(3)).num_envs) is int


@pytest.mark.parametrize("name", ENVS)
def test_actions_of_another_shape_are_refused(name):
    vector = VectorEnv(ENVS[name], 4)
    agents = vector.env.num_agents
    _, state = jax.eval_shape(vector.reset, jax.random.key(0))
    for shape in ((3, agents), (4, agents + 1), (agents, 4), (4, agents, 1), (agents,)):
        with pytest.raises(ValueError, match=r"action has shape .*, not \(4, "):
            jax.eval_shape(vector.step, jax.random.key(0), state, jnp.zeros(shape, int))


# --- cond_any -------------------------------------------------------------------------------------


def ask(pred: Any, x: Any, y: Any) -> Any:
    """Doubles `x` where `pred`; the shortcut is only right where nothing is asked."""
    return cond_any(
        pred,
        lambda pred, x, y: (jnp.where(pred, 2 * x + y, x), jnp.asarray(1)),
        lambda pred, x, y: (x, jnp.asarray(0)),
        *(pred, x, y),
    )


def test_cond_any_takes_the_branch_that_is_needed():
    x = jnp.arange(3.0)
    for pred in ([0, 0, 0], [0, 1, 0], [1, 1, 1]):
        pred = jnp.array(pred, bool)
        value, general = jax.jit(ask)(pred, x, 10.0)
        np.testing.assert_array_equal(value, jnp.where(pred, 2 * x + 10, x))
        assert general == pred.any()


@pytest.mark.parametrize(
    "axes", [(0, 0, 0), (0, 0, None), (0, None, None), (None, 0, 0), (1, 2, None), (None, None, 1)]
)
@pytest.mark.parametrize("any_true", [False, True])
def test_cond_any_under_vmap(axes, any_true):
    rng = np.random.default_rng(0)
    values = (rng.random((4, 4, 4)) < 0.3) & any_true, *rng.random((2, 4, 4, 4), np.float32)
    # An operand without the batch axis has one axis less.
    args = [x[0] if axis is None else x for x, axis in zip(values, axes, strict=True)]
    value, general = jax.jit(jax.vmap(ask, axes))(*args)
    expected = jax.vmap(lambda pred, x, y: jnp.where(pred, 2 * x + y, x), axes)(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert general.shape == (4,) and (general == any_true).all()


def test_cond_any_without_batched_operands():
    def call(pred):
        return cond_any(pred, lambda x: x + 1, lambda x: x, jnp.ones(2))

    np.testing.assert_array_equal(jax.vmap(call)(jnp.array([False, True])), np.full((2, 2), 2))


def test_cond_any_takes_keys():
    def call(pred, keys):
        draw = lambda keys: (jax.vmap(jax.random.uniform)(keys), keys)  # noqa: E731
        return cond_any(pred, draw, lambda keys: (jnp.zeros(4), keys), keys)

    keys = jax.random.split(jax.random.key(0), (3, 4))
    value, same = jax.jit(jax.vmap(call))(jnp.array([False, True, False]), keys)
    np.testing.assert_array_equal(value, jax.vmap(jax.vmap(jax.random.uniform))(keys))
    assert (same == keys).all()


def test_cond_any_stays_a_branch_in_the_compiled_program():
    text = jax.jit(ask).lower(jnp.zeros(3, bool), jnp.ones(3), 1.0).compile().as_text()
    assert " conditional(" in text
    wide = (jnp.zeros((2, 4, 3), bool), jnp.ones((2, 4, 3)), jnp.ones((2, 4)))
    nested = jax.jit(jax.vmap(jax.vmap(ask)))
    assert " conditional(" in nested.lower(*wide).compile().as_text()


@pytest.mark.parametrize("name", ENVS)
def test_starts_are_drawn_in_a_branch_under_vmap_over_seeds(name):
    vector = VectorEnv(ENVS[name], 4)
    keys = jax.random.split(jax.random.key(0), 3)
    _, state = jax.eval_shape(jax.vmap(vector.reset), keys)
    action = jnp.zeros((3, 4, vector.env.num_agents), int)
    step = jax.jit(jax.vmap(vector.step, (None, 0, 0)))
    compiled = step.lower(keys[0], state, action).compile().as_text()
    assert " conditional(" in compiled


def test_key_reuse_checker_accepts_a_rollout():
    with jax.debug_key_reuse(True):
        play = rollout(ENVS["colony"], steps=3).__wrapped__
        jax.eval_shape(lambda key: play(key, 7, 0), jax.random.key(0))
