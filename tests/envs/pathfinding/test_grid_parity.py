"""`grid_pathfinding` equals recorded episodes of POGEMA 1.4.0 step by step, without one mismatch.

All of the record by one command: ``pytest -m slow tests/envs/pathfinding/test_grid_parity.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grid_oracle import World
from pogema_record import MODES, RULES, checksum, groups

from flockax.envs.pathfinding import metrics
from flockax.envs.pathfinding.given import from_instances
from flockax.envs.pathfinding.maps import GridMap, Instance
from flockax.envs.spec import unpack

SHAPES = sorted({shape for _, _, shape in groups()})
# One shape for each rule and mode; every rule and every mode meets all three.
QUICK = [
    (rule, mode, (2, 4, 5)[(r + m) % 3])
    for r, rule in enumerate(RULES)
    for m, mode in enumerate(MODES)
]
REST = [(r, m, s) for r in RULES for m in MODES for s in SHAPES if (r, m, s) not in QUICK]


def environment(group, **fields):
    """The environment whose instances are the episodes of a group."""
    first = group[0]
    maps = {str(i): GridMap(str(i), e.obstacles) for i, e in enumerate(group)}
    instances = [
        Instance(str(i), 0, e.position[0], e.queue, e.queue_length) for i, e in enumerate(group)
    ]
    fields = {"compat_visibility": first.rule == "soft", **fields}
    return from_instances(
        maps,
        instances,
        collision=first.rule,
        on_target=first.mode,
        obs_radius=first.radius,
        **fields,
    )


def play(group, **fields):
    """All episodes of a group in one program: arrays with leading axes (episode, time), in NumPy.

    The windows are taken apart: obstacles, agents, own goal.
    """
    env, params = environment(group, **fields)
    longest = max(e.length for e in group)
    actions = np.stack([np.pad(e.action, [(0, longest - e.length), (0, 0)]) for e in group])

    def look(observation):
        return observation.replace(features=unpack(observation.features, env.feature_spec))

    def one(instance, horizon, actions):
        numbers = params.replace(horizon=horizon)
        start = env.instance_state(numbers, instance)

        def step(state, action):
            observation, state, reward, terminated, truncated, info = env.step(
                jax.random.key(0), state, action, numbers
            )
            return state, (look(observation), state, reward, terminated, truncated, info)

        return look(env.observe(start, numbers)), start, jax.lax.scan(step, start, actions)[1]

    horizons = jnp.array([e.horizon for e in group])
    return jax.tree.map(
        np.asarray, jax.jit(jax.vmap(one))(jnp.arange(len(group)), horizons, jnp.array(actions))
    )


def assert_seen(observation, alive, sight):
    """The windows of the living agents have the recorded checksum; the dead see nothing."""
    assert observation.features.dtype == np.int8
    assert np.isin(observation.features, (0, 1)).all()
    assert not observation.features[~alive].any()
    np.testing.assert_array_equal(observation.alive, alive)
    assert checksum(observation.features[alive].astype(bool)) == sight


def assert_parity(group):
    """Every episode of a group, every step; returns the number of steps."""
    first, start, (observation, state, reward, terminated, truncated, info) = play(group)
    for n, e in enumerate(group):
        steps = slice(0, e.length)
        np.testing.assert_array_equal(start.position[n], e.position[0])
        np.testing.assert_array_equal(start.goal[n], e.goal[0])
        np.testing.assert_array_equal(state.position[n, steps], e.position[1:])
        np.testing.assert_array_equal(state.goal[n, steps], e.goal[1:])
        np.testing.assert_array_equal(state.alive[n, steps], e.active[1:])
        np.testing.assert_array_equal(reward[n, steps], e.reward)
        over = e.terminated.all(1)
        np.testing.assert_array_equal(terminated[n, steps], over)
        np.testing.assert_array_equal(truncated[n, steps], e.truncated & ~over)
        np.testing.assert_array_equal(state.time[n, steps], np.arange(1, e.length + 1))
        assert not info["invalid_action"][n].any()
        assert_seen(jax.tree.map(lambda x, n=n: x[n], first), e.active[0], e.sight[0])
        for t in range(e.length):
            seen = jax.tree.map(lambda x, n=n, t=t: x[n, t], observation)
            assert_seen(seen, e.active[t + 1], e.sight[t + 1])
        if e.window is not None and e.window_time > 0:
            seen = observation.features[n, e.window_time - 1]
            np.testing.assert_array_equal(seen[e.active[e.window_time]], e.window)
        cut = jax.tree.map(lambda x, n=n, steps=steps: x[n, steps], (state, info))
        assert_metrics(e, *cut)
    return sum(e.length for e in group)


def assert_metrics(e, state, info):
    """The metrics of an episode from our own states, and those counted on the way."""
    on_goal = (state.position == e.goal[:-1]).all(-1) if e.mode == "restart" else None
    if e.mode == "nothing":
        on_goal = (state.position == state.goal).all(-1)
        ours = metrics.one_shot(on_goal, e.length)
        assert (ours["soc"], ours["makespan"]) == (e.metrics["SoC"], e.metrics["makespan"])
    elif e.mode == "finish":
        ours = metrics.vanishing(metrics.arrival_steps(~state.alive), e.length)
    else:
        ours = metrics.lifelong(on_goal, e.horizon)
        np.testing.assert_allclose(ours["throughput"], e.metrics["avg_throughput"], rtol=1e-6)
        np.testing.assert_array_equal(info["metrics"]["arrivals"], on_goal.sum(1))
        np.testing.assert_array_equal(state.queue[-1], on_goal.sum(0))
    if e.mode != "restart":
        np.testing.assert_allclose(ours["isr"], e.metrics["ISR"], rtol=1e-6)
        np.testing.assert_allclose(info["metrics"]["on_goal"][-1], e.metrics["ISR"], rtol=1e-6)
        assert ours["csr"] == e.metrics["CSR"]
        np.testing.assert_allclose(ours["ep_length"], e.metrics["ep_length"], rtol=1e-6)
    path = np.concatenate([e.position[:1], state.position])
    refused = metrics.collisions(e.obstacles, path, e.action, e.active[:-1], e.length)
    for name, total in refused.items():
        assert info["metrics"][name].sum() == total


@pytest.mark.parametrize(("rule", "mode", "shape"), QUICK)
def test_equal_to_the_record(rule, mode, shape):
    assert assert_parity(groups()[rule, mode, shape]) > 200


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "mode", "shape"), REST)
def test_equal_to_the_rest_of_the_record(rule, mode, shape):
    assert assert_parity(groups()[rule, mode, shape]) > 20


def test_by_default_soft_hides_nobody():
    group = groups()["soft", "restart", 2]
    _, _, (observation, state, *_) = play(group, compat_visibility=False)
    hidden = 0
    for n, e in enumerate(group):
        queues = [q[:k] for q, k in zip(e.queue, e.queue_length, strict=True)]
        world = World(e.obstacles, e.position[0], queues, e.radius, e.rule, e.mode)
        np.testing.assert_array_equal(state.position[n, : e.length], e.position[1:])
        for t, action in enumerate(e.action):
            world.step(action)
            windows = world.windows()
            np.testing.assert_array_equal(observation.features[n, t], windows)
            hidden += checksum(windows[e.active[t + 1]]) != e.sight[t + 1]
    assert hidden > 20
