import collections

import numpy as np
import pytest
from particle_ours import assert_agrees, assert_mutants_differ, play
from particle_peer import distances, events, gaps, record

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

SIZES = (1, 2, 3, 5, 10)
KINDS = ("discrete", "continuous")


@pytest.mark.parametrize("actions", KINDS)
@pytest.mark.parametrize("num_agents", SIZES)
def test_agrees_with_mpe2(num_agents, actions):
    env = make("spread", actions=actions, num_agents=num_agents)
    expected = record("spread", actions, num_agents=num_agents)
    assert_agrees(env, expected, play(env, expected), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("actions", KINDS)
@pytest.mark.parametrize("num_agents", (*SIZES, 4, 7, 17))
def test_agrees_with_mpe2_widely(num_agents, actions):
    env = make("spread", actions=actions, num_agents=num_agents)
    expected = record("spread", actions, states=120, steps=4, seed=1, num_agents=num_agents)
    assert_agrees(env, expected, play(env, expected, optimise=True), 1e-9)


def test_what_matters_happens():
    total = collections.Counter()
    for num_agents in SIZES:
        for actions in KINDS:
            total += events(record("spread", actions, num_agents=num_agents))
    for event in (
        "agents push each other",
        "agents at the verge of contact",
        "agents touch after the step",
    ):
        assert total[event] >= 100, event


@pytest.mark.parametrize("actions", KINDS)
def test_every_parameter_matters(actions):
    env = make("spread", actions=actions, num_agents=3)
    expected = record("spread", actions, num_agents=3)
    # The two are of the drawing and of a metric.
    assert_mutants_differ(env, expected, inert=("landmark_size", "cover_distance"))


def test_metrics():
    env, expected = (
        make("spread", num_agents=10),
        record("spread", "discrete", num_agents=10),
    )
    metrics = play(env, expected)["metrics"]
    nearest = distances(expected.next_position, expected.landmark).min(axis=1)
    np.testing.assert_allclose(metrics["covered"], (nearest < 0.1).mean(axis=1), atol=1e-12)
    assert np.sum(nearest < 0.1) >= 100
    collisions = np.sum(gaps(expected, expected.next_position)[0] < 0, axis=(1, 2)) / 2
    np.testing.assert_array_equal(metrics["collisions"], collisions)
