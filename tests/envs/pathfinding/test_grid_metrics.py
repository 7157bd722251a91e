"""Metrics of whole episodes: equal to what POGEMA 1.4.0 reported, and by hand."""

import functools

import jax
import numpy as np
import pytest
from pogema_record import RULES, episodes

from flockax.envs.pathfinding import metrics


@functools.cache
def recorded(mode):
    """All episodes of a mode by their number of agents, padded in time with what must not count."""
    found = {}
    for e in episodes():
        if e.mode == mode:
            found.setdefault(e.agents, []).append(e)
    return found


def padded(group, values, fill):
    """``[N, T, A]`` from one array an episode."""
    longest = max(e.length for e in group) + 1
    return np.stack(
        [
            np.concatenate([v, np.full((longest - len(v), *v.shape[1:]), fill, v.dtype)])
            for v in map(values, group)
        ]
    )


# Sizes differ from group to group: one compilation for each instead of one an operation.
one_shot, vanishing = jax.jit(metrics.one_shot), jax.jit(metrics.vanishing)
arrival_steps, lifelong = jax.jit(metrics.arrival_steps), jax.jit(metrics.lifelong)


def lengths(group):
    return np.array([e.length for e in group])


def reported(group, name):
    return np.array([e.metrics[name] for e in group])


@pytest.mark.parametrize("fill", [False, True])
def test_one_shot_equals_the_reference(fill):
    for group in recorded("nothing").values():
        on_goal = padded(group, lambda e: (e.position == e.goal).all(-1)[1:], fill)
        result = one_shot(on_goal, lengths(group))
        for ours, theirs in (("soc", "SoC"), ("makespan", "makespan"), ("ep_length", "ep_length")):
            np.testing.assert_array_equal(result[ours], reported(group, theirs))
        np.testing.assert_array_equal(result["csr"], reported(group, "CSR"))
        np.testing.assert_allclose(result["isr"], reported(group, "ISR"), rtol=1e-6)


def test_the_record_has_the_quirk_of_the_final_step():
    left = 0
    for group in recorded("nothing").values():
        for e in group:
            on_goal = (e.position == e.goal).all(-1)
            left += (on_goal[-2] & ~on_goal[-1]).sum()
    assert left >= 20


@pytest.mark.parametrize("fill", [False, True])
def test_vanishing_equals_the_reference(fill):
    for group in recorded("finish").values():
        arrived = padded(group, lambda e: e.reward, fill)
        result = vanishing(arrival_steps(arrived), lengths(group))
        np.testing.assert_allclose(result["ep_length"], reported(group, "ep_length"), rtol=1e-6)
        np.testing.assert_array_equal(result["csr"], reported(group, "CSR"))
        np.testing.assert_allclose(result["isr"], reported(group, "ISR"), rtol=1e-6)
        agents = group[0].agents
        np.testing.assert_allclose(result["soc"], result["ep_length"] * agents, rtol=1e-6)


@pytest.mark.parametrize("fill", [False, True])
def test_lifelong_equals_the_reference(fill):
    for group in recorded("restart").values():
        arrivals = padded(group, lambda e: e.reward, fill)
        result = lifelong(arrivals, np.array([e.horizon for e in group]))
        expected = reported(group, "avg_throughput")
        np.testing.assert_allclose(result["throughput"], expected, rtol=1e-6)


def by_hand(on_goal):
    return metrics.one_shot(np.array(on_goal, bool).T, len(on_goal[0]))


def test_costs_of_one_shot_episodes_by_hand():
    result = by_hand([[0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    assert (result["soc"], result["makespan"]) == (4 + 1 + 5, 5)
    assert (result["csr"], result["ep_length"]) == (0, 5)
    np.testing.assert_allclose(result["isr"], 2 / 3, rtol=1e-6)


def test_who_leaves_its_goal_in_the_final_step_keeps_its_cost():
    assert by_hand([[0, 1, 1, 0]])["soc"] == 2
    assert by_hand([[0, 1, 1, 0]])["isr"] == 0
    assert by_hand([[0, 1, 0, 0]])["soc"] == 4
    assert by_hand([[0, 0, 0, 1]])["soc"] == 4


def test_an_episode_of_one_step():
    result = by_hand([[1], [0]])
    assert (result["soc"], result["makespan"], result["isr"]) == (2, 1, 0.5)


def test_arrivals_by_hand():
    arrived = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]], bool).T
    steps = metrics.arrival_steps(arrived)
    np.testing.assert_array_equal(steps, [2, 4, 0])
    result = metrics.vanishing(steps, 4)
    assert (result["soc"], result["makespan"]) == (3 + 4 + 1, 4)
    np.testing.assert_allclose(result["ep_length"], 8 / 3, rtol=1e-6)
    # Arrivals at or after the end don't count.
    np.testing.assert_allclose(metrics.vanishing(steps, 2)["isr"], 1 / 3, rtol=1e-6)
    assert metrics.vanishing(np.array([-1, 3]), 5)["soc"] == 5 + 4


