"""Numbers and state of `flock`, and what is reckoned with them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.parameters import parameter

Array = jax.Array


@struct.dataclass
class FlockParams:
    """Numbers of `Flock`; lengths are in radii of perception, times in steps, angles in radians.

    Attributes:
        horizon: transitions until an episode is truncated.
        min_speed: slowest an agent can be; not used by "vicsek".
        max_speed: fastest; the speed of all under "vicsek".
        max_turn: largest turn of a step, for control "heading".
        max_accel: largest change of speed, or of the velocity, of a step.
        noise: width of the uniform noise on each heading, for "vicsek".
        separation: how far an agent wants the others to be.
        body: agents nearer than this collide.
        company: how many neighbours it takes for the full reward.
        collision_cost: of each agent collided with.
        hazard_cost: of being in an obstacle or caught by a predator.
        obstacle_size: radius of obstacles.
        predator_size: how near a predator catches.
        predator_speed: of predators.
    """

    horizon: int = parameter(200, 1, 2**30)
    min_speed: float = parameter(0.03, 0, 1e3)
    max_speed: float = parameter(0.1, 1e-6, 1e3)
    max_turn: float = parameter(0.3, 0, math.pi)
    max_accel: float = parameter(0.02, 0, 1e3)
    noise: float = parameter(0.0, 0, 2 * math.pi)
    separation: float = parameter(0.4, 1e-3, 1)
    body: float = parameter(0.1, 0, 1)
    company: float = parameter(4.0, 1, 1e6)
    collision_cost: float = parameter(1.0, 0, 1e6)
    hazard_cost: float = parameter(1.0, 0, 1e6)
    obstacle_size: float = parameter(0.5, 1e-3, 1e3)
    predator_size: float = parameter(0.3, 1e-3, 1e3)
    predator_speed: float = parameter(0.08, 0, 1e3)


@struct.dataclass
class FlockView:
    """Sums over the neighbours of each agent, ``f[A]`` each.

    Attributes:
        count: neighbours.
        dx: where they are, relative to the agent.
        dy: likewise.
        ux: their headings.
        uy: likewise.
        away_x: ``-sum (d / s) max(0, 1 - |d|^2 / s^2)`` with the separation s: away from the near ones.
        away_y: likewise.
        touching: agents collided with.
    """

    count: Array
    dx: Array
    dy: Array
    ux: Array
    uy: Array
    away_x: Array
    away_y: Array
    touching: Array


@struct.dataclass
class FlockState:
    """The state of a flock.

    Attributes:
        x: ``f[A]``.
        y: ``f[A]``.
        ux: ``f[A]``, the heading as a unit vector.
        uy: ``f[A]``.
        speed: ``f[A]``.
        obstacle_x: ``f[M]``.
        obstacle_y: ``f[M]``.
        predator_x: ``f[P]``.
        predator_y: ``f[P]``.
        view: `FlockView` at these positions: reward and observation share one search.
        time: ``int[]``.
    """

    x: Array
    y: Array
    ux: Array
    uy: Array
    speed: Array
    obstacle_x: Array
    obstacle_y: Array
    predator_x: Array
    predator_y: Array
    view: FlockView
    time: Array


def order(ux: Array, uy: Array) -> Array:
    """``f[]``: the length of the mean heading, 0 for disorder and 1 for a common heading."""
    return jnp.sqrt(jnp.mean(ux) ** 2 + jnp.mean(uy) ** 2)


def pair(dx: Array, dy: Array, own: Any, other: Any) -> tuple[Array, ...]:
    """What a neighbour adds to a `FlockView`."""
    nearness, body = own
    x, y = dx * nearness, dy * nearness
    away = jnp.maximum(1 - (x * x + y * y), 0)
    touching = (dx * dx + dy * dy < body).astype(dx.dtype)
    return jnp.ones_like(dx), dx, dy, *other, -x * away, -y * away, touching


def turned(ux: Array, uy: Array, angle: Array) -> tuple[Array, Array]:
    """Unit vectors turned to the left; of length 1 again, so that errors don't add up."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    ux, uy = ux * cos - uy * sin, uy * cos + ux * sin
    scale = 1 / jnp.sqrt(ux * ux + uy * uy)
    return ux * scale, uy * scale


def own_frame(state: FlockState, dx: Array, dy: Array) -> list[Array]:
    """Vectors ``f[..., A]``, or ``f[..., A, k]``, as ``[forward, left]`` of each agent."""
    ux, uy = (u.reshape(u.shape + (1,) * (dx.ndim - u.ndim)) for u in (state.ux, state.uy))
    return [dx * ux + dy * uy, dy * ux - dx * uy]
