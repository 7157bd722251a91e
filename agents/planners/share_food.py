"""Each to a piece of its own: a scripted policy of `dispersion`."""

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
class ShareFoodPolicy(SteeringPolicy):
    """Greedy assignment: the nearest pair of agent and piece is taken out, then the next, and so on.

    An agent for which nothing is left goes to the piece nearest to it. Equal distances, as at the
    start, go to the lower index.
    """

    def velocities(self, state: Any, params: Any) -> Array:
        """See `SteeringPolicy.velocities`."""
        delta = particle.relative(state.position, state.landmark)
        apart = jnp.where(state.present[None], particle.distance(delta), jnp.inf)
        chosen = assign(apart)
        aim = jnp.take_along_axis(delta, chosen[:, None, None], axis=1)[:, 0]
        # Pieces are eaten in passing, so nobody slows down for one: aim beyond it.
        return toward(jnp.where(jnp.any(state.present), 3 * aim, 0), params)


def ShareFood(env: Environment, params: Any) -> ShareFoodPolicy:
    """The policy for an environment; it reads the parameters that are given to its `act`."""
    return ShareFoodPolicy(env)


def assign(cost: Array) -> Array:
    """Greedy assignment.

    Args:
        cost: ``f[A, L]``; inf where there is nothing to assign.

    Returns:
        ``int[A]``: a column for each row, of its own as long as there are any, else the cheapest.
    """
    agents, things = cost.shape

    def take(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        left, chosen = carry
        best = jnp.argmin(left)
        row, column = best // things, best % things
        found = left.reshape(-1)[best] < jnp.inf
        chosen = chosen.at[row].set(jnp.where(found, column, chosen[row]))
        out = (jnp.arange(agents)[:, None] == row) | (jnp.arange(things) == column)
        return jnp.where(found & out, jnp.inf, left), chosen

    start = cost, jnp.argmin(cost, axis=1)
    return jax.lax.fori_loop(0, min(agents, things), take, start)[1]
