"""How a scripted agent of `flock` turns a direction that it wants into an action."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.swarm.flock import MOVES, Flock
from flockax.envs.swarm.flock_state import FlockParams, FlockState

Array = jax.Array


def steer(env: Flock, state: FlockState, params: FlockParams, forward: Array, left: Array) -> Array:
    """Actions that turn agents towards a direction, at the speed they have.

    Args:
        env: the environment.
        state: with a leading batch axis ``E``.
        params: of the environment.
        forward: ``f[E, A]``, the direction in the agent's own frame; (0, 0) for straight on.
        left: ``f[E, A]``.

    Returns:
        ``int[E, A]`` or ``f[E, A, 2]``.
    """
    angle = jnp.arctan2(left, jnp.where((forward == 0) & (left == 0), 1, forward))
    if env.control == "heading":
        parts = [angle / jnp.maximum(params.max_turn, 1e-6), jnp.zeros_like(angle)]
    else:
        # To the left for the turn, and backwards as much as keeps the speed.
        angle = jnp.clip(angle, -math.pi / 3, math.pi / 3)
        scale = state.speed / jnp.maximum(params.max_accel, 1e-6)
        parts = [scale * (jnp.cos(angle) - 1), scale * jnp.sin(angle)]
    action = jnp.clip(jnp.stack(parts, axis=-1), -1, 1)
    if env.actions == "continuous":
        return action
    whole = jnp.round(action).astype(jnp.int32)
    number = np.zeros((3, 3), np.int32)
    for i, (first, second) in enumerate(MOVES):
        number[first + 1, second + 1] = i
    return jnp.asarray(number)[whole[..., 0] + 1, whole[..., 1] + 1]
