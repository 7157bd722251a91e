"""Sets of instances in JSON, as the public POGEMA benchmark has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flockax.envs.pathfinding.checks import check_distinct, check_instance, find_map
from flockax.envs.pathfinding.maps import MAX_COORDINATE, GridMap, Instance, MapError

ON_TARGET = ("finish", "nothing", "restart")
COLLISIONS = ("priority", "block_both", "soft")


@dataclass(frozen=True)
class InstanceSet:
    """Instances with the rules they are meant for.

    Attributes:
        instances: at least one.
        on_target: what happens to an agent on its goal, "finish", "nothing" or "restart", or None if
            the file doesn't say.
        collision_system: "priority", "block_both" or "soft", or None.
        max_episode_steps: length of an episode, or None.
        num_agents: the numbers of agents that the set is run with: of each instance the first so many.
    """

    instances: tuple[Instance, ...]
    on_target: str | None = None
    collision_system: str | None = None
    max_episode_steps: int | None = None
    num_agents: tuple[int, ...] = ()


def parse_instances(
    text: str, where: str, maps: Mapping[str, GridMap] | None = None
) -> InstanceSet:
    """Reads a JSON object with ``scenarios`` and, optionally, the other fields of `InstanceSet`.

    A scenario is an object with ``map_name``, ``agents_xy`` (a cell of each agent), ``targets_xy`` (a
    cell, or a list of cells, of each agent) and, optionally, ``seed``. Cells are ``[row, column]``.
    Other keys are ignored.

    Args:
        text: the file.
        where: name of the file, for messages.
        maps: the maps by name. With them the instances are checked against their maps, without them
            only in themselves.

    Raises:
        MapError: with file, scenario, agent and reason; with the line if it is no JSON.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise MapError(f"{where}:{error.lineno}: invalid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise MapError(f"{where}: invalid JSON: {error}") from None
    scenarios = _get(data, "scenarios", list, "a list", where)
    if not scenarios:
        raise MapError(f"{where}: scenarios is empty")
    on_target = _choice(data, "on_target", ON_TARGET, where)
    result = InstanceSet(
        instances=tuple(
            _instance(scenario, f"{where}: scenarios[{i}]", maps, on_target == "nothing")
            for i, scenario in enumerate(scenarios)
        ),
        on_target=on_target,
        collision_system=_choice(data, "collision_system", COLLISIONS, where),
        max_episode_steps=data.get("max_episode_steps"),
        num_agents=tuple(_get({"num_agents": [], **data}, "num_agents", list, "a list", where)),
    )
    _check_counts(result, where)
    return result


def format_instances(instances: InstanceSet) -> str:
    """The JSON text of a set of instances."""
    fields: dict[str, Any] = {
        "on_target": instances.on_target,
        "collision_system": instances.collision_system,
        "max_episode_steps": instances.max_episode_steps,
        "num_agents": list(instances.num_agents) or None,
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    fields["scenarios"] = [
        {
            "map_name": instance.map_name,
            "seed": instance.seed,
            "agents_xy": instance.starts.tolist(),
            "targets_xy": (
                instance.queues() if instance.goals.shape[1] > 1 else instance.goals[:, 0].tolist()
            ),
        }
        for instance in instances.instances
    ]
    return json.dumps(fields, separators=(",", ":")) + "\n"


def _instance(
    scenario: Any, where: str, maps: Mapping[str, GridMap] | None, distinct_goals: bool
) -> Instance:
    """The instance of one scenario, checked."""
    name = _get(scenario, "map_name", str, "a string", where)
    seed = _get({"seed": 0, **scenario}, "seed", int, "an integer", where)
    starts = _get(scenario, "agents_xy", list, "a list", where)
    targets = _get(scenario, "targets_xy", list, "a list", where)
    if len(starts) != len(targets):
        raise MapError(
            f"{where}: {len(starts)} starts in agents_xy, but {len(targets)} goals in targets_xy"
        )
    queues = [[t] if _is_pair(t) else t for t in targets]
    for agent, (start, queue) in enumerate(zip(starts, queues, strict=True)):
        place = f"{where}: agent {agent}"
        _check_cell(start, "start", place)
        if not isinstance(queue, list) or not queue:
            raise MapError(
                f"{place}: targets_xy has {queue!r:.60} instead of a cell or a list of cells"
            )
        for goal in queue:
            _check_cell(goal, "goal", place)
    if not name or not starts:
        raise MapError(f"{where}: {'no agents' if name else 'map_name is empty'}")
    instance = Instance.from_queues(name, seed, starts, queues)
    if maps is None:
        check_distinct(instance, where, goals=distinct_goals)
    else:
        grid_map = find_map(maps, name, where)
        check_instance(grid_map, instance, where, distinct_goals=distinct_goals)
    return instance


def _check_counts(instances: InstanceSet, where: str) -> None:
    """Checks the numbers of agents and steps of a set."""
    steps = instances.max_episode_steps
    if steps is not None and (type(steps) is not int or steps < 1):
        raise MapError(f"{where}: max_episode_steps={steps!r} is not an integer >= 1")
    smallest = min(instance.num_agents for instance in instances.instances)
    for count in instances.num_agents:
        if type(count) is not int or not 1 <= count <= smallest:
            raise MapError(
                f"{where}: num_agents has {count!r}; allowed: integers in 1 .. {smallest}, the agents "
                "of the smallest scenario"
            )


def _get(owner: Any, key: str, kind: type, expected: str, where: str) -> Any:
    """A required value of an object, of the type expected."""
    if not isinstance(owner, dict):
        raise MapError(f"{where}: {owner!r:.60} instead of an object")
    if key not in owner:
        raise MapError(f"{where}: the key {key!r} is missing")
    if type(owner[key]) is not kind:
        raise MapError(f"{where}: {key}={owner[key]!r:.60} is not {expected}")
    return owner[key]


def _choice(owner: dict[str, Any], key: str, choices: tuple[str, ...], where: str) -> str | None:
    """An optional value of an object, one of several strings."""
    value = owner.get(key)
    if value is not None and value not in choices:
        raise MapError(f"{where}: {key}={value!r:.60} is not one of {', '.join(choices)}")
    return value


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and type(value[0]) is int
        and type(value[1]) is int
    )


def _check_cell(cell: Any, kind: str, place: str) -> None:
    if not _is_pair(cell):
        raise MapError(f"{place}: {kind} {cell!r:.60} is not [row, column] in integers")
    if not 0 <= min(cell) <= max(cell) <= MAX_COORDINATE:
        raise MapError(f"{place}: {kind} {cell} is out of bounds 0 .. {MAX_COORDINATE}")
