"""Makers of maps: random obstacles and mazes, and by name those of `buildings`.

Every map is a function of its arguments. Draws come from ``numpy.random.default_rng(seed)``, so maps
stay the same from one machine to another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from flockax.envs.pathfinding.arguments import require_count, require_share
from flockax.envs.pathfinding.buildings import bottleneck, room, warehouse_within
from flockax.envs.pathfinding.maps import GridMap

KINDS = ("random", "maze", "warehouse", "room", "bottleneck")


def generate(
    kind: str, seed: int, height: int, width: int | None = None, density: float = 0.3
) -> GridMap:
    """A map of one of the `KINDS` in a given size, with the generator's own defaults otherwise.

    Args:
        kind: "random" (`random_map`), "maze" (`maze`; an even number of rows or columns is made by
            leaving out the last of the next odd one), "warehouse" (`warehouse` with as many shelves of
            10 cells as fit; more floor at the lower and right edge), "room" (`room`) or "bottleneck"
            (`bottleneck`, whose corridor takes what the rooms leave; ``width`` is odd).
        seed: at least 0; warehouses and bottlenecks don't depend on it.
        height: number of rows.
        width: number of columns; None for `height`.
        density: share of obstacles in [0, 1], of "random" only.

    Raises:
        ValueError: for an unknown kind, or a size that it can't have.
    """
    width = height if width is None else width
    if kind == "random":
        return random_map(seed, height, width, density)
    if kind == "maze":
        whole = maze(seed, height + 1 - height % 2, width + 1 - width % 2)
        return GridMap(whole.name, whole.obstacles[:height, :width])
    if kind == "warehouse":
        return warehouse_within(height, width)
    if kind == "room":
        return room(seed, height, width)
    if kind == "bottleneck":
        return _bottleneck_of(height, width)
    raise ValueError(f"generate: kind={kind!r} is not one of {', '.join(map(repr, KINDS))}")


def random_map(seed: int, height: int, width: int, density: float = 0.3) -> GridMap:
    """Every cell is blocked with the same probability, as POGEMA 1.4.0 makes its maps.

    Args:
        seed: at least 0.
        height: rows, at least 1.
        width: columns, at least 1.
        density: probability in [0, 1].
    """
    require_count("random_map", 0, seed=seed)
    require_count("random_map", 1, height=height, width=width)
    require_share("random_map", density=density)
    blocked = np.random.default_rng(seed).binomial(1, density, (height, width))
    return GridMap(f"random-{height}x{width}-seed-{seed}", blocked == 1)


def scattered(seed: int, height: int, width: int, density: float) -> GridMap:
    """Exactly ``floor(height * width * density)`` obstacles in different cells.

    Cells are drawn, column first, until there are enough different ones; the draws are those of
    pogema-toolbox 0.1.1.

    Args:
        seed: at least 0.
        height: rows, at least 1.
        width: columns, at least 1.
        density: share of blocked cells in [0, 1].
    """
    require_count("scattered", 0, seed=seed)
    require_count("scattered", 1, height=height, width=width)
    require_share("scattered", density=density)
    rng = np.random.default_rng(seed)
    blocked = np.zeros((height, width), bool)
    missing = int(height * width * density)
    while missing > 0:
        column = rng.integers(0, width)
        row = rng.integers(0, height)
        missing -= not blocked[row, column]
        blocked[row, column] = True
    return GridMap(f"scattered-{height}x{width}-seed-{seed}", blocked)


def maze(
    seed: int,
    height: int,
    width: int,
    density: float = 0.5,
    wall_length: int = 5,
    go_straight: float = 0.8,
) -> GridMap:
    """Walls grown between the posts of a grid, as in mazes of PRIMAL2 and the POGEMA benchmark.

    Posts stand in every other row and column. A wall begins at a post drawn at random and tries
    `wall_length` times to grow to a neighbouring post; it does if nothing stands there. The number of
    walls is ``floor((height + 2) (width + 2) density / wall_length)``. The draws are those of
    pogema-toolbox 0.1.1.

    Args:
        seed: at least 0.
        height: rows, odd.
        width: columns, odd.
        density: walls times their length as a share in [0, 1] of all cells.
        wall_length: tries per wall, at least 1.
        go_straight: weight in [0, 1] of going on in the direction of the last try; the other
            directions have ``1 - go_straight`` each.

    Raises:
        ValueError: for an argument outside its range.
    """
    require_count("maze", 0, seed=seed)
    require_count("maze", 1, height=height, width=width, wall_length=wall_length)
    require_share("maze", density=density, go_straight=go_straight)
    if height % 2 == 0 or width % 2 == 0:
        raise ValueError(f"maze: height={height}, width={width}; allowed: odd numbers")
    rng = np.random.default_rng(seed)
    rows, columns = height + 2, width + 2
    blocked = np.ones((rows, columns), bool)
    blocked[1:-1, 1:-1] = False
    for _ in range(int(rows * columns * density // wall_length)):
        column = 2 * int(rng.integers(0, columns // 2))
        row = 2 * int(rng.integers(0, rows // 2))
        blocked[row, column] = True
        last = (0, 0)
        for _ in range(wall_length):
            ways = [
                way
                for way, fits in (
                    ((0, -1), column >= 2),
                    ((0, 1), column < columns - 2),
                    ((-1, 0), row >= 2),
                    ((1, 0), row < rows - 2),
                )
                if fits
            ]
            weights = [go_straight if way == last else 1 - go_straight for way in ways]
            last = down, right = ways[_draw(rng, weights)]
            if not blocked[row + 2 * down, column + 2 * right]:
                blocked[row + down, column + right] = True
                row, column = row + 2 * down, column + 2 * right
                blocked[row, column] = True
    return GridMap(f"maze-{height}x{width}-seed-{seed}", blocked[1:-1, 1:-1])


def _draw(rng: np.random.Generator, weights: Sequence[float]) -> int:
    """An index drawn by weight, from the same number and with the same rounding as ``rng.choice``."""
    total = sum(weights)
    shares = [w / total for w in weights] if total > 0 else [1 / len(weights)] * len(weights)
    bounds = list(accumulate(shares))
    return bisect_right([bound / bounds[-1] for bound in bounds], rng.random())


def _bottleneck_of(height: int, width: int) -> GridMap:
    """A bottleneck whose rooms have two rows and whose corridor has the others."""
    if height < 5:
        raise ValueError(f"a bottleneck of height={height}; allowed: at least 5 rows")
    return bottleneck(height - 4, width)
