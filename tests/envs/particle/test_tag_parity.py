import collections
import itertools

import numpy as np
import pytest
from particle_ours import assert_agrees, assert_mutants_differ, play
from particle_peer import events, gaps, record

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

SIZES = [
    {"num_predators": p, "num_prey": q, "num_obstacles": o}
    for p, q, o in itertools.product((1, 2, 3, 5), (1, 2, 4), (0, 2, 3))
]
KINDS = ("discrete", "continuous")
# Every size with one kind of action, neighbouring sizes with the other; the rest is slow.
CASES = [(KINDS[i % 2], size) for i, size in enumerate(SIZES)]
OTHER_CASES = [(KINDS[(i + 1) % 2], size) for i, size in enumerate(SIZES)]


def name(case):
    return case if isinstance(case, str) else "-".join(map(str, case.values()))


@pytest.mark.parametrize(("actions", "fields"), CASES, ids=name)
def test_agrees_with_mpe2(actions, fields):
    env, expected = make("tag", actions=actions, **fields), record("tag", actions, **fields)
    assert_agrees(env, expected, play(env, expected), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("actions", "fields"), CASES + OTHER_CASES, ids=name)
def test_agrees_with_mpe2_widely(actions, fields):
    env = make("tag", actions=actions, **fields)
    expected = record("tag", actions, states=120, steps=4, seed=1, **fields)
    assert_agrees(env, expected, play(env, expected, optimise=True), 1e-9)


def test_what_matters_happens():
    total = collections.Counter()
    for actions, fields in CASES:
        total += events(record("tag", actions, **fields))
    rare = {event: int(total[event]) for event in sorted(total) if total[event] < 100}
    assert not rare
    assert len(total) == 10


@pytest.mark.parametrize("actions", KINDS)
def test_every_parameter_matters(actions):
    fields = {"num_predators": 3, "num_prey": 2, "num_obstacles": 2}
    env, expected = make("tag", actions=actions, **fields), record("tag", actions, **fields)
    assert_mutants_differ(env, expected, inert=())


def test_metrics():
    fields = {"num_predators": 3, "num_prey": 2, "num_obstacles": 2}
    expected = record("tag", "discrete", **fields)
    metrics = play(make("tag", **fields), expected)["metrics"]
    predator = expected.predator
    touched = gaps(expected, expected.next_position)[0][:, predator][:, :, ~predator] < 0
    np.testing.assert_array_equal(metrics["catches"], touched.sum(axis=(1, 2)))
    assert touched.sum() >= 20
