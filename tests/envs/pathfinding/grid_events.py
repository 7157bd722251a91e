"""Counts what happens in recorded episodes, so that tests can ask for enough of everything."""

import collections

import numpy as np

MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])


def step_events(obstacles, position, action, active):
    """What the agents attempt in one step, a Counter.

    Args:
        obstacles: ``bool[H, W]``.
        position: ``int[A, 2]``, before the step.
        action: ``int[A]``.
        active: ``bool[A]``.
    """
    aim = position + MOVES[action]
    mover = active & (action > 0)
    inside = ((aim >= 0) & (aim < obstacles.shape)).all(1)
    wall = inside.copy()
    wall[inside] = obstacles[tuple(aim[inside].T)]
    found = collections.Counter(border=(mover & ~inside).sum(), obstacle=(mover & wall).sum())
    mover &= inside & ~wall
    owner = np.full(obstacles.shape, -1)
    owner[tuple(position[active].T)] = np.flatnonzero(active)
    ids = np.flatnonzero(mover)
    wanted = np.ravel_multi_index(tuple(aim[ids].T), obstacles.shape)
    found["contest"] = (np.unique(wanted, return_counts=True)[1] > 1).sum()
    # ahead[i]: the mover in the cell that mover i wants, or -1.
    ahead = np.full(len(position) + 1, -1)
    ahead[ids] = owner[tuple(aim[ids].T)]
    ahead[:-1][(ahead[:-1] >= 0) & ~mover[ahead[:-1]]] = -1
    found["standing"] = (
        mover & (owner[tuple(aim.clip(0, np.array(obstacles.shape) - 1).T)] >= 0) & (ahead[:-1] < 0)
    ).sum()
    second = ahead[ahead]
    me = np.arange(len(ahead))
    found["swap"] = ((second == me) & (ahead >= 0)).sum() // 2
    found["chain"] = ((second >= 0) & (second != me)).sum()
    found["cycle"] = cycles(ahead)
    return found


def cycles(ahead):
    """How many loops of three or more there are in the graph of who follows whom."""
    found, seen = 0, set()
    for start in np.flatnonzero(ahead >= 0):
        path = []
        node = int(start)
        while node >= 0 and node not in seen:
            seen.add(node)
            path.append(node)
            node = int(ahead[node])
        if node in path and len(path) - path.index(node) >= 3:
            found += 1
    return found


def count(episodes):
    """A Counter over episodes, keys ``(rule, mode, event)``."""
    total = collections.Counter()
    for e in episodes:
        found = collections.Counter()
        for t in range(e.length):
            found += step_events(e.obstacles, e.position[t], e.action[t], e.active[t])
        on_goal = (e.position == e.goal).all(-1)
        arrived = e.reward if e.mode != "nothing" else on_goal[1:] & ~on_goal[:-1]
        found["arrival"] = arrived.sum()
        found["new goal"] = (e.goal[1:] != e.goal[:-1]).any(-1).sum()
        if e.mode == "restart":
            found["queue over"] = (arrived.sum(0) // e.queue_length).sum()
        ended = e.terminated[-1].all()
        found["terminated"] = int(ended)
        found["truncated"] = int(e.truncated[-1] and not ended)
        found["both"] = int(e.truncated[-1] and ended)
        total.update({(e.rule, e.mode, name): int(n) for name, n in found.items()})
    return total
