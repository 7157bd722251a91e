"""Files of maps and instances: read, written, read again, and refused where they make no sense."""

import dataclasses
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockax.envs.pathfinding import movingai
from flockax.envs.pathfinding.formats import (
    load_instance_set,
    load_instances,
    load_maps,
    save_instances,
    save_maps,
)
from flockax.envs.pathfinding.instance_sets import InstanceSet, format_instances, parse_instances
from flockax.envs.pathfinding.maps import GridMap, Instance, MapError
from flockax.envs.pathfinding.pogema_text import format_rows, format_yaml, parse_rows, parse_yaml

MAP = "type octile\nheight 3\nwidth 4\nmap\n..@.\n..@.\n..@.\n"
SCEN = "version 1\n0\tm.map\t4\t3\t0\t0\t0\t2\t2\n0\tm.map\t4\t3\t1\t1\t1\t0\t1\n"
YAML = '"m": |-\n  ..#.\n  ..#.\n  ..#.\n'
TASK = {"map_name": "m", "seed": 5, "agents_xy": [[0, 0], [1, 1]], "targets_xy": [[2, 0], [0, 1]]}
MAPS = parse_yaml(YAML, "maps")
INSTANCE = Instance.from_queues("m", 5, [[0, 0], [1, 1]], [[[2, 0]], [[0, 1]]])


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def scenarios(*entries, **fields) -> str:
    return json.dumps({**fields, "scenarios": list(entries)})


@st.composite
def grid_maps(draw, masks=True):
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 7)))
    size = shape[0] * shape[1]

    def mask():
        return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)

    walls = mask()
    allowed = [mask() & ~walls if masks and draw(st.booleans()) else None for _ in range(2)]
    letters = st.characters(exclude_categories=["Cs", "Cc"])
    return GridMap(draw(st.text(letters, min_size=1, max_size=12)), walls, *allowed)


@st.composite
def instances(draw, longest=3, height=4, width=5):
    cell = st.tuples(st.integers(0, height - 1), st.integers(0, width - 1))
    starts = draw(st.lists(cell, min_size=1, max_size=6, unique=True))
    queue = st.lists(cell, min_size=1, max_size=longest)
    queues = draw(st.lists(queue, min_size=len(starts), max_size=len(starts)))
    seed = draw(st.integers(-(2**63), 2**64)) if longest > 1 else 0
    return Instance.from_queues("m", seed, starts, queues)


class TestRoundTrips:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(grid_maps(), min_size=1, max_size=4, unique_by=lambda m: m.name))
    def test_yaml(self, maps):
        loaded = parse_yaml(format_yaml(maps), "f")
        assert list(loaded.items()) == [(m.name, m) for m in maps]

    @settings(max_examples=100, deadline=None)
    @given(grid_maps())
    def test_rows(self, grid_map):
        assert parse_rows(format_rows(grid_map), grid_map.name) == (grid_map, None)

    @settings(max_examples=100, deadline=None)
    @given(grid_maps(masks=False), st.booleans())
    def test_movingai_map(self, grid_map, crlf):
        text = movingai.format_map(grid_map).replace("\n", "\r\n" if crlf else "\n")
        assert movingai.parse_map(text, grid_map.name, "f") == grid_map

    @settings(max_examples=100, deadline=None)
    @given(instances(longest=1), st.booleans())
    def test_scenario(self, instance, crlf):
        grid_map = GridMap("m", np.zeros((4, 5), bool))
        text = movingai.format_scenario(grid_map, instance)
        text = text.replace("\n", "\r\n" if crlf else "\n")
        assert movingai.parse_scenario(text, "f", {"m": grid_map}) == instance

    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(instances(), min_size=1, max_size=3),
        st.sampled_from([None, "finish", "restart"]),
        st.sampled_from([None, "priority", "block_both", "soft"]),
        st.sampled_from([None, 1, 256]),
        st.booleans(),
    )
    def test_json(self, tasks, on_target, collisions, steps, counts):
        fewest = min(t.num_agents for t in tasks)
        numbers = tuple(range(1, fewest + 1)) if counts else ()
        made = InstanceSet(tuple(tasks), on_target, collisions, steps, numbers)
        assert parse_instances(format_instances(made), "f") == made

    @pytest.mark.parametrize("name", ["m.map", "m.map.gz", "M.yaml", "a.b.yml.gz"])
    def test_map_files(self, tmp_path, name):
        save_maps(tmp_path / name, MAPS.values())
        assert load_maps(tmp_path / name) == MAPS
        assert load_maps(tmp_path) == MAPS

    @pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.scen", "a.scen.gz"])
    def test_instance_files(self, tmp_path, name):
        task = dataclasses.replace(INSTANCE, seed=0)
        save_instances(tmp_path / name, [task], MAPS)
        assert load_instances(tmp_path / name, MAPS) == [task]
        assert load_instances(tmp_path / name) == [task]

    def test_equal_contents_are_equal_files(self, tmp_path, monkeypatch):
        for name, time in (("a.json.gz", 1e9), ("b.json.gz", 2e9)):
            monkeypatch.setattr("time.time", lambda time=time: time)
            save_instances(tmp_path / name, [INSTANCE])
        assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


