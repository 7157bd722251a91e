"""Files of maps and instances: which format a file has, reading and writing.

| suffix | holds | format |
|---|---|---|
| ``.map`` | one map, named like the file | MovingAI, see `movingai.parse_map` |
| ``.yaml``, ``.yml`` | maps by name | POGEMA, see `pogema_text.parse_yaml` |
| ``.scen`` | one instance | MovingAI, see `movingai.parse_scenario` |
| ``.json`` | instances | POGEMA benchmark, see `instance_sets.parse_instances` |

Every file may be compressed with gzip and then has ``.gz`` after its suffix.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from flockax.envs.pathfinding import instance_sets, movingai, pogema_text
from flockax.envs.pathfinding.checks import check_instance, find_map
from flockax.envs.pathfinding.instance_sets import InstanceSet
from flockax.envs.pathfinding.maps import GridMap, Instance, MapError

MAP_SUFFIXES = (".map", ".yaml", ".yml")
INSTANCE_SUFFIXES = (".scen", ".json")

PathLike = str | os.PathLike[str]


def load_maps(path: PathLike) -> dict[str, GridMap]:
    """Reads the maps of a file, or of all map files that lie directly in a folder.

    Args:
        path: a file or a folder.

    Returns:
        the maps by name, in the order of file names and of the files.

    Raises:
        MapError: with file, line (where the format has them) and reason; also where two files have
            maps of one name.
    """
    path = Path(path)
    if not path.is_dir():
        return _maps_of_file(path)
    maps: dict[str, GridMap] = {}
    origin: dict[str, Path] = {}
    for file in sorted(f for f in path.iterdir() if _suffix(f) in MAP_SUFFIXES and f.is_file()):
        for name, grid_map in _maps_of_file(file).items():
            if name in maps:
                raise MapError(f"{file}: a second map {name!r}; the first is in {origin[name]}")
            maps[name], origin[name] = grid_map, file
    if not maps:
        raise MapError(f"{path}: no files with maps ({', '.join(MAP_SUFFIXES)})")
    return maps


def load_instances(path: PathLike, maps: Mapping[str, GridMap] | None = None) -> list[Instance]:
    """Reads the instances of a file.

    Args:
        path: a ``.scen`` file (one instance) or a ``.json`` file.
        maps: the maps by name, as from `load_maps`. With them every instance is checked against its
            map, see `check_instance`; without them only in itself.

    Raises:
        MapError: with file, line or scenario, and reason.
    """
    return list(load_instance_set(path, maps).instances)


def load_instance_set(path: PathLike, maps: Mapping[str, GridMap] | None = None) -> InstanceSet:
    """Reads the instances of a file together with the rules that it gives for them.

    Args:
        path: as for `load_instances`.
        maps: likewise.

    Raises:
        MapError: likewise.
    """
    path = Path(path)
    suffix = _suffix(path)
    if suffix == ".json":
        return instance_sets.parse_instances(_read(path), str(path), maps)
    if suffix == ".scen":
        return InstanceSet((movingai.parse_scenario(_read(path), str(path), maps),))
    raise _unknown_suffix(path, INSTANCE_SUFFIXES)


def save_maps(path: PathLike, maps: Iterable[GridMap]) -> None:
    """Writes maps in the format of the suffix.

    Args:
        path: the file. In ``.map`` files the name of the map is that of the file.
        maps: any number for ``.yaml``, one for ``.map``.

    Raises:
        MapError: for another suffix, or maps that the format cannot hold.
    """
    path, maps = Path(path), list(maps)
    if _suffix(path) not in MAP_SUFFIXES:
        raise _unknown_suffix(path, MAP_SUFFIXES)
    if _suffix(path) != ".map":
        _write(path, pogema_text.format_yaml(maps))
    elif len(maps) != 1:
        raise MapError(f"{path}: {len(maps)} maps; a .map file holds one")
    else:
        _write(path, movingai.format_map(maps[0]))


def save_instances(
    path: PathLike,
    instances: InstanceSet | Iterable[Instance],
    maps: Mapping[str, GridMap] | None = None,
) -> None:
    """Writes instances in the format of the suffix.

    Args:
        path: the file.
        instances: at least one for ``.json``, one with a goal per agent for ``.scen``.
        maps: the maps by name, which ``.scen`` needs. With them the instances are checked first.

    Raises:
        MapError: for another suffix, instances that fail the check or that the format cannot hold, or
            no maps for ``.scen``.
    """
    path = Path(path)
    if not isinstance(instances, InstanceSet):
        instances = InstanceSet(tuple(instances))
    if not instances.instances:
        raise MapError(f"{path}: no instances to write")
    if maps is not None:
        for i, instance in enumerate(instances.instances):
            where = f"instance {i}"
            stay = instances.on_target == "nothing"
            grid_map = find_map(maps, instance.map_name, where)
            check_instance(grid_map, instance, where, distinct_goals=stay)
    if _suffix(path) == ".json":
        _write(path, instance_sets.format_instances(instances))
    elif _suffix(path) != ".scen":
        raise _unknown_suffix(path, INSTANCE_SUFFIXES)
    elif len(instances.instances) != 1 or maps is None:
        raise MapError(f"{path}: a .scen file needs exactly one instance, and the map it is on")
    else:
        (instance,) = instances.instances
        _write(path, movingai.format_scenario(maps[instance.map_name], instance))


def _maps_of_file(path: Path) -> dict[str, GridMap]:
    suffix = _suffix(path)
    if suffix not in MAP_SUFFIXES:
        raise _unknown_suffix(path, MAP_SUFFIXES)
    text = _read(path)
    if suffix == ".map":
        name = path.name[: path.name.lower().rindex(".map")]
        return {name: movingai.parse_map(text, name, str(path))}
    return pogema_text.parse_yaml(text, str(path))


def _suffix(path: Path) -> str:
    """The suffix in lower case, without that of compression."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _unknown_suffix(path: Path, allowed: tuple[str, ...]) -> MapError:
    if path.is_dir():
        return MapError(f"{path}: is a folder")
    return MapError(f"{path}: the suffix is none of {', '.join(allowed)} (or these with .gz)")


def _read(path: Path) -> str:
    """The text of a file, decompressed."""
    try:
        data = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            data = gzip.decompress(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise MapError(f"{path}: truncated or damaged gzip file: {error}") from None
    except OSError as error:
        raise MapError(f"{path}: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MapError(f"{path}: not UTF-8 text at byte {error.start}") from None
    if not text.strip():
        raise MapError(f"{path}: empty file")
    return text


def _write(path: Path, text: str) -> None:
    data = text.encode()
    # Without a time stamp equal contents are equal files.
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.lower().endswith(".gz") else data)
