"""Bodies on a plane that accelerate, touch softly and are slowed by drag.

The rules are those of the multi-agent particle environments as in mpe2 1.1.1
(`mpe2._mpe_utils.core.World.step`): all forces are taken at the old positions, positions move with the
old velocities, then velocities change. One thing differs: two entities at exactly the same place push
each other with force 0, where mpe2 divides 0 by 0.

Shapes are written for one world; every function accepts extra trailing batch axes on positions,
velocities, forces and actions (see `flockax.envs.environment`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.parameters import parameter
from flockax.envs.spec import ContinuousActions, DiscreteActions, float_dtype

Array = jax.Array

NUM_MOVES = 5  # stay, left, right, down, up


@struct.dataclass
class PhysicsParams:
    """The constants of a particle world; units are world lengths, seconds and kilograms.

    Attributes:
        horizon: transitions until an episode is truncated.
        dt: seconds per step.
        damping: share of the velocity lost per step.
        mass: of every moving body.
        contact_force: stiffness of contacts, force per unit of penetration.
        contact_margin: width of the soft edge of a contact.
    """

    horizon: int = parameter(25, 1, 2**30)
    dt: float = parameter(0.1, 1e-6, 1e3)
    damping: float = parameter(0.25, 0, 1)
    mass: float = parameter(1.0, 1e-6, 1e6)
    contact_force: float = parameter(100.0, 0, 1e6)
    contact_margin: float = parameter(1e-3, 1e-6, 1e3)


@struct.dataclass
class ParticleState:
    """Agents and landmarks of one world.

    Attributes:
        position: ``f[A, 2]``, of the agents.
        velocity: ``f[A, 2]``.
        landmark: ``f[L, 2]``, positions of what does not move.
        time: ``int[]``, steps since the start.
    """

    position: Array
    velocity: Array
    landmark: Array
    time: Array


def move_spec(
    actions: str, num_agents: int, symbols: int = 0
) -> DiscreteActions | ContinuousActions:
    """The action space of a particle world.

    Args:
        actions: "discrete": stay, left, right, down, up. "continuous": five components in [0, 1], of
            which the first does nothing and the others push left, right, down and up.
        num_agents: ``A``.
        symbols: how many symbols an agent may say; 0 where all are silent. A discrete action is then
            ``move + 5 symbol``, a continuous one has a component more for each symbol.
    """
    if actions == "discrete":
        return DiscreteActions(num_agents, NUM_MOVES * max(symbols, 1))
    return ContinuousActions(num_agents, NUM_MOVES + symbols, 0.0, 1.0)


def thrust(action: Array) -> Array:
    """The direction in which each agent pushes itself.

    Args:
        action: ``int[A]`` in 0 .. 4, or ``f[A, D >= 5]``.

    Returns:
        ``f[A, 2]``: a unit step along an axis or zero for discrete actions, in [-1, 1] per axis for
        continuous ones.
    """
    if jnp.issubdtype(action.dtype, jnp.integer):
        dtype = float_dtype()
        along_x = (action == 2).astype(dtype) - (action == 1).astype(dtype)
        along_y = (action == 4).astype(dtype) - (action == 3).astype(dtype)
        return jnp.stack([along_x, along_y], axis=1)
    return jnp.stack([action[:, 2] - action[:, 1], action[:, 4] - action[:, 3]], axis=1)


def spread_over(values: Array, like: Array) -> Array:
    """Appends axes of length 1 to `values` until it broadcasts along the leading axes of `like`."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))


def per_agent(*runs: tuple[Array | float, int]) -> Array:
    """``f[A]``: each value repeated for the number of slots of its group."""
    return jnp.concatenate([jnp.broadcast_to(value, (count,)) for value, count in runs])


def relative(origin: Array, target: Array) -> Array:
    """``f[N, M, 2]``: where the M targets are, seen from each of the N origins."""
    return target[None] - origin[:, None]


def length(x: Array, y: Array) -> Array:
    """Lengths of the vectors with components `x` and `y`; the gradient is 0 at 0."""
    square = x * x + y * y
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def distance(delta: Array) -> Array:
    """``f[N, M]``: lengths of the vectors ``f[N, M, 2]``."""
    return length(delta[:, :, 0], delta[:, :, 1])


def others(matrix: Array) -> Array:
    """``[N, N - 1, ...]`` from ``[N, N, ...]``: each row without its diagonal entry, in order."""
    n = matrix.shape[0]
    index = np.array([[j for j in range(n) if j != i] for i in range(n)], np.int32).reshape(
        n, n - 1
    )
    return matrix[np.arange(n)[:, None], index]