class TestReading:
    def test_movingai_map(self):
        text = "type octile\r\nheight 2\r\nwidth 7\r\nmap\r\n.GS@OTW\r\n@....#.\r\n\r\n"
        grid_map = movingai.parse_map(text, "x", "f")
        assert format_rows(grid_map) == "...####\n#....#."
        assert grid_map.name == "x" and grid_map.starts is None and grid_map.goals is None

    def test_scenario_has_columns_first(self):
        text = "version 1.0\n3\tmaps/m.map\t4\t3\t3\t1\t2\t0\t1.4\n\n0\ta\\m.map\t4\t3\t0\t2\t1\t2\t1\n"
        made = movingai.parse_scenario(text, "f")
        assert made.starts.tolist() == [[1, 3], [2, 0]]
        assert made.goals.tolist() == [[[0, 2]], [[2, 1]]]
        assert (made.map_name, made.seed) == ("m", 0)

    def test_rows_with_marks(self):
        grid_map, task = parse_rows(".#@$!\n  .....  ", "m")
        assert task is None
        assert grid_map.obstacles.tolist() == [[False, True, False, False, False], [False] * 5]
        assert grid_map.starts.tolist() == [[True, False, True, False, False], [True] * 5]
        assert grid_map.goals.tolist() == [[True, False, False, True, False], [True] * 5]

    def test_rows_with_letters(self):
        grid_map, task = parse_rows("\n z.A .#Z\n\na.. ", "m")
        assert grid_map == GridMap("m", np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]]) == 1)
        assert task == Instance.from_queues("m", 0, [(2, 0), (0, 0)], [[(0, 2)], [(1, 2)]])

    def test_yaml_in_other_styles(self):
        text = (
            '# maps\na: |\r\n  .#\r\n  ..\r\n1: \'.#\n\n  #.\'\n"b c": >\n  ..\n  .!\nd: ".. ##"\n'
        )
        maps = parse_yaml(text, "f")
        assert [format_rows(m).split() for m in maps.values()] == [
            *([".#", ".."], [".#", "#."], ["..", ".!"], ["..", "##"]),
        ]
        assert list(maps) == ["a", "1", "b c", "d"]

    def test_json(self):
        lifelong = {**TASK, "targets_xy": [[[2, 0], [0, 0]], [[0, 1]]], "seed": 6, "more": 1}
        text = scenarios(TASK, lifelong, on_target="restart", num_agents=[1, 2], version=3)
        made = parse_instances(text, "f", MAPS)
        assert made.instances[0] == INSTANCE
        assert made.instances[1].queues() == [[[2, 0], [0, 0]], [[0, 1]]]
        rules = made.on_target, made.collision_system, made.max_episode_steps, made.num_agents
        assert rules == ("restart", None, None, (1, 2))
        without_seed = {key: value for key, value in TASK.items() if key != "seed"}
        assert parse_instances(scenarios(without_seed), "f").instances[0].seed == 0

    def test_byte_order_mark(self, tmp_path):
        path = write(tmp_path, "m.map", b"\xef\xbb\xbf" + MAP.encode())
        assert load_maps(path) == MAPS

    def test_folders(self, tmp_path):
        write(tmp_path, "b.MAP", MAP)
        write(tmp_path, "a.yaml", YAML)
        write(tmp_path, "c.scen", SCEN)
        write(tmp_path, "README.md", "no map")
        (tmp_path / "deeper.map").mkdir()
        assert list(load_maps(tmp_path)) == ["m", "b"]

    def test_nothing_heavy_is_loaded(self):
        code = (
            "import sys, flockax.envs\n"
            "before = set(sys.modules)\n"
            "import flockax.envs.pathfinding.formats, flockax.envs.pathfinding.benchmark_maps\n"
            "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
            "print(sorted(new & {'yaml', 'scipy', 'PIL', 'matplotlib'}))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
        assert run.stdout == "[]\n", run.stderr


class TestPublicData:
    @pytest.mark.parametrize(
        ("name", "shape", "free"),
        [
            ("Paris_1_256", (256, 256), 47240),
            ("den520d", (257, 256), 28178),
            ("random-32-32-10", (32, 32), 922),
            ("room-64-64-16", (64, 64), 3646),
            ("warehouse-20-40-10-2-1", (123, 321), 22599),
        ],
    )
    def test_movingai_maps(self, data, name, shape, free):
        grid_map = load_maps(data / "movingai")[name]
        assert grid_map.shape == shape and (~grid_map.obstacles).sum() == free

    def test_scenario_file(self, data):
        maps = load_maps(data / "movingai" / "random-32-32-10.map")
        (task,) = load_instances(data / "movingai" / "random-32-32-10-random-1.scen", maps)
        assert task.num_agents == 461
        assert task.starts[0].tolist() == [6, 11] and task.goals[0].tolist() == [[18, 7]]

    @pytest.mark.parametrize(
        ("name", "agents", "steps"),
        [
            ("01-random", 64, (128, 256)),
            ("02-mazes", 64, (128, 128)),
            ("03-warehouse", 192, (128, 256)),
        ],
    )
    def test_benchmark(self, data, name, agents, steps):
        folder = data / "pogema_benchmark"
        maps = load_maps(folder / f"{name}.maps.yaml")
        mapf = load_instance_set(folder / f"{name}-mapf.json", maps)
        lifelong = load_instance_set(folder / f"{name}-lmapf.json.gz", maps)
        assert (mapf.on_target, lifelong.on_target) == ("nothing", "restart")
        assert (mapf.max_episode_steps, lifelong.max_episode_steps) == steps
        for made in (mapf, lifelong):
            assert len(made.instances) == 128 and made.collision_system == "soft"
            assert {i.num_agents for i in made.instances} == {agents} == {max(made.num_agents)}
        assert {i.queue_lengths.max() for i in mapf.instances} == {1}
        assert min(i.queue_lengths.min() for i in lifelong.instances) > 3


class TestMapRefusals:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("octile", "tile", "f:1: 'type tile' instead of 'type octile'"),
            (MAP, "", "f:1: '' instead of"),
            (MAP, "type octile\n", "f:2: '' instead of 'height N'"),
            (MAP, "type octile", "f:2: end of file instead of 'height N'"),
            (
                "height 3",
                "height three",
                "f:2: 'height three' instead of 'height N' with N in 1 .. 32768",
            ),
            ("height 3", "height 0", "f:2: 'height 0' instead"),
            ("height 3", "height -3", "f:2: 'height -3' instead"),
            ("height 3", "height 99999", "f:2: 'height 99999' instead"),
            ("height 3", "rows 3", "f:2: 'rows 3' instead"),
            ("width 4", "width", "f:3: 'width' instead of 'width N'"),
            ("map\n", "", "f:4: '..@.' instead of 'map'"),
            ("height 3", "height 4", "f:7: 3 rows, the header says height 4"),
            ("height 3", "height 2", "f:7: 3 rows, the header says height 2"),
            ("width 4", "width 5", "f:5: row of 4 cells, the header says width 5"),
            ("..@.\n..@.\n..@.", "..@.\n..@\n..@.", "f:6: row of 3 cells"),
            ("..@.\n..@.\n..@.", "..@.\n\n..@.", "f:6: row of 0 cells"),
            ("..@.\n..@.\n..@.", "..@.\n..@.\n. @.", "f:7: unknown character ' ' in column 1"),
            ("..@.\n..@.\n..@.", "..@.\n..@é\n..@.", "f:6: unknown character 'é' in column 3"),
        ],
    )
    def test_movingai(self, old, new, message):
        with pytest.raises(MapError) as error:
            movingai.parse_map(MAP.replace(old, new), "m", "f")
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("..\n...", "f:2: row of 3 cells in map 'm', the first has 2"),
            (".. ..\n\n.", "f:3: row of 1 cells"),
            ("..\n.0", "f:2: unknown character '0' in column 1"),
            ("..\n.ä", "f:2: unknown character 'ä' in column 1"),
            (" \n", "f: map 'm' is empty"),
            ("a.\n.B", "f:1: start 'a' in map 'm' without the goal 'A'"),
            ("A.\n..", "f:1: goal 'A' in map 'm' without the start 'a'"),
            ("aA\na.", "f:2: a second 'a' in map 'm'"),
            ("aA\n.@", "f:1: map 'm' has both the letter 'a' and one of @ $ !"),
            ("a#A\n.#b\n.#B", "f:1: agent 0: goal (row 0, column 2) cannot be reached"),
        ],
    )
    def test_rows(self, text, message):
        with pytest.raises(MapError) as error:
            parse_rows(text, "m", "f")
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a: |-\n  ..\n  ...\n", "f:3: row of 3 cells in map 'a'"),
            ("a: |-\n  ..\nb: |\n  .x\n", "f:4: start 'x' in map 'b' without"),
            ("a: |-\n\n  ..\n\n  .?\n", "f:5: unknown character '?' in column 1"),
            ("a: |-\n  ..\nb: '..\n\n  .?'\n", "f:3: unknown character '?'"),
            ("a: |-\n  ..\na: |-\n  ..\n", "f:3: a second map 'a'"),
            ("a: |-\n  ..\nb:\n", "f:3: map 'b' is empty"),
            ("a: [.., ..]\n", "f:1: map 'a' is not a string of rows"),
            ("a: |-\n  ..\n? [b]\n: ..\n", "f:3: the name of a map is not a string"),
            ("'': ..\n", "f:1: the name of a map is not a string"),
            ("- ..\n", "f: not a mapping of names to maps"),
            ("..\n", "f: not a mapping"),
            ("{}\n", "f: not a mapping"),
            ("# nothing\n", "f: not a mapping"),
            ("a: |-\n  ..\nb: 'x\n", "invalid YAML: "),
            ("a: b: c\n", "f:1: invalid YAML: mapping values are not allowed"),
            ("a: ..\n---\nb: ..\n", "invalid YAML: but found another document"),
            ("a: \x00\n", "f: invalid YAML: "),
            ("[" * 3000, "invalid YAML: "),
        ],
    )
    def test_yaml(self, text, message):
        with pytest.raises(MapError) as error:
            parse_yaml(text, "f")
        assert message in str(error.value)

    def test_what_a_format_cannot_hold(self, tmp_path):
        marked, _ = parse_rows(".@", "m")
        with pytest.raises(MapError, match=r"'m' has its own cells .* write it as \.yaml"):
            save_maps(tmp_path / "m.map", [marked])
        goals, _ = parse_rows(".$", "m")
        with pytest.raises(MapError, match="has its own cells"):
            save_maps(tmp_path / "m.map", [goals])
        with pytest.raises(MapError, match=r"m\.map: 2 maps; a \.map file holds one"):
            save_maps(tmp_path / "m.map", [*MAPS.values(), *MAPS.values()])
        with pytest.raises(MapError, match="two maps have the name 'm'"):
            save_maps(tmp_path / "m.yaml", [*MAPS.values(), *MAPS.values()])
        with pytest.raises(MapError, match="no maps to write"):
            save_maps(tmp_path / "m.yaml", [])
        with pytest.raises(MapError, match=r"m\.txt: the suffix is none of \.map"):
            save_maps(tmp_path / "m.txt", MAPS.values())
        assert not list(tmp_path.iterdir())


