"""Maps as POGEMA writes them: rows of characters, alone or by name in a YAML file.

``.`` is free, ``#`` blocked. ``@`` is free and only for starts, ``$`` only for goals, ``!`` for
neither; without these three, all free cells are for both. ``a`` to ``z`` are the starts of agents and
``A`` to ``Z`` their goals, and then the map has none of ``@ $ !``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from flockax.envs.pathfinding.checks import check_instance
from flockax.envs.pathfinding.maps import GridMap, Instance, MapError

FREE, BLOCKED, START, GOAL, NEITHER = ".#@$!"


def parse_rows(text: str, name: str, where: str = "map") -> tuple[GridMap, Instance | None]:
    """Reads rows separated by white space.

    Args:
        text: the rows.
        name: name of the map.
        where: what messages begin with; the line follows.

    Returns:
        the map, and the instance that its letters describe (agents in the order of the alphabet), or
        None without letters.

    Raises:
        MapError: with line and reason.
    """
    rows = [
        (f"{where}:{n}", row) for n, line in enumerate(text.split("\n"), 1) for row in line.split()
    ]
    return _parse(rows, name, where)


def format_rows(grid_map: GridMap) -> str:
    """The rows of a map, joined by line ends."""
    free = ~grid_map.obstacles
    starts = free if grid_map.starts is None else grid_map.starts
    goals = free if grid_map.goals is None else grid_map.goals
    cells = np.select(
        [grid_map.obstacles, starts & goals, starts, goals], [BLOCKED, FREE, START, GOAL], NEITHER
    )
    return "\n".join("".join(row) for row in cells)


def parse_yaml(text: str, where: str) -> dict[str, GridMap]:
    """Reads a YAML mapping of names to maps.

    Agents that a map has as letters are left out; their cells are free.

    Args:
        text: the file.
        where: name of the file, for messages.

    Raises:
        MapError: with line and reason.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = where if mark is None else f"{where}:{mark.line + 1}"
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise MapError(f"{place}: invalid YAML: {reason}") from None
    if not isinstance(root, yaml.MappingNode) or not root.value:
        raise MapError(f"{where}: not a mapping of names to maps")
    maps: dict[str, GridMap] = {}
    for key, value in root.value:
        place = f"{where}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or not key.value:
            raise MapError(f"{place}: the name of a map is not a string")
        name = key.value
        if name in maps:
            raise MapError(f"{place}: a second map {name!r}")
        if not isinstance(value, yaml.ScalarNode):
            raise MapError(f"{place}: map {name!r} is not a string of rows")
        # Only in a literal block is each line of the value one of the file.
        first, step = (
            (value.start_mark.line + 2, 1) if value.style == "|" else (key.start_mark.line + 1, 0)
        )
        lines = enumerate(value.value.split("\n"))
        rows = [(f"{where}:{first + step * n}", row) for n, line in lines for row in line.split()]
        maps[name], _ = _parse(rows, name, place)
    return maps


def format_yaml(maps: Iterable[GridMap]) -> str:
    """The text of a YAML file of maps.

    Raises:
        MapError: for no map, or two of one name.
    """
    import yaml

    class Rows(str):
        """A string that is written as a literal block."""

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        Rows, lambda dumper, rows: dumper.represent_scalar("tag:yaml.org,2002:str", rows, style="|")
    )
    blocks: dict[str, str] = {}
    for grid_map in maps:
        if grid_map.name in blocks:
            raise MapError(f"two maps have the name {grid_map.name!r}")
        blocks[grid_map.name] = Rows(format_rows(grid_map))
    if not blocks:
        raise MapError("no maps to write")
    return yaml.dump(blocks, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def _parse(
    rows: Sequence[tuple[str, str]], name: str, where: str
) -> tuple[GridMap, Instance | None]:
    """A map from ``(place, row)`` pairs."""
    if not rows:
        raise MapError(f"{where}: map {name!r} is empty")
    letters: dict[str, tuple[str, tuple[int, int]]] = {}
    for index, (place, row) in enumerate(rows):
        if len(row) != len(rows[0][1]):
            first = len(rows[0][1])
            raise MapError(
                f"{place}: row of {len(row)} cells in map {name!r}, the first has {first}"
            )
        for column, character in enumerate(row):
            if character.isascii() and character.isalpha():
                if character in letters:
                    raise MapError(f"{place}: a second {character!r} in map {name!r}")
                letters[character] = place, (index, column)
            elif character not in FREE + BLOCKED + START + GOAL + NEITHER:
                raise MapError(f"{place}: unknown character {character!r} in column {column}")
    cells = np.array([list(row) for _, row in rows])
    starts, goals = (np.isin(cells, [FREE, only]) for only in (START, GOAL))
    if not np.isin(cells, [START, GOAL, NEITHER]).any():
        return GridMap(name, cells == BLOCKED), _from_letters(name, cells == BLOCKED, letters)
    for letter, (place, _) in letters.items():
        marks = f"{START} {GOAL} {NEITHER}"
        raise MapError(f"{place}: map {name!r} has both the letter {letter!r} and one of {marks}")
    return GridMap(name, cells == BLOCKED, starts, goals), None


def _from_letters(
    name: str, obstacles: np.ndarray, letters: dict[str, tuple[str, tuple[int, int]]]
) -> Instance | None:
    """The agents of a map; ``letters`` maps each to ``(place, cell)``."""
    for letter, (place, _) in letters.items():
        kind, other = ("start", "goal") if letter.islower() else ("goal", "start")
        if letter.swapcase() not in letters:
            raise MapError(
                f"{place}: {kind} {letter!r} in map {name!r} without the {other} {letter.swapcase()!r}"
            )
    agents = sorted(letter for letter in letters if letter.islower())
    if not agents:
        return None
    starts, goals = ([letters[a][1] for a in names] for names in (agents, map(str.upper, agents)))
    instance = Instance.from_queues(name, 0, starts, [[goal] for goal in goals])
    check_instance(GridMap(name, obstacles), instance, [letters[a][0] for a in agents])
    return instance
