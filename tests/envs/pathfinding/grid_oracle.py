"""The rules of grid pathfinding in plain loops over agents, one world at a time; nothing here uses jax.

Cells are (row, column) tuples. Only agents that are active move, block or are seen.
"""

import numpy as np

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def is_free(obstacles, cell):
    row, column = cell
    height, width = obstacles.shape
    return 0 <= row < height and 0 <= column < width and not obstacles[cell]


def aims(position, action):
    """The cell each agent wants to be in."""
    return [(r + MOVES[a][0], c + MOVES[a][1]) for (r, c), a in zip(position, action, strict=True)]


def priority(obstacles, position, aim, active):
    """One agent after the other, in the order of their numbers, each into a cell empty by then."""
    position = list(position)
    for i, cell in enumerate(aim):
        others = {p for j, p in enumerate(position) if active[j] and j != i}
        if active[i] and is_free(obstacles, cell) and cell not in others:
            position[i] = cell
    return position


def block_both(obstacles, position, aim, active):
    """Into a cell where nobody stood before the step and that nobody else wants."""
    standing = {p for p, alive in zip(position, active, strict=True) if alive}
    wanted = [cell for cell, alive in zip(aim, active, strict=True) if alive]
    return [
        cell
        if alive and is_free(obstacles, cell) and cell not in standing and wanted.count(cell) == 1
        else p
        for p, cell, alive in zip(position, aim, active, strict=True)
    ]


def soft(obstacles, position, aim, active):
    """All at once: into free cells and into cells being left, but no swaps; the lowest number wins.

    The winner of a cell is chosen among all that want it and is not replaced when it cannot go.
    """
    owner = {p: i for i, p in enumerate(position) if active[i]}
    winner = {}
    for i, cell in enumerate(aim):
        if active[i] and cell != position[i]:
            winner.setdefault(cell, i)
    going = set()
    for cell, i in winner.items():
        ahead = owner.get(cell)
        swap = ahead is not None and aim[ahead] == position[i]
        if is_free(obstacles, cell) and not swap:
            going.add(i)
    while True:
        stuck = {i for i in going if aim[i] in owner and owner[aim[i]] not in going}
        if not stuck:
            return [aim[i] if i in going else p for i, p in enumerate(position)]
        going -= stuck


RULES = {"priority": priority, "block_both": block_both, "soft": soft}


def overwritten(before, after, active):
    """Who is invisible under "soft" of POGEMA 1.4.0, which moves the marks one after the other.

    Agent i clears the cell it comes from after a lower-numbered agent has marked it as its own.
    """
    left = {p: i for i, p in enumerate(before) if active[i]}
    return [
        alive and left.get(p, -1) > i
        for i, (p, alive) in enumerate(zip(after, active, strict=True))
    ]


def wall_around(obstacles, radius):
    """The map with `radius` cells more on each side: one of walls, the rest open."""
    padded = np.pad(np.pad(obstacles, 1, constant_values=True), radius)
    return padded[1:-1, 1:-1]


class World:
    """One episode. `queues` holds the goals of each agent; they start over at the end.

    `compat_visibility` shows what POGEMA 1.4.0 shows under "soft".
    """

    def __init__(self, obstacles, starts, queues, radius, rule, mode, compat_visibility=False):
        self.obstacles, self.radius, self.rule, self.mode = obstacles, radius, rule, mode
        self.position = [tuple(map(int, s)) for s in starts]
        self.queues = [[tuple(map(int, g)) for g in q] for q in queues]
        self.queue = [0] * len(self.queues)
        self.active = [True] * len(self.position)
        self.hidden = [False] * len(self.position)
        self.compat = compat_visibility and rule == "soft"

    @property
    def goal(self):
        return [q[k] for q, k in zip(self.queues, self.queue, strict=True)]

    def step(self, action):
        """Moves all; returns the rewards and whether the rules end the episode."""
        before, agents = self.position, range(len(self.position))
        aim = aims(before, action)
        self.position = RULES[self.rule](self.obstacles, before, aim, self.active)
        if self.compat:
            self.hidden = overwritten(before, self.position, self.active)
        goal = self.goal
        on_goal = [self.active[i] and self.position[i] == goal[i] for i in agents]
        if self.mode == "nothing":
            return [float(all(on_goal))] * len(on_goal), all(on_goal)
        if self.mode == "finish":
            self.active = [a and not g for a, g in zip(self.active, on_goal, strict=True)]
            return [float(g) for g in on_goal], not any(self.active)
        for i in agents:
            if on_goal[i]:
                self.queue[i] = (self.queue[i] + 1) % len(self.queues[i])
        return [float(g) for g in on_goal], False

    def windows(self):
        """``bool[A, 3, S, S]``: obstacles, agents, the own goal (pulled to the edge); 0 if inactive."""
        r, side = self.radius, 2 * self.radius + 1
        walls = wall_around(self.obstacles, r)
        crowd = np.zeros(walls.shape, bool)
        for i, (row, column) in enumerate(self.position):
            if self.active[i] and not self.hidden[i]:
                crowd[row + r, column + r] = True
        result = np.zeros((len(self.position), 3, side, side), bool)
        for i, ((row, column), goal) in enumerate(zip(self.position, self.goal, strict=True)):
            if self.active[i]:
                view = (slice(row, row + side), slice(column, column + side))
                result[i, 0], result[i, 1] = walls[view], crowd[view]
                down, right = goal[0] - row, goal[1] - column
                result[i, 2, r + max(-r, min(r, down)), r + max(-r, min(r, right))] = True
        return result
