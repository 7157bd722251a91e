"""The environment `crowd` against the rules in plain Python, and against its mean-field limit."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from crowd_oracle import Rules

from flockax.agents.core.policy import RandomPolicy
from flockax.envs import VectorEnv, make
from flockax.envs.swarm import mean_field as mf
from flockax.envs.swarm import mean_field_games as games

pytestmark = pytest.mark.usefixtures("float64")

STEPS = 12
MATRIX = ((0.5, -2.0, 1.0), (1.0, 0.0, -0.25), (3.0, 1.0, -1.0))
WORLDS = {
    "crowd": ({"num_agents": 9, "size": 4}, {"noise": 0.5, "aversion": 0.7, "place_weight": 1.5}),
    "odd": ({"num_agents": 30, "size": 5, "observation": "local", "obs_radius": 3}, {}),
    "beach": ({"num_agents": 8, "size": 6, "task": "beach"}, {"noise": 0.8}),
    "ring": (
        {"num_agents": 4, "size": 5, "task": "beach", "observation": "local", "obs_radius": 1},
        {"place_weight": 0.0},
    ),
    "rooms": (
        {"num_agents": 12, "size": 9, "layout": "four_rooms", "observation": "local"},
        {"place_weight": 0.5, "noise": 0.9},
    ),
    "prey": (
        {"num_agents": 11, "size": 4, "task": "predator_prey", "observation": "local"},
        {"interaction": MATRIX, "aversion": 0.6, "noise": 0.4},
    ),
    "four": ({"num_agents": 7, "task": "predator_prey", "num_populations": 4}, {}),
}
every_world = pytest.mark.parametrize("name", WORLDS)


def world(name):
    """The environment, its parameters and its rules."""
    fields, numbers = WORLDS[name]
    env = make("crowd", **fields)
    params = env.make_params(horizon=STEPS, **numbers)
    walls = games.four_rooms(env.size) if env.layout == "four_rooms" else None
    prey = env.task == "predator_prey"
    rules = Rules(
        env.task, env.size, float(params.noise), float(params.aversion),
        float(params.place_weight), np.asarray(params.interaction) if prey else None, walls,
    )  # fmt: skip
    return env, params, rules


def populations(env):
    return np.concatenate([[i] * group.size for i, group in enumerate(env.groups)])


def rollout(env, params, seed=0):
    """Observations, states, actions, rewards and info of an episode of random open actions."""

    def step(carry, key):
        observation, state = carry
        action = env.action_spec.sample(jax.random.fold_in(key, 1), observation.action_mask)
        after, state_after, reward, *_, info = env.step(key, state, action, params)
        record = (observation, state, action, reward, state_after, info)
        return (after, state_after), record

    start, play = jax.random.split(jax.random.key(seed))
    run = jax.jit(
        lambda: jax.lax.scan(step, env.reset(start, params), jax.random.split(play, STEPS))
    )
    return jax.device_get(run()[1])


def densities(env, position):
    group = populations(env)
    density = np.zeros((len(env.groups), *env.shape))
    for agent, cell in enumerate(position):
        density[(group[agent], *cell)] += 1 / env.groups[group[agent]].size
    return density


@every_world
def test_rewards(name):
    env, params, rules = world(name)
    group = populations(env)
    _, state, _, reward, _, info = rollout(env, params)
    for t in range(STEPS):
        density = densities(env, state.position[t])
        expected = [
            rules.reward(group[i], tuple(state.position[t, i]), state.came[t, i], density)
            for i in range(env.num_agents)
        ]
        np.testing.assert_allclose(reward[t], expected, rtol=1e-10, atol=1e-10)
        means = [np.mean(np.array(expected)[group == p]) for p in range(len(env.groups))]
        np.testing.assert_allclose(info["metrics"]["reward"][t], np.mean(means), atol=1e-10)
        bound = rules.aversion * math.log(
            sum(math.exp(rules.place_weight * rules.place(c) / rules.aversion) for c in rules.cells)
        )
        gap = (bound - np.mean(means)) / rules.aversion
        np.testing.assert_allclose(info["metrics"]["shortfall"][t], gap, atol=1e-10)
        used = [
            (density[p] > 0).sum() / min(len(rules.cells), (group == p).sum())
            for p in range(len(env.groups))
        ]
        np.testing.assert_allclose(info["metrics"]["occupied"][t], np.mean(used))
    assert (state.came[0] == 0).all() and (state.came[1:] != 0).any()


@every_world
def test_moves_are_an_action_and_a_move_of_the_noise(name):
    env, params, rules = world(name)
    observation, state, action, _, after, _ = rollout(env, params)
    moved_by_noise = 0
    for t, i in np.ndindex(STEPS, env.num_agents):
        cell = tuple(state.position[t, i].tolist())
        legal = rules.legal(cell)
        assert np.flatnonzero(observation.action_mask[t, i]).tolist() == legal
        middle = rules.go(cell, action[t, i])
        reachable = [there for there, chance in rules.outcomes(middle) if chance > 0]
        there = tuple(after.position[t, i].tolist())
        assert there in reachable
        moved_by_noise += there != middle
    np.testing.assert_array_equal(after.came, action)
    assert moved_by_noise


@every_world
def test_observations(name):
    env, params, rules = world(name)
    group = populations(env)
    observation, state, *_ = rollout(env, params)
    width, height = env.shape
    for t in range(STEPS):
        density = densities(env, state.position[t]) * width * height
        for i in range(env.num_agents):
            x, y = state.position[t, i].tolist()
            expected = [float(x == k) for k in range(width)]
            if height > 1:
                expected += [float(y == k) for k in range(height)]
            if len(env.groups) > 1:
                expected += [float(group[i] == k) for k in range(len(env.groups))]
            expected += [t / STEPS, float(state.came[t, i] != 0)]
            if env.observation == "histogram":
                expected += density.ravel().tolist()
            else:
                expected += window(env, rules, density, x, y)
            np.testing.assert_allclose(observation.features[t, i], expected, atol=1e-12)
        whole = env.global_state(jax.tree.map(lambda leaf, t=t: leaf[t], state), params)
        np.testing.assert_allclose(whole, [*density.ravel(), t / STEPS], atol=1e-12)


def window(env, rules, density, x, y):
    """What "local" shows around a cell."""
    reach = range(-env.obs_radius, env.obs_radius + 1)
    seen, closed = [[] for _ in density], []
    for dx in reach:
        for dy in reach if env.shape[1] > 1 else [0]:
            cell = x + dx, y + dy
            if env.task != "predator_prey":
                cell = cell[0] % env.shape[0], cell[1] % env.shape[1]
            free = cell in rules.cells
            closed.append(float(not free))
            for layer, one in zip(seen, density, strict=True):
                layer.append(one[cell] if free else 0.0)
    return [*np.ravel(seen).tolist(), *closed]


@pytest.mark.parametrize("name", ["crowd", "rooms", "prey", "beach"])
def test_noise_has_the_law_of_the_rules(name):
    env, params, rules = world(name)
    many = dataclasses.replace(env, num_agents=30_000)
    cell = (1, 1) if env.shape[1] > 1 else (1, 0)
    if name == "prey":
        cell = (0, 1)  # at the border
    _, state = many.reset(jax.random.key(0), params)
    state = state.replace(position=jnp.broadcast_to(jnp.array(cell), state.position.shape))
    action = jnp.full(many.num_agents, rules.legal(cell)[-1])
    after = many.step(jax.random.key(1), state, action, params)[1].position
    share = np.zeros(env.shape)
    np.add.at(share, tuple(np.asarray(after).T), 1 / many.num_agents)
    expected = np.zeros(env.shape)
    for there, chance in rules.outcomes(rules.go(cell, int(action[0]))):
        expected[there] += chance
    error = np.sqrt(expected * (1 - expected) / many.num_agents)
    assert (np.abs(share - expected) <= 5 * error + 1e-12).all()


def test_starts():
    crowd = make("crowd", num_agents=20_000, size=4)
    position = np.asarray(crowd.reset(jax.random.key(0))[1].position)
    share = np.bincount(position[:, 0] * 4 + position[:, 1], minlength=16) / len(position)
    assert np.abs(share - 1 / 16).max() < 5 * np.sqrt(1 / 16 / len(position))
    prey = make("crowd", num_agents=8, task="predator_prey").reset(jax.random.key(0))[1]
    assert prey.position.tolist() == [[0, 0]] * 3 + [[4, 0]] * 3 + [[0, 4]] * 2
    rooms = make("crowd", num_agents=3, layout="four_rooms").reset(jax.random.key(0))[1]
    assert rooms.position.tolist() == [[1, 1]] * 3


def test_defaults_are_those_of_the_peer():
    def numbers(**fields):
        params = make("crowd", **fields).default_params
        return int(params.horizon), float(params.noise), float(params.place_weight)

    assert numbers() == numbers(task="beach") == (10, 1.0, 1.0)
    assert numbers(task="predator_prey")[:2] == (10, 0.8)
    assert numbers(task="predator_prey", num_populations=4)[:2] == (20, 0.8)
    assert numbers(layout="four_rooms") == (40, 1.0, 0.0)
    sizes = [
        make("crowd", **x).size for x in ({}, {"task": "predator_prey"}, {"layout": "four_rooms"})
    ]
    assert sizes == [10, 5, 13]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layout": "four_rooms", "task": "beach"}, "layout='four_rooms' is not possible"),
        ({"layout": "four_rooms", "size": 6}, "size=6 is not"),
        ({"task": "predator_prey", "num_agents": 2}, "num_agents=2 is not"),
        ({"num_populations": 2}, "num_populations=2 is not"),
        ({"size": 1}, "size=1 is not"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        make("crowd", **fields)


def mean_returns(env, params, seeds, num_envs):
    """The mean return of each group under random actions, ``f[P]``."""
    vector, policy = VectorEnv(env, num_envs), RandomPolicy(env)

    def step(carry, key):
        observation, state = carry
        act, play = jax.random.split(key)
        reset = jnp.zeros(num_envs, bool)
        action, _ = policy.act(act, (), observation, vector.env_state(state), params, reset, False)
        observation, state, reward, *_, info = vector.step(play, state, action, params)
        return (observation, state), (reward, info["metrics"])

    @jax.jit
    def play(key):
        start, key = jax.random.split(key)
        keys = jax.random.split(key, int(params.horizon))
        return jax.lax.scan(step, vector.reset(start, params), keys)[1]

    reward, metrics = jax.device_get(play(jax.random.key(seeds)))
    total = reward.sum(0)
    means = [total[:, group.start : group.stop].mean() for group in env.groups]
    return np.array(means), {name: value.sum(0) for name, value in metrics.items()}


@pytest.mark.parametrize(
    "fields", [{"size": 4}, {"task": "beach"}, {"task": "predator_prey", "size": 3}]
)
def test_many_agents_earn_what_the_mean_field_says(fields):
    """The gap is the log of a density that is a count: it falls like one over the number of agents."""
    gaps = []
    for agents, num_envs in ((30, 200), (6000, 4)):
        env = make("crowd", num_agents=agents, **fields)
        params = env.default_params
        game = env.game(params, int(params.horizon))
        policy = mf.uniform_policy(game)
        limit = np.asarray(mf.policy_value(game, policy, mf.flow(game, policy)))
        gaps.append(np.abs(mean_returns(env, params, 0, num_envs)[0] - limit).max())
    assert gaps[0] > 20 * gaps[1] and gaps[1] < 0.1


def test_efficiency_is_at_most_one():
    """It is 1 where the reward is the bound: the density is the exponential of the place's reward."""
    env = make("crowd", num_agents=50, size=4, observation="local")
    params = env.make_params(horizon=6, aversion=0.5)
    _, total = mean_returns(env, params, 1, 20)
    score = env.scores(total, total, np.full(20, 6))["efficiency"]
    assert (score > 0).all() and (score < 1).all()
    game = env.game(params)
    density = jax.nn.softmax(game.place.ravel() / 0.5).reshape(1, 4, 4)
    mean = jnp.sum(density * mf.cell_reward(game, density))
    shortfall = env._metrics(game, density, jnp.full(50, mean), params)["shortfall"]
    np.testing.assert_allclose(shortfall, 0, atol=1e-10)


def test_frames_stay_in_their_cells():
    for fields in ({"num_agents": 500}, {"task": "beach"}, {"task": "predator_prey"}):
        env = make("crowd", **fields)
        state = env.initial_state(jax.random.key(0), env.default_params)
        frame, scene = env.frame(state), env.scene()
        assert set(frame) == {layer.name for layer in scene.layers}
        for group in env.groups:
            drawn = np.asarray(frame[group.name].position)
            cell = np.asarray(state.position[group.start : group.stop])
            np.testing.assert_array_equal(np.floor(drawn), cell)
            assert len(np.unique(drawn.round(6), axis=0)) == group.size
    rooms = make("crowd", layout="four_rooms")
    walls = games.four_rooms()
    for x, y in ((6, 3), (3, 6), (6, 5), (1, 1)):
        assert rooms.scene().cells[12 - y, x] == walls[x, y]