def test_throughput_is_over_the_horizon():
    arrivals = np.array([[1, 0], [0, 2], [1, 1]])
    assert metrics.lifelong(arrivals, 2)["throughput"] == 1.5
    assert metrics.lifelong(arrivals, 10)["throughput"] == 0.5


def refusals(episode):
    """Refused moves of an episode in plain loops: by agents, by obstacles."""
    by_agents = by_walls = 0
    moves = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    height, width = episode.obstacles.shape
    for t in range(episode.length):
        for i, a in enumerate(episode.action[t]):
            row, column = (episode.position[t, i] + moves[a]).tolist()
            if not episode.active[t, i] or (episode.position[t + 1, i] == (row, column)).all():
                continue
            inside = 0 <= row < height and 0 <= column < width
            if inside and not episode.obstacles[row, column]:
                by_agents += 1
            else:
                by_walls += 1
    return by_agents, by_walls


@pytest.mark.parametrize("rule", RULES)
def test_collisions_equal_a_count_by_hand(rule):
    group = [e for e in episodes() if (e.rule, e.mode, e.agents) == (rule, "finish", 10)]
    longest = max(e.length for e in group)

    def until(values, steps):
        pad = [(0, steps - len(values))] + [(0, 0)] * (values.ndim - 1)
        return np.pad(values, pad, mode="edge")

    result = metrics.collisions(
        np.stack([e.obstacles for e in group]),
        np.stack([until(e.position, longest + 1) for e in group]),
        # Beyond the end all push upwards without moving: none of it may count.
        np.stack(
            [np.pad(e.action, [(0, longest - e.length), (0, 0)], constant_values=1) for e in group]
        ),
        np.stack([until(e.active[:-1], longest) for e in group]),
        lengths(group),
    )
    expected = np.array([refusals(e) for e in group])
    np.testing.assert_array_equal(result["agent_collisions"], expected[:, 0])
    np.testing.assert_array_equal(result["obstacle_collisions"], expected[:, 1])
    assert expected.sum(0).min() > 20


def test_leading_axes_and_jit():
    rng = np.random.default_rng(0)
    on_goal, length = rng.random((2, 3, 7, 4)) < 0.6, rng.integers(1, 8, (2, 3))
    batch = jax.jit(metrics.one_shot)(on_goal, length)
    for i in range(2):
        for j in range(3):
            cut = metrics.one_shot(on_goal[i, j, : length[i, j]], length[i, j])
            assert {k: v[i, j] for k, v in batch.items()} == cut
    arrived = rng.random((2, 3, 7, 4)) < 0.2
    assert metrics.vanishing(metrics.arrival_steps(arrived), length)["soc"].shape == (2, 3)
    assert metrics.lifelong(arrived, 7)["throughput"].shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.one_shot(np.ones((2, 5, 3)), np.ones(3)), r"leading axes \(2,\)"),
        (lambda: metrics.one_shot(np.ones(5), 5), "at least 2 axes"),
        (lambda: metrics.vanishing(np.ones((2, 3)), np.ones((2, 3))), r"leading axes \(2,\)"),
        (lambda: metrics.lifelong(np.ones((4, 5, 3)), np.ones(5)), r"leading axes \(4,\)"),
        (
            lambda: metrics.collisions(
                np.ones((3, 3)), np.ones((4, 2, 2)), np.ones((4, 2)), np.ones((4, 2)), 4
            ),
            r"position has shape \(4, 2, 2\), not \(5, 2, 2\)",
        ),
        (
            lambda: metrics.collisions(
                np.ones((9, 3, 3)), np.ones((5, 2, 2)), np.ones((4, 2)), np.ones((4, 2)), 4
            ),
            "obstacles has leading axes",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