def flatten(x: Array, leading: int, kept: int) -> Array:
    """Joins the axes ``kept .. leading - 1`` into one: ``[A, K, 2, ...] -> [A, 2 K, ...]``."""
    joined = int(np.prod(x.shape[kept:leading]))
    return x.reshape((*x.shape[:kept], joined, *x.shape[leading:]))


def contact_force(
    position: Array,
    radius: Array,
    other: Array,
    other_radius: Array,
    params: PhysicsParams,
    beyond: bool = True,
) -> Array:
    """The force with which `other` bodies push each body away.

    The penetration is soft: ``k log(1 + exp(-(d - d_min) / k))`` with margin k, distance d and sum of
    radii d_min; the force is that times the stiffness, along the line of the centres (mpe2 1.1.1,
    `World.get_collision_force`).

    Args:
        position: ``f[N, 2]``.
        radius: ``f[N]``.
        other: ``f[M, 2]``; a body at exactly the same place, itself included, does not push.
        other_radius: ``f[M]``.
        params: stiffness and margin.
        beyond: False cuts the soft edge off at the sum of radii, as VMAS 1.5.2 does.

    Returns:
        ``f[N, 2]``.
    """
    delta = -relative(position, other)
    apart = distance(delta)
    touching = spread_over(radius[:, None] + other_radius[None], apart)
    margin = params.contact_margin
    penetration = margin * jnp.logaddexp(0, (touching - apart) / margin)
    # Where bodies coincide `delta` is 0, and so is the force, whatever stands for the distance.
    strength = params.contact_force * penetration / jnp.where(apart > 0, apart, 1)
    if not beyond:
        strength = jnp.where(apart > touching, 0, strength)
    # A sum per component: XLA on CPU runs the joint sum over [N, M, 2] ten times slower (jax 0.12).
    along = [jnp.sum(strength * delta[:, :, axis], axis=1) for axis in range(2)]
    return jnp.stack(along, axis=1)


def integrate(
    position: Array,
    velocity: Array,
    force: Array,
    params: PhysicsParams,
    max_speed: Array | None = None,
) -> tuple[Array, Array]:
    """Moves the bodies by one step: positions with the old velocities, then the velocities.

    Args:
        position: ``f[A, 2]``.
        velocity: ``f[A, 2]``.
        force: ``f[A, 2]``, taken at `position`.
        params: time step, damping and mass.
        max_speed: ``f[A]``, or None for no limit.

    Returns:
        ``(position, velocity)``.
    """
    position = position + velocity * params.dt
    velocity = velocity * (1 - params.damping) + force / params.mass * params.dt
    if max_speed is not None:
        speed = length(velocity[:, 0], velocity[:, 1])
        limit = spread_over(max_speed, speed)
        # Below the limit the factor is exactly 1, also at rest.
        factor = jnp.where(speed > limit, limit / jnp.where(speed > 0, speed, 1), 1)
        velocity = velocity * factor[:, None]
    return position, velocity


def advance(
    state: Any,
    push: Array,
    radius: Array,
    params: PhysicsParams,
    max_speed: Array | None = None,
    num_obstacles: int = 0,
    obstacle_size: Array | float = 0.0,
) -> Any:
    """Moves all agents by one step.

    Args:
        state: a `ParticleState`.
        push: ``f[A, 2]``, the force with which each agent pushes itself.
        radius: ``f[A]``.
        params: the physics.
        max_speed: ``f[A]``, or None for no limit.
        num_obstacles: how many landmarks, the first ones, are solid.
        obstacle_size: ``f[]``, their radius.

    Returns:
        The state with new positions and velocities.
    """
    force = push + contact_force(state.position, radius, state.position, radius, params)
    if num_obstacles:
        obstacle = state.landmark[:num_obstacles]
        obstacle_radius = jnp.broadcast_to(obstacle_size, (num_obstacles,))
        force += contact_force(state.position, radius, obstacle, obstacle_radius, params)
    position, velocity = integrate(state.position, state.velocity, force, params, max_speed)
    return state.replace(position=position, velocity=velocity)


def boundary_penalty(position: Array) -> Array:
    """``f[A]``: how far agents stray from the unit square, summed over both axes.

    Per axis, with z = ``|x|``: 0 below .9, then 10 (z - .9) below 1, then ``min(exp(2 z - 2), 10)``
    (mpe2 1.1.1, `simple_tag.Scenario.agent_reward`).
    """
    z = jnp.abs(position)
    # Bounded before exp as well, which would overflow far outside and turn the gradient into NaN.
    outside = jnp.minimum(jnp.exp(jnp.minimum(2 * z - 2, 3)), 10)
    penalty = jnp.where(z < 0.9, 0, jnp.where(z < 1, 10 * (z - 0.9), outside))
    return penalty[:, 0] + penalty[:, 1]
