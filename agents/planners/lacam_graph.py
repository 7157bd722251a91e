"""A grid as a graph, in what plain Python reads fastest."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from flockax.envs.space.grid import MOVES

FAR = 2**30  # the distance from where no way leads


def cell_numbers(walls: np.ndarray, name: str, positions: Any) -> list[int]:
    """Positions as numbers, row by row.

    Args:
        walls: ``bool[H, W]``.
        name: of the positions, for messages.
        positions: ``int[A, 2]``, (row, column).

    Raises:
        ValueError: for a position that is outside, in an obstacle or there twice.
    """
    positions = np.asarray(positions)
    if positions.ndim != 2 or positions.shape[1] != 2:
        raise ValueError(f"{name} has shape {positions.shape}, not (A, 2)")
    seen: dict[tuple[int, int], int] = {}
    for agent, (row, column) in enumerate(positions.tolist()):
        at = f"{name}[{agent}] = ({row}, {column})"
        if not (0 <= row < walls.shape[0] and 0 <= column < walls.shape[1]):
            raise ValueError(f"{at} is outside of a map of shape {walls.shape}")
        if walls[row, column]:
            raise ValueError(f"{at} is in an obstacle")
        if (row, column) in seen:
            raise ValueError(f"{at} is the same as {name}[{seen[row, column]}]")
        seen[row, column] = agent
    return [row * walls.shape[1] + column for row, column in positions.tolist()]


def neighbours(walls: np.ndarray) -> list[tuple[int, ...]]:
    """The cells next to each free cell of ``bool[H, W]``, and at the end the cell itself."""
    width = walls.shape[1]
    free = np.pad(~walls, 1)
    near: list[tuple[int, ...]] = []
    for cell in range(walls.size):
        row, column = divmod(cell, width)
        around = [
            int((row + r) * width + column + c)
            for r, c in [*MOVES[1:], MOVES[0]]
            if free[row + r + 1, column + c + 1]
        ]
        near.append(() if walls[row, column] else tuple(around))
    return near


def distances(walls: np.ndarray, goals: Sequence[int]) -> list[array[int]]:
    """Steps from every cell to each goal.

    Args:
        walls: ``bool[H, W]``.
        goals: numbers of cells.

    Returns:
        For each goal ``H W`` integers, `FAR` where no way leads.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    index = np.arange(walls.size).reshape(walls.shape)
    edges = []
    for a, b in (((index[1:], index[:-1])), ((index[:, 1:], index[:, :-1]))):
        open_edge = ~walls.reshape(-1)[a] & ~walls.reshape(-1)[b]
        edges.append(np.stack([a[open_edge], b[open_edge]]))
    row, column = np.concatenate(edges, axis=1)
    graph = coo_array((np.ones(row.size, np.int8), (row, column)), (walls.size, walls.size)).tocsr()
    rows = []
    for goal in goals:
        steps = dijkstra(graph, directed=False, indices=goal, unweighted=True)
        rows.append(array("i", np.where(np.isfinite(steps), steps, FAR).astype(np.intc).tobytes()))
    return rows
