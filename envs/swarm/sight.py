"""What an agent sees of the things around it: the nearest few, or moments of all within range."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.space import particle
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array

NUM_MOMENTS = 6  # count, mean of x and y, mean of x x, x y and y y


@struct.dataclass
class Nearest:
    """The nearest things of each agent, nearest first, equal distances in the order of indices.

    Attributes:
        index: ``int[A, k]``, which thing; 0 where `mask` is False.
        dx: ``f[A, k]``, where it is, seen from the agent; 0 where `mask` is False.
        dy: ``f[A, k]``.
        mask: ``bool[A, k]``, True where there is one.
    """

    index: Any
    dx: Any
    dy: Any
    mask: Any

    def take(self, values: Array) -> Array:
        """``f[A, k, C]``: rows of ``f[M, C]`` for the things seen, 0 where there is none."""
        return jnp.where(self.mask[:, :, None], values[self.index], 0)

    @property
    def offset(self) -> Array:
        """``f[A, k, 2]``: `dx` and `dy` side by side."""
        return jnp.stack([self.dx, self.dy], axis=-1)


def nearest(
    k: int, position: Array, thing: Array, present: Array, radius: Any, itself: bool
) -> Nearest:
    """The `k` nearest things within range of each agent.

    Args:
        k: how many, 0 allowed; rows beyond the number of things are empty.
        position: ``f[A, 2]``, of the agents.
        thing: ``f[M, 2]``.
        present: ``bool[M]``; the others are seen by nobody.
        radius: ``f[]``, how far one sees, the border included.
        itself: whether ``thing[:A]`` are the agents, of which none sees itself.
    """
    # Dense pairs: the one place to put a search by cells for many agents.
    dx, dy, seen = _pairs(position, thing, present, radius, itself)
    square = jnp.where(seen, dx * dx + dy * dy, jnp.inf)
    count = min(k, thing.shape[0])
    # top_k keeps the lower index first among equals.
    minus, index = jax.lax.top_k(-square, count)
    mask = minus > -jnp.inf
    pick = lambda x: jnp.where(mask, jnp.take_along_axis(x, index, axis=1), 0)  # noqa: E731
    empty = lambda x: jnp.pad(x, ((0, 0), (0, k - count)))  # noqa: E731
    index = jnp.where(mask, index, 0).astype(int_dtype())
    return Nearest(empty(index), empty(pick(dx)), empty(pick(dy)), empty(mask))


def moments(position: Array, thing: Array, present: Array, radius: Any, itself: bool) -> Array:
    """Moments of the things within range of each agent.

    Args:
        position: ``f[A, 2]``, of the agents.
        thing: ``f[M, 2]``; the agents themselves if `itself`, and none counts itself.
        present: ``bool[M]``.
        radius: ``f[]``, how far one sees, the border included.
        itself: whether `thing` are the agents.

    Returns:
        ``f[A, 6]``: how many there are, and the means of x, y, x x, x y and y y, of their places
        seen from the agent; 0 where there is none.
    """
    dx, dy, seen = _pairs(position, thing, present, radius, itself)
    count = jnp.sum(seen, axis=1, dtype=float_dtype())
    mean = lambda x: jnp.sum(jnp.where(seen, x, 0), axis=1) / jnp.maximum(count, 1)  # noqa: E731
    means = [mean(x) for x in (dx, dy, dx * dx, dx * dy, dy * dy)]
    return jnp.stack([count, *means], axis=1)


def _pairs(
    position: Array, thing: Array, present: Array, radius: Any, itself: bool
) -> tuple[Array, Array, Array]:
    """``(dx f[A, M], dy f[A, M], seen bool[A, M])``."""
    delta = particle.relative(position, thing)
    dx, dy = delta[:, :, 0], delta[:, :, 1]
    seen = present[None] & (dx * dx + dy * dy <= radius * radius)
    if itself:
        seen &= ~np.eye(position.shape[0], thing.shape[0], dtype=bool)
    return dx, dy, seen
