"""Map generators: equal to those of the peers, of the plan they promise, and deterministic."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import label

from flockax.envs.pathfinding.benchmark_maps import (
    benchmark_maze,
    benchmark_random,
    benchmark_warehouse,
)
from flockax.envs.pathfinding.buildings import (
    bottleneck,
    bottleneck_instance,
    room,
    warehouse,
    warehouse_within,
)
from flockax.envs.pathfinding.checks import check_instance
from flockax.envs.pathfinding.formats import load_maps
from flockax.envs.pathfinding.generators import KINDS, generate, maze, random_map, scattered
from flockax.envs.pathfinding.maps import instance_hash
from flockax.envs.pathfinding.pogema_text import format_rows

sizes = st.integers(1, 24)
seeds = st.integers(0, 2**40)


def rows(grid_map) -> list[str]:
    return format_rows(grid_map).split("\n")


def one_component(grid_map) -> bool:
    return label(~grid_map.obstacles)[1] == 1


class TestBenchmark:
    @pytest.mark.parametrize(
        ("file", "make"), [("01-random", benchmark_random), ("02-mazes", benchmark_maze)]
    )
    def test_sets_regenerate(self, data, file, make):
        published = load_maps(data / "pogema_benchmark" / f"{file}.maps.yaml")
        made = [make(i) for i in range(128)]
        assert [m.name for m in made] == list(published)
        assert sum(m == published[m.name] for m in made) == 128

    def test_warehouse_regenerates(self, data):
        published = load_maps(data / "pogema_benchmark" / "03-warehouse.maps.yaml")
        assert published == {"wfi_warehouse": benchmark_warehouse()}

    @pytest.mark.parametrize(
        ("make", "published"),
        [
            (benchmark_random, "d412aa6acc9d6883919c4074bcf7b7ca"),
            (benchmark_maze, "6aea47bfda547683810d0a01d756c697"),
        ],
    )
    def test_sets_regenerate_without_the_data(self, make, published):
        """The digests are those of the rows in the published files."""
        text = "\n\n".join(format_rows(make(i)) for i in range(128))
        assert hashlib.sha256(text.encode()).hexdigest()[:32] == published

    def test_higher_seeds_give_further_maps(self):
        for make in (benchmark_random, benchmark_maze):
            made = [make(i) for i in range(128, 160)]
            assert len({m.obstacles.tobytes() for m in made}) == 32
            assert {n for m in made for n in m.shape} <= set(range(17, 22))

    def test_seeds_are_checked(self):
        for make in (benchmark_random, benchmark_maze):
            for seed in (-1, 1.0, True):
                with pytest.raises(ValueError, match=f"{make.__name__}: seed={seed!r}; allowed"):
                    make(seed)


class TestPeers:
    """Maps recorded from pogema 1.4.0 ("random") and pogema-toolbox 0.1.1."""

    @pytest.mark.parametrize(
        ("made", "recorded"),
        [
            (
                random_map(1, 6, 7, 0.3),
                [".#.#..#", "...#..#", "......#", "..###..", ".#...#.", "#.....#"],
            ),
            (random_map(2, 4, 9, 0.45), ["..#.##...", "##..#.###", "....##.#.", "#...####."]),
            (
                maze(185, 9, 9, 1.0, 3, 0.5),
                [
                    *(".........", ".#######.", "...#.....", "##.###.#.", ".......#."),
                    *(".#######.", ".......#.", ".#####.#.", "........."),
                ],
            ),
            (
                maze(245, 9, 7, 0.2892813684430612, 4, 0.08275915705009373),
                [
                    *(".#.....", ".#.###.", "...#...", ".#####.", ".....#."),
                    *(".#####.", ".......", ".###...", "......."),
                ],
            ),
            (
                scattered(15, 3, 13, 0.21500403735588003),
                ["..#.........#", "...#.##..#...", ".........#..#"],
            ),
        ],
    )
    def test_equal(self, made, recorded):
        assert rows(made) == recorded


class TestRandom:
    def test_density_is_a_probability(self):
        share = random_map(0, 200, 300, 0.3).obstacles.mean()
        assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 60_000) ** 0.5
        assert not random_map(0, 5, 5, 0).obstacles.any()
        assert random_map(0, 5, 5, 1).obstacles.all()

    @settings(max_examples=50, deadline=None)
    @given(seeds, sizes, sizes, st.floats(0, 1))
    def test_scattered_has_an_exact_number(self, seed, height, width, density):
        made = scattered(seed, height, width, density)
        assert made.shape == (height, width)
        assert made.obstacles.sum() == int(height * width * density)


class TestMaze:
    @settings(max_examples=50, deadline=None)
    @given(seeds, st.integers(0, 10), st.integers(0, 10), st.floats(0, 1), st.integers(1, 9))
    def test_crossings_stay_free(self, seed, height, width, density, wall_length):
        made = maze(seed, 2 * height + 1, 2 * width + 1, density, wall_length)
        assert made.shape == (2 * height + 1, 2 * width + 1)
        # Walls stand on posts and between two posts, so never where two free lines cross.
        assert not made.obstacles[::2, ::2].any()

    def test_straight_walls(self):
        # With no other weight a wall keeps its first direction until its end.
        straight = maze(3, 41, 41, 0.05, 20, 1.0).obstacles
        crooked = maze(3, 41, 41, 0.05, 20, 0.0).obstacles

        def corners(walls):
            posts = walls[1::2, 1::2]
            vertical = walls[:-1:2, 1::2] | walls[2::2, 1::2]
            horizontal = walls[1::2, :-1:2] | walls[1::2, 2::2]
            return int((posts & vertical & horizontal).sum())

        assert corners(straight) < corners(crooked) / 3


class TestWarehouse:
    def test_plan(self):
        assert rows(warehouse(1, 2, 3)) == [
            "!!!!!!!!!!!!!!!!!!!!!",
            "!@@!@@!$$$!$$$!@@!@@!",
            "!@@!@@!###!###!@@!@@!",
            "!@@!@@!$$$!$$$!@@!@@!",
            "!!!!!!!!!!!!!!!!!!!!!",
        ]

    @pytest.mark.parametrize(("shelves", "size"), [((8, 3, 10), (33, 46)), ((2, 5, 4), (9, 38))])
    def test_size(self, shelves, size):
        made = warehouse(*shelves)
        assert made.shape == size and one_component(made)
        assert made.obstacles.sum() == np.prod(shelves)
        assert made.goals.sum() == 2 * np.prod(shelves)
        assert made.starts.sum() == shelves[0] * 3 * 8

    def test_any_size_is_filled(self):
        assert rows(warehouse_within(7, 26)) == [
            "!!!!!!!!!!!!!!!!!!!!!!!!!!",
            "!@@!@@!$$$$$$$$$$!@@!@@!!!",
            "!@@!@@!##########!@@!@@!!!",
            "!@@!@@!$$$$$$$$$$!@@!@@!!!",
            *["!!!!!!!!!!!!!!!!!!!!!!!!!!"] * 3,
        ]
        whole = warehouse_within(33, 46)
        assert whole == warehouse(8, 3, 10)
        for size in ((4, 46), (33, 23)):
            with pytest.raises(ValueError, match="at least 5 rows and 24 columns"):
                warehouse_within(*size)


class TestRoom:
    @settings(max_examples=80, deadline=None)
    @given(seeds, sizes, sizes, st.integers(1, 9), st.integers(1, 4))
    def test_all_cells_are_joined(self, seed, height, width, room_size, doors):
        made = room(seed, height, width, room_size, doors)
        assert made.shape == (height, width) and one_component(made)

    def test_plan(self):
        walls = room(5, 15, 23, 7).obstacles
        assert walls[7].sum() == 23 - 3 and walls[:, 7].sum() == walls[:, 15].sum() == 15 - 2
        inside = np.delete(np.delete(walls, 7, 0), [7, 15], 1)
        assert not inside.any()
        for part in (slice(0, 7), slice(8, 15), slice(16, 23)):
            assert walls[7, part].sum() == 6
        assert room(5, 15, 23, 7, doors=3).obstacles[7].sum() == 23 - 9

    def test_doors_are_anywhere_in_a_wall(self):
        doors = [int(np.flatnonzero(~room(s, 15, 7, 7).obstacles[7])[0]) for s in range(100)]
        assert set(doors) == set(range(7))

    def test_no_wall_at_the_end(self):
        assert room(0, 8, 8, 7).obstacles.sum() == 0
        assert room(0, 9, 8, 7).obstacles.sum() == 7


class TestBottleneck:
    def test_plan(self):
        assert rows(bottleneck(3)) == [
            *[".........", "........."],
            *["####!####"] * 3,
            *[".........", "........."],
        ]

    @settings(max_examples=50, deadline=None)
    @given(seeds, st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.data())
    def test_agents_change_rooms(self, seed, length, half, room_rows, draw):
        width = 2 * half + 1
        count = draw.draw(st.integers(1, 2 * width * room_rows))
        task = bottleneck_instance(seed, length, count, width, room_rows)
        grid_map = bottleneck(length, width, room_rows)
        assert task.map_name == grid_map.name and task.num_agents == count
        check_instance(grid_map, task, distinct_goals=True)
        top = np.arange(count) % 2 == 0
        lower = room_rows + length
        assert np.array_equal(task.starts[:, 0] < room_rows, top)
        assert np.array_equal(task.starts[:, 0] >= lower, ~top)
        assert np.array_equal(task.goals[:, 0, 0] >= lower, top)
        assert np.array_equal(task.goals[:, 0, 0] < room_rows, ~top)

    def test_all_cells_of_the_rooms_are_drawn(self):
        tasks = [bottleneck_instance(s, 3) for s in range(300)]
        for agent in (0, 1):
            assert len({tuple(t.starts[agent]) for t in tasks}) == 18
            assert len({tuple(t.goals[agent, 0]) for t in tasks}) == 18

    def test_too_many_agents(self):
        with pytest.raises(ValueError, match="num_agents=37; allowed: at most 36"):
            bottleneck_instance(0, 3, 37)


class TestGenerate:
    @settings(max_examples=80, deadline=None)
    @given(st.sampled_from(KINDS), seeds, st.integers(5, 40), st.integers(12, 25))
    def test_size_and_repetition(self, kind, seed, height, half):
        width = 2 * half + 1
        made = generate(kind, seed, height, width)
        assert made.shape == (height, width)
        assert made == generate(kind, seed, height, width)
        assert generate(kind, seed, 25).shape == (25, 25)

    def test_kinds(self):
        assert generate("random", 4, 9, 8, 0.4) == random_map(4, 9, 8, 0.4)
        assert generate("maze", 4, 9, 11) == maze(4, 9, 11)
        assert rows(generate("maze", 4, 10, 8)) == [r[:8] for r in rows(maze(4, 11, 9))[:10]]
        assert generate("warehouse", 4, 33, 46) == warehouse()
        assert generate("room", 4, 20, 31) == room(4, 20, 31)
        assert generate("bottleneck", 4, 20, 9) == bottleneck(16)

    @pytest.mark.parametrize("kind", ["random", "maze", "room"])
    def test_seeds_give_different_maps(self, kind):
        assert len({generate(kind, s, 21, 21).obstacles.tobytes() for s in range(20)}) == 20

    def test_seeds_give_different_bottleneck_tasks(self):
        tasks = [bottleneck_instance(s, 5) for s in range(20)]
        assert len({instance_hash(bottleneck(5), t) for t in tasks}) > 18


class TestRefusals:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: generate("cave", 0, 9), "kind='cave' is not one of 'random', 'maze'"),
            (lambda: generate("bottleneck", 0, 4, 9), "height=4; allowed: at least 5"),
            (lambda: generate("bottleneck", 0, 9, 8), "width=8; allowed: odd"),
            (lambda: generate("warehouse", 0, 9, 8), "width=8; allowed: at least 5 rows"),
            (lambda: random_map(-1, 5, 5), "random_map: seed=-1; allowed: an integer >= 0"),
            (lambda: random_map(0, 0, 5), "random_map: height=0; allowed: an integer >= 1"),
            (lambda: random_map(0, 5, 2.0), "random_map: width=2.0; allowed"),
            (lambda: random_map(0, 5, 5, 1.5), r"density=1.5; allowed: a number in \[0, 1\]"),
            (lambda: random_map(0, 5, 5, float("nan")), "density=nan"),
            (lambda: scattered(0, 5, 5, -0.1), "scattered: density=-0.1"),
            (lambda: scattered(0, True, 5, 0.1), "scattered: height=True"),
            (lambda: maze(0, 8, 9), "height=8, width=9; allowed: odd"),
            (lambda: maze(0, 9, 9, wall_length=0), "wall_length=0"),
            (lambda: maze(0, 9, 9, go_straight=2), "go_straight=2"),
            (lambda: maze(0, 9, 9, density="much"), "density='much'"),
            (lambda: warehouse(0), "warehouse: shelf_rows=0"),
            (lambda: room(0, 9, 9, room_size=0), "room: room_size=0"),
            (lambda: room(0, 9, 9, doors=0), "room: doors=0"),
            (lambda: bottleneck(0), "bottleneck: length=0"),
            (lambda: bottleneck(3, width=1), "bottleneck: width=1; allowed: an integer >= 3"),
            (lambda: bottleneck_instance(0, 3, 0), "num_agents=0"),
        ],
    )
    def test_bad_arguments(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()
