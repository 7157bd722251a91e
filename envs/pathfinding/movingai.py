"""Texts in the formats of the Moving AI Lab: maps (``.map``) and scenarios (``.scen``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flockax.envs.pathfinding.checks import check_distinct, check_instance, find_map
from flockax.envs.pathfinding.maps import MAX_COORDINATE, GridMap, Instance, MapError

FREE = ".GS"
COLUMNS = (
    *("bucket", "map", "map width", "map height"),
    *("start x", "start y", "goal x", "goal y", "optimal length"),
)


def parse_map(text: str, name: str, where: str) -> GridMap:
    """Reads an octile map.

    The header is ``type octile``, ``height H``, ``width W``, ``map``; then come H rows of W characters.
    ``.``, ``G`` and ``S`` are free, any other visible character (``@``, ``O``, ``T``, ``W``) is blocked.
    Lines may end with CR LF, and empty ones may follow.

    Args:
        text: the file.
        name: name of the map.
        where: name of the file, for messages.

    Raises:
        MapError: with line and reason.
    """
    lines = _lines(text)
    if _words(lines, 0) != ["type", "octile"]:
        raise MapError(f"{where}:1: {_shown(lines, 0)} instead of 'type octile'")
    height, width = (_size(lines, i, key, where) for i, key in ((1, "height"), (2, "width")))
    if _words(lines, 3) != ["map"]:
        raise MapError(f"{where}:4: {_shown(lines, 3)} instead of 'map'")
    rows = lines[4:]
    while rows and not rows[-1].strip():
        rows.pop()
    for number, row in enumerate(rows[:height], 5):
        if len(row) != width:
            raise MapError(
                f"{where}:{number}: row of {len(row)} cells, the header says width {width}"
            )
        for column, character in enumerate(row):
            if not "!" <= character <= "~":
                raise MapError(
                    f"{where}:{number}: unknown character {character!r} in column {column}"
                )
    if len(rows) != height:
        line = 4 + min(len(rows), height + 1)
        raise MapError(f"{where}:{line}: {len(rows)} rows, the header says height {height}")
    return GridMap(name, np.array([[cell not in FREE for cell in row] for row in rows]))


def format_map(grid_map: GridMap) -> str:
    """The text of an octile map, with ``.`` for free cells and ``@`` for blocked ones.

    Raises:
        MapError: for a map that says where agents may start or have goals; the format has no way to.
    """
    if grid_map.starts is not None or grid_map.goals is not None:
        raise MapError(
            f"map {grid_map.name!r} has its own cells for starts or goals, which the MovingAI format "
            "cannot hold; write it as .yaml"
        )
    height, width = grid_map.shape
    rows = ["".join("@" if blocked else "." for blocked in row) for row in grid_map.obstacles]
    return "\n".join(["type octile", f"height {height}", f"width {width}", "map", *rows, ""])


def parse_scenario(text: str, where: str, maps: Mapping[str, GridMap] | None = None) -> Instance:
    """Reads a scenario: agent i is that of row i after the version, x is the column and y the row.

    The octile optimum in the last column is not used. The map's name is that of its file without folder
    and ``.map``. The seed of the instance is 0.

    Args:
        text: the file.
        where: name of the file, for messages.
        maps: the maps by name. With them the instance is checked against its map, without them only in
            itself.

    Raises:
        MapError: with line and reason.
    """
    lines = _lines(text)
    if _words(lines, 0) not in (["version", "1"], ["version", "1.0"]):
        raise MapError(f"{where}:1: {_shown(lines, 0)} instead of 'version 1'")
    rows = [(f"{where}:{n}", line) for n, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise MapError(f"{where}: no agents after the version")
    names, numbers = zip(*(_scenario_row(line, place) for place, line in rows), strict=True)
    places = [place for place, _ in rows]
    for name, (width, height, *_), place in zip(names, numbers, places, strict=True):
        if (name, width, height) != (names[0], *numbers[0][:2]):
            raise MapError(
                f"{place}: map {name!r} of width {width}, height {height}; the first agent's is "
                f"{names[0]!r} of width {numbers[0][0]}, height {numbers[0][1]}"
            )
    cells = np.array(numbers)
    starts, goals = cells[:, [3, 2]], cells[:, [5, 4]]
    instance = Instance(names[0], 0, starts, goals[:, None])
    if maps is None:
        check_distinct(instance, places)
        return instance
    grid_map = find_map(maps, names[0], places[0])
    width, height = numbers[0][:2]
    if grid_map.shape != (height, width):
        raise MapError(
            f"{places[0]}: map width {width}, map height {height}, but map {names[0]!r} has width "
            f"{grid_map.shape[1]}, height {grid_map.shape[0]}"
        )
    check_instance(grid_map, instance, places)
    return instance


def format_scenario(grid_map: GridMap, instance: Instance) -> str:
    """The text of a scenario.

    Bucket and optimal length, which are about one agent that may move diagonally, are written as 0.

    Args:
        grid_map: the map of the instance.
        instance: with one goal per agent.

    Raises:
        MapError: for queues of more than one goal, which the format cannot hold.
    """
    if instance.goals.shape[1] > 1:
        raise MapError("a .scen file holds one goal per agent; write queues of goals as .json")
    height, width = grid_map.shape
    rows = [
        f"0\t{instance.map_name}.map\t{width}\t{height}\t{x}\t{y}\t{goal_x}\t{goal_y}\t0"
        for (y, x), [(goal_y, goal_x)] in zip(instance.starts, instance.goals, strict=True)
    ]
    return "\n".join(["version 1", *rows, ""])


def _scenario_row(line: str, place: str) -> tuple[str, list[int]]:
    """``(map name, [width, height, start x, start y, goal x, goal y])`` of a row."""
    fields = line.split("\t")
    if len(fields) != len(COLUMNS):
        raise MapError(
            f"{place}: {len(fields)} columns instead of {len(COLUMNS)} separated by TABs "
            f"({', '.join(COLUMNS)})"
        )
    numbers = []
    for column, field in list(zip(COLUMNS, fields, strict=True))[2:8]:
        if not _is_number(field) or int(field) > MAX_COORDINATE:
            raise MapError(
                f"{place}: {column} {field!r} is not an integer in 0 .. {MAX_COORDINATE}"
            )
        numbers.append(int(field))
    width, height = numbers[:2]
    for kind, (x, y) in (("start", numbers[2:4]), ("goal", numbers[4:6])):
        if x >= width or y >= height:
            raise MapError(
                f"{place}: {kind} x={x}, y={y} is out of bounds of width {width}, height {height}"
            )
    name = fields[1].replace("\\", "/").rpartition("/")[2].removesuffix(".map")
    if not name:
        raise MapError(f"{place}: map {fields[1]!r} has no name")
    return name, numbers


def _lines(text: str) -> list[str]:
    """Lines without LF or CR LF."""
    # Not `splitlines`, which splits at other characters too.
    return [line.removesuffix("\r") for line in text.split("\n")]


def _words(lines: list[str], index: int) -> list[str]:
    return lines[index].split() if index < len(lines) else []


def _shown(lines: list[str], index: int) -> str:
    """A line as messages quote it."""
    return repr(lines[index][:40]) if index < len(lines) else "end of file"


def _is_number(text: str) -> bool:
    """Whether a text is a plain integer of few enough digits to be one of ours."""
    return text.isascii() and text.isdecimal() and len(text) <= 9


def _size(lines: list[str], index: int, key: str, where: str) -> int:
    """The height or width in a header."""
    words = _words(lines, index)
    good = len(words) == 2 and words[0] == key and _is_number(words[1])
    if not good or not 1 <= int(words[1]) <= MAX_COORDINATE + 1:
        raise MapError(
            f"{where}:{index + 1}: {_shown(lines, index)} instead of '{key} N' with N in "
            f"1 .. {MAX_COORDINATE + 1}"
        )
    return int(words[1])
