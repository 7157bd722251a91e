"""The oracle equals POGEMA 1.4.0 on every recorded step, and the record holds enough of every event."""

import functools

import numpy as np
import pytest
from grid_events import count, step_events
from grid_oracle import World, is_free, soft
from pogema_record import MODES, RULES, checksum, episodes, groups

ATTEMPTS = ("contest", "swap", "chain", "cycle", "border", "obstacle", "standing")


def play(episode, compat_visibility=True):
    """A world with the start, goals and settings of a recorded episode."""
    queues = [q[:n] for q, n in zip(episode.queue, episode.queue_length, strict=True)]
    return World(
        episode.obstacles,
        episode.position[0],
        queues,
        episode.radius,
        episode.rule,
        episode.mode,
        compat_visibility,
    )


def replay(episode):
    """Asserts that the oracle goes through an episode as POGEMA did."""
    world = play(episode)
    assert checksum(world.windows()) == episode.sight[0]
    for t in range(episode.length):
        reward, over = world.step(episode.action[t])
        np.testing.assert_array_equal(world.position, episode.position[t + 1])
        np.testing.assert_array_equal(world.goal, episode.goal[t + 1])
        np.testing.assert_array_equal(world.active, episode.active[t + 1])
        np.testing.assert_array_equal(reward, episode.reward[t])
        assert over == episode.terminated[t].all()
        assert (t + 1 == episode.horizon) == episode.truncated[t]
        windows = world.windows()[episode.active[t + 1]]
        assert checksum(windows) == episode.sight[t + 1]
        if t + 1 == episode.window_time:
            np.testing.assert_array_equal(windows, episode.window)
    return episode.length


@functools.cache
def counted():
    return count(episodes())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", RULES)
def test_oracle_equals_the_record(rule, mode):
    few = [e for e in episodes() if (e.rule, e.mode) == (rule, mode) and e.agents <= 48]
    assert sum(map(replay, few[::3])) > 500


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", RULES)
def test_oracle_equals_all_of_the_record(rule, mode):
    assert sum(replay(e) for e in episodes() if (e.rule, e.mode) == (rule, mode)) > 2_000


def test_the_record_is_large_and_varied():
    es = episodes()
    assert sum(e.length for e in es) >= 20_000
    assert {(e.rule, e.mode) for e in es} == {(r, m) for r in RULES for m in MODES}
    assert {1, 128} <= {e.agents for e in es}
    sides = [e.obstacles.shape for e in es]
    assert (min(map(min, sides)), max(map(max, sides))) == (3, 64)
    assert any(h < w for h, w in sides) and any(h > w for h, w in sides)
    assert {1, 2, 3, 4, 5, 6, 7} == {e.radius for e in es}
    density = [e.obstacles.mean() for e in es if e.obstacles.size > 200]
    assert min(density) < 0.05 and max(density) > 0.4
    assert len(groups()) == 9 * len({e.shape for e in es})


@pytest.mark.parametrize("event", ATTEMPTS)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_meets_every_event(rule, event):
    assert sum(counted()[rule, mode, event] for mode in MODES) >= 100


@pytest.mark.parametrize("rule", RULES)
def test_arrivals_new_goals_and_ends(rule):
    for mode in MODES:
        assert counted()[rule, mode, "arrival"] >= 100
    assert counted()[rule, "restart", "new goal"] >= 100
    assert counted()[rule, "restart", "queue over"] >= 100


def test_episodes_end_in_every_way():
    for end, enough in (("terminated", 100), ("truncated", 100), ("both", 20)):
        assert sum(n for (_, _, name), n in counted().items() if name == end) >= enough
    assert all(e.truncated[-1] or e.terminated[-1].all() for e in episodes())
    assert not any(e.truncated[:-1].any() or e.terminated[:-1].all(1).any() for e in episodes())


def test_the_visibility_fault_happens_and_only_under_soft():
    faults = 0
    for e in episodes():
        if e.rule != "soft" or e.agents > 16:
            continue
        world = play(e)
        for t in range(e.length):
            world.step(e.action[t])
            hidden = np.array(world.hidden) & e.active[t + 1]
            faults += hidden.sum()
    assert faults >= 100


def test_without_the_fault_everybody_is_seen():
    episode = next(e for e in episodes() if e.rule == "soft" and e.agents == 11)
    world = play(episode, compat_visibility=False)
    for action in episode.action:
        world.step(action)
        centre = world.windows()[:, 1, episode.radius, episode.radius]
        np.testing.assert_array_equal(centre, world.active)


def test_events_of_a_step_by_hand():
    obstacles = np.zeros((3, 4), bool)
    obstacles[2, 3] = True
    ring = np.array([(0, 0), (0, 1), (1, 1), (1, 0), (1, 3), (0, 3)])
    turn = np.array([4, 2, 3, 1, 2, 1])
    active = np.ones(6, bool)
    found = step_events(obstacles, ring, turn, active)
    assert (found["cycle"], found["chain"], found["swap"]) == (1, 4, 0)
    assert (found["obstacle"], found["border"], found["contest"]) == (1, 1, 0)
    aim = [(0, 1), (1, 1), (1, 0), (0, 0), (2, 3), (-1, 3)]
    moved = soft(obstacles, [tuple(c) for c in ring], aim, active)
    assert moved == [*aim[:4], (1, 3), (0, 3)]
    active[3] = False
    found = step_events(obstacles, ring, turn, active)
    assert (found["cycle"], found["chain"]) == (0, 1)
    active[:] = True
    swap = step_events(obstacles, ring, np.array([4, 3, 0, 0, 0, 0]), active)
    assert (swap["swap"], swap["chain"], swap["standing"]) == (1, 0, 0)
    assert step_events(obstacles, ring, np.array([2, 0, 0, 0, 0, 0]), active)["standing"] == 1


def test_cells_outside_the_map_are_not_free():
    obstacles = np.zeros((2, 3), bool)
    outside = ((-1, 0), (2, 0), (0, -1), (0, 3))
    assert is_free(obstacles, (1, 2)) and not any(is_free(obstacles, c) for c in outside)
