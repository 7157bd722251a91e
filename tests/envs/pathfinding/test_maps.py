"""Maps, instances, their hashes, and the checks of one against the other."""

import dataclasses
import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockax.envs.pathfinding.checks import check_distinct, check_instance, find_map
from flockax.envs.pathfinding.maps import GridMap, Instance, MapError, instance_hash
from flockax.envs.pathfinding.pogema_text import parse_rows

ROWS = """
..#.
..#.
..#.
"""
MAP, _ = parse_rows(ROWS, "m")


def instance(starts=((0, 0), (1, 1)), queues=(((2, 0),), ((0, 1),)), name="m") -> Instance:
    return Instance.from_queues(name, 0, starts, queues)


def reachable(obstacles: np.ndarray, start: tuple[int, int]) -> set[tuple[int, int]]:
    found, front = {start}, [start]
    while front:
        r, c = front.pop()
        for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            inside = 0 <= cell[0] < obstacles.shape[0] and 0 <= cell[1] < obstacles.shape[1]
            if inside and not obstacles[cell] and cell not in found:
                found.add(cell)
                front.append(cell)
    return found


class TestGridMap:
    def test_fields_are_copies_that_cannot_be_written(self):
        walls = np.zeros((2, 3), bool)
        grid_map = GridMap("m", walls)
        walls[0, 0] = True
        assert grid_map.shape == (2, 3) and not grid_map.obstacles.any()
        with pytest.raises(ValueError, match="read-only"):
            grid_map.obstacles[0, 0] = True

    def test_mask_of_all_free_cells_is_none(self):
        walls = np.array([[True, False, False]])
        grid_map = GridMap("m", walls, starts=~walls, goals=np.array([[False, True, False]]))
        assert grid_map.starts is None
        assert grid_map.goals is not None and grid_map.goals.tolist() == [[False, True, False]]

    def test_equal_only_if_all_fields_are(self):
        walls = np.array([[False, False, True]])
        one = np.array([[True, False, False]])
        base = GridMap("m", walls, one, one)
        assert base == GridMap("m", walls.copy(), one.copy(), one.copy())
        others = [
            GridMap("n", walls, one, one),
            GridMap("m", walls, None, one),
            GridMap("m", walls, one, None),
            GridMap("m", np.array([[False, True, False]]), one, one),
            GridMap("m", walls.T, one.T, one.T),
        ]
        assert all(base != other for other in others)
        assert base != "m"

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"name": ""}, "at least one character"),
            ({"obstacles": np.zeros((2, 3))}, r"obstacles is float64\[2, 3\], allowed is bool"),
            ({"obstacles": np.zeros((0, 3), bool)}, "at least one cell"),
            ({"obstacles": np.zeros(3, bool)}, r"bool\[3\]"),
            ({"starts": np.zeros((3, 2), bool)}, r"starts has shape \(3, 2\), obstacles \(2, 3\)"),
            ({"goals": np.ones((2, 3), bool)}, r"goals has the blocked cell \(1, 2\)"),
        ],
    )
    def test_nonsense_is_refused(self, fields, message):
        walls = np.zeros((2, 3), bool)
        walls[1, 2] = True
        with pytest.raises(MapError, match=message):
            GridMap(**{"name": "m", "obstacles": walls, **fields})


