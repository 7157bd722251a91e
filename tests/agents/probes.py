"""Tiny environments whose values and best actions are known."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs import (
    ArraySpec,
    ContinuousActions,
    DiscreteActions,
    Environment,
    Group,
    Transition,
)
from flockax.envs.parameters import as_arrays, parameter
from flockax.envs.spec import float_dtype, int_dtype


@struct.dataclass
class ProbeParams:
    horizon: int = parameter(5, 1, 1000)


@struct.dataclass
class ProbeState:
    cue: Any  # f[A], drawn at the start of an episode
    time: Any


@dataclasses.dataclass(frozen=True)
class Probe(Environment):
    """Agents see ``(cue or 0, time == 0)`` and are paid by `kind`.

    * "constant": 1 a step, for ever; only the time limit ends it: worth 1 / (1 - gamma).
    * "terminal": 1 a step, terminates after 3 steps: worth 1 + gamma + gamma^2 at the start.
    * "cue": pays the cue, terminates at once: worth the cue.
    * "choice": discrete: pays 1 for action 1 (group "a") or 2 (group "b"), terminates at once.
    * "target": continuous: pays -(a_0 - .8)^2, terminates at once.
    * "memory": shows the cue at the start only, pays 1 at the fourth step for the action that matches.
    * "nan": pays NaN from the third episode step on.
    """

    kind: str
    agents: int = 2

    @property
    def groups(self):
        n = 1 if self.kind == "target" else 3
        if self.agents == 1:
            return (Group("a", 0, 1, 2, n),)
        return (Group("a", 0, 1, 2, n), Group("b", 1, self.agents, 2, n))

    @property
    def action_spec(self):
        if self.kind == "target":
            return ContinuousActions(self.agents, 1, 0.0, 1.0)
        return DiscreteActions(self.agents, 3)

    @property
    def default_params(self):
        return as_arrays(ProbeParams())

    @property
    def feature_spec(self):
        return ArraySpec((self.agents, 2), float_dtype().name)

    @property
    def global_state_spec(self):
        return ArraySpec((self.agents,), float_dtype().name)

    def initial_state(self, key, params):
        cue = jax.random.rademacher(key, (self.agents,), float_dtype())
        return ProbeState(cue, jnp.zeros((), int_dtype()))

    def transition(self, key, state, action, params):
        ones = jnp.ones(self.agents, float_dtype())
        end, reward = jnp.ones((), bool), ones
        if self.kind in ("constant", "nan"):
            end = jnp.zeros((), bool)
        if self.kind == "nan":
            reward = jnp.where(state.time >= 2, jnp.nan, ones)
        if self.kind == "terminal":
            end = state.time >= 2
        if self.kind == "cue":
            reward = state.cue
        if self.kind == "choice":
            best = jnp.where(jnp.arange(self.agents) == 0, 1, 2)
            reward = (action == best).astype(float_dtype())
        if self.kind == "target":
            reward = -((action[:, 0] - 0.8) ** 2)
        if self.kind == "memory":
            end = state.time >= 3
            right = action == jnp.where(state.cue > 0, 1, 2)
            reward = jnp.where(end & right, ones, 0)
        return Transition(state, reward, end, {})

    def features(self, state, params):
        start = jnp.broadcast_to(state.time == 0, state.cue.shape)
        shown = state.cue if self.kind == "cue" else jnp.where(start, state.cue, 0)
        if self.kind in ("constant", "terminal", "nan"):
            shown = jnp.zeros_like(shown)
        marks = start.astype(shown.dtype) if self.kind != "constant" else jnp.zeros_like(shown)
        return jnp.stack([shown, marks], axis=-1)

    def global_state(self, state, params=None):
        return state.cue
