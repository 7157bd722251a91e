"""What the scripted policies of swarms share: wanted velocities and the actions for them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.core.policy import Policy
from flockax.envs.environment import Environment
from flockax.envs.space import particle
from flockax.envs.spec import DiscreteActions, Observation, int_dtype

Array = jax.Array

BRAKE_STEPS = 2  # a body that wants to be somewhere slows down over this many steps


@struct.dataclass
class SteeringPolicy(Policy):
    """A policy that gives each agent a velocity; it has no parameters and remembers nothing.

    A subclass gives `velocities`. Greedy or not makes no difference.

    Attributes:
        env: the environment that it plays.
    """

    env: Any = struct.field(pytree_node=False)

    def velocities(self, state: Any, params: Any) -> Array:
        """``f[A, 2]``: how each agent wants to move, in one environment."""
        raise NotImplementedError

    def act(
        self,
        key: Array,
        carry: Any,
        observation: Observation,
        env_state: Any,
        params: Any,
        reset: Array,
        greedy: bool,
    ) -> tuple[Array, Any]:
        """See `Policy.act`; reads the whole state."""

        def one(state: Any) -> Array:
            push = push_for(state.velocity, self.velocities(state, params), params)
            if getattr(self.env, "axes", "world") == "own":
                push = jnp.einsum("aij,aj->ai", self.env.own_axes(state, params), push)
            return action_for(self.env, push)

        return jax.vmap(one)(env_state), carry


def toward(delta: Array, params: Any) -> Array:
    """``f[A, 2]``: velocities that lead where ``delta f[A, 2]`` points and come to rest there."""
    return delta / (BRAKE_STEPS * params.dt)


def push_for(velocity: Array, wanted: Array, params: Any) -> Array:
    """``f[A, 2]`` in [-1, 1]: the push after which velocities are as wanted, or as near as can be.

    Args:
        velocity: ``f[A, 2]``, now.
        wanted: ``f[A, 2]``.
        params: `PhysicsParams` with `agent_accel`.
    """
    force = (wanted - velocity * (1 - params.damping)) * params.mass / params.dt
    push = force / jnp.where(params.agent_accel > 0, params.agent_accel, 1)
    # The direction is kept: a push cut off along each axis alone would turn bodies aside.
    largest = jnp.max(jnp.abs(push), axis=1, keepdims=True)
    return push / jnp.maximum(largest, 1)


def action_for(env: Environment, push: Array) -> Array:
    """The action that comes nearest to a push.

    Args:
        env: a particle world, with five moves or five pushes.
        push: ``f[A, 2]`` in [-1, 1].

    Returns:
        ``f[A, 5]``; or ``int[A]``: the move along the longer component, or none if that is below
        half of a full push.
    """
    x, y = push[:, 0], push[:, 1]
    if not isinstance(env.action_spec, DiscreteActions):
        parts = [jnp.zeros_like(x), -x, x, -y, y]
        return jnp.maximum(jnp.stack(parts, axis=1), 0)
    along_x = jnp.where(x < 0, 1, 2)
    along_y = jnp.where(y < 0, 3, 4)
    move = jnp.where(jnp.abs(x) >= jnp.abs(y), along_x, along_y)
    moves = jnp.maximum(jnp.abs(x), jnp.abs(y)) >= 0.5
    return jnp.where(moves, move, 0).astype(int_dtype())


def away(position: Array, other: Array, gap: Array, reach: Any) -> Array:
    """Directions away from what is near, the stronger the nearer.

    Args:
        position: ``f[A, 2]``.
        other: ``f[M, 2]``; what is exactly at an agent's place, itself included, does not count.
        gap: ``f[M]`` or ``f[]``, the distance between centres at which the two touch.
        reach: ``f[]``, how far beyond touching something counts.

    Returns:
        ``f[A, 2]``: the sum of unit vectors, each weighted from 0 at the end of the reach to 1 at
        touch.
    """
    delta = particle.relative(position, other)
    apart = particle.distance(delta)
    weight = jnp.clip(1 - (apart - gap) / reach, 0, 1) / jnp.where(apart > 0, apart, 1)
    return -jnp.sum(jnp.where(apart > 0, weight, 0)[:, :, None] * delta, axis=1)
