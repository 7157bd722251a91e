"""What the environments made of particles have in common: starts, spaces and the global state."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from flockax.envs.environment import Environment
from flockax.envs.space import particle
from flockax.envs.spec import ActionSpec, ArraySpec, float_dtype, int_dtype

Array = jax.Array


class ParticleWorld(Environment):
    """An environment of moving discs and fixed landmarks, with a vector of features for each agent.

    A subclass is a frozen dataclass with a field `actions` ("discrete" or "continuous"); it gives
    `groups`, `num_landmarks_total`, `default_params`, `transition` and `features`.

    Attributes:
        landmark_range: landmarks start uniform in ``[-landmark_range, landmark_range]^2``.
        symbols: how many symbols an agent may say; 0 where all are silent.
    """

    batched_last: ClassVar[bool] = True
    landmark_range: ClassVar[float] = 0.9
    symbols: ClassVar[int] = 0

    actions: str

    @property
    @abc.abstractmethod
    def num_landmarks_total(self) -> int:
        """``L``, the number of landmarks of all kinds."""

    @property
    def action_spec(self) -> ActionSpec:
        """Five discrete moves, or five pushes in [0, 1]; times, or plus, the symbols."""
        return particle.move_spec(self.actions, self.num_agents, self.symbols)

    @property
    def feature_spec(self) -> ArraySpec:
        """``f[A, F]``."""
        width = max(group.observation_size for group in self.groups)
        return ArraySpec((self.num_agents, width), float_dtype().name)

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[4 A + 2 L]``: positions, velocities, landmarks."""
        size = 4 * self.num_agents + 2 * self.num_landmarks_total
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: Any) -> Any:
        """Agents uniform in [-1, 1]^2 and at rest, landmarks uniform in their range."""
        # One flat draw: each further one would be compiled for itself.
        agents, count = self.num_agents, self.num_agents + self.num_landmarks_total
        place = jax.random.uniform(key, (count * 2,), float_dtype(), -1, 1).reshape((count, 2))
        position, landmark = place[:agents], self.landmark_range * place[agents:]
        time = jnp.zeros((), int_dtype())
        return particle.ParticleState(position, jnp.zeros_like(position), landmark, time)

    def global_state(self, state: Any, params: Any = None) -> Array:
        """Positions and velocities of all agents, positions of the landmarks."""
        parts = (state.position, state.velocity, state.landmark)
        return jnp.concatenate([particle.flatten(part, 2, 0) for part in parts])
