"""The parts of `flockax.envs.environment` and of the registry that are not about one environment."""

import dataclasses
import re
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from colony import Colony, ColonyLast
from flax import struct

from flockax.envs import ContinuousActions, DiscreteActions, Environment, make, registered
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.registry import entry

KEY = jax.random.key(0)

# --- random actions -------------------------------------------------------------------------------


def test_discrete_samples_are_uniform_over_open_actions():
    spec = DiscreteActions(3, 4)
    mask = jnp.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]], bool)
    draws = jax.vmap(lambda key: spec.sample(key, mask))(jax.random.split(KEY, 4000))
    assert draws.dtype == jnp.result_type(int) and spec.shape == (3,) == draws.shape[1:]
    share = np.stack([(draws == i).mean(0) for i in range(4)], axis=1)
    expected = np.asarray(mask) / np.asarray(mask).sum(1, keepdims=True)
    assert (share[~np.asarray(mask)] == 0).all()
    np.testing.assert_allclose(share, expected, atol=5 * np.sqrt(0.25 / 4000))


def test_samples_of_batches():
    """Leading axes are independent draws; each respects its own mask."""
    rng = np.random.default_rng(0)
    mask = rng.random((50, 7, 3, 5)) < 0.5
    mask[..., 2] = True
    draws = DiscreteActions(3, 5).sample(KEY, jnp.asarray(mask))
    assert draws.shape == mask.shape[:-1]
    assert np.take_along_axis(mask, np.asarray(draws)[..., None], -1).all()
    assert len(np.unique(np.asarray(draws).reshape(50, -1), axis=0)) == 50


def test_largest_random_number_stays_within_the_actions(monkeypatch):
    largest = np.nextafter(np.float32(1), np.float32(0))
    monkeypatch.setattr(
        jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, largest, dtype)
    )
    for n in (1, 2, 3, 5, 7, 20, 100, 1000):
        draw = DiscreteActions(1, n).sample(KEY, jnp.ones((1, n), bool))
        assert draw.tolist() == [n - 1]


def test_continuous_samples_fill_the_bounds_and_leave_padding_zero():
    spec = ContinuousActions(2, 3, -2.0, 5.0)
    mask = jnp.array([[1, 1, 1], [1, 0, 0]], bool)
    draws = jax.vmap(lambda key: spec.sample(key, mask))(jax.random.split(KEY, 1000))
    assert draws.shape[1:] == spec.shape == (2, 3)
    real = np.asarray(draws)[:, np.asarray(mask)]
    assert -2 <= real.min() < -1.9 and 4.9 < real.max() <= 5
    assert abs(real.mean() - 1.5) < 0.15
    assert not np.asarray(draws)[:, ~np.asarray(mask)].any()


# --- actions on their way into the rules ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_any_integer_dtype_plays_the_same(dtype):
    env = make("tag")
    _, state = env.reset(KEY)
    action = np.array([1, 2, 3, 4])
    expected = env.step(KEY, state, action.astype(np.int32))
    actual = env.step(KEY, state, action.astype(dtype))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    shapes = jax.eval_shape(env.step, KEY, state, action.astype(dtype))
    assert jax.tree.map(lambda x: x.dtype, shapes) == jax.tree.map(lambda x: x.dtype, expected)


def test_rules_see_one_dtype():
    seen = []

    class Spy(Colony):
        def transition(self, key, state, action, params):
            seen.append(action.dtype)
            return super().transition(key, state, action, params)

    for env, dtypes in (
        (Spy(), ["int8", "uint8", "int64"]),
        (Spy(actions="continuous"), ["float16", "float32", "int32"]),
    ):
        _, state = env.reset(KEY)
        for dtype in dtypes:
            env.step(KEY, state, np.ones(env.action_spec.shape, dtype))
    assert seen == [jnp.result_type(int)] * 3 + [jnp.result_type(float)] * 3


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_discrete_actions_must_be_integers(dtype):
    env = make("spread")
    _, state = env.reset(KEY)
    with pytest.raises(TypeError, match=f"discrete actions must be integers, got {dtype}"):
        env.step(KEY, state, np.ones(3, dtype))


def test_lists_are_actions():
    env = make("spread")
    _, state = env.reset(KEY)
    expected = env.step(KEY, state, jnp.array([1, 2, 3]))
    jax.tree.map(np.testing.assert_array_equal, env.step(KEY, state, [1, 2, 3]), expected)


def test_replaced_components_stay_within_bounds():
    """What is not finite becomes 0, or the bound nearest to it; padding and the dead become 0."""

    class Fast(Colony):
        @property
        def action_spec(self):
            return ContinuousActions(self.num_agents, 2, 0.25, 1.0)

    env = Fast(actions="continuous")
    alive = jnp.array([1, 1, 0, 1, 1], bool)
    given = jnp.array([[np.nan, 2], [np.inf, -2], [0.5, 0.5], [0.5, np.nan], [-np.inf, 7]])
    action, invalid = env._sanitize(given, alive, None)
    np.testing.assert_array_equal(action, [[0.25, 1], [0.25, 0.25], [0, 0], [0.5, 0], [0.25, 0]])
    assert invalid == 3


