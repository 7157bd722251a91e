"""Bodies that accelerate first and then move with the new velocity, between walls or without any.

The order in which InforMARL's particle world (`multiagent/core.py`, commit cfe8884) and VMAS 1.5.2
(`World._integrate_state`) integrate; `flockax.envs.space.particle.integrate` is mpe2's order, where
positions move with the old velocity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from flockax.envs.space import particle

Array = jax.Array


def advance(
    position: Array,
    velocity: Array,
    force: Callable[[Array], Array],
    params: particle.PhysicsParams,
    *,
    substeps: int = 1,
    max_speed: Any = None,
    half_width: Any = None,
) -> tuple[Array, Array]:
    """Moves bodies by one step of ``dt`` seconds.

    The share `damping` of the velocity is lost once a step; then, `substeps` times, the force at
    the present position acts for ``dt / substeps`` and the body moves with the velocity that this
    gave it.

    Args:
        position: ``f[A, 2]``.
        velocity: ``f[A, 2]``.
        force: positions ``f[A, 2]`` to forces ``f[A, 2]``.
        params: time step, damping and mass.
        substeps: at least 1.
        max_speed: ``f[]``, or None for no limit.
        half_width: ``f[]``, positions are clipped to ``[-half_width, half_width]`` and velocities are
            kept, so that a body slides along a wall; None for no walls.

    Returns:
        ``(position, velocity)``.
    """
    seconds = params.dt / substeps
    velocity = velocity * (1 - params.damping)
    # Unrolled: two or three substeps at most, and a loop would be compiled for itself.
    for _ in range(substeps):
        velocity = velocity + force(position) / params.mass * seconds
        if max_speed is not None:
            speed = particle.length(velocity[:, 0], velocity[:, 1])
            factor = jnp.where(speed > max_speed, max_speed / jnp.where(speed > 0, speed, 1), 1)
            velocity = velocity * factor[:, None]
        position = position + velocity * seconds
        if half_width is not None:
            position = jnp.clip(position, -half_width, half_width)
    return position, velocity
