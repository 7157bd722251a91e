"""Oracles for planning: plain searches over all possibilities."""

from collections import deque
from itertools import product

import numpy as np

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def options(walls, cell):
    """The cells to which an agent can go, its own first."""
    for row, column in MOVES:
        there = cell[0] + row, cell[1] + column
        inside = 0 <= there[0] < walls.shape[0] and 0 <= there[1] < walls.shape[1]
        if inside and not walls[there]:
            yield there


def distances(walls, goal):
    """Steps to a goal from the cells that reach it, as a dict."""
    found, queue = {goal: 0}, deque([goal])
    while queue:
        cell = queue.popleft()
        for there in options(walls, cell):
            if there not in found:
                found[there] = found[cell] + 1
                queue.append(there)
    return found


def least_delay(walls, others, start, goal, window, on_target):
    """The least delay of a path of one agent around others, or None without a path.

    Args:
        walls: bool[H, W].
        others: for each other agent its cells at times 0 .. window, None when it is gone.
        start: (row, column).
        goal: (row, column).
        window: steps.
        on_target: as in GridPathfinding.
    """
    to_goal = distances(walls, goal)

    def free(time, before, after):
        for path in others:
            if path[time + 1] == after:
                return False
            if path[time] == after and path[time + 1] == before and before != after:
                return False
        return True

    costs = {(start, False): 0}
    for time in range(window):
        after = {}
        for (cell, arrived), cost in costs.items():
            if arrived and on_target == "finish":
                after[cell, True] = min(cost, after.get((cell, True), cost))
                continue
            for there in options(walls, cell):
                if not free(time, cell, there):
                    continue
                step = 1
                if on_target == "nothing":
                    step = int(not (cell == there == goal))
                elif arrived:
                    step = 0
                key = (there, arrived or (there == goal and on_target != "nothing"))
                after[key] = min(cost + step, after.get(key, cost + step))
        costs = after
    ends = [cost + (0 if arrived else to_goal[cell]) for (cell, arrived), cost in costs.items()]
    return min(ends) - to_goal[start] if ends else None


def joint_moves(walls, now):
    """The configurations to which all agents together can go in a step."""
    for after in product(*(options(walls, tuple(map(int, cell))) for cell in now)):
        moves = {(a, b) for a, b in zip(now, after, strict=True) if tuple(a) != b}
        if len(set(after)) == len(after) and not any((b, a) in moves for a, b in moves):
            yield after


def joint_cost(walls, starts, goals):
    """The least cost of any plan for all agents together, or None if there is none.

    The cost is the sum over agents of the steps in which they do not rest on their goals.
    """
    starts, goals = (tuple(map(tuple, x)) for x in (starts, goals))
    costs, buckets = {starts: 0}, {0: [starts]}
    while buckets:
        cost = min(buckets)
        for now in buckets.pop(cost):
            if costs[now] < cost:
                continue
            if now == goals:
                return cost
            for after in joint_moves(walls, now):
                ends = zip(now, after, goals, strict=True)
                total = cost + sum(not a == b == goal for a, b, goal in ends)
                if total < costs.get(after, np.inf):
                    costs[after] = total
                    buckets.setdefault(total, []).append(after)
    return None
