"""The space-time programme against a plain search, and the table of reservations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from space_time_oracle import distances, least_delay, options

from flockax.agents.planners.space_time import NUM_ORDERS, TAKEN, Board, best_path, delay, reserve

FAR = 10**4


def random_others(rng, walls, start, window, count):
    """Paths of some agents that keep clear of each other; some are gone after a while."""
    free = [tuple(map(int, c)) for c in np.argwhere(~walls) if tuple(c) != start]
    places = [free[i] for i in rng.permutation(len(free))[:count]]
    others = [[place] for place in places]
    for _ in range(window):
        taken = {}
        moves = set()
        for path in others:
            here = path[-1]
            if here is None or rng.random() < 0.05:
                path.append(None)
                continue
            ways = list(options(walls, here))
            for i in rng.permutation(len(ways)):
                there = ways[i]
                later = [p[-1] for p in others if len(p) == len(path)]
                if there in taken or (there, here) in moves or (there != here and there in later):
                    continue
                break
            else:
                there = here
            taken[there] = True
            moves.add((here, there))
            path.append(there)
        cells = [path[-1] for path in others if path[-1] is not None]
        assert len(set(cells)) == len(cells)
    return others


def case(seed, window, on_target):
    rng = np.random.default_rng(seed)
    walls = rng.random((4, 5)) < 0.25
    free = [tuple(map(int, c)) for c in np.argwhere(~walls)]
    start = free[rng.integers(len(free))]
    reachable = sorted(distances(walls, start))
    goal = reachable[rng.integers(len(reachable))]
    count = int(rng.integers(0, len(free) // 2 + 1))
    others = random_others(rng, walls, start, window, count)
    return rng, walls, start, goal, others


def as_cells(board, path):
    return [board.size if c is None else int(board.cell(np.array(c))) for c in path]


def position(board, cell):
    """(row, column), or None for who is gone."""
    row, column = divmod(int(cell), board.columns)
    return None if cell == board.size else (row - board.window, column - board.window)


@partial(jax.jit, static_argnames=("board", "on_target"))
def compiled(margined, others, start, goal, field, order, board, on_target):
    table = jnp.broadcast_to(margined.T, (board.window, board.size, 1))
    table = reserve(table, others[..., None], 1, board)
    start, goal = board.cell(start)[None], board.cell(goal)[None]
    distance = field.reshape(-1)
    to_goal = distance[board.on_map(start)]
    ahead = distance[board.on_map(board.square(start))] - to_goal
    cells, found = best_path(table, start, goal, ahead, order[None], board, on_target)
    late = delay(cells, goal, to_goal, distance[board.on_map(cells[-1])], on_target)
    return cells[:, 0], found[0], late[0]


def planned(board, walls, start, goal, others, order, on_target):
    """``(path, found, delay)`` of `best_path`, for one environment and at most 12 others."""
    paths = [as_cells(board, path) for path in others]
    paths += [[board.size] * (board.window + 1)] * (12 - len(others))
    field = np.full(walls.shape, FAR, np.int32)
    for cell, steps in distances(walls, goal).items():
        field[cell] = steps
    ends = (jnp.asarray(x, jnp.int32) for x in (start, goal))
    cells, found, late = compiled(
        board.margined(walls[None]),
        np.array(paths, np.int32).T,
        *ends,
        field,
        jnp.int32(order),
        board=board,
        on_target=on_target,
    )
    return [position(board, cell) for cell in np.asarray(cells)], bool(found), int(late)


@pytest.mark.parametrize("on_target", ["finish", "nothing", "restart"])
def test_least_delay_around_others(on_target):
    """The path is legal, keeps clear and is as good as the best of all paths."""
    window, unsolved, late_ones = 4, 0, 0
    for seed in range(60):
        rng, walls, start, goal, others = case(seed, window, on_target)
        board = Board(walls.shape, window)
        order = int(rng.integers(NUM_ORDERS))
        path, found, late = planned(board, walls, start, goal, others, order, on_target)
        best = least_delay(walls, others, start, goal, window, on_target)
        assert found == (best is not None), seed
        if not found:
            unsolved += 1
            continue
        late_ones += best > 0
        assert path[0] == start
        for t in range(window):
            before, after = path[t], path[t + 1]
            if after is None:
                assert on_target == "finish" and goal in path[1 : t + 1]
                continue
            assert after in set(options(walls, before)), seed
            assert before != goal or t == 0 or on_target != "finish"
            for other in others:
                assert other[t + 1] != after, seed
                swapped = other[t] == after and other[t + 1] == before
                assert before == after or not swapped, seed
        assert late == best, seed
    assert unsolved >= 3 and late_ones >= 10  # the cases are not all easy


def test_alone_the_path_is_shortest():
    rng = np.random.default_rng(0)
    walls = rng.random((7, 9)) < 0.3
    free = [tuple(map(int, c)) for c in np.argwhere(~walls)]
    for start in free[::5]:
        to_start = distances(walls, start)
        for goal in sorted(to_start)[::4]:
            if goal == start:
                continue
            path, found, late = planned(Board(walls.shape, 6), walls, start, goal, [], 7, "restart")
            assert found and late == 0
            steps = to_start[goal]
            if steps <= 6:
                assert path.index(goal) == steps
            else:
                assert distances(walls, goal)[path[-1]] == steps - 6


def test_equal_moves_are_taken_in_the_given_order():
    """In an empty room all ways to the opposite corner are equally good."""
    walls = np.zeros((5, 5), bool)
    firsts = {
        planned(Board((5, 5), 3), walls, (0, 0), (4, 4), [], order, "restart")[0][1]
        for order in (0, NUM_ORDERS - 1)
    }
    assert firsts == {(1, 0), (0, 1)}


def test_reservations_are_taken_out_again():
    """Also those of agents that follow each other, whose bits share cells."""
    board = Board((3, 4), 2)
    row = [board.cell(np.array([1, c])) for c in range(4)]
    train = np.array([[row[1], row[0]], [row[2], row[1]], [row[2], board.size]], np.int32)[
        ..., None
    ]
    empty = jnp.zeros((2, board.size, 1), jnp.int8)
    table = reserve(empty, jnp.asarray(train), 1, board)
    # The first has gone right from cell 1, into which the second goes at the same time.
    assert int(table[0, row[2], 0]) == TAKEN
    assert int(table[0, row[1], 0]) == TAKEN + 4
    assert int(table[0, row[0], 0]) == 4
    assert int(table[1, row[2], 0]) == TAKEN
    assert int(table[1].sum()) == TAKEN
    without = reserve(table, jnp.asarray(train[:, :1]), -1, board)
    alone = reserve(empty, jnp.asarray(train[:, 1:]), 1, board)
    np.testing.assert_array_equal(without, alone)


def test_swaps_are_barred_in_all_directions():
    board = Board((3, 3), 1)
    middle = int(board.cell(np.array([1, 1])))
    for move, back in ((1, 2), (2, 1), (3, 4), (4, 3)):
        step = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))[move]
        there = int(board.cell(np.array([1 + step[0], 1 + step[1]])))
        path = jnp.asarray([[middle], [there]], jnp.int32)
        table = reserve(jnp.zeros((1, board.size, 1), jnp.int8), path, 1, board)
        assert int(table[0, middle, 0]) == 1 << (back - 1)
