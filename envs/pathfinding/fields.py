"""Fields of `GridPathfinding`: what follows from others, and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flockax.envs.parameters import require_choice, require_int, require_number
from flockax.envs.pathfinding import map_sets, windows
from flockax.envs.pathfinding.generators import KINDS
from flockax.envs.pathfinding.instance_tables import read_instances
from flockax.envs.space import grid

MAPS = (*KINDS, "benchmark", "given")
DEFAULT_SIZE, BENCHMARK_SIZE = 16, 21
MOST_CELLS = 2**24  # of all maps together: a gigabyte of tables while they are built
ON_TARGET = ("finish", "nothing", "restart")


def derived(env: Any) -> dict[str, Any]:
    """Fields that follow from others, by name.

    Args:
        env: a `GridPathfinding`.

    Raises:
        ValueError: for a file that cannot be read or holds something else.
    """
    new: dict[str, Any] = {}
    for name in ("maps", "instances"):
        value = getattr(env, name)
        none = name == "instances" and value is None
        if not none and (not isinstance(value, str) or not value):
            raise ValueError(f"GridPathfinding: {name}={value!r} is not a name or a path")
    if env.maps not in MAPS:
        found = map_sets.read(env.maps, MAPS)
        size, width = np.array([m.shape for m in found]).max(axis=0)
        # A run must find its maps from anywhere.
        path = str(Path(env.maps).resolve())
        new = {"size": int(size), "width": int(width), "num_maps": len(found), "maps": path}
    elif env.size is None:
        new["size"] = BENCHMARK_SIZE if env.maps == "benchmark" else DEFAULT_SIZE
    if env.width is None:
        new.setdefault("width", new.get("size", env.size))
    if env.instances is not None:
        if env.maps in MAPS:
            raise ValueError(
                f"GridPathfinding: instances={env.instances!r} needs the file of their maps, "
                f"not maps={env.maps!r}"
            )
        require_int(env, "num_agents", 1, 10**6)
        path = str(Path(env.instances).resolve())
        tables = read_instances(path, new["maps"], env.num_agents, env.on_target)
        starts, goals = tables["starts"], tables["goals"]
        new |= {
            "instances": path,
            "num_instances": len(starts),
            "queue_length": goals.shape[2],
        }
    return new


def check(env: Any) -> None:
    """Checks all fields.

    Args:
        env: a `GridPathfinding` with what `derived` says.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """
    require_int(env, "num_agents", 1, 10**6)
    for name in ("size", "width"):
        require_int(env, name, 1, 2**12)
    require_int(env, "num_maps", 1, 10**6)
    require_int(env, "map_seed", 0, 2**31 - 1)
    require_int(env, "num_instances", 0, 10**6)
    require_int(env, "queue_length", 1, 10**5)
    require_int(env, "obs_radius", 1, 63)
    require_choice(env, "collision", grid.RULES)
    require_choice(env, "on_target", ON_TARGET)
    require_choice(env, "guide", windows.GUIDES)
    for name in ("mask_obstacles", "compat_visibility"):
        require_choice(env, name, (False, True))
    require_number(env, "density", 0, 1)
    if env.compat_visibility and env.collision != "soft":
        raise ValueError(
            "GridPathfinding: compat_visibility=True is a fault of collision='soft', not of "
            f"collision={env.collision!r}"
        )
    if env.maps == "benchmark" and (env.rows, env.columns) != (BENCHMARK_SIZE,) * 2:
        raise ValueError(
            f"GridPathfinding: size={env.size!r}, width={env.width!r} is not {BENCHMARK_SIZE}, "
            "which maps='benchmark' has"
        )
    cells = env.num_maps * env.rows * env.columns
    if cells > MOST_CELLS:
        raise ValueError(
            f"GridPathfinding: num_maps={env.num_maps!r} of {env.rows} by {env.columns} are "
            f"{cells} cells, more than {MOST_CELLS}"
        )
    if env.maps == "given" or env.instances is not None:
        return
    if env.num_instances:
        raise ValueError(
            f"GridPathfinding: num_instances={env.num_instances!r} needs maps='given' or instances"
        )
    map_sets.require_room(map_sets.generated(env.map_source), env.num_agents)
