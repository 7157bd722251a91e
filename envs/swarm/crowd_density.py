"""How crowded the cells of a grid are, and what an agent sees of it around itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array


def shares(
    position: Array, population: np.ndarray, sizes: np.ndarray, shape: tuple[int, int]
) -> Array:
    """The density of each population.

    Args:
        position: ``int[A, 2]``, the cell (x, y) of each agent.
        population: ``int[A]``.
        sizes: ``int[P]``, the agents of each population, at least 1.
        shape: ``(X, Y)``.

    Returns:
        ``f[P, X, Y]``, the share of the population in each cell; sums to 1 over cells.
    """
    count = jnp.zeros((len(sizes), *shape), int_dtype())
    count = count.at[population, position[:, 0], position[:, 1]].add(1)
    return count.astype(float_dtype()) / sizes[:, None, None]


def offsets(radius: int, shape: tuple[int, int]) -> np.ndarray:
    """``int[W, 2]``: displacements of the cells within a radius, along axes with several cells."""
    reach = np.arange(-radius, radius + 1)
    x, y = np.meshgrid(reach, reach if shape[1] > 1 else [0], indexing="ij")
    return np.stack([x.ravel(), y.ravel()], axis=1)


def seen(
    density: Array, position: Array, window: np.ndarray, walls: np.ndarray | None, wraps: bool
) -> Array:
    """What agents see of the densities around them.

    Args:
        density: ``f[P, X, Y]``.
        position: ``int[A, 2]``.
        window: ``int[W, 2]``, see `offsets`.
        walls: ``bool[X, Y]``, or None.
        wraps: whether the grid is a torus.

    Returns:
        ``f[A, (P + 1) W]``: the density of each population in each cell of the window, then 1 for
        each cell that is a wall or beyond the border.
    """
    cells = position[:, None] + window.astype(position.dtype)
    there = cells % jnp.asarray(density.shape[1:], position.dtype)
    x, y = there[..., 0], there[..., 1]
    closed = jnp.zeros(x.shape, bool) if wraps else jnp.any(there != cells, axis=-1)
    if walls is not None:
        closed |= jnp.asarray(walls)[x, y]
    inside = jnp.where(closed, 0, density[:, x, y])
    layers = jnp.concatenate([inside, closed[None].astype(density.dtype)])
    return jnp.moveaxis(layers, 0, 1).reshape(len(position), -1)
