"""Plans that are made cheaper stay plans, and get close to the best there are."""

import numpy as np
import pytest
from space_time_oracle import distances, joint_cost, options

from flockax.agents.planners.lacam import Lacam, solve, validate_plan
from flockax.agents.planners.plan_search import _Plan, arrivals, improve_plan
from flockax.envs.pathfinding.given import from_instances
from flockax.envs.pathfinding.maps import GridMap, Instance


def crowd(seed, side=8, agents=12, density=0.15):
    """A solvable problem with its first plan."""
    rng = np.random.default_rng(seed)
    while True:
        walls = rng.random((side, side)) < density
        free = np.argwhere(~walls)
        starts, goals = (free[rng.permutation(len(free))[:agents]] for _ in range(2))
        paths = solve(walls, starts, goals, seed=seed)
        if paths is not None:
            return walls, starts, goals, paths


@pytest.mark.parametrize("group", [1, 3, 12])
def test_a_plan_stays_a_plan_and_gets_no_dearer(group):
    gained = 0
    for seed in range(8):
        walls, starts, goals, paths = crowd(seed)
        costs = [arrivals(paths).sum()]
        for rounds in (1, 5, 40):
            better = improve_plan(walls, paths, rounds, seed, group)
            validate_plan(walls, better, starts, goals)
            assert len(better) <= len(paths)
            costs.append(arrivals(better).sum())
        # With equal seeds more rounds go on from where fewer stopped.
        assert costs == sorted(costs, reverse=True)
        gained += costs[0] - costs[-1]
    assert gained > 50


def test_one_agent_gets_the_shortest_path():
    walls, starts, goals, _ = crowd(3)
    steps = distances(walls, tuple(goals[0]))
    detour = [tuple(starts[0])]
    rng = np.random.default_rng(0)
    while detour[-1] != tuple(goals[0]):
        near = [c for c in steps if abs(c[0] - detour[-1][0]) + abs(c[1] - detour[-1][1]) <= 1]
        detour.append(near[rng.integers(len(near))])
    paths = np.array(detour)[:, None]
    assert len(paths) - 1 > steps[tuple(starts[0])]
    assert len(improve_plan(walls, paths, 1)) - 1 == steps[tuple(starts[0])]


def earliest(walls, others, start, goal):
    """The first step from which an agent can stay on its goal, by trying every cell at every step."""
    steps = len(others)
    cells, taken = {start}, [set(row) for row in others]
    for time in range(steps):
        if goal in cells and all(goal not in later for later in taken[time:]):
            return time
        if time + 1 < steps:
            moves = set(zip(others[time], others[time + 1], strict=True))
            cells = {
                there
                for cell in cells
                for there in options(walls, cell)
                if there not in taken[time + 1] and (there, cell) not in moves
            }
    return None


def test_a_new_path_is_the_earliest_around_the_others():
    sooner = 0
    for seed in range(6):
        walls, starts, goals, paths = crowd(seed, side=6, agents=10)
        for agent in range(10):
            plan = _Plan(walls, paths, np.random.default_rng(seed))
            plan.retry(np.array([agent]))
            others = [
                [tuple(cell) for i, cell in enumerate(row) if i != agent] for row in paths.tolist()
            ]
            best = earliest(walls, others, tuple(starts[agent]), tuple(goals[agent]))
            assert plan.arrival[agent] == best
            validate_plan(walls, plan.paths(), starts, goals)
            sooner += best < arrivals(paths)[agent]
    assert sooner > 10


def test_the_best_plan_is_found_on_tiny_maps():
    """Groups of all agents find the least sum of costs, where planning in some order can."""
    found = 0
    for seed in range(30):
        walls, starts, goals, paths = crowd(seed, side=3, agents=2, density=0.2)
        best = joint_cost(walls, starts, goals)
        better = arrivals(improve_plan(walls, paths, 30, seed)).sum()
        assert better >= best
        found += better == best
    assert found >= 28


def test_agents_that_are_there_and_plans_without_steps():
    walls, cells = np.zeros((2, 2), bool), np.array([[[0, 0], [1, 1]]])
    np.testing.assert_array_equal(improve_plan(walls, cells, 10), cells)


def test_the_policy_plays_the_cheaper_plan():
    walls, starts, goals, paths = crowd(1)
    instance = Instance("m", 0, starts, goals[:, None])
    env, params = from_instances(
        {"m": GridMap("m", walls)}, [instance], collision="soft", on_target="nothing"
    )
    plain, better = (Lacam(env, params, seed=1, rounds=rounds) for rounds in (0, 64))
    assert plain.actions.shape[1] == len(paths)
    expected = len(improve_plan(walls, paths, 64, 1))
    assert better.actions.shape[1] == expected < len(paths)
