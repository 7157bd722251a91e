"""To the target that a partner reaches as soon: a scripted policy of `discovery`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.planners.steering import SteeringPolicy, toward
from flockax.envs.environment import Environment
from flockax.envs.space import particle

Array = jax.Array


@struct.dataclass
class PairUpPolicy(SteeringPolicy):
    """Each agent goes to the target that it and its nearest helpers reach with the least way.

    The way of a target is the agent's own distance plus those of the ``agents_per_target - 1``
    others that are nearest to the target. An agent stops where it is well within range, so that it
    does not push the target's other visitors away. With fewer agents than a target needs, it goes
    to the nearest.
    """

    def velocities(self, state: Any, params: Any) -> Array:
        """See `SteeringPolicy.velocities`."""
        delta = particle.relative(state.position, state.landmark)
        apart = particle.distance(delta)
        agents = apart.shape[0]
        order = jnp.sort(apart, axis=0)
        # Sum of the helpers nearest to each target, the agent itself left out where it is one of them.
        count = jnp.clip(params.agents_per_target, 1, agents)
        below = jnp.cumsum(order, axis=0)
        first, last = below[count - 1], order[count - 1]
        before = jnp.where(count > 1, below[jnp.maximum(count - 2, 0)], 0)
        way = apart + jnp.where(apart <= last[None], first[None] - apart, before[None])
        way = jnp.where(state.present[None], way, jnp.inf)
        chosen = jnp.argmin(way, axis=1)
        aim = jnp.take_along_axis(delta, chosen[:, None, None], axis=1)[:, 0]
        left = particle.length(aim[:, 0], aim[:, 1])
        stop = 0.6 * params.covering_range
        share = jnp.maximum(1 - stop / jnp.where(left > 0, left, 1), 0)
        return toward(jnp.where(jnp.any(state.present), aim * share[:, None], 0), params)


def PairUp(env: Environment, params: Any) -> PairUpPolicy:
    """The policy for an environment; it reads the parameters that are given to its `act`."""
    return PairUpPolicy(env)