# --- the dead, whatever the environment -------------------------------------------------------------

PATTERN = np.array([True, False, True, False, True])


def with_deaths(env: Environment) -> Environment:
    """The same rules, but every second slot is dead all the time."""

    class Forced(type(env)):  # type: ignore[misc]
        def alive(self, state: Any) -> Any:
            pattern = np.resize(PATTERN, self.num_agents)
            shape = (self.num_agents, *state.time.shape)
            return jnp.broadcast_to(pattern.reshape((-1,) + (1,) * state.time.ndim), shape)

    values = {f.name: getattr(env, f.name) for f in dataclasses.fields(env)}
    return Forced(**values)


@pytest.mark.parametrize("number", range(len(registered())))
def test_forced_death_in_every_registered_environment(number):
    for size in registered()[number].sizes[:2]:
        env = with_deaths(make(registered()[number].id, **size))
        dead = ~np.resize(PATTERN, env.num_agents)
        options = {"xla_backend_optimization_level": 0}  # compiles much, runs little
        reset, step = (jax.jit(f, compiler_options=options) for f in (env.reset, env.step))
        observation, state = reset(KEY)
        action = np.asarray(env.action_spec.sample(KEY, observation.action_mask))
        bad = action.copy()
        bad[dead] = -1 if action.dtype.kind == "i" else np.nan
        results = [step(KEY, state, x) for x in (action, bad)]
        jax.tree.map(np.testing.assert_array_equal, *results)
        observation, _, reward, *_, info = results[0]
        assert not np.asarray(reward)[dead].any() and info["invalid_action"] == 0
        assert (observation.alive == ~dead).all()
        for leaf in jax.tree.leaves(observation.features):
            assert not np.asarray(leaf)[dead].any()


@pytest.mark.parametrize("view", ["vector", "window", "entities"])
def test_features_of_the_dead_are_zero_in_every_form_and_batch_layout(view):
    env = with_deaths(ColonyLast(view=view))
    keys = jax.random.split(KEY, 6).reshape(2, 3)
    init = jax.vmap(jax.vmap(env.initial_state, (0, None), -1), (0, None), -2)
    state = init(keys, env.default_params)
    assert state.time.shape == (2, 3)
    wide = env.observe(state)
    for i, j in np.ndindex(2, 3):
        one = env.observe(jax.tree.map(lambda x, i=i, j=j: x[..., i, j], state))
        jax.tree.map(
            lambda x, y, i=i, j=j: np.testing.assert_allclose(x[..., i, j], y, 1e-5), wide, one
        )
        for leaf in jax.tree.leaves(one.features):
            assert not np.asarray(leaf)[~PATTERN].any()
    spec = jax.tree.map(lambda x: x.dtype, env.observation_spec)
    assert jax.tree.map(lambda x: x.dtype.name, wide) == spec


# --- parameters -----------------------------------------------------------------------------------


@struct.dataclass
class Numbers:
    count: int = parameter(3, 1, 9)
    share: float = parameter(0.3, 0.1, 0.7)
    flag: bool = parameter(True)
    pair: tuple[float, float] = parameter((1.0, 2.0), 0, 5)


class WithNumbers(Colony):
    params_class: ClassVar[type] = Numbers

    @property
    def default_params(self):
        return as_arrays(Numbers())


def test_parameters_become_strong_arrays():
    params = as_arrays(Numbers())
    dtypes = {"count": int, "share": float, "flag": bool, "pair": float}
    for name, kind in dtypes.items():
        value = getattr(params, name)
        assert isinstance(value, jax.Array) and not value.weak_type
        assert value.dtype == jnp.result_type(kind)
    assert params.pair.tolist() == [1, 2] and params.pair.shape == (2,)
    with jax.enable_x64(True):
        assert as_arrays(Numbers()).share.dtype == jnp.float64


