"""`discovery`, `dispersion` and `sampling`: what agents see, and the rules that VMAS does not have."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import swarm_oracle as oracle

from flockax.envs import make
from flockax.envs.space.starts import place_apart
from flockax.envs.swarm import sight

pytestmark = pytest.mark.usefixtures("float64")

KEY = jax.random.key(0)
AGENTS, THINGS, COUNT = 5, 4, 30


@functools.cache
def setup(id_, **fields):
    """An environment, parameters, and compiled observation over many worlds."""
    env = make(id_, num_agents=AGENTS, **fields)
    params = env.make_params(view_range=0.6)
    return env, params, jax.jit(jax.vmap(lambda s: env.observe(s, params).features))


def scattered(env, params, seed=0):
    """States with bodies anywhere, at any speed, and some landmarks gone."""
    rng = np.random.default_rng(seed)
    draw = jax.vmap(lambda k: env.initial_state(k, params))
    state = draw(jax.random.split(jax.random.key(seed), COUNT))
    state = state.replace(
        position=rng.uniform(-0.9, 0.9, (COUNT, AGENTS, 2)),
        velocity=rng.normal(0, 1, (COUNT, AGENTS, 2)),
    )
    if hasattr(state, "present"):
        state = state.replace(present=rng.random(state.present.shape) < 0.7)
    if hasattr(state, "sampled"):
        state = state.replace(sampled=rng.random(state.sampled.shape) < 0.3)
    return jax.tree.map(np.asarray, state)


def world(state, e):
    names = ("position", "velocity", "landmark", "present")
    return {name: getattr(state, name)[e] for name in names if hasattr(state, name)}


@pytest.mark.parametrize("seen_agents", [0, 2, 6])
@pytest.mark.parametrize("view", ["nearest", "moments"])
@pytest.mark.parametrize("id_", ["discovery", "dispersion"])
def test_agents_see_what_the_oracle_says(id_, view, seen_agents):
    name, seen = (
        ("num_targets", "seen_targets") if id_ == "discovery" else ("num_food", "seen_food")
    )
    things = 3 if seen_agents else 6  # fewer rows than landmarks, and more
    env, params, see = setup(
        id_, view=view, seen_agents=seen_agents, **{name: THINGS, seen: things}
    )
    state = scattered(env, params)
    actual = jax.device_get(see(state))
    for e in range(COUNT):
        for i in range(AGENTS):
            expected = oracle.box_sees(world(state, e), i, view, 0.6, things, seen_agents)
            np.testing.assert_allclose(actual[e, i], expected, atol=1e-9)
    assert actual.shape[-1] == env.groups[0].observation_size


@pytest.mark.parametrize("view", ["nearest", "moments"])
def test_agents_see_the_field_around_them(view):
    env, params, see = setup("sampling", view=view, cells=10)
    state = scattered(env, params)
    actual = jax.device_get(see(state))
    width, stop = 0.2, 1 - 0.025
    shifts = ((1, 0), (-1, 0), (0, 1), (0, -1), (-1, -1), (1, -1), (-1, 1), (1, 1))
    outside = 0
    for e in range(COUNT):
        corners = [np.clip(-1 + width * k, -stop, stop) for k in range(10)]
        means = state.landmark[e]
        peak = max(oracle.bumps((x, y), means, 0.05) for x in corners for y in corners)
        for i in range(AGENTS):
            expected = []
            for shift in shifts:
                x = state.position[e, i] + width * np.array(shift)
                inside = np.abs(x).max() <= 1
                x = np.clip(x, -stop, stop)
                column, row = (int(c) for c in np.floor((x + 1) / width))
                fresh = inside and not state.sampled[e, column, row]
                expected.append(oracle.bumps(x, means, 0.05) / peak if fresh else 0)
                outside += not inside
            np.testing.assert_allclose(actual[e, i, 4:12], expected, atol=1e-9)
            own = oracle.box_sees(world(state, e), i, view, 0.6, 0, 2)
            np.testing.assert_allclose(np.delete(actual[e, i], np.s_[4:12]), own, atol=1e-9)
    assert outside >= 25


def test_what_is_left_of_the_field():
    env, params, _ = setup("sampling", cells=7, num_gaussians=2)
    state = jax.tree.map(lambda x: x[0], scattered(env, params))
    left = np.asarray(env.remaining(state, params))
    middle = -1 + (np.arange(7) + 0.5) * 2 / 7
    for column, row in np.ndindex(7, 7):
        whole = oracle.bumps((middle[column], middle[row]), state.landmark, 0.05) / state.peak
        expected = 0 if state.sampled[column, row] else whole
        np.testing.assert_allclose(left[column, row], expected, atol=1e-9)
    everything = env.remaining(state.replace(sampled=np.zeros((7, 7), bool)), params)
    np.testing.assert_allclose(state.total, everything.sum(), rtol=1e-9)
    sums = np.concatenate([left.sum(1), left.sum(0)]) / 7
    np.testing.assert_allclose(env.global_state(state, params)[-14:], sums, atol=1e-9)
    np.testing.assert_allclose(env.middles(params)[8], (middle[1], middle[1]), atol=1e-12)


def test_agents_in_one_cell_share_it():
    """Of agents in a cell each takes its own value over their number, whatever their order."""
    env = make("sampling", num_agents=3, num_gaussians=1, cells=4, shared_reward=False)
    params = env.default_params
    state = env.initial_state(KEY, params)
    position = jnp.array([(0.1, 0.1), (0.4, 0.4), (-0.3, 0.2)])
    state = state.replace(position=position, landmark=jnp.array([(0.2, 0.1)]), peak=jnp.ones(()))
    step = jax.jit(env.step)
    stay = np.zeros(3, int)
    _, after, reward, *_ = step(KEY, state, stay, params)
    value = [oracle.bumps(x, [(0.2, 0.1)], 0.05) for x in np.asarray(position)]
    np.testing.assert_allclose(reward, np.array(value) / [2, 2, 1], atol=1e-12)
    assert np.argwhere(after.sampled).tolist() == [[1, 2], [2, 2]]
    # Nothing is left there; the next step pays nothing.
    assert not step(KEY, after, stay, params)[2].any()
    team = make("sampling", num_agents=3, num_gaussians=1, cells=4)
    together = team.step(KEY, state, stay, params)[2]
    np.testing.assert_allclose(together, np.full(3, np.sum(reward)), atol=1e-12)


def test_collecting_everything_scores_about_one():
    env = make("sampling", num_agents=1, cells=12)
    params = env.default_params
    state = env.initial_state(jax.random.key(2), params)
    step = jax.jit(env.step)
    total = 0.0
    for place in np.asarray(env.middles(params)):
        state = state.replace(position=place[None], velocity=jnp.zeros((1, 2)))
        _, state, *_, info = step(KEY, state, np.zeros(1, int), params)
        total += float(info["metrics"]["collected"])
    assert float(info["metrics"]["cells"]) == 1
    # Exactly 1 but for the cells at the border, whose middles agents reach here.
    np.testing.assert_allclose(env.scores({"collected": total}, {}, 1)["score"], 1, atol=1e-9)


def test_idle_agents_pay():
    env = make("dispersion", num_agents=3, num_food=2)
    params = env.make_params(idle_penalty=0.25, food_reward=2)
    state = env.initial_state(KEY, params)
    state = state.replace(
        position=jnp.array([(0.0, 0), (0.0, 0), (0.9, 0.9)]),
        landmark=jnp.array([(0.05, 0), (0.5, 0.5)]),
    )
    _, after, reward, terminated, _, info = env.step(KEY, state, np.zeros(3, int), params)
    assert reward.tolist() == [1, 1, -0.25] and after.present.tolist() == [False, True]
    assert not terminated and float(info["metrics"]["left"]) == 0.5
    score = env.scores({}, info["metrics"], 1)
    assert (float(score["score"]), float(score["cleared"])) == (0.5, 0)


def test_one_agent_alone_covers_what_needs_one():
    env = make("discovery", num_agents=1, num_targets=2, on_cover="vanish")
    state = env.initial_state(KEY, env.default_params)
    state = state.replace(position=jnp.zeros((1, 2)), landmark=jnp.array([(0.2, 0), (0.7, 0)]))
    for needed, reward_, left in ((2, 0, 2), (1, 1, 1)):
        params = env.make_params(agents_per_target=needed)
        _, after, reward, *_ = env.step(KEY, state, np.zeros(1, int), params)
        assert float(reward[0]) == reward_ and int(after.present.sum()) == left
    # It is gone: nobody sees it, touches it or is paid for it again.
    after = after.replace(position=jnp.array([(0.2, 0)]), velocity=jnp.zeros((1, 2)))
    _, again, reward, terminated, *_ = env.step(KEY, after, np.zeros(1, int), params)
    assert not reward.any() and not terminated
    np.testing.assert_array_equal(again.position, [(0.2, 0)])
    assert env.scores({"covered": 1.0}, {}, 1)["score"] == 0.5


@pytest.mark.parametrize(("id_", "size"), [("discovery", 2), ("sampling", 1)])
def test_starts(id_, size):
    env = make(id_, num_agents=size)
    params = env.default_params
    draw = jax.jit(jax.vmap(lambda k: env.initial_state(k, params)))
    state = jax.device_get(draw(jax.random.split(KEY, 300)))
    edge = 1 - (0.025 if id_ == "sampling" else 0)
    assert edge - 0.05 < np.abs(state.position).max() <= edge
    assert 0.95 < np.abs(state.landmark).max() <= 1
    if id_ == "discovery":
        both = np.concatenate([state.position, state.landmark], axis=1)
        gap = np.linalg.norm(both[:, :, None] - both[:, None], axis=-1) + 9 * np.eye(both.shape[1])
        assert gap.min() >= 0.2


def test_places_that_are_not_wanted_are_in_nobodys_way():
    taken = jnp.array([(0.0, 0.0), (0.5, 0.5)])
    wanted = jnp.array([False, True, True, False])
    draw = lambda k: place_apart(k, 4, 1.0, 0.5, taken, jnp.array([0.6, -1.0]), wanted)  # noqa: E731
    place = jax.device_get(jax.jit(jax.vmap(draw))(jax.random.split(KEY, 300)))[:, 1:3]
    assert np.linalg.norm(place[:, 0] - place[:, 1], axis=-1).min() >= 0.5
    assert np.linalg.norm(place, axis=-1).min() >= 0.6
    assert np.linalg.norm(place - 0.5, axis=-1).min() < 0.1  # a negative gap keeps none
    # Places that nobody wants would lie in the middle, where a wanted one may still come.
    first = jnp.array([False] * 9 + [True])
    middle = lambda k: place_apart(k, 10, 1.0, 0.9, taken[:0], 0.0, first)[9]  # noqa: E731
    alone = jax.device_get(jax.jit(jax.vmap(middle))(jax.random.split(KEY, 300)))
    assert np.linalg.norm(alone, axis=-1).min() < 0.3
    # Too crowded a world gets a start all the same.
    full = place_apart(KEY, 50, 1.0, 1.0, taken, 1.0)
    assert full.shape == (50, 2) and bool(jnp.isfinite(full).all())


def test_nearest_by_hand():
    """Equal distances in the order of indices; what is absent or oneself is not seen."""
    agents = jnp.array([(0.0, 0.0), (1.0, 0.0)])
    things = jnp.array([(0.0, 0.0), (1.0, 0.0), (-1.0, 0), (0, 1), (0, 0.5), (0, 9)])
    present = jnp.array([True, True, True, True, False, True])
    near = sight.nearest(4, agents, things, present, 1.0, itself=True)
    assert near.index[0].tolist() == [1, 2, 3, 0] and near.mask[0].tolist() == [True] * 3 + [False]
    assert near.index[1].tolist() == [0, 0, 0, 0] and near.mask[1].tolist() == [True] + [False] * 3
    np.testing.assert_array_equal(near.offset[0], [(1, 0), (-1, 0), (0, 1), (0, 0)])
    near = sight.nearest(8, agents, things, present, 1.0, itself=False)
    assert near.index.shape == (2, 8) and near.index[0, :4].tolist() == [0, 1, 2, 3]
    assert sight.nearest(0, agents, things, present, 1.0, itself=False).dx.shape == (2, 0)
