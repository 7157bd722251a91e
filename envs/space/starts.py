"""Random places that keep a distance from what stands already and from each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from flockax.envs.space import particle
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array

ROUNDS = 24


def place_apart(
    key: Array,
    count: int,
    half_width: Any,
    gap: Any,
    taken: Array,
    taken_gap: Any,
    wanted: Array | None = None,
) -> Array:
    """Draws places uniform in a square until each is far enough from all others.

    All are drawn at once; then whoever is too near to something taken, or to a place of lower
    index, is drawn again, at most `ROUNDS` times. Where a world is so crowded that this does not
    suffice, the last draw stands: a start may then have bodies that touch, and contacts push them
    apart.

    Args:
        key: a typed key.
        count: ``N``.
        half_width: ``f[]``, places lie in ``[-half_width, half_width]^2``.
        gap: ``f[]``, smallest distance between two of them.
        taken: ``f[M, 2]``, what stands already.
        taken_gap: ``f[]`` or ``f[M]``, smallest distance to these; what is negative keeps none.
        wanted: ``bool[N]``, the places that are drawn at all; the others are in nobody's way. None
            for all of them.

    Returns:
        ``f[N, 2]``.
    """
    wanted = jnp.ones(count, bool) if wanted is None else wanted
    ids = jnp.arange(count, dtype=int_dtype())
    gaps = jnp.broadcast_to(taken_gap, (taken.shape[0],))

    def draw(key: Array) -> Array:
        flat = jax.random.uniform(key, (2 * count,), float_dtype(), -1, 1)
        return half_width * flat.reshape((count, 2))

    def too_near(place: Array) -> Array:
        within = particle.distance(particle.relative(place, place)) < gap
        lower = (ids[None] < ids[:, None]) & wanted[None]
        against = particle.distance(particle.relative(place, taken)) < gaps[None]
        return wanted & (jnp.any(within & lower, axis=1) | jnp.any(against, axis=1))

    def again(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        key, place, redo, tries = carry
        key, now = jax.random.split(key)
        place = jnp.where(redo[:, None], draw(now), place)
        return key, place, too_near(place), tries + 1

    def going(carry: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(carry[2]) & (carry[3] <= ROUNDS)

    start = (key, jnp.zeros((count, 2), float_dtype()), wanted, jnp.zeros((), int_dtype()))
    return jax.lax.while_loop(going, again, start)[1]