class TestInstanceRefusals:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (
                "version 1\n",
                "",
                "f:1: '0\\tm.map\\t4\\t3\\t0\\t0\\t0\\t2\\t2' instead of 'version 1'",
            ),
            ("version 1", "version 2", "f:1: 'version 2' instead"),
            (SCEN, "version 1\n\n", "f: no agents after the version"),
            ("\t2\t2\n", "\t2\n", "f:2: 8 columns instead of 9 separated by TABs (bucket, map,"),
            ("0\tm.map\t4\t3\t1", "0 m.map 4 3 1", "f:3: 5 columns"),
            ("\t1\t1\t1\t0\t1", "\t1\t1\t1\t0\t1\t7", "f:3: 10 columns"),
            (
                "\t1\t1\t1\t0\t1",
                "\tx\t1\t1\t0\t1",
                "f:3: start x 'x' is not an integer in 0 .. 32767",
            ),
            ("\t1\t1\t1\t0\t1", "\t1\t-1\t1\t0\t1", "f:3: start y '-1' is not an integer"),
            ("\t1\t1\t1\t0\t1", "\t1\t1\t1.5\t0\t1", "f:3: goal x '1.5' is not an integer"),
            ("\t1\t1\t1\t0\t1", "\t1\t1\t1\t40000\t1", "f:3: goal y '40000' is not an integer"),
            ("\t1\t1\t1\t0\t1", "\t1\t1\t1\t" + "9" * 5000 + "\t1", "f:3: goal y '999"),
            (
                "\t1\t1\t1\t0\t1",
                "\t4\t1\t1\t0\t1",
                "f:3: start x=4, y=1 is out of bounds of width 4",
            ),
            (
                "\t1\t1\t1\t0\t1",
                "\t1\t1\t1\t3\t1",
                "f:3: goal x=1, y=3 is out of bounds of width 4",
            ),
            (
                "0\tm.map\t4\t3\t1",
                "0\tn.map\t4\t3\t1",
                "f:3: map 'n' of width 4, height 3; the first",
            ),
            (
                "0\tm.map\t4\t3\t1",
                "0\tm.map\t4\t5\t1",
                "f:3: map 'm' of width 4, height 5; the first",
            ),
            ("m.map\t4\t3", ".map\t4\t3", "f:2: map '.map' has no name"),
            ("m.map\t4\t3", "x.map\t4\t3", "f:2: map 'x' is not among the 1 maps: 'm'"),
            (
                "m.map\t4\t3",
                "m.map\t5\t3",
                "f:2: map width 5, map height 3, but map 'm' has width 4",
            ),
            (
                "m.map\t4\t3",
                "m.map\t4\t4",
                "f:2: map width 4, map height 4, but map 'm' has width 4",
            ),
            (
                "\t1\t1\t1\t0\t1",
                "\t2\t1\t1\t0\t1",
                "f:3: agent 1: start (row 1, column 2) is in a wall",
            ),
            (
                "\t1\t1\t1\t0\t1",
                "\t1\t1\t2\t0\t1",
                "f:3: agent 1: goal (row 0, column 2) is in a wall",
            ),
            (
                "\t1\t1\t1\t0\t1",
                "\t1\t1\t3\t0\t1",
                "f:3: agent 1: goal (row 0, column 3) cannot be",
            ),
            (
                "\t1\t1\t1\t0\t1",
                "\t0\t0\t1\t0\t1",
                "f:3: agent 1: starts in cell (row 0, column 0)",
            ),
            ("1\n0\tm", "1\n\n0\tm", None),
        ],
    )
    def test_scenario(self, old, new, message):
        text = SCEN.replace(old, new)
        if message is None:
            assert movingai.parse_scenario(text, "f", MAPS).num_agents == 2
            return
        with pytest.raises(MapError) as error:
            movingai.parse_scenario(text, "f", MAPS)
        assert message in str(error.value)

    def test_scenario_lines_count_empty_ones(self):
        text = SCEN.replace("1\n0\tm", "1\n\n0\tm").replace("\t1\t1\t1\t0\t1", "\t0\t0\t1\t0\t1")
        for maps in (MAPS, None):
            with pytest.raises(MapError, match=r"^f:4: agent 1: starts in cell"):
                movingai.parse_scenario(text, "f", maps)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"map_name": "x"}, "map 'x' is not among the 1 maps: 'm'"),
            ({"map_name": 3}, "map_name=3 is not a string"),
            ({"map_name": ""}, "map_name is empty"),
            ({"map_name": None}, "map_name=None is not a string"),
            ({"seed": "1"}, "seed='1' is not an integer"),
            ({"seed": True}, "seed=True is not an integer"),
            ({"agents_xy": {}}, "agents_xy={} is not a list"),
            ({"agents_xy": [], "targets_xy": []}, "no agents"),
            ({"agents_xy": [[0, 0]]}, "1 starts in agents_xy, but 2 goals in targets_xy"),
            ({"targets_xy": [[2, 0]]}, "2 starts in agents_xy, but 1 goals in targets_xy"),
            ({"agents_xy": [[0, 0], [1]]}, "agent 1: start [1] is not [row, column] in integers"),
            ({"agents_xy": [[0, 0], [1, 1.0]]}, "agent 1: start [1, 1.0] is not [row, column]"),
            ({"agents_xy": [[0, 0], [1, True]]}, "agent 1: start [1, True] is not [row, column]"),
            ({"agents_xy": [[0, 0], [True, 1]]}, "agent 1: start [True, 1] is not [row, column]"),
            ({"agents_xy": [[0, 0], "11"]}, "agent 1: start '11' is not [row, column]"),
            (
                {"agents_xy": [[0, 0], [0, -1]]},
                "agent 1: start [0, -1] is out of bounds 0 .. 32767",
            ),
            ({"agents_xy": [[0, 0], [0, 10**20]]}, "is out of bounds 0 .. 32767"),
            (
                {"agents_xy": [[0, 0], [3, 1]]},
                "agent 1: start (row 3, column 1) is out of bounds of",
            ),
            ({"agents_xy": [[0, 2], [1, 1]]}, "agent 0: start (row 0, column 2) is in a wall"),
            (
                {"agents_xy": [[1, 1], [1, 1]]},
                "agent 1: starts in cell (row 1, column 1) like agent 0",
            ),
            ({"targets_xy": [[2, 0], []]}, "agent 1: targets_xy has [] instead of a cell"),
            ({"targets_xy": [[2, 0], 7]}, "agent 1: targets_xy has 7 instead of a cell"),
            ({"targets_xy": [[2, 0], [1, 2, 3]]}, "agent 1: goal 1 is not [row, column]"),
            ({"targets_xy": [[2, 0], [[1, 1], [1]]]}, "agent 1: goal [1] is not [row, column]"),
            (
                {"targets_xy": [[2, 0], [[1, 1], [0, 4]]]},
                "agent 1: goal (row 0, column 4) is out of",
            ),
            ({"targets_xy": [[2, 2], [0, 1]]}, "agent 0: goal (row 2, column 2) is in a wall"),
            (
                {"targets_xy": [[2, 0], [[1, 1], [0, 3]]]},
                "agent 1: goal (row 0, column 3) cannot be",
            ),
        ],
    )
    def test_json_scenarios(self, change, message):
        with pytest.raises(MapError) as error:
            parse_instances(scenarios(TASK, {**TASK, **change}), "f", MAPS)
        assert str(error.value).startswith("f: scenarios[1]: ")
        assert message in str(error.value)

    @pytest.mark.parametrize("key", ["map_name", "agents_xy", "targets_xy"])
    def test_json_keys_missing(self, key):
        task = {k: v for k, v in TASK.items() if k != key}
        with pytest.raises(MapError, match=rf"^f: scenarios\[0\]: the key '{key}' is missing"):
            parse_instances(scenarios(task), "f", MAPS)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{\n"scenarios": [}', "f:2: invalid JSON: "),
            ("{}", "f: the key 'scenarios' is missing"),
            ("[]", "f: [] instead of an object"),
            ('{"scenarios": {}}', "f: scenarios={} is not a list"),
            ('{"scenarios": []}', "f: scenarios is empty"),
            ('{"scenarios": [3]}', "f: scenarios[0]: 3 instead of an object"),
            ("[" * 200_000, "f: invalid JSON: "),
            ("1" * 5000, "f: invalid JSON: "),
            (
                scenarios(TASK, on_target="stay"),
                "on_target='stay' is not one of finish, nothing, restart",
            ),
            (
                scenarios(TASK, collision_system=[]),
                "collision_system=[] is not one of priority, block",
            ),
            (scenarios(TASK, max_episode_steps=0), "max_episode_steps=0 is not an integer >= 1"),
            (scenarios(TASK, max_episode_steps=1.5), "max_episode_steps=1.5 is not an integer"),
            (scenarios(TASK, num_agents=2), "num_agents=2 is not a list"),
            (scenarios(TASK, num_agents=[1, 3]), "num_agents has 3; allowed: integers in 1 .. 2"),
            (scenarios(TASK, num_agents=[True]), "num_agents has True"),
        ],
    )
    def test_json(self, text, message):
        with pytest.raises(MapError) as error:
            parse_instances(text, "f", MAPS)
        assert message in str(error.value)

    def test_agents_that_stay_need_goals_of_their_own(self):
        shared = {**TASK, "targets_xy": [[2, 0], [2, 0]]}
        for maps in (MAPS, None):
            parse_instances(scenarios(shared, on_target="finish"), "f", maps)
            with pytest.raises(MapError, match="has its goal in cell"):
                parse_instances(scenarios(shared, on_target="nothing"), "f", maps)

    def test_starts_are_compared_without_maps(self):
        twice = {**TASK, "agents_xy": [[9, 9], [9, 9]]}
        with pytest.raises(MapError, match=r"f: scenarios\[0\]: agent 1: starts in cell"):
            parse_instances(scenarios(twice), "f")

    def test_what_is_not_written(self, tmp_path):
        queues = Instance.from_queues("m", 0, [[0, 0]], [[[1, 1], [0, 1]]])
        wall = Instance.from_queues("m", 0, [[0, 2]], [[[1, 1]]])
        shared = Instance.from_queues("m", 0, [[0, 0], [0, 1]], [[[1, 1]], [[1, 1]]])
        for name, tasks, maps, message in (
            ("a.scen", [queues], MAPS, "one goal per agent"),
            ("a.scen", [INSTANCE], None, "exactly one instance, and the map"),
            ("a.scen", [INSTANCE] * 2, MAPS, "exactly one instance, and the map"),
            ("a.json", [], MAPS, "no instances to write"),
            ("a.json", [INSTANCE, wall], MAPS, "instance 1: agent 0: start .* in a wall"),
            ("a.json", InstanceSet((shared,), "nothing"), MAPS, "has its goal in cell"),
            ("a.json", [INSTANCE], {}, "map 'm' is not among the 0 maps"),
            ("a.txt", [INSTANCE], MAPS, "suffix is none of"),
        ):
            with pytest.raises(MapError, match=message):
                save_instances(tmp_path / name, tasks, maps)
        assert not list(tmp_path.iterdir())


