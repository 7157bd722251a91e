"""Maps with a plan: warehouses, rooms with doors, and two rooms joined by a corridor."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from flockax.envs.pathfinding.arguments import require_count
from flockax.envs.pathfinding.maps import GridMap, Instance

SHELF_SPACING = (
    4  # rows from one shelf to the next: the shelf, picking cells on both sides, an aisle
)
STATION_WIDTH = 7  # columns at each side of a warehouse: two pairs of station columns and aisles


def warehouse(shelf_rows: int = 8, shelf_columns: int = 3, shelf_length: int = 10) -> GridMap:
    """Shelves in rows, with stations at both sides; the defaults give the benchmark's 33 x 46 map.

    Every shelf is ``1 x shelf_length`` with free columns between shelves. Agents start at the stations
    (two pairs of columns at each side) and have goals above and below the shelves.

    Args:
        shelf_rows: shelves one below the other, at least 1.
        shelf_columns: shelves beside each other, at least 1.
        shelf_length: cells of a shelf, at least 1.

    Returns:
        a map of ``4 shelf_rows + 1`` rows and ``shelf_columns (shelf_length + 1) + 13`` columns.
    """
    given = {"shelf_rows": shelf_rows, "shelf_columns": shelf_columns, "shelf_length": shelf_length}
    require_count("warehouse", 1, **given)
    height = SHELF_SPACING * shelf_rows + 1
    width = shelf_columns * (shelf_length + 1) - 1 + 2 * STATION_WIDTH
    row, column = np.arange(height)[:, None] % SHELF_SPACING, np.arange(width)
    inside = (column >= STATION_WIDTH) & (column < width - STATION_WIDTH)
    shelf = inside & ((column - STATION_WIDTH) % (shelf_length + 1) < shelf_length)
    station = ~inside & (np.minimum(column, width - 1 - column) % 3 > 0)
    obstacles, goals = (row == 2) & shelf, ((row == 1) | (row == 3)) & shelf
    name = f"warehouse-{shelf_rows}-{shelf_columns}-{shelf_length}"
    return GridMap(name, obstacles, (row > 0) & station, goals)


def warehouse_within(height: int, width: int) -> GridMap:
    """The largest warehouse with shelves of 10 that fits, with floor below it and to the right.

    Args:
        height: rows, at least 5.
        width: columns, at least 24.
    """
    shelf_length = 10
    smallest = warehouse(1, 1, shelf_length).shape
    if height < smallest[0] or width < smallest[1]:
        raise ValueError(
            f"a warehouse of height={height}, width={width}; allowed: at least {smallest[0]} rows and "
            f"{smallest[1]} columns"
        )
    rows, columns = (height - 1) // SHELF_SPACING, (width - 13) // (shelf_length + 1)
    full = warehouse(rows, columns, shelf_length)
    margin = [(0, height - full.shape[0]), (0, width - full.shape[1])]
    masks = [np.pad(np.asarray(m, bool), margin) for m in (full.obstacles, full.starts, full.goals)]
    return GridMap(full.name, *masks)


def room(seed: int, height: int, width: int, room_size: int = 7, doors: int = 1) -> GridMap:
    """Square rooms in rows and columns, with doors between neighbours: every cell can be reached.

    Walls are one cell thick. The last rooms take what is left; a wall that would be the last row or
    column is left out.

    Args:
        seed: at least 0; draws where the doors are.
        height: rows, at least 1.
        width: columns, at least 1.
        room_size: rows and columns of a room, at least 1.
        doors: doors in the wall between two rooms, at least 1; where the wall is shorter, it is
            left out.
    """
    require_count("room", 0, seed=seed)
    require_count("room", 1, height=height, width=width, room_size=room_size, doors=doors)
    rng = np.random.default_rng(seed)
    obstacles = np.zeros((height, width), bool)
    rows, columns = (_walls(length, room_size) for length in (height, width))
    obstacles[rows, :] = True
    obstacles[:, columns] = True
    for row in rows:
        for side in _sides(columns, width):
            obstacles[row, rng.permutation(side)[:doors]] = False
    for column in columns:
        for side in _sides(rows, height):
            obstacles[rng.permutation(side)[:doors], column] = False
    return GridMap(f"room-{height}x{width}-{room_size}-seed-{seed}", obstacles)


def _walls(length: int, room_size: int) -> list[int]:
    """Rows (or columns) that are walls."""
    return list(range(room_size, length - 1, room_size + 1))


def _sides(walls: list[int], length: int) -> list[np.ndarray]:
    """Rows (or columns) of each room between the walls."""
    ends = [-1, *walls, length]
    return [np.arange(a + 1, b) for a, b in pairwise(ends)]


def bottleneck(length: int, width: int = 9, room_rows: int = 2) -> GridMap:
    """Two rooms, one above the other, joined by a corridor one cell wide in the middle column.

    Agents start and have their goals in the rooms. The defaults are the rooms of SRMT
    (arXiv 2501.13200), which takes lengths from 3 to 1,000.

    Args:
        length: rows of the corridor, at least 1.
        width: columns, an odd number of at least 3.
        room_rows: rows of each room, at least 1.

    Returns:
        a map of ``length + 2 room_rows`` rows.
    """
    require_count("bottleneck", 1, length=length, room_rows=room_rows)
    require_count("bottleneck", 3, width=width)
    if width % 2 == 0:
        raise ValueError(f"bottleneck: width={width}; allowed: odd numbers")
    rooms = np.ones((length + 2 * room_rows, width), bool)
    rooms[room_rows : room_rows + length] = False
    obstacles = ~rooms
    obstacles[:, width // 2] = False
    return GridMap(f"bottleneck-{length}-{width}-{room_rows}", obstacles, rooms, rooms)


def bottleneck_instance(
    seed: int, length: int, num_agents: int = 2, width: int = 9, room_rows: int = 2
) -> Instance:
    """Agents that have to change rooms of a `bottleneck`, uniform over the cells of the rooms.

    Agents 0, 2, ... start in the upper room and have goals in the lower one, agents 1, 3, ... the
    reverse. All starts differ, and all goals.

    Args:
        seed: at least 0.
        length: rows of the corridor.
        num_agents: at least 1; at most two for each cell of a room.
        width: columns.
        room_rows: rows of each room.
    """
    require_count("bottleneck_instance", 0, seed=seed)
    require_count("bottleneck_instance", 1, num_agents=num_agents)
    grid_map = bottleneck(length, width, room_rows)
    if num_agents > 2 * room_rows * width:
        raise ValueError(
            f"bottleneck_instance: num_agents={num_agents}; allowed: at most {2 * room_rows * width} "
            f"in two rooms of {room_rows} x {width} cells"
        )
    rng = np.random.default_rng(seed)
    upper = np.argwhere(np.ones((room_rows, width), bool))
    lower = upper + np.array([room_rows + length, 0])
    starts, goals = np.zeros((2, num_agents, 2), np.int64)
    for first, (here, there) in enumerate(((upper, lower), (lower, upper))):
        count = len(starts[first::2])
        starts[first::2] = rng.permutation(here)[:count]
        goals[first::2] = rng.permutation(there)[:count]
    return Instance(grid_map.name, seed, starts, goals[:, None])
