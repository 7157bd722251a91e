"""Every reward term, and what world_comm hides, in worlds laid out by hand.

Agents at rest are where they were after the step, so distances can be read off.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from particle_ours import compiled_step

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

FAR = 0.85  # inside the border, out of everybody's way


def step(env, position, landmark=(), action=None, params=None, **changes):
    """One step from agents at rest at `position`."""
    params = env.default_params if params is None else params
    state = env.initial_state(jax.random.key(0), params)
    landmark = jnp.asarray(landmark, float).reshape(-1, 2)
    assert landmark.shape == state.landmark.shape
    state = state.replace(position=jnp.asarray(position, float), landmark=landmark, **changes)
    shape = (env.num_agents,) if env.actions == "discrete" else (env.num_agents, 9)
    action = (
        np.zeros(shape, int if env.actions == "discrete" else float) if action is None else action
    )
    observation, state, reward, _, _, info = compiled_step(env)(
        jax.random.key(0), state, jnp.asarray(action), params
    )
    return observation, state, np.asarray(reward), info


def tag_reward(*position):
    env = make("tag", num_predators=2, num_prey=2, num_obstacles=0)
    _, _, reward, info = step(env, position)
    return reward.tolist(), float(info["metrics"]["catches"])


def test_tag_pays_nothing_for_nothing():
    assert tag_reward((-FAR, 0), (FAR, 0), (0, -FAR), (0, FAR)) == ([0, 0, 0, 0], 0)


def test_tag_pays_all_predators_for_a_touch():
    assert tag_reward((0, 0), (FAR, 0), (0.12, 0), (0, FAR)) == ([10, 10, -10, 0], 1)


def test_tag_counts_every_pair():
    reward, catches = tag_reward((0, 0), (0.1, 0), (0.05, 0.05), (0.05, -0.05))
    assert (reward, catches) == ([40, 40, -20, -20], 4)


def test_tag_touching_is_strict():
    reach = 0.075 + 0.05
    assert tag_reward((0, 0), (FAR, 0), (reach, 0), (0, FAR))[1] == 0
    assert tag_reward((0, 0), (FAR, 0), (np.nextafter(reach, 0), 0), (0, FAR))[1] == 1


def test_tag_does_not_pay_for_touches_within_a_group():
    reward, _ = tag_reward((0.5, 0), (0.6, 0), (-0.5, 0), (-0.45, 0))
    assert reward == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("x", "penalty"),
    [
        (0.89, 0),
        (0.95, 0.5),
        (-0.95, 0.5),
        (1.0, 1.0),
        (1.2, np.exp(0.4)),
        (-2.0, np.exp(2)),
        (2.5, 10),
        (1e30, 10),
    ],
)
def test_tag_penalises_prey_beyond_the_border(x, penalty):
    reward, _ = tag_reward((0.3, 0), (-0.3, 0), (x, 0), (0.99, x))
    np.testing.assert_allclose(reward, [0, 0, -penalty, -penalty - 0.9], atol=1e-12)


def test_tag_does_not_penalise_predators_beyond_the_border():
    assert tag_reward((3, 3), (-0.95, 2), (0, 0), (0.3, 0))[0] == [0, 0, 0, 0]


def test_tag_rewards_what_is_after_the_move():
    env = make("tag", num_predators=1, num_prey=1, num_obstacles=0)
    approach = jnp.array([[1.0, 0], [0, 0]])
    position = [(-0.2, 0), (0, 0)]
    _, state, reward, _ = step(env, position, velocity=approach)
    np.testing.assert_allclose(state.position[0], (-0.1, 0), atol=1e-12)
    assert reward.tolist() == [10, -10]
    _, state, reward, _ = step(env, state.position, velocity=-approach)
    assert reward.tolist() == [0, 0]


def spread_reward(position, landmark, **params):
    env = make("spread", num_agents=3, num_landmarks=2)
    return step(env, position, landmark, params=env.make_params(**params))[2]


def test_spread_sums_the_distances_to_the_nearest_agents():
    reward = spread_reward([(0, 0), (0.5, 0), (0, 3)], [(0.5, 0.1), (0, -0.4)])
    np.testing.assert_allclose(reward, 3 * [-0.5 * (0.1 + 0.4)], atol=1e-12)


def test_spread_penalises_each_touch_of_the_own_body():
    position, landmark = [(0, 0), (0.29, 0), (0.58, 0)], [(0, 0), (0, 0)]
    np.testing.assert_allclose(spread_reward(position, landmark), [-0.5, -1, -0.5], atol=1e-12)


def test_spread_touching_is_strict():
    position, landmark = [(0, 0), (0.3, 0), (5, 0)], [(0, 0), (0, 0)]
    np.testing.assert_allclose(spread_reward(position, landmark), [0, 0, 0], atol=1e-12)


def test_spread_weighs_by_the_local_ratio():
    position, landmark = [(0, 0), (0.29, 0), (3, 0)], [(0, 0.1), (0, 0)]
    np.testing.assert_allclose(
        spread_reward(position, landmark, local_ratio=0.2), [-0.28, -0.28, -0.08], atol=1e-12
    )
    np.testing.assert_allclose(
        spread_reward(position, landmark, local_ratio=1), [-1, -1, 0], atol=1e-12
    )


WORLD = {"num_predators": 2, "num_prey": 2, "num_obstacles": 1, "num_food": 2, "num_forests": 2}
# An obstacle, two pieces of food and two forests, all out of the way unless moved.
LANDMARKS = np.array([(9, 9), (-9, 9), (9, -9), (-6, -6), (-9, -9)], float)


def world_comm(position, action=None, landmark=LANDMARKS, actions="discrete", **changes):
    return step(make("world_comm", actions=actions, **WORLD), position, landmark, action, **changes)


def landmarks(**moved):
    """The landmarks with some elsewhere, such as ``food0=(0, 0)``."""
    places = LANDMARKS.copy()
    for name, place in moved.items():
        places[["obstacle0", "food0", "food1", "forest0", "forest1"].index(name)] = place
    return places


def without(reward, position, places):
    """Rewards less the two terms that grow with distances."""
    position = np.asarray(position, float)
    gap = np.linalg.norm(position[:2, None] - position[None, 2:], axis=-1).min(axis=1)
    food = np.linalg.norm(position[2:, None] - places[None, 1:3], axis=-1).min(axis=1)
    return reward + np.concatenate([0.1 * gap, 0.05 * food])


def test_world_comm_pulls_predators_to_prey_and_prey_to_food():
    _, _, reward, info = world_comm(
        [(0, 0), (0.5, 0), (0.2, 0), (0.5, 0.4)], landmark=landmarks(food0=(0, 0))
    )
    expected = [-0.1 * 0.2, -0.1 * 0.3, -0.05 * 0.2, -0.05 * np.hypot(0.5, 0.4)]
    np.testing.assert_allclose(reward, expected, atol=1e-12)
    assert not info["metrics"]["catches"] and not info["metrics"]["food_eaten"]


def test_world_comm_pays_for_touches():
    position = [(0, 0), (0.2, 0), (0.1, 0), (0.6, 0)]
    _, _, reward, info = world_comm(position)
    np.testing.assert_allclose(without(reward, position, LANDMARKS), [10, 10, -10, 0], atol=1e-12)
    assert info["metrics"]["catches"] == 2


def test_world_comm_pays_prey_for_each_piece_of_food():
    places = landmarks(food0=(0.5, 0), food1=(0.5, 0.05))
    position = [(-0.5, 0), (-0.5, 0.5), (0.5, 0.03), (0.5, -0.074)]
    _, _, reward, info = world_comm(position, landmark=places)
    np.testing.assert_allclose(without(reward, position, places), [0, 0, 4, 2], atol=1e-12)
    assert info["metrics"]["food_eaten"] == 3


def test_world_comm_weighs_the_border_twice():
    position = [(-0.5, 0), (5, 0.5), (0.95, 0), (1.2, -0.92)]
    _, _, reward, _ = world_comm(position)
    penalty = [0, 0, -1, -2 * np.exp(0.4) - 0.4]
    np.testing.assert_allclose(without(reward, position, LANDMARKS), penalty, atol=1e-12)


@pytest.mark.parametrize("name", ("food0", "forest1"))
def test_world_comm_food_and_forests_are_not_solid(name):
    position = [(0, 0), (FAR, 0), (-FAR, 0), (0, FAR)]
    _, state, _, _ = world_comm(position, landmark=landmarks(**{name: (0.1, 0)}))
    assert np.max(np.abs(state.velocity)) < 1e-9
    _, state, _, _ = world_comm(position, landmark=landmarks(obstacle0=(0.1, 0)))
    assert state.velocity[0, 0] < 0


def sees(observation, i):
    """What agent i knows of the others: relative positions, and velocities of the prey it lists."""
    row = np.asarray(observation.features[i])
    others = row[4 + 10 : 4 + 10 + 6].reshape(3, 2)
    velocities = row[20:24].reshape(2, 2) if i < 2 else row[22:24].reshape(1, 2)
    return np.any(others, axis=1).tolist(), np.any(velocities, axis=1).tolist()


# Slots: leader, predator, two prey. Where each is: out in the open, or in forest 0 or 1.
@pytest.mark.parametrize(
    ("where", "seen"),
    [
        # For each agent the others that it sees, in slot order without itself.
        (("open", "open", "open", "open"), [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]),
        (("open", "open", "0", "open"), [[1, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 0]]),
        (("open", "0", "0", "open"), [[1, 1, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]]),
        (("0", "0", "0", "0"), [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]),
        (("0", "1", "0", "1"), [[1, 1, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        (("0", "open", "open", "1"), [[1, 1, 1], [0, 1, 0], [0, 1, 0], [0, 0, 0]]),
        (("both", "0", "1", "open"), [[1, 1, 1], [1, 0, 0], [1, 0, 0], [0, 0, 0]]),
    ],
)
def test_world_comm_forests_hide(where, seen):
    places = landmarks(forest0=(-0.25, 0), forest1=(0.25, 0))
    centre = {"open": (0, 0.8), "0": (-0.4, 0), "1": (0.4, 0), "both": (0, 0)}
    offset = np.array([(0, 0.13), (0.13, 0), (0, -0.13), (-0.13, 0)])
    offset[0] *= where[0] != "both"
    position = np.array([centre[w] for w in where]) + offset
    velocity = jnp.array([(0, 0), (0, 0), (1e-6, 0), (0, 1e-6)])
    observation, _, _, _ = world_comm(position, landmark=places, velocity=velocity)
    for i, expected in enumerate(seen):
        expected = [bool(x) for x in expected]
        others, velocities = sees(observation, i)
        assert others == expected, i
        # Slots of the prey among the others of i.
        assert velocities == (expected[1:] if i < 2 else expected[2:]), i
    flags = np.asarray(observation.features)[:, [24, 25]][:2].tolist()
    flags += np.asarray(observation.features)[:, [20, 21]][2:].tolist()
    inside = {"open": [-1, -1], "0": [1, -1], "1": [-1, 1], "both": [1, 1]}
    assert flags == [inside[w] for w in where]


QUIET = [(-FAR, 0), (FAR, 0), (0, -FAR), (0, FAR)]


@pytest.mark.parametrize("symbol", range(4))
@pytest.mark.parametrize("move", range(5))
def test_world_comm_leader_moves_and_speaks(move, symbol):
    observation, state, _, info = world_comm(QUIET, np.array([move + 5 * symbol, 0, 0, 0]))
    direction = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)][move]
    np.testing.assert_allclose(state.velocity[0], 0.3 * np.array(direction), atol=1e-12)
    said = np.eye(4)[symbol]
    assert np.array_equal(state.message, said) and info["invalid_action"] == 0
    assert np.array_equal(observation.features[:2, 26:30], [said, said])
    assert not np.any(observation.features[2:, 24:30])


def test_world_comm_others_cannot_speak():
    observation, state, _, info = world_comm(QUIET, np.array([0, 7, 12, 19]))
    assert info["invalid_action"] == 3
    assert not np.any(state.velocity) and np.array_equal(state.message, [1, 0, 0, 0])
    assert np.array_equal(observation.action_mask.sum(axis=1), [20, 5, 5, 5])


def test_world_comm_continuous_speech():
    action = np.full((4, 9), 0.25)
    action[0, 5:] = (0.2, 0, 1, -3)
    action[1, 2] = 2
    observation, state, _, info = world_comm(QUIET, action, actions="continuous")
    assert np.array_equal(observation.action_mask.sum(axis=1), [9, 5, 5, 5])
    np.testing.assert_allclose(state.message, (0.2, 0, 1, 0), atol=1e-12)
    np.testing.assert_allclose(state.velocity[:2], [(0, 0), (0.3 * 0.75, 0)], atol=1e-12)
    assert info["invalid_action"] == 0


def test_world_comm_group_names():
    names = [group.name for group in make("world_comm", **WORLD).groups]
    assert names == ["leader", "predators", "prey"]
    alone = make("world_comm", num_predators=1).groups
    assert [(g.name, g.start, g.stop) for g in alone] == [("leader", 0, 1), ("prey", 1, 3)]