class TestInstance:
    def test_queues_are_padded_with_their_last_goal(self):
        made = instance(queues=[[(2, 0), (2, 1), (0, 0)], [(0, 1)]])
        assert made.goals.tolist() == [[[2, 0], [2, 1], [0, 0]], [[0, 1]] * 3]
        assert made.queue_lengths.tolist() == [3, 1]
        assert made.queues() == [[[2, 0], [2, 1], [0, 0]], [[0, 1]]]
        assert made.goals.dtype == made.starts.dtype == made.queue_lengths.dtype == np.int32

    def test_what_lies_beyond_a_queue_does_not_matter(self):
        goals = np.arange(16).reshape(2, 4, 2)
        a = Instance("m", 0, np.array([[0, 0], [1, 1]]), goals, np.array([3, 2]))
        assert a.goals.shape == (2, 3, 2)
        goals[0, 3], goals[1, 2:] = 30_000, 31_000
        b = Instance("m", 0, np.array([[0, 0], [1, 1]]), goals, np.array([3, 2]))
        assert a == b and instance_hash(MAP, a) == instance_hash(MAP, b)

    def test_without_lengths_queues_are_full(self):
        made = Instance("m", np.int64(3), np.array([[0, 0]]), np.array([[[1, 1], [2, 1]]]))
        assert made.queue_lengths.tolist() == [2] and type(made.seed) is int

    def test_first_agents(self):
        made = instance(queues=[[(2, 0)], [(0, 1), (1, 0)]])
        assert made.first(1) == instance(starts=[(0, 0)], queues=[[(2, 0)]])
        assert made.first(2) == made
        for count in (0, 3):
            with pytest.raises(MapError, match=rf"num_agents={count} .* allowed: 1 \.\. 2"):
                made.first(count)

    def test_equal_only_if_all_fields_are(self):
        base = instance()
        assert base == instance()
        others = [
            dataclasses.replace(base, map_name="n"),
            dataclasses.replace(base, seed=1),
            dataclasses.replace(base, starts=base.starts[::-1]),
            dataclasses.replace(base, goals=base.goals[::-1]),
            instance(queues=[[(2, 0), (2, 0)], [(0, 1)]]),
        ]
        assert all(base != other for other in others)
        assert base != "m"

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"map_name": ""}, "at least one character"),
            ({"seed": 1.0}, "seed 1.0 is not an integer"),
            ({"seed": True}, "seed True is not an integer"),
            ({"starts": [[0, 0]]}, "1 starts, 2 goals and 2 queue lengths"),
            ({"goals": [[[0, 0]]]}, "2 starts, 1 goals and 1 queue lengths"),
            ({"queue_lengths": [1, 1, 1]}, "3 queue lengths"),
            ({"queue_lengths": [1, 0]}, r"\[1, 0\] are not all in 1 \.\. 1"),
            ({"queue_lengths": [1, 2]}, r"\[1, 2\] are not all in 1 \.\. 1"),
            ({"queue_lengths": [1.0, 1.0]}, r"queue_lengths is float64\[2\], allowed is int"),
            ({"starts": [[0, 0, 0], [1, 1, 1]]}, r"starts is int64\[2, 3\]"),
            ({"starts": [[0, 0], [1]]}, "starts is ragged"),
            ({"starts": [[0, 0], [1, 0.5]]}, "starts is float64"),
            ({"starts": [[0, 0], [-1, 0]]}, r"starts has coordinates outside 0 \.\. 32767"),
            ({"goals": [[[0, 0]], [[0, 2**15]]]}, r"goals has coordinates outside 0 \.\. 32767"),
            ({"goals": [[0, 0], [1, 1]]}, r"goals is int64\[2, 2\], allowed is int\[agents, queue"),
            ({"starts": np.zeros((0, 2), int)}, r"starts is int64\[0, 2\]"),
        ],
    )
    def test_nonsense_is_refused(self, fields, message):
        good = {
            "map_name": "m",
            "seed": 0,
            "starts": [[0, 0], [1, 1]],
            "goals": [[[2, 0]], [[0, 1]]],
        }
        with pytest.raises(MapError, match=message):
            Instance(**{**good, **fields})

    @pytest.mark.parametrize("queues", [[], [[(0, 0)], []]])
    def test_empty_queues_are_refused(self, queues):
        with pytest.raises(MapError, match="every agent a goal"):
            instance(queues=queues)


class TestHash:
    def test_is_the_same_everywhere(self):
        walls = [0, 0, 1, 0] * 3
        task = [*(0, 0, 1, 1), *(2, 1), *(2, 0, 1, 0, 0, 1)]  # starts, lengths of queues, goals
        numbers = [2, 3, 4, *walls, *task]
        digest = hashlib.sha256(struct.pack(f"<{len(numbers)}q", *numbers)).hexdigest()
        made = instance(queues=[[(2, 0), (1, 0)], [(0, 1)]])
        assert instance_hash(MAP, made) == digest[:16]

    def test_depends_on_content_only(self):
        base = instance()
        other_map = GridMap("other", MAP.obstacles, starts=np.zeros((3, 4), bool))
        renamed = Instance("other", 7, base.starts.astype(np.uint8), base.goals.astype(np.int16))
        assert instance_hash(other_map, renamed) == instance_hash(MAP, base)

    def test_every_part_counts(self):
        base = instance()
        flipped = MAP.obstacles.copy()
        flipped[0, 3] = True
        wider = np.zeros((4, 3), bool)
        wider.reshape(-1)[:] = MAP.obstacles.reshape(-1)
        hashes = [
            instance_hash(MAP, base),
            instance_hash(GridMap("m", flipped), base),
            instance_hash(GridMap("m", wider), base),
            instance_hash(MAP, instance(starts=[(1, 1), (0, 0)])),
            instance_hash(MAP, instance(queues=[[(0, 1)], [(2, 0)]])),
            instance_hash(MAP, instance(queues=[[(2, 0), (0, 1)], [(0, 1)]])),
            instance_hash(MAP, instance(queues=[[(2, 0)], [(0, 1), (0, 1)]])),
            instance_hash(MAP, base.first(1)),
        ]
        assert len(set(hashes)) == len(hashes)

    def test_cutting_queues_elsewhere_counts(self):
        a = instance(queues=[[(2, 0), (0, 1)], [(1, 1)]])
        b = instance(queues=[[(2, 0)], [(0, 1), (1, 1)]])
        assert instance_hash(MAP, a) != instance_hash(MAP, b)


