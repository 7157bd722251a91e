"""Neighbours of every point by all pairs and all images, in plain NumPy float64; no jax here.

A batch of boxes is looked at at once: ``x, y`` have shape ``[B, N]``.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Every pair, the one on axis 1 and the other on axis 2: arrays ``[B, N, N]``.

    Attributes:
        dx: from the one to the other, to the nearest image.
        dy: along y.
        square: squared distance, infinite where one of the two is left out.
        inside: whether they are neighbours.
        halfway: whether two images are equally near, so that the sign of dx or dy is anybody's.
        kept: ``bool[B, N]``.
        overflow: ``int[B]``.
        invalid: ``int[B]``.
    """

    dx: np.ndarray
    dy: np.ndarray
    square: np.ndarray
    inside: np.ndarray
    halfway: np.ndarray
    kept: np.ndarray
    overflow: np.ndarray
    invalid: np.ndarray

    def near_threshold(self, radius: float, margin: float) -> np.ndarray:
        """Pairs whose distance is the radius but for rounding."""
        return np.abs(np.sqrt(self.square) - radius) < margin

    def nearest(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """``(index int[B, N, k], mask)``: by distance, then by number."""
        boxes, points = self.kept.shape
        index, mask = np.zeros((boxes, points, k), int), np.zeros((boxes, points, k), bool)
        for b, i in np.ndindex(boxes, points):
            here = [(self.square[b, i, j], j) for j in np.flatnonzero(self.inside[b, i])]
            for place, (_, j) in enumerate(sorted(here)[:k]):
                index[b, i, place], mask[b, i, place] = j, True
        return index, mask


def pairs(x, y, present, size, radius, periodic, grid=(1, 1), capacity=None) -> Pairs:
    """All pairs of points.

    Args:
        x: ``[B, N]``.
        y: ``[B, N]``.
        present: ``bool[B, N]``.
        size: width and height of the box.
        radius: how far neighbours are at most.
        periodic: whether x and y wrap around.
        grid: columns and rows of the cells that have a capacity.
        capacity: points in a cell at most; None for any number.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    kept = present & finite
    place = [np.where(kept, z, 0.0) for z in (x, y)]
    place = [np.mod(z, s) if p else z for z, s, p in zip(place, size, periodic, strict=True)]
    overflow = np.zeros(len(x), int)
    if capacity is not None:
        full = _full(_cells(place, size, grid), kept, capacity)
        kept, overflow = kept & ~full, full.sum(1)
    axes = [_image(z, s, p) for z, s, p in zip(place, size, periodic, strict=True)]
    (dx, half_x), (dy, half_y) = axes
    both = kept[:, :, None] & kept[:, None, :] & ~np.eye(x.shape[1], dtype=bool)
    square = np.where(both, dx * dx + dy * dy, np.inf)
    inside = square <= radius * radius
    invalid = (present & ~finite).sum(1)
    return Pairs(dx, dy, square, inside, half_x | half_y, kept, overflow, invalid)


def _cells(place, size, grid):
    column, row = (
        np.clip(np.floor(z / s * n), 0, n - 1) for z, s, n in zip(place, size, grid, strict=True)
    )
    return (row * grid[0] + column).astype(int)


def _full(cell, kept, capacity):
    """The points with `capacity` or more of lower numbers in their cell."""
    full = np.zeros(cell.shape, bool)
    for b, i in np.ndindex(cell.shape):
        full[b, i] = kept[b, i] and np.sum(kept[b, :i] & (cell[b, :i] == cell[b, i])) >= capacity
    return full


def _image(place, length, periodic):
    """``(d, tie)``: the shortest of the ways to three images."""
    d = place[:, None, :] - place[:, :, None]
    if not periodic:
        return d, np.zeros(d.shape, bool)
    images = d[..., None] + np.array([0.0, -length, length])
    near = np.argmin(np.abs(images), axis=-1, keepdims=True)
    shortest = np.take_along_axis(images, near, axis=-1)[..., 0]
    return shortest, np.abs(np.abs(shortest) - length / 2) < 1e-6 * length
