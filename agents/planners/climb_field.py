"""Up the field to where it is not collected: a scripted policy of `sampling`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.planners.steering import SteeringPolicy, toward
from flockax.envs.environment import Environment
from flockax.envs.space import particle

Array = jax.Array

HORIZON = 2.0  # widths of cells over which the value of a far cell falls to 1 / e


@struct.dataclass
class ClimbFieldPolicy(SteeringPolicy):
    """Each agent goes to the cell with the most field for its distance.

    The worth of a cell is what is left in its middle times ``exp(-distance / (2 widths))``; near a
    bump that is greedy ascent, and where all around is collected it leads on to the next cells. A
    cell that another agent is nearer to is worth a tenth.
    """

    def velocities(self, state: Any, params: Any) -> Array:
        """See `SteeringPolicy.velocities`."""
        left = self.env.remaining(state, params).reshape(-1)
        delta = particle.relative(state.position, self.env.middles(params))
        apart = particle.distance(delta)
        width = 2 * params.half_width / self.env.cells
        mine = apart <= jnp.min(apart, axis=0)
        # Compared as logarithms: far from all bumps both factors underflow.
        worth = jnp.log(jnp.maximum(left, 1e-30)) - apart / (HORIZON * width)
        worth = jnp.where(left > 0, worth + jnp.where(mine, 0, jnp.log(0.1)), -jnp.inf)
        chosen = jnp.argmax(worth, axis=1)
        aim = jnp.take_along_axis(delta, chosen[:, None, None], axis=1)[:, 0]
        # Cells are collected in passing, so nobody slows down for one: aim beyond it.
        return toward(3 * aim, params)


def ClimbField(env: Environment, params: Any) -> ClimbFieldPolicy:
    """The policy for an environment; it reads the parameters that are given to its `act`."""
    return ClimbFieldPolicy(env)
