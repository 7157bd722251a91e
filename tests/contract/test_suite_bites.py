"""Each way of breaking the contract fails the test that is there for it."""

import dataclasses

import contract_suite as suite
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from colony import SIZES, Colony, ColonyLast
from contract_harness import Case

from flockax.envs.registry import Entry

pytestmark = pytest.mark.slow


class WeakState(Colony):
    def initial_state(self, key, params):
        return super().initial_state(key, params).replace(eggs=jnp.asarray(0))


class OtherDtypeAfterStep(Colony):
    def transition(self, key, state, action, params):
        result = super().transition(key, state, action, params)
        return result.replace(state=result.state.replace(eggs=result.state.eggs.astype(jnp.int8)))


class IntegerMetrics(Colony):
    def transition(self, key, state, action, params):
        return super().transition(key, state, action, params).replace(metrics={"eggs": state.eggs})


class LiteralFloat32(Colony):
    def initial_state(self, key, params):
        state = super().initial_state(key, params)
        return state.replace(energy=state.energy.astype(jnp.float32))


class KeyTwice(Colony):
    def initial_state(self, key, params):
        state = super().initial_state(key, params)
        return state.replace(position=jax.random.uniform(key, state.position.shape))


class OneStart(Colony):
    def initial_state(self, key, params):
        return super().initial_state(jax.random.key(0), params)


class HostRandomness(Colony):
    def transition(self, key, state, action, params):
        result = super().transition(key, state, action, params)
        return result.replace(reward=result.reward + np.random.default_rng().uniform())


class WrongAxis(ColonyLast):
    def transition(self, key, state, action, params):
        result = super().transition(key, state, action, params)
        mean = jnp.mean(result.reward, axis=-1, keepdims=True)
        return result.replace(reward=result.reward - mean)


class OneStepTooLong(Colony):
    def step(self, key, state, action, params=None):
        *rest, terminated, _, info = super().step(key, state, action, params)
        horizon = (self.default_params if params is None else params).horizon
        return *rest, terminated, (rest[1].time > horizon) & ~terminated, info


class LimitIsTermination(Colony):
    def transition(self, key, state, action, params):
        result = super().transition(key, state, action, params)
        over = state.time + 1 >= params.horizon
        return result.replace(terminated=result.terminated | over)

    def step(self, key, state, action, params=None):
        *rest, terminated, truncated, info = super().step(key, state, action, params)
        return *rest, terminated, truncated | (terminated & (rest[1].time > 5)), info


class NarrowSpec(Colony):
    @property
    def feature_spec(self):
        return dataclasses.replace(super().feature_spec, high=0.5)


class UnpaddedGuards(Colony):
    def features(self, state, params):
        return super().features(state, params).at[:, -1].add(1)


class NoOpenAction(Colony):
    def available(self, state, params):
        return super().available(state, params) & (state.energy < 0.9)[:, None]


class DividesByDistance(Colony):
    def features(self, state, params):
        features = super().features(state, params)
        apart = jnp.linalg.norm(state.position[:1] - state.position, axis=1)
        return features.at[:, 0].add(jnp.where(jnp.arange(len(apart)) > 0, 1 / apart, 0))


class FavouredSlot(Colony):
    def transition(self, key, state, action, params):
        result = super().transition(key, state, action, params)
        return result.replace(reward=result.reward.at[0].add(0.5))


class Ghosts(Colony):
    def features(self, state, params):
        everybody = jnp.ones_like(state.living)
        return super().features(state.replace(living=everybody), params)


class ActiveGhosts(Colony):
    def _sanitize(self, action, alive, mask):
        return super()._sanitize(action, jnp.ones_like(alive), mask)

    def transition(self, key, state, action, params):
        result = super().transition(key, state, action, params)
        moved = result.state.position.at[:, 1].add(0.1 * action)
        return result.replace(state=result.state.replace(position=moved))


class PaysTheDead(Colony):
    def step(self, key, state, action, params=None):
        observation, state, reward, *rest = super().step(key, state, action, params)
        return observation, state, reward + 1, *rest


class IgnoresMasks(Colony):
    def _sanitize(self, action, alive, mask):
        return super()._sanitize(action, alive, None)


class DoesNotClip(Colony):
    def _sanitize(self, action, alive, mask):
        clipped, invalid = super()._sanitize(action, alive, mask)
        return jnp.where(clipped == self.action_spec.high, action, clipped), invalid


class DoesNotGrow(Colony):
    def grown(self):
        return self


class TakesAnySize(Colony):
    def __post_init__(self):
        pass


class UnknownInfo(Colony):
    def step(self, key, state, action, params=None):
        *rest, info = super().step(key, state, action, params)
        return *rest, {**info, "extra": info["overflow"]}


CONTINUOUS = {"actions": "continuous"}
MUTANTS = [
    (WeakState, suite.test_reset_and_step_have_the_same_strong_types, {}),
    (OtherDtypeAfterStep, suite.test_reset_and_step_have_the_same_strong_types, {}),
    (IntegerMetrics, suite.test_reset_and_step_have_the_same_strong_types, {}),
    (UnknownInfo, suite.test_reset_and_step_have_the_same_strong_types, {}),
    (LiteralFloat32, suite.test_float64_everywhere_under_x64, {}),
    (KeyTwice, suite.test_no_key_is_used_twice, {}),
    (OneStart, suite.test_different_keys_give_different_starts, {}),
    (HostRandomness, suite.test_jit_changes_nothing, {}),
    (WrongAxis, suite.test_vector_env_equals_a_loop_over_environments, {}),
    (OneStepTooLong, suite.test_an_episode_lasts_at_most_horizon_steps, {}),
    (LimitIsTermination, suite.test_an_episode_lasts_at_most_horizon_steps, {}),
    (NarrowSpec, suite.test_specs_hold_over_random_rollouts, {}),
    (UnpaddedGuards, suite.test_specs_hold_over_random_rollouts, {}),
    (NoOpenAction, suite.test_specs_hold_over_random_rollouts, {}),
    (DividesByDistance, suite.test_coincident_agents_are_finite, {}),
    (FavouredSlot, suite.test_order_of_slots_does_not_matter, {}),
    (Ghosts, suite.test_dead_slots_are_seen_by_nobody, {}),
    (ActiveGhosts, suite.test_dead_slots_do_nothing, {}),
    (PaysTheDead, suite.test_dead_slots_have_nothing, {}),
    (IgnoresMasks, suite.test_invalid_actions_become_zero_and_are_counted, {}),
    (DoesNotClip, suite.test_large_continuous_actions_are_clipped, CONTINUOUS),
    (DoesNotGrow, suite.test_growth, {}),
    (TakesAnySize, suite.test_sizes_that_make_no_sense_are_refused, {}),
]


@pytest.mark.parametrize(("cls", "check", "size"), MUTANTS, ids=[m[0].__name__ for m in MUTANTS])
def test_broken_environment_is_caught(cls, check, size):
    case = Case(Entry("broken", cls, "", (size, *SIZES)), 0)
    expected = (AssertionError, jax.errors.KeyReuseError, pytest.fail.Exception)
    try:
        with pytest.raises(expected):
            check(case)
    finally:
        case.forget()
