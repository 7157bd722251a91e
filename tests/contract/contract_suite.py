"""The contract, as tests of one `Case`; a registered environment gets them all.

Import everything from here into a test module that has ``CASES``, a list of `Case`.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract_harness import (
    HORIZON,
    KEY,
    NUM_ENVS,
    STEPS,
    Case,
    assert_close,
    assert_finite,
    assert_same,
    assert_spec,
    jit,
    leaves_with_names,
)

from flockax.envs import (
    ContinuousActions,
    DiscreteActions,
    EntitySet,
    Observation,
    VectorEnv,
)

RAW_INFO = {"metrics", "invalid_action", "overflow"}
DRAWS = 100
VECTOR_INFO = RAW_INFO | {"final_observation", "episode"}


def step_shapes(case: Case):
    """The abstract results of a reset and of a step after it."""
    observation, state = jax.eval_shape(case.env.reset, KEY)
    action = jax.ShapeDtypeStruct(case.action_shape[2:], case.action_dtype)
    return observation, state, jax.eval_shape(case.env.step, KEY, state, action)


def signature(tree):
    """Structure, shapes, dtypes and weak types."""
    return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)


# --- sizes, switches and parameters ---------------------------------------------------------------


def test_environment_is_a_hashable_value(case):
    env, again = case.env, Case(case.entry, case.number).env
    assert env == again and hash(env) == hash(again) and len({env, again}) == 1
    assert copy.deepcopy(env) == env and pickle.loads(pickle.dumps(env)) == env
    assert dataclasses.replace(env) == env
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(env, dataclasses.fields(env)[0].name, 1)


def test_numpy_integers_are_integers(case):
    env = case.env
    values = {f.name: getattr(env, f.name) for f in dataclasses.fields(env) if f.init}
    numpy = {k: np.int8(v) if type(v) is int and v < 100 else v for k, v in values.items()}
    made = type(env)(**numpy)
    assert made == env and hash(made) == hash(env) and made.groups == env.groups
    assert all(type(getattr(made, k)) is type(v) for k, v in values.items())


def test_sizes_that_make_no_sense_are_refused(case):
    env = case.env
    for field in dataclasses.fields(env):
        value = getattr(env, field.name)
        bad = [object(), math.nan]
        if type(value) is int:
            bad += [-1, True, 2.5, float(value), "3", np.float32(value), [value]]
        elif type(value) is bool:
            bad += [0, 1, None, "yes"]
        elif type(value) is str:
            bad += ["", value.upper(), 0, True, None, [value]]
        for wrong in bad:
            with pytest.raises(ValueError, match=re.escape(f"{field.name}={wrong!r}")):
                dataclasses.replace(env, **{field.name: wrong})
        if type(value) is int:
            try:  # nothing of a kind: either it works or it is refused
                empty = dataclasses.replace(env, **{field.name: 0})
            except ValueError as error:
                assert f"{field.name}=0 is not " in str(error)
            else:
                jax.eval_shape(empty.reset, KEY)


def test_parameters_are_strong_arrays_and_checked(case):
    env, params = case.env, case.env.default_params
    assert "horizon" in {f.name for f in dataclasses.fields(params)}
    for name, leaf in leaves_with_names(params):
        assert isinstance(leaf, jax.Array) and not leaf.weak_type, name
        if np.issubdtype(leaf.dtype, np.floating):
            assert leaf.dtype == jnp.result_type(float), name
        assert np.isfinite(leaf).all(), name
    if case.number:
        return  # what is refused does not depend on the size
    with pytest.raises(ValueError, match=r"'no_such_name'.*horizon"):
        env.make_params(no_such_name=1)
    for field in dataclasses.fields(params):
        default = getattr(params, field.name)
        if not isinstance(default, jax.Array):
            continue
        same = getattr(env.make_params(**{field.name: default}), field.name)
        assert_same(same, default, field.name)
        bad = [math.nan, math.inf, -math.inf, "3", None, object()]
        bad += [1.5] if np.issubdtype(default.dtype, np.integer) else []
        bad += [True] if default.dtype != bool else [2, 0.5]
        if "low" in field.metadata and math.isfinite(field.metadata["low"]):
            bad.append(field.metadata["low"] - 1)
        if "high" in field.metadata and math.isfinite(field.metadata["high"]):
            bad.append(field.metadata["high"] * 2 + 1)
        bad += [2**40] if np.issubdtype(default.dtype, np.integer) else []
        bad += [1e300] if default.dtype == np.float32 else []
        for wrong in bad if default.size else []:  # an empty array has no wrong values
            value = np.full(default.shape, wrong) if default.ndim else wrong
            with pytest.raises(ValueError, match=rf"(?s)parameter {field.name}.* is not "):
                env.make_params(**{field.name: value})
        with pytest.raises(ValueError, match=rf"parameter {field.name} has shape"):
            env.make_params(**{field.name: np.zeros((*default.shape, 3), default.dtype)})


def test_groups_cover_the_slots(case):
    env = case.env
    assert env.groups[0].start == 0 and env.groups[-1].stop == env.num_agents
    assert all(a.stop == b.start for a, b in itertools.pairwise(env.groups))
    names = [group.name for group in env.groups]
    assert len(set(names)) == len(names) and all(name.isidentifier() for name in names)
    assert all(group.size >= 1 for group in env.groups)
    spec = env.action_spec
    assert spec.num_agents == env.num_agents
    assert isinstance(spec, DiscreteActions | ContinuousActions)
    assert max(case.action_sizes) == (spec.n if case.discrete else spec.size)
    assert min(case.action_sizes) >= 1
    features = env.observation_spec.features
    vector = not isinstance(features, EntitySet) and len(features.shape) == 2
    sizes = {group.observation_size for group in env.groups}
    assert max(sizes) == features.shape[1] if vector else sizes == {0}


# --- types ----------------------------------------------------------------------------------------


def test_reset_and_step_have_the_same_strong_types(case):
    observation, state, (after, next_state, reward, terminated, truncated, info) = step_shapes(case)
    assert signature(after) == signature(observation)
    assert signature(next_state) == signature(state)
    for name, leaf in leaves_with_names((observation, state, reward, terminated, truncated, info)):
        assert not leaf.weak_type, f"{name} has a weak type"
        assert leaf.dtype in (bool, *map(jnp.result_type, (int, float))) or not jnp.issubdtype(
            leaf.dtype, jnp.inexact
        ), f"{name} is {leaf.dtype}"
    assert state.time.shape == () and state.time.dtype == jnp.result_type(int)
    assert reward.shape == (case.env.num_agents,) and reward.dtype == jnp.result_type(float)
    assert terminated.shape == truncated.shape == ()
    assert terminated.dtype == truncated.dtype == bool
    assert set(info) == RAW_INFO
    assert all(x.shape == () for x in jax.tree.leaves(info))
    assert all(x.dtype == jnp.result_type(float) for x in jax.tree.leaves(info["metrics"]))
    assert info["invalid_action"].dtype == info["overflow"].dtype == jnp.result_type(int)


def test_float64_everywhere_under_x64(case):
    env = dataclasses.replace(case.env)
    with jax.enable_x64(True):
        results = (*step_shapes(Case(case.entry, case.number)), env.default_params)
        global_state = jax.eval_shape(env.global_state, results[1])
        specs = env.observation_spec, env.global_state_spec
        for name, leaf in leaves_with_names((results, global_state)):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                assert leaf.dtype == jnp.float64, f"{name} is {leaf.dtype}"
        produced = jax.tree.map(lambda x: x.dtype.name, (results[0], global_state))
        assert produced == jax.tree.map(lambda spec: spec.dtype, specs)


def test_x64_agrees_with_float32(case):
    if case.number:
        return  # one compilation an environment: types are checked at every size
    key, state, action = case.record.at(0, 0)
    expected = case.step(key, state, action, case.params)
    with jax.enable_x64(True):
        widen = {"f": np.float64, "i": np.int64}
        wide = lambda x: np.asarray(x).astype(widen.get(np.asarray(x).dtype.kind, bool))  # noqa: E731
        args = jax.tree.map(wide, (state, action, case.params))
        actual = jax.device_get(jit(case.env.step)(key, *args))
        declared = {name: leaf.dtype for name, leaf in leaves_with_names(expected)}
        for name, leaf in leaves_with_names(actual):
            # Small integers, which windows are made of, stay small.
            small = leaf.dtype == declared[name] and leaf.dtype.itemsize < 4
            wide_enough = leaf.dtype in (np.float64, np.int64, np.bool_)
            assert small or wide_enough, f"{name} is {leaf.dtype}"
    # Random bits differ between widths, so only environments with certain rules are compared.
    if not uses_key(case):
        assert_close(actual, jax.device_get(expected), "float64 vs float32")


def test_one_trace_only(case):
    # Both are wrapped in chex.assert_max_traces(n=1).
    key = jax.random.key(3)
    _, state = case.reset(key, case.params)
    for action in case.record.action[:4, 0]:
        _, state, *_ = case.step(key, state, action, case.params)
    case.reset(key, case.env.default_params)
    case.step(key, state, action, case.env.default_params)


def test_specs_hold_over_random_rollouts(case):
    env, record = case.env, case.record
    spec = env.observation_spec
    for observation in (record.observation, record.info["final_observation"]):
        assert isinstance(observation, Observation)
        assert_spec(observation, spec, "observation", batch=2)
    assert_spec(record.global_state, env.global_state_spec, "global_state", batch=2)
    action_spec = env.action_spec
    width = action_spec.n if case.discrete else action_spec.size
    assert spec.action_mask.shape == (env.num_agents, width)
    mask = record.observation.action_mask
    assert mask.any(-1).all(), "an agent has no open action"
    assert not mask[..., np.arange(width) >= case.action_sizes[:, None]].any()
    if not case.discrete:
        assert mask[..., np.arange(width) < case.action_sizes[:, None]].all()
    if not isinstance(spec.features, EntitySet) and len(spec.features.shape) == 2:
        for group in env.groups:
            padding = record.observation.features[:, :, group.start : group.stop]
            assert not padding[..., group.observation_size :].any(), f"{group.name} is not padded"
    if isinstance(spec.features, EntitySet):
        features = record.observation.features
        assert not features.entities[~features.mask].any(), "a masked entity has features"


# --- keys -----------------------------------------------------------------------------------------


def test_different_keys_give_different_starts(case):
    starts = [case.reset(jax.random.key(i), case.params) for i in range(5)]
    same = [
        all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, pair), strict=True))
        for pair in itertools.combinations(starts, 2)
    ]
    fixed = case.entry.fixed_start
    fixed = fixed if isinstance(fixed, bool) else fixed[case.number]
    assert all(same) if fixed else not any(same)


def test_same_key_gives_the_same(case):
    key, state, action = case.record.at(2, 0)
    first, again = case.reset(key, case.params), case.reset(key, case.params)
    assert_same(first, again, "reset")
    first = case.step(key, state, action, case.params)
    assert_same(first, case.step(key, state, action, case.params), "step")
    again = case.play(0)
    for field in ("state", "observation", "action", "reward", "info"):
        assert_same(getattr(again, field), getattr(case.record, field), f"rollout {field}")


def test_no_key_is_used_twice(case):
    env, vector = case.env, case.vector
    key = jax.random.key(0)
    with jax.debug_key_reuse(True):
        jax.eval_shape(lambda key: env.reset(key), key)
        _, state, _ = step_shapes(case)
        action = jnp.zeros(case.action_shape[2:], case.action_dtype)
        jax.eval_shape(lambda key, state: env.step(key, state, action), key, state)
        _, state = jax.eval_shape(lambda key: vector.reset(key), key)
        action = jnp.zeros(case.action_shape[1:], case.action_dtype)
        jax.eval_shape(lambda key, state: vector.step(key, state, action), key, state)


# --- one environment, many, compiled or not ---------------------------------------------------------


def test_jit_changes_nothing(case):
    kinds = [Case(case.entry, number).discrete for number in range(case.number)]
    if case.discrete in kinds:
        return  # slow, and the same for the same kind of actions
    key, state, action = case.record.at(1, 0)
    compiled = case.reset(key, case.params), case.step(key, state, action, case.params)
    state = jax.tree.map(jnp.asarray, state)
    plain = case.env.reset(key, case.params), case.env.step(key, state, action, case.params)
    assert_close(plain, compiled, "without jit: ")


def test_params_default(case):
    if case.number:
        return  # the same code at every size
    env, defaults = case.env, case.env.default_params
    key, state, action = case.record.at(1, 0)
    state = jax.tree.map(jnp.asarray, state)
    step = env.step(key, state, action), env.step(key, state, action, defaults)
    observed = env.observe(state), env.observe(state, defaults)
    whole = env.global_state(state), env.global_state(state, defaults)
    start = env.reset(key), env.reset(key, defaults)
    for without, given in (step, observed, whole, start):
        assert_same(without, given, "params=None: ")


def test_vector_env_equals_a_loop_over_environments(case):
    # VectorEnv runs the trailing-batch form of the rules where there is one, else vmap.
    record = case.record
    info = dict(record.info)
    final_observation = info.pop("final_observation")
    del info["episode"]
    for t, e in record.everywhere():
        pick = lambda x, t=t, e=e: x[t, e]  # noqa: E731
        result = case.step(*record.at(t, e), record.params)
        observation, state, reward, terminated, truncated, own_info = jax.device_get(result)
        expected = jax.tree.map(pick, (record.reward, record.terminated, record.truncated, info))
        where = f"step {t} of environment {e}: "
        assert_close(expected, (reward, terminated, truncated, own_info), where)
        assert_close(
            jax.tree.map(pick, final_observation), observation, where + "final_observation"
        )
        if t + 1 < STEPS and not record.done[t, e]:
            pick_next = lambda x, t=t, e=e: x[t + 1, e]  # noqa: E731
            assert_close(jax.tree.map(pick_next, record.state), state, where + "state")
            after = jax.tree.map(pick_next, record.observation)
            assert_close(after, observation, where + "observation")


def test_vector_env_starts_again_at_once(case):
    record = case.record
    assert record.done.any(0).all()
    number = np.zeros(NUM_ENVS, int)
    for t, e in record.everywhere():
        if t == 0 or record.done[t - 1, e]:
            key = jax.random.fold_in(jax.random.fold_in(record.start, e), number[e])
            observation, state = case.reset(key, record.params)
            pick = lambda x, t=t, e=e: x[t, e]  # noqa: E731
            where = f"start {number[e]} of environment {e}: "
            assert_close(jax.tree.map(pick, record.state), state, where)
            assert_close(jax.tree.map(pick, record.observation), observation, where)
            number[e] += 1
    assert number.min() >= 3


def test_vector_env_counts_like_a_loop(case):
    record = case.record
    for e in range(NUM_ENVS):
        total, length = np.zeros(case.env.num_agents), 0
        for t in range(STEPS):
            total, length = total + record.reward[t, e], length + 1
            episode = record.info["episode"]
            assert episode["length"][t, e] == length
            assert_close(episode["return"][t, e].astype(float), total, "return")
            assert episode["done"][t, e] == record.done[t, e]
            if record.done[t, e]:
                total, length = np.zeros_like(total), 0


@pytest.mark.parametrize("x64", [False, True])
def test_vector_env_types(case, x64):
    with jax.enable_x64(x64):
        vector, key = VectorEnv(dataclasses.replace(case.env), NUM_ENVS), KEY
        observation, state = jax.eval_shape(vector.reset, key)
        action = jax.ShapeDtypeStruct(case.action_shape[1:], case.action_dtype)
        results = jax.eval_shape(vector.step, key, state, action)
        floats = jnp.result_type(float)
    after, next_state, reward, *done, info = results
    assert signature(after) == signature(observation) == signature(info["final_observation"])
    assert signature(next_state) == signature(state)
    assert set(info) == VECTOR_INFO and set(info["episode"]) == {"return", "length", "done"}
    for name, leaf in leaves_with_names((after, reward, done, info)):
        assert leaf.shape[0] == NUM_ENVS and not leaf.weak_type, name
    for name, leaf in leaves_with_names((results, state)):
        assert leaf.dtype == floats or not jnp.issubdtype(leaf.dtype, jnp.floating), name
    assert info["episode"]["return"].shape == reward.shape == (NUM_ENVS, case.env.num_agents)


def test_actions_of_another_shape_are_refused(case):
    _, state, _ = step_shapes(case)
    right = case.action_shape[2:]
    for shape in ((), (1,), (right[0] + 1, *right[1:]), (1, *right), (*right, 1)):
        action = jax.ShapeDtypeStruct(shape, case.action_dtype)
        if shape != right:
            with pytest.raises(
                ValueError, match=rf"{re.escape(str(shape))}, not {re.escape(str(right))}"
            ):
                jax.eval_shape(case.env.step, KEY, state, action)


def test_trailing_batch_axes(case):
    env = case.env
    if not env.batched_last:
        return  # nothing was promised
    _, state, results = step_shapes(case)
    batch = (2, 5)
    widen = lambda x: jax.ShapeDtypeStruct((*x.shape, *batch), x.dtype)  # noqa: E731
    action = jax.ShapeDtypeStruct((*case.action_shape[2:], *batch), case.action_dtype)
    keys = jax.eval_shape(lambda key: jax.random.split(key, batch), KEY)
    wide = jax.tree.map(widen, state)
    wide_results = jax.eval_shape(env.step, keys, wide, action)
    assert signature(wide_results) == signature(jax.tree.map(widen, results))
    wide_global = jax.eval_shape(env.global_state, wide)
    assert signature(wide_global) == signature(
        jax.tree.map(widen, jax.eval_shape(env.global_state, state))
    )


# --- episodes -------------------------------------------------------------------------------------


def assert_ends_are_right(record, horizon):
    assert not (record.terminated & record.truncated).any()
    length = record.info["episode"]["length"]
    assert (length <= horizon).all()
    np.testing.assert_array_equal(record.truncated, (length == horizon) & ~record.terminated)
    starts = np.ones((1, NUM_ENVS), bool)
    before = np.concatenate([starts, record.done[:-1]])
    time = record.state.time
    assert not time[before].any()
    np.testing.assert_array_equal(time[1:][~before[1:]], time[:-1][~record.done[:-1]] + 1)


def test_an_episode_lasts_at_most_horizon_steps(case):
    assert_ends_are_right(case.record, HORIZON)
    record = case.play(1, params=case.env.make_params(horizon=1))
    assert_ends_are_right(record, 1)
    assert record.done.all()
    single = case.step(*record.at(0, 0), record.params)
    assert bool(single[3]) != bool(single[4])


def test_default_horizon(case):
    horizon = int(case.env.default_params.horizon)
    steps = STEPS * min(math.ceil((horizon + 1) / STEPS), 8)
    record = case.play(2, params=case.env.default_params, steps=steps)
    assert_ends_are_right(record, horizon)
    assert_finite((record.state, record.reward, record.observation), "long rollout")
    assert_spec(record.observation, case.env.observation_spec, "long rollout", batch=2)
    assert_spec(record.global_state, case.env.global_state_spec, "long rollout", batch=2)
    assert (record.info["invalid_action"] == 0).all()


# --- actions --------------------------------------------------------------------------------------


def constant(case, value):
    return np.full(case.action_shape, value, case.action_dtype)


def bad_actions(case):
    """Actions that a broken policy would send, by name."""
    rng = np.random.default_rng(0)
    if case.discrete:
        info = np.iinfo(case.action_dtype)
        values = [info.min, -1, case.env.action_spec.n, info.max]
    else:
        info = np.finfo(case.action_dtype)
        values = [1e30, -1e30, info.max, info.min, np.nan, np.inf, -np.inf]
    cases = {f"{value:.3g}": constant(case, value) for value in values}
    mixed = rng.choice(np.array(values, case.action_dtype), case.action_shape)
    return {**cases, "mixed": mixed}


def good_actions(case):
    """The same action for all agents all the time, by name."""
    spec = case.env.action_spec
    values = {0, 1, spec.n // 2, spec.n - 1} if case.discrete else {spec.low, spec.high, 0.0}
    return {f"{value:.3g}": constant(case, value) for value in values}


def test_nothing_becomes_infinite(case):
    for name, actions in {**good_actions(case), **bad_actions(case)}.items():
        record = case.play(3, actions)
        everything = (record.state, record.global_state, record.observation, record.reward)
        assert_finite((everything, record.info), f"under {name}: ")
        assert_spec(record.observation, case.env.observation_spec, f"under {name}: ", batch=2)
    assert_finite((case.record.state, case.record.reward), "random")


def test_ends_of_parameter_ranges_are_finite(case):
    """Each alone; where a range is endless there is nothing to check."""
    for field in dataclasses.fields(case.params):
        for end in ("low", "high"):
            value = field.metadata.get(end, math.inf)
            if not math.isfinite(value):
                continue
            default = getattr(case.params, field.name)
            cast = bool(value) if default.dtype == bool else np.full(default.shape, value)[()]
            params = case.env.make_params(**{"horizon": HORIZON, field.name: cast})
            record = case.play(4, params=params)
            what = f"{field.name}={value}: "
            assert_finite((record.state, record.reward, record.observation, record.info), what)


def test_coincident_agents_are_finite(case):
    for t, e in itertools.islice(case.record.everywhere(), 0, None, 5):
        key, state, action = case.record.at(t, e)
        position = getattr(state, "position", None)
        if position is None or not case.env.num_agents:
            return  # agents have no place
        together = state.replace(position=np.broadcast_to(position[:1], position.shape).copy())
        result = jax.device_get(case.step(key, together, action, case.params))
        assert_finite(result, "coincident agents: ")


def invalid_values(case, mask, agent, rng):
    """Some actions, or values of a component, that `agent` must not play."""
    if not case.discrete:
        return [math.nan, math.inf, -math.inf]
    closed = rng.permutation(np.flatnonzero(~mask[agent, : case.action_sizes[agent]]))
    info = np.iinfo(case.action_dtype)
    outside = [-1, info.max, info.min, *range(case.action_sizes[agent], mask.shape[1] + 1)]
    return [*(int(x) for x in closed[:3] if x != 0), int(rng.choice(outside))]


def test_invalid_actions_become_zero_and_are_counted(case):
    record, rng = case.record, np.random.default_rng(1)
    found = 0
    for t, e in itertools.islice(record.everywhere(), 0, None, 4):
        key, state, action = record.at(t, e)
        alive, mask = record.observation.alive[t, e], record.observation.action_mask[t, e]
        within = np.arange(mask.shape[1]) < case.action_sizes[:, None]
        # An agent with a closed action, where there is one.
        closing = np.flatnonzero(alive & (within & ~mask).any(1))
        agent = rng.choice(closing if len(closing) else case.env.num_agents)
        where = agent if case.discrete else (agent, rng.integers(case.action_sizes[agent]))
        zeroed = action.copy()
        zeroed[where] = 0
        expected = list(jax.device_get(case.step(key, state, zeroed, record.params)))
        zero_is_open = not case.discrete or mask[agent, 0]
        invalid = int(alive[agent])
        assert expected[-1]["invalid_action"] == (0 if zero_is_open else invalid)
        expected[-1]["invalid_action"] = np.asarray(invalid)
        found += invalid
        for wrong in invalid_values(case, mask, agent, rng):
            given = zeroed.copy()
            given[where] = wrong
            actual = list(jax.device_get(case.step(key, state, given, record.params)))
            assert_same(actual, expected, f"action {wrong}: ")
    assert found
    for name, actions in bad_actions(case).items():
        if case.discrete or name in ("nan", "inf", "-inf"):
            bad = case.play(5, actions)
            alive = bad.observation.alive.sum(-1)
            np.testing.assert_array_equal(bad.info["invalid_action"], alive, err_msg=name)


def test_large_continuous_actions_are_clipped(case):
    if case.discrete:
        return  # there is nothing to clip
    spec, record = case.env.action_spec, case.record
    key, state, action = record.at(3, 0)
    for value, bound in (
        (1e30, spec.high),
        (-1e30, spec.low),
        (np.finfo(np.float32).max, spec.high),
    ):
        actual = case.step(key, state, np.full_like(action, value), record.params)
        expected = case.step(key, state, np.full_like(action, bound), record.params)
        assert_same(actual, expected, f"{value}")
        assert actual[-1]["invalid_action"] == 0
    padded = np.arange(spec.size) >= case.action_sizes[:, None]
    for value in (1.0, 1e30, np.nan):
        ignored = np.where(padded, value, action).astype(action.dtype)
        actual = case.step(key, state, ignored, record.params)
        assert_same(actual, case.step(key, state, action, record.params), f"padding {value}")


# --- life and death -------------------------------------------------------------------------------


def test_dead_slots_have_nothing(case):
    record = case.record
    for observation in (record.observation, record.info["final_observation"]):
        for name, leaf in leaves_with_names(observation.features):
            assert not leaf[~observation.alive].any(), f"a dead slot sees{name}"
    assert not record.reward[~record.observation.alive].any()


def test_dead_slots_do_nothing(case):
    record, rng = case.record, np.random.default_rng(2)
    for t, e in record.everywhere():
        dead = ~record.observation.alive[t, e]
        if not dead.any():
            continue
        key, state, action = record.at(t, e)
        expected = jax.device_get(case.step(key, state, action, record.params))
        other = rng.choice(bad_actions(case)["mixed"].ravel(), action.shape)
        changed = np.where(dead.reshape((-1,) + (1,) * (action.ndim - 1)), other, action)
        actual = jax.device_get(case.step(key, state, changed, record.params))
        assert_same(actual, expected, "the action of a dead slot matters: ")


def test_dead_slots_are_seen_by_nobody(case):
    record, env = case.record, case.env
    observe = jit(env.observe)
    for t, e in record.everywhere():
        dead = ~record.observation.alive[t, e]
        if not dead.any():
            continue
        key, state, action = record.at(t, e)
        moved = case.move_agents(state, dead, 0.37)
        seen = jax.device_get((observe(state, record.params), observe(moved, record.params)))
        assert_same(seen[1], seen[0], "a dead slot is seen: ")
        before = jax.device_get(case.step(key, state, action, record.params))
        after = jax.device_get(case.step(key, moved, action, record.params))
        assert_same(after[2], before[2], "a dead slot changes rewards: ")


# --- the order of slots ---------------------------------------------------------------------------


def uses_key(case):
    """Whether the rules are random: `step` reads its key."""
    key, (_, state, _) = jax.random.key(0), step_shapes(case)
    action = jnp.zeros(case.action_shape[2:], case.action_dtype)
    jaxpr = jax.make_jaxpr(case.env.step)(key, state, action).jaxpr
    variable = jaxpr.invars[0]
    return any(variable is x for equation in jaxpr.eqns for x in equation.invars)


def test_order_of_slots_does_not_matter(case):
    if case.entry.index_rules:
        return  # said to matter; the environment's own tests cover what holds then
    record = case.record
    random = uses_key(case)
    times = list(record.everywhere())[:: 50 if random else 3]
    for order in list(case.permutations())[: 2 if random else None]:
        if (order == np.arange(len(order))).all():
            continue
        for t, e in times:
            key, state, action = record.at(t, e)
            moved = case.permute_state(state, order), action[order]
            if random:
                keys = jax.random.split(key, DRAWS)
                pairs = [
                    (
                        case.step(key, state, action, record.params),
                        case.step(key, *moved, record.params),
                    )
                    for key in keys
                ]
                straight, permuted = jax.device_get(jax.tree.map(lambda *x: np.stack(x), *pairs))
                assert_permuted_in_law(case, straight, permuted, order)
            else:
                straight = jax.device_get(case.step(key, state, action, record.params))
                permuted = jax.device_get(case.step(key, *moved, record.params))
                assert_permuted(case, straight, permuted, order)


def assert_permuted(case, straight, permuted, order):
    observation, state, reward, *ends = straight
    seen, next_state, earned, *moved_ends = permuted
    assert_close(next_state, case.permute_state(state, order), "permuted state", 2e-4)
    assert_close(earned, reward[order], "permuted reward", 2e-4)
    assert_close(moved_ends, ends, "permuted ends and info", 2e-4)
    assert_permuted_observation(seen, observation, order)


def assert_permuted_observation(seen, observation, order):
    """Equal up to the order in which an agent sees the others."""
    np.testing.assert_array_equal(seen.alive, observation.alive[order])
    np.testing.assert_array_equal(seen.action_mask, observation.action_mask[order])
    for (name, x), y in zip(
        leaves_with_names(seen.features), jax.tree.leaves(observation.features), strict=True
    ):
        x, y = (np.sort(z.reshape(len(order), -1), axis=1) for z in (x, y[order]))
        assert_close(x, y, f"permuted features{name}", 2e-4)


def assert_permuted_in_law(case, straight, permuted, order):
    """Random rules draw for slots, so only distributions agree: means within 6 standard errors."""
    _, state, reward, *_ = straight
    _, next_state, earned, *_ = permuted
    single = [jax.tree.map(lambda x, i=i: x[i], state) for i in range(DRAWS)]
    singles = [case.permute_state(one, order) for one in single]
    expected = jax.tree.map(lambda *x: np.stack(x), *singles), reward[:, order]
    for (name, x), y in zip(
        leaves_with_names((next_state, earned)), jax.tree.leaves(expected), strict=True
    ):
        x, y = np.asarray(x, float), np.asarray(y, float)
        error = np.sqrt((x.var(0) + y.var(0)) / len(x)) + 1e-5
        assert (np.abs(x.mean(0) - y.mean(0)) <= 6 * error).all(), f"law of {name}"


def test_growth(case):
    """Where something can overflow, `grown` makes a larger environment; else it refuses."""
    env = case.env
    try:
        grown = env.grown()
    except ValueError as error:
        assert "no capacity" in str(error)
        assert not case.record.info["overflow"].any()
        return
    assert type(grown) is type(env) and grown != env
    assert grown.groups == env.groups
    assert signature(jax.eval_shape(grown.reset, KEY)[0]) == signature(
        jax.eval_shape(env.reset, KEY)[0]
    )
