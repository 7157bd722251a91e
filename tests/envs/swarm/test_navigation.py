"""`navigation` against the oracle, and what holds in a world that is moved, turned or mirrored."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import swarm_oracle as oracle

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

KEY = jax.random.key(0)
SIZES = {"num_agents": 5, "num_obstacles": 4, "num_seen": 7}


@functools.cache
def setup(**fields):
    """An environment, parameters, and compiled step and observation over many worlds."""
    env = make("navigation", **{**SIZES, **fields})
    params = env.make_params(view_range=0.5, max_speed=1.5, goal_distance=0.1, obstacle_penalty=3)
    step = jax.jit(jax.vmap(lambda s, a: env.step(KEY, s, a, params)))
    see = jax.jit(jax.vmap(lambda s: env.observe(s, params).features))
    return env, params, step, see


def numbers(params):
    return {f.name: float(getattr(params, f.name)) for f in dataclasses.fields(params)}


def crowded(env, params, count, seed=0):
    """States in which much happens: bodies near each other and near their goals."""
    rng = np.random.default_rng(seed)
    state = jax.vmap(lambda k: env.initial_state(k, params))(jax.random.split(KEY, count))
    shape = (count, env.num_agents, 2)
    position = rng.uniform(-0.35, 0.35, shape)
    near = rng.random(shape[:2]) < 0.5
    reach = np.where(near[..., None], 0.12, 0.5)
    return state.replace(
        position=position,
        velocity=rng.normal(0, 1, shape) * (rng.random((count, 1, 1)) < 0.8),
        goal=position + reach * rng.uniform(-1, 1, shape),
        landmark=rng.uniform(-0.35, 0.35, (count, env.num_obstacles, 2)),
    )


def actions(env, count, seed=1):
    rng = np.random.default_rng(seed)
    shape = (count, *env.action_spec.shape)
    return rng.integers(0, 5, shape) if env.actions == "discrete" else rng.random(shape)


def world(state, e):
    names = ("position", "velocity", "goal", "landmark")
    return {name: np.array(getattr(state, name)[e]) for name in names}


CASES = [
    {},
    {"actions": "continuous", "shared_reward": False},
    {"axes": "own"},
    {"axes": "own", "actions": "continuous", "shared_reward": False},
]


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_steps_equal_the_oracle(fields):
    env, params, step, _ = setup(**fields)
    state, action = crowded(env, params, 60), actions(env, 60)
    _, after, reward, terminated, _, info = jax.device_get(step(state, action))
    met = hit = arrived = fast = 0
    for e in range(60):
        position, velocity, expected, touched, hits, here = oracle.navigation_step(
            world(state, e),
            action[e],
            numbers(params),
            env.num_seen,
            env.axes == "own",
            env.shared_reward,
        )
        np.testing.assert_allclose(after.position[e], position, atol=1e-9)
        np.testing.assert_allclose(after.velocity[e], velocity, atol=1e-9)
        np.testing.assert_allclose(reward[e], expected, atol=1e-9)
        np.testing.assert_array_equal(after.arrival[e], np.array(here, int))
        metrics = {name: value[e] for name, value in info["metrics"].items()}
        assert metrics["collisions"] == sum(touched) / 2 + sum(hits)
        assert metrics["at_goal"] == metrics["success"] == pytest.approx(np.mean(here))
        assert metrics["time_to_goal"] == 1
        met, hit, arrived = met + sum(touched), hit + sum(hits), arrived + sum(here)
        fast += (np.linalg.norm(velocity, axis=1) > 1.5 - 1e-9).sum()
    assert not terminated.any() and min(met, hit, arrived, fast) >= 25


@pytest.mark.parametrize("axes", ["world", "own"])
def test_agents_see_what_the_oracle_says(axes):
    env, params, _, see = setup(axes=axes, observation="graph")
    _, _, _, see_vector = setup(axes=axes)
    state = crowded(env, params, 40)
    seen, vector = jax.device_get((see(state), see_vector(state)))
    for e in range(40):
        for i in range(env.num_agents):
            given = world(state, e), i, numbers(params), env.num_seen, axes == "own"
            own, entities, mask = oracle.navigation_sees(*given)
            np.testing.assert_allclose(seen.own[e, i], own, atol=1e-9)
            np.testing.assert_array_equal(seen.mask[e, i], mask)
            np.testing.assert_allclose(seen.entities[e, i], entities, atol=1e-9)
            flat = np.concatenate([own, entities.ravel()])
            np.testing.assert_allclose(vector[e, i], flat, atol=1e-9)
    assert seen.mask.any() and not seen.mask.all()
    assert (seen.entities[..., 6:].sum((0, 1, 2)) >= 25).all()


def transforms():
    rng = np.random.default_rng(5)
    for mirrored in (False, True):
        for angle in (0.0, 0.7, 2.9, -1.3):
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            yield turn @ np.diag([1, -1 if mirrored else 1]), rng.normal(0, 3, 2)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_the_own_frame_follows_the_world(kind):
    """Moved, turned and mirrored worlds look the same, and the same actions do the same in them."""
    env, params, step, see = setup(axes="own", actions=kind)
    state, action = crowded(env, params, 40, seed=3), actions(env, 40, seed=4)
    assert (np.asarray(state.velocity) == 0).all((1, 2)).sum() >= 5  # some worlds are at rest
    # Without a heading and with nothing beside it a frame has no side to turn to.
    sided = np.abs(np.asarray(see(state))[:, :, 2:]).max(-1).min(-1) > 0
    seen, after, reward = see(state), *step(state, action)[1:3]
    for matrix, shift in transforms():
        place = lambda x: x @ matrix.T + shift  # noqa: B023, E731
        moved = state.replace(
            position=place(state.position),
            velocity=state.velocity @ matrix.T,
            goal=place(state.goal),
            landmark=place(state.landmark),
        )
        np.testing.assert_allclose(see(moved)[sided], seen[sided], atol=1e-8)
        _, there, earned, *_ = step(moved, action)
        np.testing.assert_allclose(there.position[sided], place(after.position)[sided], atol=1e-8)
        expected = (after.velocity @ matrix.T)[sided]
        np.testing.assert_allclose(there.velocity[sided], expected, atol=1e-8)
        np.testing.assert_allclose(earned[sided], reward[sided], atol=1e-8)
    assert sided.sum() >= 30


def test_the_world_frame_does_not():
    env, params, _, see = setup()
    state = crowded(env, params, 4)
    turned = state.replace(velocity=state.velocity[..., ::-1] * np.array([-1, 1]))
    assert np.abs(np.asarray(see(turned) - see(state))).max() > 0.1


def place(env, params, **changes):
    state = env.initial_state(KEY, params)
    return state.replace(**{name: jnp.asarray(value, float) for name, value in changes.items()})


def test_own_axes_by_hand():
    env = make("navigation", num_agents=3, num_obstacles=1, axes="own", num_seen=1)
    params = env.make_params(view_range=0.1)
    position = [(0, 0), (3, 0), (6, 0)]
    state = place(
        env,
        params,
        position=position,
        velocity=[(0, 2), (0, 0), (0, 0)],
        goal=[(1, 1), (3, -1), (6, 0)],
        landmark=[(-0.05, 0)],
    )
    axes = env.own_axes(state, params)
    # Along its velocity, and y to the obstacle although the goal is on the other side.
    np.testing.assert_allclose(axes[0], [(0, 1), (-1, 0)], atol=1e-12)
    np.testing.assert_allclose(axes[1][0], (0, -1), atol=1e-12)  # at rest toward its goal
    np.testing.assert_allclose(axes[2], np.eye(2), atol=1e-12)  # at rest on its goal


def test_rewards_by_hand():
    env = make("navigation", num_agents=3, num_obstacles=1, shared_reward=False)
    params = env.default_params
    state = place(
        env,
        params,
        position=[(0, 0), (2, 0), (2, 3)],
        velocity=np.zeros((3, 2)),
        goal=[(0.04, 0), (2, 0.5), (2, 3.0625)],
        landmark=[(2.05, 0)],
    )
    params = env.make_params(contact_force=0, goal_distance=0.0625)
    step = lambda: env.step(KEY, state, np.zeros(3, int), params)[2]  # noqa: E731
    # At the goal; away from it and in an obstacle; exactly at the border, which is outside.
    np.testing.assert_allclose(step(), [5, -0.5 - 5, -0.0625], atol=1e-9)
    state = state.replace(position=jnp.array([(0, 0), (0.06, 0), (0, 0.06)]))
    touching = np.array([2, 2, 2]) * 5.0
    far = [0, np.hypot(1.94, 0.5), np.hypot(2, 3.0025)]
    np.testing.assert_allclose(step(), [5, -far[1], -far[2]] - touching, atol=1e-9)


def test_the_range_includes_its_border_and_leaves_out_oneself():
    env = make("navigation", num_agents=2, num_obstacles=0, observation="graph", num_seen=5)
    state = place(
        env,
        env.default_params,
        position=[(0, 0), (1, 0)],
        velocity=np.zeros((2, 2)),
        goal=[(0, 1.001), (5, 5)],
    )
    mask = lambda s: env.observe(s, env.default_params).features.mask.sum(1).tolist()  # noqa: E731
    assert mask(state) == [1, 1]
    assert mask(state.replace(position=jnp.array([(0, 0), (1.0001, 0)]))) == [0, 0]
    together = state.replace(position=jnp.zeros((2, 2)))  # one sees who is in the same place
    assert mask(together) == [1, 1]


def test_only_the_first_arrival_counts():
    env = make("navigation", num_agents=2, num_obstacles=0)
    params = env.make_params(horizon=4)
    state = place(
        env, params, position=[(0.12, 0), (9, 9)], velocity=np.zeros((2, 2)), goal=[(0, 0), (0, 0)]
    )
    times, shares = [], []
    for _ in range(4):
        _, state, *_, info = env.step(KEY, state, np.array([1, 0]), params)
        times.append(state.arrival.tolist())
        shares.append(float(info["metrics"]["at_goal"]))
    assert times == [[0, 0], [2, 0], [2, 0], [2, 0]] and shares == [0, 0.5, 0, 0]
    # Back on its goal, which changes nothing.
    back = state.replace(position=state.goal, velocity=jnp.zeros((2, 2)))
    assert env.step(KEY, back, np.zeros(2, int), params)[1].arrival.tolist() == [2, 5]
    final = info["metrics"]
    score = env.scores({"collisions": 3.0}, final, jnp.asarray(4))
    assert float(final["time_to_goal"]) == (2 + 4) / 2
    assert {name: float(value) for name, value in score.items()} == {
        "score": 1 - 3 / 4,
        "success": 0.5,
        "all_arrived": 0.0,
        "time_to_goal": 3 / 4,
        "collisions": 3.0,
    }


def test_starts_keep_apart():
    env = make("navigation", num_agents=8, num_obstacles=6)
    params = env.default_params
    draw = jax.jit(jax.vmap(lambda k: env.initial_state(k, params)))
    state = jax.device_get(draw(jax.random.split(KEY, 200)))
    gap = lambda a, b: np.linalg.norm(a[:, :, None] - b[:, None], axis=-1)  # noqa: E731
    itself = 9 * np.eye(8)
    for place_ in (state.position, state.goal):
        assert (gap(place_, place_) + itself).min() >= 0.1
        assert gap(place_, state.landmark).min() >= 0.1
    assert 0.95 < np.abs(state.position).max() <= 1
    assert 0.76 < np.abs(state.goal).max() <= 0.8 >= np.abs(state.landmark).max() > 0.76
    assert not state.velocity.any() and not state.arrival.any()
