"""`grid_pathfinding` beside parity: distances that agents see, rewards of its own, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.agents.planners.pibt import Pibt, priorities
from flockax.envs import make
from flockax.envs.pathfinding.given import from_instances, from_maps
from flockax.envs.pathfinding.maps import GridMap, Instance
from flockax.envs.spec import unpack

MAZE = np.array(
    [
        [0, 0, 0, 1, 0],
        [1, 1, 0, 1, 0],
        [0, 0, 0, 1, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0],
    ],
    bool,
)


def steps_to(goal):
    """Breadth first, in Python."""
    distance, todo = {goal: 0}, [goal]
    for r, c in todo:
        for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            inside = 0 <= cell[0] < 5 and 0 <= cell[1] < 5
            if inside and not MAZE[cell] and cell not in distance:
                distance[cell] = distance[r, c] + 1
                todo.append(cell)
    return distance


def test_the_guide_shows_steps_to_the_goal_relative_to_the_own_cell():
    radius = 3
    env, params = from_maps([MAZE], num_agents=2, guide="distance", obs_radius=radius)
    state = env.reset(jax.random.key(0), params)[1]
    position, goal = np.array([[0, 0], [2, 1]]), np.array([[0, 4], [4, 4]])
    state = state.replace(position=jnp.asarray(position), goal=jnp.asarray(goal))
    parts = np.asarray(unpack(env.observe(state, params).features, env.feature_spec))
    for agent in range(2):
        distance = steps_to(tuple(goal[agent]))
        own = distance[tuple(position[agent])]
        for row in range(-radius, radius + 1):
            for column in range(-radius, radius + 1):
                cell = (position[agent][0] + row, position[agent][1] + column)
                expected = np.clip(distance[cell] - own, -15, 14) if cell in distance else 15
                assert parts[agent, 3, row + radius, column + radius] == expected


def test_waypoints_show_where_the_agents_in_the_window_would_go():
    radius, num_agents = 2, 4
    env, params = from_maps(
        [MAZE], num_agents=num_agents, guide="waypoints", obs_radius=radius, on_target="nothing"
    )
    plain, _ = from_maps([MAZE], num_agents=num_agents, obs_radius=radius, on_target="nothing")
    near, _ = from_maps(
        [MAZE], num_agents=num_agents, guide="distance", obs_radius=radius, on_target="nothing"
    )
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    seen = 0
    for number in range(20):
        state = env.reset(jax.random.key(number), params)[1]
        if number == 0:
            state = state.replace(goal=state.goal.at[0].set(state.position[0]))
        features = env.observe(state, params).features
        assert features.dtype == np.int16
        parts = np.asarray(unpack(features, env.feature_spec))
        others = [
            np.asarray(unpack(e.observe(state, params).features, e.feature_spec))
            for e in (plain, near)
        ]
        np.testing.assert_array_equal(parts[:, :3], others[0])
        np.testing.assert_array_equal(parts[:, 8], others[1][:, 3])
        position, goal = (np.asarray(x) for x in (state.position, state.goal))
        expected = np.zeros_like(parts[:, 3:7])
        for other in range(num_agents):
            distance = steps_to(tuple(goal[other]))
            own = distance[tuple(position[other])]
            nearer = [distance.get(tuple(position[other] + m), 99) < own for m in moves]
            assert any(nearer) == (own > 0)
            for agent in range(num_agents):
                row, column = position[other] - position[agent] + radius
                if 0 <= row <= 2 * radius and 0 <= column <= 2 * radius:
                    expected[agent, :, row, column] = nearer
                    seen += agent != other
        np.testing.assert_array_equal(parts[:, 3:7], expected)
    assert seen > 50


@pytest.mark.parametrize("on_target", ["finish", "nothing", "restart"])
def test_who_has_waited_longer_is_whom_pibt_lets_go_first(on_target):
    num_agents, radius = 6, 2
    env, params = from_maps(
        [MAZE], num_agents=num_agents, guide="waypoints", obs_radius=radius, on_target=on_target,
        collision="soft",
    )  # fmt: skip
    policy = Pibt(env, params)
    observation, state = env.reset(jax.random.key(3), params)
    carry, step, act = policy.init(1), jax.jit(env.step), jax.jit(policy.act, static_argnums=6)
    marked = 0
    for number in range(40):
        parts = np.asarray(unpack(observation.features, env.feature_spec))
        many = jax.tree.map(lambda x: x[None], (observation, state))
        key = jax.random.key(number)
        action, carry = act(key, carry, *many, params, jnp.array([number == 0]), False)
        rank = priorities(carry)[0]
        alive, position = np.asarray(state.alive), np.asarray(state.position)
        for agent in np.flatnonzero(alive):
            expected = np.zeros(parts.shape[2:], int)
            for other in np.flatnonzero(alive):
                row, column = position[other] - position[agent] + radius
                before = (-rank[other], other) < (-rank[agent], agent)
                if before and 0 <= row <= 2 * radius and 0 <= column <= 2 * radius:
                    expected[row, column] = 1
            np.testing.assert_array_equal(parts[agent, 7], expected)
            marked += expected.sum()
        # Every third step at random, so that agents also wait otherwise than PIBT has them.
        if number % 3 == 0:
            action = jax.random.randint(key, action.shape, 0, 5)
        observation, state, _, terminated, _, _ = step(key, state, action[0], params)
        if terminated:
            break
    assert marked > 20


def test_shaping_terms_are_added():
    env, params = from_maps(
        [MAZE], num_agents=2, guide="distance", obs_radius=1, on_target="nothing", collision="soft",
    )  # fmt: skip
    terms = {
        "step_reward": -0.1, "goal_reward": 0.5, "collision_reward": -2.0, "progress_reward": 0.25,
        "arrival_reward": 10.0,
    }  # fmt: skip
    params = params.replace(**{name: jnp.asarray(x) for name, x in terms.items()})
    state = env.reset(jax.random.key(0), params)[1]
    state = state.replace(position=jnp.array([[0, 0], [4, 4]]), goal=jnp.array([[0, 2], [4, 4]]))
    step = jax.jit(env.step)
    _, _, reward, terminated, _, _ = step(jax.random.key(0), state, jnp.array([4, 0]), params)
    np.testing.assert_allclose(reward, [-0.1 + 0.25, 0.5], atol=1e-6)
    assert not terminated
    _, _, reward, _, _, _ = step(jax.random.key(0), state, jnp.array([2, 1]), params)
    np.testing.assert_allclose(reward, [-0.1 - 2.0, -0.1 - 0.25], atol=1e-6)
    near = state.replace(position=jnp.array([[0, 1], [4, 4]]))
    _, _, reward, terminated, _, info = step(jax.random.key(0), near, jnp.array([4, 0]), params)
    np.testing.assert_allclose(reward, [10.5 + 0.25, 10.5], atol=1e-6)
    assert terminated and info["metrics"]["on_goal"] == 1


def test_masks_close_moves_into_obstacles():
    env, params = from_maps([MAZE], num_agents=1, obs_radius=1, mask_obstacles=True)
    state = env.reset(jax.random.key(0), params)[1].replace(position=jnp.array([[0, 0]]))
    mask = env.observe(state, params).action_mask[0]
    assert np.asarray(mask).tolist() == [True, False, False, False, True]


def test_maps_of_different_sizes_have_their_own_border():
    small = np.zeros((2, 3), bool)
    env, params = from_maps([small, MAZE], num_agents=1, obs_radius=2)
    start = env.reset(jax.random.key(0), params)[1]
    start = start.replace(map=jnp.int32(0), position=jnp.array([[1, 2]]), goal=jnp.array([[0, 0]]))
    window = np.asarray(env.observe(start, params).features)[0, 0] & 1
    assert window.tolist() == [
        [1, 1, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]
    ]  # fmt: skip
    for action in (2, 4):
        after = env.step(jax.random.key(0), start, jnp.array([action]), params)[1]
        np.testing.assert_array_equal(after.position, [[1, 2]])


def test_given_instances_come_up_each_with_its_map_and_queue():
    maps = {"a": GridMap("a", np.zeros((1, 4), bool)), "b": GridMap("b", np.zeros((2, 4), bool))}
    instances = [
        Instance.from_queues("a", 0, [[0, 0]], [[[0, 1], [0, 2], [0, 0]]]),
        Instance.from_queues("b", 0, [[1, 3]], [[[1, 2], [1, 3]]]),
    ]
    env, params = from_instances(maps, instances, on_target="restart", obs_radius=1)
    seen = {
        int(env.reset(key, params)[1].instance) for key in jax.random.split(jax.random.key(0), 20)
    }
    assert seen == {0, 1}
    state = env.instance_state(params, 0)
    step, goals = jax.jit(env.step), []
    for action in (4, 4, 3, 3, 4):
        _, state, reward, *_ = step(jax.random.key(0), state, jnp.array([action]), params)
        goals.append((np.asarray(state.goal)[0].tolist(), float(reward[0])))
    assert goals == [([0, 2], 1), ([0, 0], 1), ([0, 0], 0), ([0, 1], 1), ([0, 2], 1)]
    other = env.instance_state(params, 1)
    assert np.asarray(other.position).tolist() == [[1, 3]] and int(other.map) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_agents": 200}, r"num_agents=200 is too many for map .*, in which \d+ fit"),
        ({"density": 1.0}, "is too many for map"),
        ({"density": 1.5}, r"density=1.5 is not a number in \[0, 1\]"),
        ({"obs_radius": 0}, "obs_radius=0 is not an integer in 1 .. 63"),
        ({"collision": "hard"}, "collision='hard' is not one of"),
        ({"compat_visibility": True}, "is a fault of collision='soft'"),
        ({"num_instances": 3}, "needs maps='given'"),
        ({"maps": "benchmark", "size": 10}, "is not 21"),
        ({"maps": ["a"]}, "is not a name or a path"),
        ({"size": 4096, "num_maps": 2}, "cells, more than"),
        ({"maps": "city"}, "maps='city' is neither a file nor one of random, maze"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        make("grid_pathfinding", **fields)


@pytest.mark.parametrize(
    ("starts", "goal", "message"),
    [
        ([[9, 9]], [[0, 0]], "out of bounds"),
        ([[0, 3]], [[0, 0]], "wall|blocked|obstacle"),
        ([[0, 0], [0, 0]], [[0, 1], [0, 2]], "like agent 0"),
        ([[0, 0]], [[0, 4]], None),
    ],
)
def test_given_instances_are_checked(starts, goal, message):
    maps = {"maze": GridMap("maze", MAZE)}
    instance = Instance.from_queues("maze", 0, starts, [[g] for g in goal])
    if message is None:
        assert from_instances(maps, [instance])[0].num_agents == 1
        return
    with pytest.raises(ValueError, match=message):
        from_instances(maps, [instance])


@pytest.mark.parametrize("field", ["size", "width", "num_maps", "num_instances"])
def test_what_follows_from_the_maps_cannot_be_given(field):
    with pytest.raises(ValueError, match=f"{field}=3: it follows from the maps"):
        from_maps([MAZE], num_agents=1, **{field: 3})


@pytest.mark.parametrize(
    "bad", [np.full((2, 2), np.nan), np.array([["."]]), np.full((2, 2), 2), [1]]
)
def test_arrays_that_are_no_maps_are_refused(bad):
    with pytest.raises(ValueError, match=r"maps\[0\] of shape"):
        from_maps([bad])


def test_the_only_goal_in_reach_stays():
    starts, goals = np.array([[1, 1, 0]], bool), np.array([[0, 0, 1]], bool)
    named = GridMap("row", np.zeros((1, 3), bool), starts, goals)
    env, params = from_maps([named], num_agents=1, on_target="restart", obs_radius=1)
    step = jax.jit(env.step)
    state = env.reset(jax.random.key(0), params)[1]
    for _ in range(3):
        _, state, *_ = step(jax.random.key(1), state, jnp.array([4]), params)
    assert state.position.tolist() == state.goal.tolist() == [[0, 2]]


def test_given_maps_have_no_defaults():
    env, _ = from_maps([MAZE], num_agents=1)
    with pytest.raises(ValueError, match="from_maps or from_instances"):
        env.reset(jax.random.key(0))
    with pytest.raises(ValueError, match="at least 1"):
        from_maps([])
    with pytest.raises(ValueError, match="num_agents=9 is too many"):
        from_maps([MAZE], num_agents=9)


def test_maps_may_come_from_a_file(tmp_path):
    rows = ["...#.", "##.#.", "...#.", ".###.", "....."]
    path = tmp_path / "maze.map"
    path.write_text(
        "type octile\nheight 5\nwidth 5\nmap\n" + "\n".join(rows).replace("#", "@") + "\n"
    )
    env = make("grid_pathfinding", maps=str(path), num_agents=2)
    assert (env.size, env.width, env.num_maps) == (5, 5, 1)
    np.testing.assert_array_equal(env.obstacles(env.default_params)[0], MAZE)
    with pytest.raises(ValueError, match="num_agents=9 is too many for map 'maze"):
        make("grid_pathfinding", maps=str(path), num_agents=9)
