"""Grid maps and the tasks set on them: what files hold, generators make and environments take.

Cells are ``(row, column)`` from the top left corner, counted from 0, without border.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_COORDINATE = 2**15 - 1


class MapError(ValueError):
    """A map or an instance that is malformed or impossible; the message says where and why."""


@dataclass(frozen=True, eq=False)
class GridMap:
    """Walls of a grid world, and the cells where agents may start and have goals.

    The arrays are copied and read-only. Two maps are equal if all fields are.

    Attributes:
        name: what instances call it.
        obstacles: ``bool[H, W]``, True where blocked.
        starts: ``bool[H, W]``, free cells where agents may start; None for all of them (a mask of all
            free cells becomes None).
        goals: ``bool[H, W]``, free cells that may be goals, likewise.
    """

    name: str
    obstacles: np.ndarray
    starts: np.ndarray | None = None
    goals: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Checks and copies the fields.

        Raises:
            MapError: for arrays that are not ``bool[H, W]`` with H, W >= 1, of different shapes, or
                starts or goals on obstacles.
        """
        _require_name(self.name)
        obstacles = self._mask("obstacles", None)
        object.__setattr__(self, "obstacles", obstacles)
        for field in ("starts", "goals"):
            if getattr(self, field) is None:
                continue
            mask = self._mask(field, obstacles.shape)
            if np.any(mask & obstacles):
                row, column = np.argwhere(mask & obstacles)[0]
                raise MapError(f"map {self.name!r}: {field} has the blocked cell ({row}, {column})")
            whole = np.array_equal(mask, ~obstacles)
            object.__setattr__(self, field, None if whole else mask)

    def _mask(self, field: str, shape: tuple[int, ...] | None) -> np.ndarray:
        """A read-only copy of a field, as ``bool[H, W]``."""
        given = np.asarray(getattr(self, field))
        if given.ndim != 2 or given.size == 0 or given.dtype != np.bool_:
            raise MapError(
                f"map {self.name!r}: {field} is {given.dtype}{list(given.shape)}, allowed is "
                "bool[height, width] with at least one cell"
            )
        if shape is not None and given.shape != shape:
            raise MapError(f"map {self.name!r}: {field} has shape {given.shape}, obstacles {shape}")
        return _frozen(given, np.bool_)

    @property
    def shape(self) -> tuple[int, int]:
        """``(height, width)``."""
        height, width = self.obstacles.shape
        return height, width

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal."""
        if not isinstance(other, GridMap):
            return NotImplemented
        return (
            self.name == other.name
            and np.array_equal(self.obstacles, other.obstacles)
            and np.array_equal(self.starts, other.starts)  # None equals None only
            and np.array_equal(self.goals, other.goals)
        )


@dataclass(frozen=True, eq=False)
class Instance:
    """Where each agent starts and the goals it has to reach one after another.

    The arrays are copied and read-only. Two instances are equal if all fields are.

    Attributes:
        map_name: name of the `GridMap`.
        seed: what the source of the instance calls its seed; 0 where it has none.
        starts: ``int32[A, 2]``, cell of each agent.
        goals: ``int32[A, K, 2]``, queue of goals of each agent; K = 1 for tasks with one goal each.
            Entries beyond an agent's queue repeat its last goal and mean nothing: an agent that has
            reached all its goals starts again with the first of its own queue.
        queue_lengths: ``int32[A]``, goals of each agent, K for at least one of them; None for K
            everywhere. A larger K is cut.
    """

    map_name: str
    seed: int
    starts: Any
    goals: Any
    queue_lengths: Any = None

    def __post_init__(self) -> None:
        """Checks and copies the fields.

        Raises:
            MapError: for wrong shapes or dtypes, counts that differ, no agent, an empty queue, or a
                coordinate outside 0 .. 32767.
        """
        _require_name(self.map_name)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise MapError(f"seed {self.seed!r} is not an integer")
        object.__setattr__(self, "seed", int(self.seed))
        starts = _integers("starts", self.starts, "[agents, 2]")
        goals = _integers("goals", self.goals, "[agents, queue, 2]")
        lengths = np.full(len(goals), goals.shape[1])
        if self.queue_lengths is not None:
            lengths = _integers("queue_lengths", self.queue_lengths, "[agents]")
        if not len(starts) == len(goals) == len(lengths):
            raise MapError(
                f"{len(starts)} starts, {len(goals)} goals and {len(lengths)} queue lengths: "
                "every agent needs one of each"
            )
        if np.any(lengths < 1) or np.any(lengths > goals.shape[1]):
            raise MapError(f"queue_lengths {lengths.tolist()} are not all in 1 .. {goals.shape[1]}")
        last = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
        goals = np.take_along_axis(goals, last[:, :, None], axis=1)
        for field, cells in (("starts", starts), ("goals", goals)):
            if np.any(cells < 0) or np.any(cells > MAX_COORDINATE):
                raise MapError(f"{field} has coordinates outside 0 .. {MAX_COORDINATE}")
            object.__setattr__(self, field, _frozen(cells, np.int32))
        object.__setattr__(self, "queue_lengths", _frozen(lengths, np.int32))

    @classmethod
    def from_queues(
        cls,
        map_name: str,
        seed: int,
        starts: Sequence[Sequence[int]],
        queues: Sequence[Sequence[Sequence[int]]],
    ) -> Instance:
        """Builds an instance from one list of goals per agent, of any lengths >= 1.

        Args:
            map_name: name of the map.
            seed: seed of the instance.
            starts: ``(row, column)`` of each agent.
            queues: list of ``(row, column)`` of each agent.

        Raises:
            MapError: as for the fields.
        """
        lengths = [len(queue) for queue in queues]
        if not lengths or not all(lengths):
            raise MapError("every instance needs an agent, and every agent a goal")
        longest = max(lengths)
        padded = [[*queue, *[queue[-1]] * (longest - len(queue))] for queue in queues]
        return cls(map_name, seed, starts, padded, lengths)

    @property
    def num_agents(self) -> int:
        """A, the number of agents."""
        return len(self.starts)

    def first(self, num_agents: int) -> Instance:
        """The instance of the first agents only, with their whole queues.

        Args:
            num_agents: how many, in 1 .. A.

        Raises:
            MapError: if there are not so many.
        """
        if not 1 <= num_agents <= self.num_agents:
            raise MapError(
                f"num_agents={num_agents} of the instance with seed {self.seed} on map "
                f"{self.map_name!r}; allowed: 1 .. {self.num_agents}"
            )
        fields = (x[:num_agents] for x in (self.starts, self.goals, self.queue_lengths))
        return Instance(self.map_name, self.seed, *fields)

    def queues(self) -> list[list[list[int]]]:
        """The goals of each agent as nested lists, without padding."""
        pairs = zip(self.goals, self.queue_lengths, strict=True)
        return [goals[:length].tolist() for goals, length in pairs]

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal."""
        if not isinstance(other, Instance):
            return NotImplemented
        return (
            (self.map_name, self.seed) == (other.map_name, other.seed)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.goals, other.goals)
            and np.array_equal(self.queue_lengths, other.queue_lengths)
        )


