import collections

import numpy as np
import pytest
from particle_ours import assert_agrees, assert_mutants_differ, play
from particle_peer import events, gaps, record

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

KINDS = ("discrete", "continuous")
NAMES = ("num_predators", "num_prey", "num_obstacles", "num_food", "num_forests")
SIZES = [
    dict(zip(NAMES, size, strict=True))
    for size in (
        (4, 2, 1, 2, 2),
        (1, 1, 0, 1, 1),
        (1, 2, 2, 1, 0),
        (3, 1, 2, 2, 3),
        (2, 2, 1, 1, 2),
        (5, 4, 3, 3, 2),
    )
]
DEFAULT = SIZES[0]
CASES = [("continuous", DEFAULT), *((KINDS[i % 2], size) for i, size in enumerate(SIZES))]
WIDE_CASES = [(kind, size) for size in SIZES for kind in KINDS]


def name(case):
    return case if isinstance(case, str) else "-".join(map(str, case.values()))


def happened(actions, fields):
    first_food = fields["num_obstacles"]
    return events(
        record("world_comm", actions, **fields),
        first_forest=first_food + fields["num_food"],
        first_food=first_food,
    )


@pytest.mark.parametrize(("actions", "fields"), CASES, ids=name)
def test_agrees_with_mpe2(actions, fields):
    env = make("world_comm", actions=actions, **fields)
    expected = record("world_comm", actions, **fields)
    assert_agrees(env, expected, play(env, expected), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("actions", "fields"), WIDE_CASES, ids=name)
def test_agrees_with_mpe2_widely(actions, fields):
    env = make("world_comm", actions=actions, **fields)
    expected = record("world_comm", actions, states=120, steps=4, seed=1, **fields)
    assert_agrees(env, expected, play(env, expected, optimise=True), 1e-9)


def test_what_matters_happens():
    total = collections.Counter()
    symbols = collections.Counter()
    for actions, fields in CASES:
        total += happened(actions, fields)
        expected = record("world_comm", actions, **fields)
        if actions == "discrete":
            symbols.update(np.argmax(expected.next_message, axis=1).tolist())
            np.testing.assert_array_equal(expected.next_message.sum(axis=1), 1)
        else:
            symbols["shades"] += int(np.sum((expected.next_message % 1) > 0))
    rare = {event: int(total[event]) for event in sorted(total) if total[event] < 100}
    assert not rare
    assert len(total) == 19
    assert all(symbols[said] >= 25 for said in (0, 1, 2, 3)) and symbols["shades"] >= 100


@pytest.mark.parametrize("actions", KINDS)
def test_every_parameter_matters(actions):
    env, expected = (
        make("world_comm", actions=actions, **DEFAULT),
        record("world_comm", actions, **DEFAULT),
    )
    assert_mutants_differ(env, expected, inert=())


def test_metrics():
    total = collections.Counter()
    for actions, fields in CASES:
        env = make("world_comm", actions=actions, **fields)
        expected = record("world_comm", actions, **fields)
        metrics = play(env, expected)["metrics"]
        agents, landmarks = gaps(expected, expected.next_position)
        predator, first_food = expected.predator, fields["num_obstacles"]
        touched = agents[:, predator][:, :, ~predator] < 0
        food = landmarks[:, ~predator, first_food : first_food + fields["num_food"]] < 0
        np.testing.assert_array_equal(metrics["catches"], np.sum(touched, axis=(1, 2)))
        np.testing.assert_array_equal(metrics["food_eaten"], np.sum(food, axis=(1, 2)))
        total.update({"catches": touched.sum(), "food": food.sum()})
    assert min(total.values()) >= 100
