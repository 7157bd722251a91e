"""LaCAM against a search over all joint moves, and plans as policies."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from space_time_oracle import joint_cost, joint_moves

from flockax.agents.planners.lacam import Lacam, Plans, Search, actions_of, solve, validate_plan
from flockax.agents.planners.pibt import Pibt
from flockax.envs import VectorEnv
from flockax.envs.pathfinding.formats import load_maps
from flockax.envs.pathfinding.given import from_instances, from_maps
from flockax.envs.pathfinding.maps import GridMap, Instance


def grid(*rows):
    return np.array([[c == "#" for c in row] for row in rows])


# Two have to pass each other in a corridor whose only bay is behind one of them.
CORRIDOR = grid("#.#######", ".........")
CORRIDOR_ENDS = ([(1, 2), (1, 6)], [(1, 8), (1, 0)])


def cost(paths, goals):
    rests = (paths[1:] == goals).all(-1) & (paths[:-1] == goals).all(-1)
    return int((~rests).sum())


def tiny(seed):
    rng = np.random.default_rng(seed)
    shape = [(2, 3), (3, 3), (1, 5), (2, 4)][seed % 4]
    walls = rng.random(shape) < 0.2
    free = np.argwhere(~walls)
    agents = min(2 + seed % 2, len(free) - 1)
    starts, goals = (free[rng.permutation(len(free))[:agents]] for _ in range(2))
    return walls, starts, goals


def test_complete_on_tiny_maps():
    """A solution wherever there is one; where there is none the search ends and knows it."""
    solved = unsolvable = 0
    for seed in range(120):
        walls, starts, goals = tiny(seed)
        search = Search(walls, starts, goals, seed)
        search.run(60.0)
        if joint_cost(walls, starts, goals) is None:
            unsolvable += 1
            assert search.paths is None and search.exhausted, seed
        else:
            solved += 1
            validate_plan(walls, search.paths, starts, goals)
            assert search.cost == cost(search.paths, goals)
    assert solved >= 30 and unsolvable >= 30


def test_every_joint_move_is_offered():
    """A configuration that is visited often enough leads to all that can follow it."""
    for seed in range(0, 24, 5):
        walls, starts, goals = tiny(seed)
        search = Search(walls, starts, goals, seed)
        node, offered = search._first, set()
        while node.tree:
            offered.add(search._successor(node, node.tree.popleft()))
        assert offered - {None} == {
            tuple(row * walls.shape[1] + column for row, column in after)
            for after in joint_moves(walls, tuple(map(tuple, starts)))
        }


def test_best_in_the_end():
    """Searched to the end, the cost is the least of all."""
    dearer = 0
    for seed in range(0, 60, 2):  # two agents
        walls, starts, goals = tiny(seed)
        best = joint_cost(walls, starts, goals)
        search = Search(walls, starts, goals, seed)
        search.run(60.0, anytime=True)
        assert search.exhausted
        if best is None:
            assert search.paths is None
            continue
        validate_plan(walls, search.paths, starts, goals)
        assert search.cost == cost(search.paths, goals) == best, seed
        dearer += cost(solve(walls, starts, goals, seed=seed), goals) > best
    assert dearer > 0  # the first solution is not always the best


def test_agents_that_stand_on_their_goals():
    walls, cells = grid("..."), [(0, 0), (0, 2)]
    assert solve(walls, cells, cells).shape == (1, 2, 2)


def test_changing_places_in_a_corridor():
    """PIBT fails."""
    starts, goals = CORRIDOR_ENDS
    paths = solve(CORRIDOR, starts, goals, 10.0)
    validate_plan(CORRIDOR, paths, starts, goals)
    env, params = one_shot(CORRIDOR, starts, goals)
    assert not arrives(env, params, Pibt(env, params), 150)
    assert arrives(env, params, Lacam(env, params), len(paths) - 1)


def test_without_a_bay_there_is_no_way():
    search = Search(grid("....."), [(0, 0), (0, 4)], [(0, 4), (0, 0)])
    search.run(30.0)
    assert search.paths is None and search.exhausted


def test_goals_that_no_way_leads_to():
    search = Search(grid(".#."), [(0, 0)], [(0, 2)])
    search.run(0.0)
    assert search.paths is None and search.exhausted


def test_time_runs_out():
    starts, goals = CORRIDOR_ENDS
    search = Search(CORRIDOR, starts, goals)
    search.run(0.0)
    assert search.paths is None and not search.exhausted


def test_the_seed_decides():
    walls = np.zeros((6, 6), bool)
    cells = np.argwhere(~walls)
    one, same, other = (solve(walls, cells[:12], cells[::-1][:12], seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.shape != other.shape or (one != other).any()


@pytest.mark.parametrize(
    ("starts", "goals", "message"),
    [
        ([(0, 1)], [(0, 0)], r"starts\[0\] = \(0, 1\) is in an obstacle"),
        ([(0, 0)], [(0, 3)], r"goals\[0\] = \(0, 3\) is outside"),
        ([(0, -1)], [(0, 0)], r"starts\[0\] = \(0, -1\) is outside"),
        ([(0, 0), (0, 0)], [(0, 0), (0, 2)], r"starts\[1\] = \(0, 0\) is the same as starts\[0\]"),
        ([(0, 0), (0, 2)], [(0, 0)], "goals has 1 agents, starts 2"),
        ([0, 0], [(0, 0)], r"starts has shape \(2,\), not \(A, 2\)"),
    ],
)
def test_refused_ends(starts, goals, message):
    with pytest.raises(ValueError, match=message):
        solve(grid(".#."), starts, goals)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([[(0, 0)], [(0, 1)]], "agent 0 is in an obstacle or outside at step 1"),
        ([[(1, 2)], [(1, 3)]], "agent 0 is in an obstacle or outside at step 1"),
        ([[(1, 0)], [(1, 2)]], "agent 0 moves farther than one cell from at step 0"),
        ([[(1, 0), (1, 1)], [(1, 1), (1, 1)]], "step 1: two agents are in one cell"),
        ([[(1, 0), (1, 1)], [(1, 1), (1, 0)]], "step 0: two agents change places"),
        ([[(1, 0)], [(0, 0)]], "agent 0 is not at its start"),
        ([[(0, 0)], [(0, 0)]], "agent 0 is not at its goal"),
    ],
)
def test_faults_of_plans_are_found(paths, message):
    ends = ([(0, 0)], [(1, 0)]) if len(paths[0]) == 1 and "not at" in message else (None, None)
    with pytest.raises(ValueError, match=message):
        validate_plan(grid(".#.", "..."), paths, *ends)


@pytest.mark.parametrize(
    ("name", "agents", "stride"),
    [("01-random", 64, 16), ("02-mazes", 64, 16), ("03-warehouse", 192, 64)],
)
def test_the_benchmark_is_solved(data, name, agents, stride):
    folder = data / "pogema_benchmark"
    maps = load_maps(folder / f"{name}.maps.yaml")
    scenarios = json.loads((folder / f"{name}-mapf.json").read_text())["scenarios"]
    for scenario in scenarios[::stride]:
        walls = maps[scenario["map_name"]].obstacles
        starts, goals = (scenario[k][:agents] for k in ("agents_xy", "targets_xy"))
        paths = solve(walls, starts, goals, 60.0)
        validate_plan(walls, paths, starts, goals)


def one_shot(walls, starts, goals, **fields):
    return several([(walls, starts, goals)], **fields)


def several(problems, **fields):
    """An environment with one instance of each (walls, starts, goals)."""
    maps = {f"m{i}": GridMap(f"m{i}", walls) for i, (walls, *_) in enumerate(problems)}
    instances = [
        Instance(f"m{i}", 0, np.array(starts), np.array(goals)[:, None])
        for i, (_, starts, goals) in enumerate(problems)
    ]
    fields = {"collision": "soft", "on_target": "nothing", **fields}
    return from_instances(maps, instances, **fields)


def arrives(env, params, policy, steps):
    """Whether the episode of instance 0 ends in success within some steps."""
    state = jax.tree.map(lambda x: x[None], env.instance_state(params, 0))

    def step(loop, key):
        carry, state, reset = loop
        action, carry = policy.act(key, carry, None, state, params, reset, True)
        batch = jax.vmap(env.step, (0, 0, 0, None))
        _, state, _, terminated, *_ = batch(key[None], state, action, params)
        return (carry, state, jnp.zeros(1, bool)), terminated[0]

    start = (policy.init(1), state, jnp.ones(1, bool))
    keys = jax.random.split(jax.random.key(0), steps)
    return bool(jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(start).any())


def test_plans_of_several_instances_over_episodes():
    """Each environment plays the plan of its instance, from the start in every episode."""
    starts, goals = CORRIDOR_ENDS
    line = grid("...")
    problems = [
        (CORRIDOR, starts, goals),
        (line, [(0, 0), (0, 1)], [(0, 1), (0, 2)]),
        (line, [(0, 0), (0, 2)], [(0, 2), (0, 0)]),  # no solution
    ]
    env, params = several(problems)
    params = params.replace(horizon=jnp.asarray(50, params.horizon.dtype))
    policy = Lacam(env, params, rounds=0)
    np.testing.assert_array_equal(policy.solved, [True, True, False])
    length = len(solve(*problems[0])) - 1
    assert policy.actions.shape == (3, length + 1, 2)

    vector = VectorEnv(env, 6)
    observation, state = vector.reset(jax.random.key(0), params)

    def step(loop, key):
        observation, state = loop
        before = vector.env_state(state)
        action, _ = policy.act(key, (), observation, before, params, None, True)
        observation, state, _, terminated, truncated, _ = vector.step(key, state, action, params)
        return (observation, state), (before, action, terminated, truncated)

    keys = jax.random.split(jax.random.key(1), 120)
    before, action, terminated, truncated = (
        jax.tree.map(np.asarray, x)
        for x in jax.jit(lambda loop: jax.lax.scan(step, loop, keys)[1])((observation, state))
    )
    instance, time = before.instance, before.time
    for i, steps in ((0, length), (1, 1)):
        ends = terminated[instance == i], time[instance == i]
        assert ends[0].sum() >= 3
        assert set(ends[1][ends[0]]) == {steps - 1}
        assert not truncated[instance == i].any()
    assert truncated[instance == 2].any() and not action[instance == 2].any()


def test_after_the_plan_all_stay():
    env, params = one_shot(grid("..."), [(0, 0)], [(0, 1)])
    policy = Plans(env, params, np.array([[[4]]]))
    state = jax.tree.map(lambda x: jnp.stack([x] * 3), env.instance_state(params, 0))
    state = state.replace(time=jnp.array([0, 1, 2]))
    action, _ = policy.act(None, (), None, state, params, None, True)
    np.testing.assert_array_equal(action, [[4], [0], [0]])


def test_actions_lead_along_paths():
    paths = [[(1, 1)], [(1, 1)], [(0, 1)], [(1, 1)], [(1, 0)], [(1, 1)]]
    np.testing.assert_array_equal(actions_of(paths)[:, 0], [0, 1, 2, 3, 4])


def test_refused_environments():
    env, params = from_maps([grid("...")], num_agents=1)
    for make in (Lacam, lambda e, p: Plans(e, p, np.zeros((1, 1, 1)))):
        with pytest.raises(ValueError, match=r"draws its starts \(num_instances=0\)"):
            make(env, params)
    problem = (grid("..."), [(0, 0)], [(0, 1)])
    with pytest.raises(ValueError, match="collision='priority'; plans hold only with"):
        Lacam(*one_shot(*problem, collision="priority"))
    queue = Instance.from_queues("m", 0, [[0, 0]], [[[0, 1], [0, 0]]])
    lifelong = {"collision": "soft", "on_target": "restart"}
    with pytest.raises(ValueError, match="on_target='restart'; plans hold only with"):
        Lacam(*from_instances({"m": GridMap("m", problem[0])}, [queue], **lifelong))
    env, params = one_shot(*problem)
    with pytest.raises(ValueError, match=r"plans has shape \(1, 3\), not \(1, T, 1\)"):
        Plans(env, params, np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"plans has actions 0 .. 5, not 0 .. 4"):
        Plans(env, params, np.array([[[0], [5]]]))
