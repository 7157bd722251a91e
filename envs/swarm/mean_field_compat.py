"""The order in which OpenSpiel 2.0.2 walks through a mean-field game, on which its results depend.

Its algorithms walk through a game depth first, into no state twice, and know a state by cell and
time. Two of its results depend on the order, and with what is computed here they can be compared:

* The reward depends on the last action too, so a cell has the price of the move that first led to
  it.
* Mirror descent adds to its sums of values while it still plays the policy that is made of them:
  where a state is evaluated, the sums of what was evaluated before are new already.

Time by time the order is that of the states before, and of what follows from each.
"""

from __future__ import annotations

import numpy as np


def depth_first(
    moves: tuple[tuple[int, int], ...],
    is_open: np.ndarray,
    stays: np.ndarray,
    start: np.ndarray,
    horizon: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The order of one population, as far as it matters.

    Args:
        moves: the displacement (x, y) of each of the ``A`` actions, of which the noise is one more.
        is_open: ``bool[A, X, Y]``, legal actions.
        stays: ``bool[A, X, Y]``, moves that don't lead out of the cell.
        start: ``f[X, Y]``, the initial density.
        horizon: ``H``.

    Returns:
        ``(length, early)``: ``length int[H, X, Y]``, of the move by which each cell was first
        reached; ``early bool[H, A, X, Y]``, where the cell to which an action leads had been
        evaluated before the cell in which it is chosen. 0 and False where nobody can be.
    """
    columns, rows = start.shape
    x, y = np.indices(start.shape)
    ahead = [
        np.where(stay, x * rows + y, (x + step[0]) % columns * rows + (y + step[1]) % rows)
        for step, stay in zip(moves, stays, strict=True)
    ]
    there = np.stack(ahead).reshape(len(moves), -1).T.tolist()
    legal = [np.flatnonzero(cell).tolist() for cell in is_open.reshape(len(moves), -1).T]
    steps = np.abs(moves).sum(axis=1).tolist()
    # Starts are numbered with x running fastest.
    order = [int(cell) for cell in (x * rows + y).T[start.T > 0]]
    length = np.zeros((horizon, start.size), int)
    early = np.zeros((horizon, len(moves), start.size), bool)
    for time in range(horizon):
        evaluated: set[int] = set()
        after: dict[int, int] = {}
        for cell in order:
            early[time, :, cell] = [
                action in legal[cell] and there[cell][action] in evaluated
                for action in range(len(moves))
            ]
            for action in legal[cell]:
                middle = there[cell][action]
                if middle in evaluated:
                    continue
                evaluated.add(middle)
                for noise in legal[middle]:
                    after.setdefault(there[middle][noise], steps[action])
        if time + 1 < horizon:
            order = list(after)
            length[time + 1, order] = list(after.values())
    return length.reshape(horizon, *start.shape), early.reshape(horizon, -1, *start.shape)
