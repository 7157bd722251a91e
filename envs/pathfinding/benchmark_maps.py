"""The maps of the public POGEMA benchmark, made instead of read.

Equal to its files cell by cell. The sets of 128 maps are the seeds 0 to 127; higher seeds give maps of
the same kinds that are not in them, for training.
"""

from __future__ import annotations

import numpy as np

from flockax.envs.pathfinding.arguments import require_count
from flockax.envs.pathfinding.buildings import warehouse
from flockax.envs.pathfinding.generators import maze, scattered
from flockax.envs.pathfinding.maps import GridMap

SIZES = 17, 21  # least and largest number of rows and of columns


def benchmark_random(seed: int) -> GridMap:
    """A map of the set "Random": 17 to 21 rows and columns, 10 % to 30 % of the cells blocked.

    Args:
        seed: at least 0; 0 .. 127 are the set.
    """
    require_count("benchmark_random", 0, seed=seed)
    rng = np.random.default_rng(seed)
    width, height = _size(rng)
    cells = scattered(seed, height, width, rng.uniform(0.1, 0.3))
    return GridMap(f"validation-random-seed-{seed:03d}", cells.obstacles)


def benchmark_maze(seed: int) -> GridMap:
    """A map of the set "Mazes": 17, 19 or 21 rows and columns, walls of 1 to 8 tries.

    Args:
        seed: at least 0; 0 .. 127 are the set.
    """
    require_count("benchmark_maze", 0, seed=seed)
    rng = np.random.default_rng(seed)
    width, height = (length // 2 * 2 + 1 for length in _size(rng))
    density = rng.uniform(0, 1)
    wall_length = int(rng.integers(1, 9))
    cells = maze(seed, height, width, density, wall_length, rng.uniform(0.75, 0.85))
    return GridMap(f"validation-mazes-seed-{seed:03d}", cells.obstacles)


def benchmark_warehouse() -> GridMap:
    """The map of the set "Warehouse": 33 rows, 46 columns, 24 shelves."""
    cells = warehouse()
    return GridMap("wfi_warehouse", cells.obstacles, cells.starts, cells.goals)


def _size(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height, drawn in this order."""
    width = rng.integers(SIZES[0], SIZES[1] + 1)
    height = rng.integers(SIZES[0], SIZES[1] + 1)
    return int(width), int(height)
