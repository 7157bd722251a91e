"""Straight to the goal, aside from what is in the way: a scripted policy of `navigation`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.planners.steering import SteeringPolicy, away, toward
from flockax.envs.environment import Environment
from flockax.envs.space import particle

Array = jax.Array

REACH = 0.15  # world lengths beyond touching at which others begin to push away
STRENGTH = 1.5  # of that push, in units of the largest speed


@struct.dataclass
class SeekGoalPolicy(SteeringPolicy):
    """Artificial potential field (Khatib 1986): attracted by the goal, repelled by whatever is near.

    Half of the repulsion is turned by a quarter to the left, so that agents that meet head on pass
    each other, and slide around obstacles, instead of standing.
    """

    def velocities(self, state: Any, params: Any) -> Array:
        """See `SteeringPolicy.velocities`."""
        wanted = toward(state.goal - state.position, params)
        speed = particle.length(wanted[:, 0], wanted[:, 1])
        limit = jnp.minimum(params.max_speed, params.agent_accel)
        wanted = wanted * jnp.minimum(1, limit / jnp.where(speed > 0, speed, 1))[:, None]
        obstacle_gap = params.agent_size + params.obstacle_size
        repelled = away(state.position, state.position, 2 * params.agent_size, REACH)
        repelled += away(state.position, state.landmark, obstacle_gap, REACH)
        aside = jnp.stack([-repelled[:, 1], repelled[:, 0]], axis=1)
        return wanted + STRENGTH * limit * (repelled + 0.5 * aside)


def SeekGoal(env: Environment, params: Any) -> SeekGoalPolicy:
    """The policy for an environment; it reads the parameters that are given to its `act`."""
    return SeekGoalPolicy(env)