def test_values_at_the_bounds_are_allowed_as_the_dtype_has_them():
    env = WithNumbers()
    for share in (0.1, 0.7, np.float32(0.1), np.float32(0.7), jnp.float32(0.7)):
        assert env.make_params(share=share).share == np.float32(share)
    assert env.make_params(count=9).count == 9 and env.make_params(count=1.0).count == 1
    assert env.make_params(pair=[0, 5]).pair.tolist() == [0, 5]
    assert not env.make_params(flag=False).flag and not env.make_params(flag=np.False_).flag


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 0, "parameter count=0 is not an integer in [1, 9]"),
        ("count", 2.5, "parameter count=2.5 is not an integer in [1, 9]"),
        ("count", True, "parameter count=True is not an integer"),
        ("count", 2**40, f"parameter count={2**40} is not an integer in [1, 9]"),
        ("share", 0.71, "parameter share=0.71 is not a finite number in [0.1, 0.7]"),
        ("share", float("nan"), "parameter share=nan is not a finite number in [0.1, 0.7]"),
        ("share", "0.5", "parameter share='0.5' is not a number"),
        ("share", None, "parameter share=None is not a number"),
        ("share", [0.5], "parameter share has shape (1,), not ()"),
        ("share", False, "parameter share=False is not a number"),
        ("flag", 1, "parameter flag=1 is not a bool"),
        ("pair", 1.0, "parameter pair has shape (), not (2,)"),
        ("pair", (1, 6), "parameter pair=(1, 6) is not a finite number in [0, 5]"),
        ("pair", [[1], [1, 2]], "parameter pair=[[1], [1, 2]] is not a number"),
        ("shares", 1, "has no parameter 'shares'; it has count, share, flag, pair"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WithNumbers().make_params(**{name: value})


def test_traced_parameters():
    """Values cannot be seen under a vmap, shapes and kinds can."""
    env = WithNumbers()
    shares = jax.vmap(lambda x: env.make_params(share=x).share)(jnp.arange(3))
    assert shares.dtype == jnp.result_type(float) and shares.tolist() == [0, 1, 2]
    for name, values, message in (
        ("share", jnp.ones((3, 2)), r"parameter share has shape \(2,\), not \(\)"),
        ("count", jnp.ones(3), "is not an integer"),
        ("flag", jnp.ones(3, int), "is not a bool"),
    ):
        with pytest.raises(ValueError, match=message):
            jax.vmap(lambda x, name=name: env.make_params(**{name: x}))(values)


# --- sizes ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sizes:
    size: Any = 3
    kind: Any = "a"


@pytest.mark.parametrize("value", [0, -1, 8, True, 2.0, 2.5, "3", None, np.float32(3), [3]])
def test_integers_are_checked(value):
    message = f"Sizes: size={value!r} is not an integer in 1 .. 7"
    with pytest.raises(ValueError, match=re.escape(message)):
        require_int(Sizes(size=value), "size", 1, 7)


def test_numpy_integers_become_integers():
    owner = Sizes(size=np.int8(7))
    require_int(owner, "size", 1)
    assert owner.size == 7 and type(owner.size) is int
    # The arithmetic of sizes would overflow in int8.
    assert make(
        "spread", num_agents=np.int8(100), num_landmarks=np.int8(100)
    ).feature_spec.shape == (
        100,
        make("spread", num_agents=100).groups[0].observation_size,
    )


@pytest.mark.parametrize("value", ["c", "A", 0, True, None, ["a"]])
def test_choices_are_checked(value):
    with pytest.raises(
        ValueError, match=re.escape(f"Sizes: kind={value!r} is not one of 'a', 'b'")
    ):
        require_choice(Sizes(kind=value), "kind", ("a", "b"))


def test_a_bool_is_not_the_integer_of_the_same_value():
    with pytest.raises(ValueError, match="kind=True"):
        require_choice(Sizes(kind=True), "kind", (0, 1))


# --- what an environment need not have ----------------------------------------------------------------


def test_optional_parts_say_that_they_are_missing():
    with pytest.raises(ValueError, match="Spread has no capacity to grow"):
        make("spread").grown()
    for call in (Colony().scene, lambda: Colony().frame(None)):
        with pytest.raises(ValueError, match="Colony does not describe a scene"):
            call()
    with pytest.raises(TypeError, match="abstract"):
        Environment()


# --- the registry -----------------------------------------------------------------------------------


def test_entries_are_well_formed():
    entries = registered()
    assert len({e.id for e in entries}) == len(entries) == len({e.cls for e in entries})
    for e in entries:
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", e.id) and not re.search(r"_v\d+$", e.id)
        assert e.description.endswith(".") and "\n" not in e.description
        assert e is entry(e.id) and type(make(e.id)) is e.cls


@pytest.mark.parametrize("number", range(len(registered())))
def test_sizes_cover_what_breaks(number):
    """Few agents, an odd crowd, and both kinds of actions where there are two."""
    e = registered()[number]
    made = [make(e.id, **size) for size in e.sizes]
    agents = {env.num_agents for env in made}
    assert min(agents) <= 2 and 3 in agents and 17 in agents
    assert e.sizes[0] == {} and len({repr(env) for env in made}) == len(made)
    if "actions" in {f.name for f in dataclasses.fields(e.cls)}:
        assert {env.actions for env in made} == {"discrete", "continuous"}


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no environment 'tags'; there are .*tag, "):
        make("tags")
    with pytest.raises(ValueError, match=r"no environment \[\]; there are"):
        make([])
    with pytest.raises(ValueError, match=r"'tag' has no field 'num_agents'; it has num_predators"):
        make("tag", num_agents=3)
    with pytest.raises(ValueError, match=r"Tag: num_prey=0 is not an integer >= 1"):
        make("tag", num_prey=0)
