"""LaCAM: complete search for one-shot multi-agent pathfinding, on the host.

Okumura, "LaCAM: Search-Based Algorithm for Quick Multi-Agent Pathfinding" (2023) and "Improving LaCAM
for Scalable Eventually Optimal Multi-Agent Pathfinding" (2023): a depth-first search over configurations
(where all agents are), each of which has few successors at first. PIBT makes a successor; another visit
of the same configuration forces it away from the last one by a further constraint (one agent, one cell).
Every configuration is offered in the end, so that a solution is found if there is one.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from flockax.agents.planners.lacam_graph import FAR, cell_numbers, distances, neighbours

_NOBODY = -1


def solve(
    obstacles: Any,
    starts: Any,
    goals: Any,
    time_limit: float = 10.0,
    seed: int = 0,
    anytime: bool = False,
) -> np.ndarray | None:
    """Paths for all agents from their starts to their goals, where all stand at the end.

    Args:
        obstacles: ``bool[H, W]``, True where blocked.
        starts: ``int[A, 2]``, (row, column), all different.
        goals: ``int[A, 2]``, all different.
        time_limit: seconds after which the search gives up.
        seed: of the order of equally good moves; with equal seeds the results are equal, but for what
            `time_limit` cuts off.
        anytime: go on until `time_limit` and return the best paths found (LaCAM*). Their cost falls
            towards the least: the sum over agents of the steps in which they don't rest on the goal.

    Returns:
        ``int[T + 1, A, 2]``, or None where there is no solution or none was found in time; see `Search`
        to know which.

    Raises:
        ValueError: for starts or goals that are not free cells or not all different.
    """
    search = Search(obstacles, starts, goals, seed)
    search.run(time_limit, anytime)
    return search.paths


class _Node:
    """A configuration."""

    __slots__ = ("cells", "cost", "left", "next", "order", "parent", "priority", "tree")

    def __init__(
        self,
        cells: tuple[int, ...],
        parent: _Node | None,
        priority: list[float],
        cost: int,
        left: int,
    ):
        self.cells = cells
        self.parent = parent
        self.priority = priority
        self.order = sorted(range(len(cells)), key=priority.__getitem__, reverse=True)
        self.tree: deque[tuple[tuple[int, int], ...]] = deque([()])
        self.cost = cost
        self.left = left
        self.next: dict[_Node, int] = {}


class Search:
    """One search.

    Attributes:
        paths: ``int[T + 1, A, 2]``, the best found, or None.
        cost: the sum over agents of the steps in which they don't rest on their goals, or None.
        exhausted: True where nothing is left to try: without paths there is no solution, with paths and
            `anytime` there is none of less cost.
    """

    def __init__(self, obstacles: Any, starts: Any, goals: Any, seed: int = 0):
        """Prepares distances; see `solve` for the arguments."""
        self.paths: np.ndarray | None = None
        self.cost: int | None = None
        self.exhausted = False
        self._walls = np.asarray(obstacles, bool)
        start, self._goal = (
            cell_numbers(self._walls, name, x) for name, x in (("starts", starts), ("goals", goals))
        )
        if len(start) != len(self._goal):
            raise ValueError(f"goals has {len(self._goal)} agents, starts {len(start)}")
        self._random = random.Random(seed).random
        self._near = neighbours(self._walls)
        self._distance = distances(self._walls, self._goal)
        self._now = [_NOBODY] * self._walls.size
        self._next = [_NOBODY] * self._walls.size
        self._to = [_NOBODY] * len(start)
        self._cells = tuple(start)
        self._ways: list[list[int]] = [[]] * len(start)
        self._tried = [0] * len(start)
        self._pulls = [_NOBODY] * len(start)
        left = [self._distance[i][cell] for i, cell in enumerate(start)]
        self._solvable = max(left, default=0) < FAR
        first = [distance / self._walls.size for distance in left]
        self._first = _Node(self._cells, None, first, 0, sum(left))

    def run(self, time_limit: float = 10.0, anytime: bool = False) -> None:
        """Searches and sets `paths`, `cost` and `exhausted`.

        Args:
            time_limit: seconds.
            anytime: improve what is found until then.
        """
        if not self._solvable:
            self.exhausted = True
            return
        until = time.perf_counter() + time_limit
        goal = tuple(self._goal)
        known = {self._first.cells: self._first}
        stack, found = [self._first], None
        while stack and time.perf_counter() < until:
            node = stack[-1]
            if found is not None and node.cost + node.left >= found.cost:
                stack.pop()
                continue
            if found is None and node.cells == goal:
                found = node
                if not anytime:
                    break
                continue
            if not node.tree:
                stack.pop()
                continue
            cells = self._successor(node, node.tree.popleft())
            if cells is None:
                continue
            if cells in known:
                self._rewire(node, known[cells], stack, found)
                stack.append(known[cells])
            else:
                child = self._child(node, cells)
                node.next[child] = child.cost - node.cost
                known[cells] = child
                stack.append(child)
        self.exhausted = not stack
        if found is not None:
            self.paths, self.cost = self._backtrack(found), found.cost

    def _child(self, node: _Node, cells: tuple[int, ...]) -> _Node:
        priority = [
            p % 1.0 if cell == goal else p + 1
            for p, cell, goal in zip(node.priority, cells, self._goal, strict=True)
        ]
        left = sum(distance[cell] for distance, cell in zip(self._distance, cells, strict=True))
        return _Node(cells, node, priority, node.cost + self._edge(node.cells, cells), left)

    def _edge(self, before: Sequence[int], after: Sequence[int]) -> int:
        """How many agents don't rest on their goals."""
        ends = zip(before, after, self._goal, strict=True)
        return sum(not a == b == goal for a, b, goal in ends)

    def _rewire(self, node: _Node, child: _Node, stack: list[_Node], found: _Node | None) -> None:
        """A new way to a known configuration: it and what follows it may have become cheaper."""
        if child in node.next:
            return
        node.next[child] = self._edge(node.cells, child.cells)
        queue = deque([node])
        while queue:
            node = queue.popleft()
            for after, edge in node.next.items():
                if node.cost + edge < after.cost:
                    after.cost, after.parent = node.cost + edge, node
                    queue.append(after)
                    if found is not None and after.cost + after.left < found.cost:
                        stack.append(after)

    def _backtrack(self, node: _Node | None) -> np.ndarray:
        cells = []
        while node is not None:
            cells.append(node.cells)
            node = node.parent
        return np.stack(np.divmod(np.array(cells[::-1]), self._walls.shape[1]), axis=-1)

    def _successor(
        self, node: _Node, constraint: tuple[tuple[int, int], ...]
    ) -> tuple[int, ...] | None:
        """A configuration one step later that obeys a constraint, or None if there seems to be none."""
        if len(constraint) < len(node.order):
            agent = node.order[len(constraint)]
            options = sorted(self._near[node.cells[agent]], key=lambda _: self._random())
            node.tree.extend((*constraint, (agent, cell)) for cell in options)
        self._cells, to, now, taken = node.cells, self._to, self._now, self._next
        for agent, cell in enumerate(node.cells):
            now[cell] = agent
        try:
            for agent, cell in constraint:
                other = now[cell]
                if taken[cell] != _NOBODY or (
                    other not in (_NOBODY, agent) and to[other] == node.cells[agent]
                ):
                    return None
                to[agent], taken[cell] = cell, agent
            for agent in node.order:
                if to[agent] == _NOBODY and not self._pibt(agent):
                    return None
            return tuple(to)
        finally:
            for agent, cell in enumerate(node.cells):
                now[cell] = _NOBODY
                for near in self._near[cell]:
                    taken[near] = _NOBODY
                to[agent] = _NOBODY

    def _pibt(self, agent: int) -> bool:
        """Decides an agent and those that it pushes; False where it can only stay, if at all."""
        cells, to, now, taken = self._cells, self._to, self._now, self._next
        self._prepare(agent)
        chain = [agent]
        while chain:
            agent = chain[-1]
            here, ways, tried = cells[agent], self._ways[agent], self._tried[agent]
            if tried == len(ways):
                to[agent], taken[here] = here, agent
                chain.pop()
                continue
            self._tried[agent] += 1
            there = ways[tried]
            other = now[there]
            if taken[there] != _NOBODY or (other != _NOBODY and to[other] == here):
                continue
            to[agent], taken[there] = there, agent
            if other not in (_NOBODY, agent) and to[other] == _NOBODY:
                self._prepare(other)
                chain.append(other)
                continue
            for agent in reversed(chain):
                pulled, here = self._pulls[agent], cells[agent]
                first = self._tried[agent] == 1 and pulled != _NOBODY
                if first and to[pulled] == _NOBODY and taken[here] == _NOBODY:
                    to[pulled], taken[here] = here, pulled
            return True
        return False

    def _prepare(self, agent: int) -> None:
        """Where the agent may go, best first; turned around where it must let another pass."""
        distance, noise = self._distance[agent], self._random
        ways = [
            cell
            for _, cell in sorted(
                [(distance[cell] + noise(), cell) for cell in self._near[self._cells[agent]]]
            )
        ]
        self._pulls[agent] = self._swap_partner(agent, ways[0])
        if self._pulls[agent] != _NOBODY:
            ways.reverse()
        self._ways[agent], self._tried[agent] = ways, 0

    def _swap_partner(self, agent: int, best: int) -> int:
        """With whom the agent has to change places, which takes a cell with three ways."""
        here = self._cells[agent]
        if best == here:
            return _NOBODY
        other = self._now[best]
        ahead = other != _NOBODY and self._to[other] == _NOBODY
        if ahead and self._must_swap(agent, other, here, best) and self._can_swap(best, here):
            return other
        # Somebody behind may need the agent to go on past a crossing first.
        for cell in self._near[here][:-1]:
            other = self._now[cell]
            if other == _NOBODY or cell == best:
                continue
            if self._must_swap(other, agent, here, best) and self._can_swap(best, here):
                return other
        return _NOBODY

    def _must_swap(self, pusher: int, puller: int, behind: int, ahead: int) -> bool:
        """Whether the two want past each other before there is a third way."""
        push, pull = self._distance[pusher], self._distance[puller]
        while push[ahead] < push[behind]:
            ways = self._ways_on(behind, ahead)
            if len(ways) >= 2:
                return False
            if not ways:
                break
            behind, ahead = ahead, ways[0]
        return pull[behind] < pull[ahead] and (push[behind] == 0 or push[ahead] < push[behind])

    def _can_swap(self, behind: int, ahead: int) -> bool:
        """Whether a cell with a third way comes."""
        origin = behind
        while ahead != origin:
            ways = self._ways_on(behind, ahead)
            if len(ways) != 1:
                return len(ways) >= 2
            behind, ahead = ahead, ways[0]
        return False

    def _ways_on(self, behind: int, ahead: int) -> list[int]:
        """Neighbours of `ahead` but `behind` and dead ends in which an agent has its goal and stands."""
        ways = []
        for cell in self._near[ahead][:-1]:
            if cell != behind:
                agent = self._now[cell]
                if agent == _NOBODY or len(self._near[cell]) > 2 or self._goal[agent] != cell:
                    ways.append(cell)
        return ways
