"""Large neighbourhood search: makes a plan for all agents cheaper, on the host.

Li et al., "Anytime Multi-Agent Path Finding via Large Neighborhood Search" (2021): a few agents give up
their paths and plan again one after another around all the others; what they find is kept where it is no
worse. Every plan on the way has no conflicts. An agent's path is the earliest by which it comes to its
goal and can stay there, found by stepping the set of cells that it can be in through time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flockax.agents.planners.lacam_graph import cell_numbers, distances
from flockax.envs.space.grid import MOVES


def improve_plan(
    obstacles: Any, paths: Any, rounds: int, seed: int = 0, group: int = 8
) -> np.ndarray:
    """Lowers the sum of the times at which agents come to stay at the ends of their paths.

    Args:
        obstacles: ``bool[H, W]``, True where blocked.
        paths: ``int[T + 1, A, 2]``, (row, column), without conflicts (see `validate_plan`).
        rounds: groups that plan again, one after another.
        seed: of the choice of groups and of equally good paths.
        group: agents in a group, at least 1.

    Returns:
        ``int[T' + 1, A, 2]`` with the same first and last row, T' <= T, of no larger cost.
    """
    plan = _Plan(np.asarray(obstacles, bool), np.asarray(paths), np.random.default_rng(seed))
    for number in range(rounds):
        plan.retry(plan.choose(min(group, plan.agents), number))
    return plan.paths()


def arrivals(paths: Any) -> np.ndarray:
    """``int[A]``: the first step from which each agent stays at the end of its path."""
    away = np.any(np.asarray(paths) != np.asarray(paths)[-1], axis=-1)
    steps = np.arange(1, len(away) + 1)[:, None]
    return np.max(np.where(away, steps, 0), axis=0)


class _Plan:
    """Paths of all agents, and what they leave open to one more.

    Cells are numbered on a board with a margin of walls. ``free[t, v]``: nobody is in v at step t.
    ``closed[m, t, v]``: move m out of v in step t would change places with somebody.
    """

    def __init__(self, walls: np.ndarray, paths: np.ndarray, random: np.random.Generator):
        self.random = random
        self.steps, self.agents = len(paths) - 1, paths.shape[1]
        board = np.pad(walls, 1, constant_values=True)
        self.columns = board.shape[1]
        self.cells = ((paths[..., 0] + 1) * self.columns + paths[..., 1] + 1).astype(np.int64)
        self.offsets = [int(x) for x in MOVES @ np.array([self.columns, 1])]
        self.free = np.repeat(~board.reshape(1, -1), self.steps + 1, axis=0)
        self.closed = np.zeros((len(MOVES), self.steps, board.size), bool)
        self.arrival = arrivals(paths)
        for agent in range(self.agents):
            self._mark(agent, True)
        starts, goals = (
            cell_numbers(walls, n, paths[i]) for n, i in (("starts", 0), ("goals", -1))
        )
        table = distances(walls, goals)
        alone = [table[agent][start] for agent, start in enumerate(starts)]
        self.delay = (self.arrival - alone).astype(float)

    def paths(self) -> np.ndarray:
        """``int[T + 1, A, 2]``, up to the last arrival."""
        cells = self.cells[: int(self.arrival.max(initial=0)) + 1]
        return np.stack([cells // self.columns - 1, cells % self.columns - 1], axis=-1)

    def choose(self, group: int, number: int) -> np.ndarray:
        """Some agents; every other time those that one who is late meets on its way."""
        if number % 2 or not self.delay.any():
            return self.random.choice(self.agents, group, replace=False)
        late = int(self.random.choice(self.agents, p=self.delay / self.delay.sum()))
        row, column = np.divmod(self.cells[: self.arrival[late] + 1], self.columns)
        far = np.abs(row - row[:, [late]]) + np.abs(column - column[:, [late]])
        met = np.flatnonzero((far <= 2).any(axis=0))
        others = self.random.permutation(met[met != late])[: group - 1]
        return self.random.permutation(np.append(others, late))

    def retry(self, members: np.ndarray) -> None:
        """Lets agents plan again in the order given, and undoes it where the sum is larger."""
        old_cells, old_arrival = self.cells[:, members].copy(), self.arrival[members].copy()
        for agent in members:
            self._mark(agent, False)
        planned = []
        for agent in members:
            if not self._plan(agent):
                break
            self._mark(agent, True)
            planned.append(agent)
        gain = old_arrival.sum() - self.arrival[members].sum()
        if len(planned) == len(members) and gain >= 0:
            self.delay[members] += self.arrival[members] - old_arrival
            return
        for agent in planned:
            self._mark(agent, False)
        self.cells[:, members], self.arrival[members] = old_cells, old_arrival
        for agent in members:
            self._mark(agent, True)

    def _mark(self, agent: int, there: bool) -> None:
        """Puts a path into `free` and `closed`, or takes it out."""
        path, times = self.cells[:, agent], np.arange(self.steps + 1)
        self.free[times, path] = not there
        step = path[1:] - path[:-1]
        for move, offset in enumerate(self.offsets[1:], 1):
            moving = np.flatnonzero(step == -offset)
            self.closed[move, moving, path[moving + 1]] = there

    def _plan(self, agent: int) -> bool:
        """Finds the earliest path of an agent around the others; False if there is none."""
        start, goal = self.cells[0, agent], self.cells[-1, agent]
        blocked = np.flatnonzero(~self.free[:, goal])
        stay = int(blocked[-1]) + 1 if blocked.size else 0
        reached = np.zeros((self.steps + 1, self.free.shape[1]), bool)
        reached[0, start] = True
        arrival = self._spread(reached, goal, stay)
        if arrival is None:
            return False
        path = np.full(self.steps + 1, goal)
        cell = goal
        for t in range(arrival - 1, -1, -1):
            before = [
                cell - offset
                for move, offset in enumerate(self.offsets)
                if reached[t, cell - offset] and not self.closed[move, t, cell - offset]
            ]
            cell = before[self.random.integers(len(before))]
            path[t] = cell
        self.cells[:, agent], self.arrival[agent] = path, arrival
        return True

    def _spread(self, reached: np.ndarray, goal: int, stay: int) -> int | None:
        """Fills `reached` step by step up to the first one, at least `stay`, that has the goal."""
        for t in range(self.steps + 1):
            if t >= stay and reached[t, goal]:
                return t
            if t == self.steps:
                return None
            here, there = reached[t], reached[t + 1]
            there |= here
            for move, offset in enumerate(self.offsets[1:], 1):
                leaving = here & ~self.closed[move, t]
                if offset > 0:
                    there[offset:] |= leaving[:-offset]
                else:
                    there[:offset] |= leaving[-offset:]
            there &= self.free[t + 1]
        return None
