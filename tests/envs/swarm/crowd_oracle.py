"""The rules of crowds once more, for one agent at a time, in plain Python and double precision."""

import dataclasses
import math

import numpy as np

EPSILON = 1e-25
MOVES = {
    "beach": [(0, 0), (-1, 0), (1, 0)],
    "crowd": [(0, 0), (0, -1), (-1, 0), (1, 0), (0, 1)],
    "predator_prey": [(0, 0), (1, 0), (0, 1), (0, -1), (-1, 0)],
}


@dataclasses.dataclass
class Rules:
    """A task; actions are numbered as in the environment, cells are tuples (x, y)."""

    task: str
    size: int
    noise: float
    aversion: float = 1.0
    place_weight: float = 1.0
    interaction: np.ndarray | None = None
    walls: np.ndarray | None = None
    congestion: bool = False

    @property
    def moves(self):
        return MOVES[self.task]

    @property
    def cells(self):
        height = 1 if self.task == "beach" else self.size
        both = [(x, y) for x in range(self.size) for y in range(height)]
        return [cell for cell in both if self.walls is None or not self.walls[cell]]

    def go(self, cell, action):
        x, y = cell[0] + self.moves[action][0], cell[1] + self.moves[action][1]
        if self.task == "predator_prey":
            return min(max(x, 0), self.size - 1), min(max(y, 0), self.size - 1)
        return x % self.size, y % self.size if self.task == "crowd" else 0

    def legal(self, cell):
        free = self.cells
        return [a for a in range(len(self.moves)) if self.go(cell, a) in free]

    def outcomes(self, cell):
        """Where the noise leads: ``(cell, probability)``."""
        if self.task == "predator_prey":
            rest = [(self.go(cell, a), self.noise / 4) for a in range(1, 5)]
            return [(cell, 1 - self.noise), *rest]
        legal = self.legal(cell)
        found = [(self.go(cell, a), self.noise / len(legal)) for a in legal]
        return [(cell, 1 - self.noise), *found]

    def place(self, cell):
        half = self.size // 2
        if self.task == "predator_prey":
            return 0.0
        if self.task == "beach":
            return 1 - abs(cell[0] - half) / half
        away = abs(cell[0] - half) + abs(cell[1] - half)
        return 2 - 2 * away / self.size

    def reward(self, population, cell, came, density):
        """With ``density f[P, X, Y]`` and the action by which the agent came."""
        moved = 0.0 if self.task == "predator_prey" else sum(map(abs, self.moves[came]))
        here = [float(one[cell]) for one in density]
        price = moved / self.size * (here[population] if self.congestion else 1)
        reward = self.place_weight * (self.place(cell) - price)
        reward -= self.aversion * math.log(here[population] + EPSILON)
        if self.interaction is not None:
            reward += float(np.dot(self.interaction[population], here))
        return reward