def instance_hash(grid_map: GridMap, instance: Instance) -> str:
    """Identifies a task by its content: 16 hexadecimal digits.

    It is the beginning of the SHA-256 of the map's shape and cells, the starts, the goals and the
    lengths of the queues. Names, seeds, dtypes and the padding of queues don't matter.

    Args:
        grid_map: the map; its masks of allowed cells don't matter either.
        instance: the instance on it.
    """
    used = np.arange(instance.goals.shape[1]) < instance.queue_lengths[:, None]
    numbers = [instance.num_agents, *grid_map.shape]
    task = instance.starts, instance.queue_lengths, instance.goals[used]
    digest = hashlib.sha256()
    for part in (numbers, grid_map.obstacles, *task):
        digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def _require_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise MapError(f"map name {name!r} is not a string with at least one character")


def _frozen(values: np.ndarray, dtype: Any) -> np.ndarray:
    copy = np.array(values, dtype)
    copy.setflags(write=False)
    return copy


def _integers(field: str, given: Any, shape: str) -> np.ndarray:
    """A field as an integer array of the shape described, with no axis empty."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise MapError(f"{field} is ragged, allowed is int{shape}") from None
    pairs = shape.endswith("2]")
    fits = array.ndim == shape.count(",") + 1 and array.size > 0
    if not fits or (pairs and array.shape[-1] != 2) or array.dtype.kind not in "iu":
        raise MapError(f"{field} is {array.dtype}{list(array.shape)}, allowed is int{shape}")
    return array