class TestFileRefusals:
    @pytest.mark.parametrize("load", [load_maps, load_instances])
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "empty file"),
            (b" \n\r\n", "empty file"),
            (b"\xff\xfe\x00", "not UTF-8 text at byte 0"),
            (None, "No such file"),
        ],
    )
    def test_content(self, tmp_path, load, content, message):
        for name in ("a.map", "a.yaml") if load is load_maps else ("a.scen", "a.json"):
            path = tmp_path / name
            if content is not None:
                path.write_bytes(content)
            with pytest.raises(MapError, match=f"{name}: ({message})"):
                load(path)

    @pytest.mark.parametrize("damage", ["cut", "plain", "flipped", "empty"])
    def test_gzip(self, tmp_path, damage):
        good = gzip.compress(scenarios(TASK).encode())
        flipped = bytearray(good)
        flipped[10] = 7  # a kind of block that there is not
        content = {"cut": good[:-9], "plain": b"{}", "flipped": bytes(flipped), "empty": b""}[
            damage
        ]
        path = write(tmp_path, "a.json.gz", content)
        message = "empty file" if damage == "empty" else "truncated or damaged gzip file"
        with pytest.raises(MapError, match=rf"a\.json\.gz: {message}"):
            load_instances(path)

    def test_names(self, tmp_path):
        write(tmp_path, "a.txt", MAP)
        with pytest.raises(MapError, match=r"a\.txt: the suffix is none of \.map, \.yaml, \.yml"):
            load_maps(tmp_path / "a.txt")
        with pytest.raises(MapError, match=r"a\.txt: the suffix is none of \.scen, \.json"):
            load_instances(tmp_path / "a.txt")
        with pytest.raises(MapError, match=r"b\.json: No such file"):
            load_instances(tmp_path / "b.json")
        with pytest.raises(MapError, match="is a folder"):
            load_instances(tmp_path)
        with pytest.raises(MapError, match=r"no files with maps \(\.map, \.yaml, \.yml\)"):
            load_maps(tmp_path)

    def test_two_maps_of_one_name_in_a_folder(self, tmp_path):
        write(tmp_path, "a.yaml", YAML)
        write(tmp_path, "m.map", MAP)
        with pytest.raises(MapError, match=r"m\.map: a second map 'm'; the first is in .*a\.yaml"):
            load_maps(tmp_path)

    def test_file_and_line_are_named(self, tmp_path):
        path = write(tmp_path, "m.map", MAP.replace("..@.\n..@.\n", "..@.\n..@\n"))
        with pytest.raises(MapError) as error:
            load_maps(path)
        assert str(error.value).startswith(f"{path}:6: ")
        path = write(tmp_path, "a.scen", SCEN.replace("\t1\t1\t1\t0\t1", "\t0\t0\t1\t0\t1"))
        with pytest.raises(MapError) as error:
            load_instances(path, MAPS)
        assert str(error.value).startswith(f"{path}:3: agent 1: ")