class TestChecks:
    def test_possible_instances_pass(self):
        check_instance(MAP, instance())
        check_instance(MAP, instance(starts=[(0, 3), (0, 0)], queues=[[(2, 3)] * 2, [(0, 0)]]))

    def test_masks_do_not_bind_instances(self):
        none = np.zeros((3, 4), bool)
        check_instance(GridMap("m", MAP.obstacles, none, none), instance())

    @pytest.mark.parametrize(
        ("starts", "queues", "message"),
        [
            (
                [(0, 0), (3, 0)],
                [[(1, 0)]] * 2,
                r"agent 1: start \(row 3, column 0\) is out of bounds",
            ),
            (
                [(0, 4), (0, 0)],
                [[(1, 0)]] * 2,
                r"agent 0: start \(row 0, column 4\) is out of .*'m'",
            ),
            ([(0, 0), (1, 2)], [[(1, 0)]] * 2, r"agent 1: start \(row 1, column 2\) is in a wall"),
            (
                [(0, 0), (0, 1)],
                [[(1, 0)], [(1, 0), (0, 4)]],
                r"agent 1: goal \(row 0, column 4\) is out",
            ),
            (
                [(0, 0), (0, 1)],
                [[(1, 0), (2, 2)], [(1, 0)]],
                r"agent 0: goal \(row 2, column 2\) .* wall",
            ),
            (
                [(0, 1), (0, 1)],
                [[(1, 0)]] * 2,
                r"agent 1: starts in cell \(row 0, column 1\) like agent 0",
            ),
            (
                [(0, 0), (0, 1)],
                [[(1, 0)], [(1, 0), (0, 3)]],
                r"agent 1: goal \(row 0, column 3\) cannot be reached from .* \(row 0, column 1\)",
            ),
        ],
    )
    def test_impossible_instances_are_refused(self, starts, queues, message):
        with pytest.raises(MapError, match="^here: " + message):
            check_instance(MAP, instance(starts, queues), "here")

    def test_each_agent_has_its_place(self):
        crossed = instance(starts=[(0, 0), (0, 3)], queues=[[(1, 0)], [(0, 1)]])
        with pytest.raises(MapError, match=r"^f:9: agent 1"):
            check_instance(MAP, crossed, ["f:4", "f:9"])

    def test_goals_may_be_shared_unless_asked(self):
        shared = instance(queues=[[(2, 0)], [(2, 0)]])
        check_instance(MAP, shared)
        with pytest.raises(
            MapError, match=r"agent 1: has its goal in cell \(row 2, column 0\) like"
        ):
            check_instance(MAP, shared, distinct_goals=True)

    def test_starts_are_compared_without_a_map(self):
        check_distinct(instance())
        with pytest.raises(MapError, match=r"instance: agent 2: starts in cell .* like agent 0"):
            check_distinct(instance([(0, 0), (0, 1), (0, 0)], [[(1, 1)]] * 3))

    def test_names_are_looked_up(self):
        assert find_map({"m": MAP}, "m", "f") is MAP
        with pytest.raises(MapError, match="f: map 'x' is not among the 1 maps: 'm'"):
            find_map({"m": MAP}, "x", "f")
        with pytest.raises(MapError, match="among the 0 maps: none"):
            find_map({}, "x", "f")

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_agrees_with_a_search(self, data):
        shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
        cells = st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
        walls = np.array(data.draw(cells)).reshape(shape)
        cell = st.tuples(st.integers(0, shape[0] - 1), st.integers(0, shape[1] - 1))
        start, goals = data.draw(cell), data.draw(st.lists(cell, min_size=1, max_size=3))
        possible = not walls[start] and set(goals) <= reachable(walls, start)
        task = Instance.from_queues("m", 0, [start], [goals])
        if possible:
            check_instance(GridMap("m", walls), task)
        else:
            with pytest.raises(MapError):
                check_instance(GridMap("m", walls), task)
