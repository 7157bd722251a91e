"""Single precision, compiled as users get it, away from the thresholds at which things jump."""

import jax
import numpy as np
import pytest
from particle_ours import assert_agrees, play
from particle_peer import distances, gaps, record

from flockax.envs import make

TAG = {"num_predators": 3, "num_prey": 1, "num_obstacles": 2}
CROWDED_TAG = {"num_predators": 5, "num_prey": 4, "num_obstacles": 3}
WORLD = {"num_predators": 4, "num_prey": 2, "num_obstacles": 1, "num_food": 2, "num_forests": 2}
CASES = [
    ("tag", "discrete", TAG),
    ("spread", "continuous", {"num_agents": 5}),
    ("world_comm", "discrete", WORLD),
    pytest.param("tag", "continuous", CROWDED_TAG, marks=pytest.mark.slow),
    pytest.param("spread", "discrete", {"num_agents": 10}, marks=pytest.mark.slow),
    pytest.param("world_comm", "continuous", WORLD, marks=pytest.mark.slow),
]


def well_conditioned(worlds):
    """Transitions in which nobody is at a threshold, or so close that the direction is all rounding."""
    before = distances(worlds.position, worlds.position) + 10 * np.eye(worlds.position.shape[1])
    near = np.any(before < 0.05, axis=(1, 2))
    if np.any(worlds.solid):
        solid = worlds.landmark[:, worlds.solid]
        near |= np.any(distances(worlds.position, solid) < 0.05, axis=(1, 2))
    agents, landmarks = gaps(worlds, worlds.next_position)
    at_threshold = np.any(np.abs(agents) < 1e-5, axis=(1, 2))
    at_threshold |= np.any(np.abs(landmarks) < 1e-5, axis=(1, 2))
    return ~near & ~at_threshold


@pytest.mark.parametrize(("id", "actions", "fields"), CASES)
def test_agrees_with_mpe2(id, actions, fields):
    assert not jax.config.read("jax_enable_x64")
    # One step from each state: what float32 holds exactly is where both start.
    worlds = record(id, actions, states=240, steps=1, **fields)
    worlds = worlds[well_conditioned(worlds)]
    agents, landmarks = gaps(worlds, worlds.position)
    assert len(worlds) >= 100 and np.sum(agents < 0) + np.sum(landmarks < 0) >= 100
    result = play(make(id, actions=actions, **fields), worlds, optimise=True)
    assert result["features"].dtype == result["reward"].dtype == np.float32
    assert_agrees(make(id, actions=actions, **fields), worlds, result, 2e-5)
