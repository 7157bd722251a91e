"""Actor and critic networks for all agents of an environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from flockax.agents.core import distributions, networks
from flockax.agents.core.policy import NetworkPolicy
from flockax.agents.core.sharing import Sharing
from flockax.envs.environment import Environment

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Agent:
    """Actor and critic of all agents of an environment.

    Attributes:
        env: the environment.
        config: the settings of a learner, with ``hidden``, ``activation``, ``recurrent`` and ``share``.
    """

    env: Environment
    config: Any

    @property
    def sharing(self) -> Sharing:
        """Who shares parameters."""
        return Sharing(self.env, self.config.share)

    def network(self, role: str) -> networks.Mlp:
        """The network of "actor" or "critic"."""
        c = self.config
        actor = role == "actor"
        out = distributions.output_size(self.env.action_spec) if actor else 1
        scale = 0.01 if actor else 1.0
        window = networks.window_shape(self.env.feature_spec)
        return networks.Mlp(c.hidden, out, c.activation, c.recurrent, scale, window)

    def init(self, key: Array) -> dict[str, Any]:
        """Draws the parameters of actor and critic."""
        spec = self.env.feature_spec
        features = jnp.zeros(spec.shape, spec.dtype)
        size = self.sharing.inputs(features).shape[-1]
        roles = ("actor", "critic")
        return {
            role: self.sharing.init(self.network(role), role_key, size)
            for role, role_key in zip(roles, jax.random.split(key), strict=True)
        }

    def actor(
        self, params: Any, carry: Array, features: Array, fresh: Array
    ) -> tuple[Array, Array]:
        """``(carry, outputs f[T, E, A, O])`` from ``features [T, E, A, F]``, ``fresh [T, E, A]``."""
        x = self.sharing.inputs(features)
        return self.sharing.apply(self.network("actor"), params, carry, x, fresh)

    def critic(
        self, params: Any, carry: Array, features: Array, fresh: Array
    ) -> tuple[Array, Array]:
        """``(carry, values f[T, E, A])`` from ``features [T, E, A, F]``, ``fresh [T, E, A]``."""
        x = self.sharing.inputs(features)
        carry, value = self.sharing.apply(self.network("critic"), params, carry, x, fresh)
        # Not [..., 0]: XLA on CPU spends a tenth of the whole gradient on that slice.
        return carry, jnp.squeeze(value, axis=-1)

    def distribution(self, output: Array, mask: Array) -> distributions.ActionDistribution:
        """The action distribution of actor outputs."""
        return distributions.action_distribution(self.env.action_spec, output, mask)

    def policy(self, actor_params: Any) -> NetworkPolicy:
        """The policy that a trained actor plays."""
        shape = (self.env.num_agents, self.config.recurrent)
        return NetworkPolicy(
            actor_params, self.actor, self.distribution, self.env.action_spec, shape
        )
