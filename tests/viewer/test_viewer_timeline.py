"""What is drawn of an episode: clean positions, extents, returns, moments between frames."""

import dataclasses
import math

import numpy as np
import pytest

from flockax.envs.viewer import Layer, LayerFrame, Palette, Scene
from flockax.envs.viewer.timeline import (
    Track,
    episode_of,
    group_colors,
    jump_distance,
    moment,
    shown_groups,
    trail_length,
)

MOVING = Track(
    position=np.array([[[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]], [[0.2, 0.4], [3.0, 0.0], [0.0, 0.0]]]),
    heading=np.array([[3.0, 0.0, 0.0], [-3.0, 1.0, 1.0]]),
    visible=np.array([[True, True, True], [True, True, False]]),
    highlight=np.array([[True, False, False], [False, False, False]]),
)


def test_returns_accumulate_by_group(drift_recording):
    episode = episode_of(drift_recording, 1)
    steps = np.array([0, 2, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(episode.returns, np.stack([2 * steps, -2 * steps], axis=1))


def test_returns_of_each_episode_begin_at_zero(drift_recording):
    rewards = np.arange(36.0).reshape(12, 3)
    recording = dataclasses.replace(drift_recording, rewards=rewards)
    for number, rows in ((0, rewards[:6]), (1, rewards[6:])):
        returns = episode_of(recording, number).returns
        assert returns[0].tolist() == [0, 0]
        np.testing.assert_allclose(returns[-1], [rows[:, :2].sum(), rows[:, 2].sum()])


def test_readouts_begin_with_nothing(drift_recording):
    readouts = episode_of(drift_recording, 1).readouts
    assert math.isnan(readouts[0, 0])
    np.testing.assert_allclose(readouts[1:, 0], drift_recording.metrics["spread"][6:])


@pytest.mark.parametrize("number", [-1, 2])
def test_no_such_episode(drift_recording, number):
    with pytest.raises(ValueError, match=rf"episode={number} is not one of the 2"):
        episode_of(drift_recording, number)


@pytest.mark.parametrize("fault", ["dead", "nan"])
def test_hidden_items(make_recording, fault):
    """Dead agents and positions that are not finite are hidden and leave no NaN behind."""
    track = episode_of(make_recording(fault=fault), 0).tracks["prey"]
    assert track.visible[:, 0].tolist() == [True, True, False, False, False, False, False]
    assert np.isfinite(track.position).all()
    assert (track.position[2:] == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e31])
def test_positions_that_are_no_places_are_hidden(drift_recording, bad):
    frame = drift_recording.frames["prey"]
    for axis in (0, 1):
        position, heading = frame.position.copy(), frame.heading.copy()
        position[3, 0, axis] = bad
        heading[4, 0] = bad
        changed = frame.replace(position=position, heading=heading)
        frames = {**drift_recording.frames, "prey": changed}
        episode = episode_of(dataclasses.replace(drift_recording, frames=frames), 0)
        assert episode.tracks["prey"].visible[:, 0].tolist() == [True] * 3 + [False] + [True] * 3
        assert np.isfinite(episode.tracks["prey"].heading).all()
        assert np.isfinite(episode.extent).all()


def test_extent_holds_whoever_leaves(make_recording):
    recording = make_recording(fault="far")
    episode = episode_of(recording, 0)
    prey = episode.tracks["prey"].position[:, 0]
    x_min, x_max, y_min, y_max = episode.extent
    assert x_max == pytest.approx(prey[:, 0].max() + 0.06)
    assert x_max > 7
    assert x_min <= -1
    assert y_min <= -1 < 1 <= y_max


def test_extent_is_at_least_the_bounds():
    """Items inside, and hidden items anywhere, change nothing; other episodes neither."""
    position = np.zeros((4, 2, 2))
    position[:, 1] = 9.0
    position[2:, 0] = -5.0
    recording = _recording(LayerFrame(position, visible=np.tile([True, False], (4, 1))), size=0.5)
    assert episode_of(recording, 0).extent == (-1, 1, -2, 2)
    assert episode_of(recording, 1).extent == (-5.5, 1, -5.5, 2)


def test_hidden_items_do_not_widen_the_extent():
    """Not even where the area does not hold the origin, at which they are put."""
    recording = _recording(LayerFrame(np.full((4, 2, 2), np.nan)))
    for bounds in ((5, 6, 7, 8), (-6, -5, -8, -7)):
        scene = dataclasses.replace(recording.scene, bounds=bounds)
        assert episode_of(dataclasses.replace(recording, scene=scene), 0).extent == bounds


def _recording(frame, size=0.1, color="#fff", **scene):
    from flockax.envs.viewer import Recording

    layer = Layer("items", "disc", frame.position.shape[1], size, color)
    return Recording(
        env_id="none",
        fields={},
        params={},
        seed=0,
        versions={},
        groups=(("a", 0, 1), ("b", 1, 2)),
        scene=Scene((-1, 1, -2, 2), (layer,), **scene),
        lengths=np.array([1, 1], np.int32),
        terminated=np.array([False, False]),
        actions=np.zeros((2, 2), int),
        rewards=np.zeros((2, 2)),
        metrics={},
        frames={"items": frame},
    )


def test_groups_shown():
    frame = LayerFrame(np.zeros((4, 2, 2)))
    assert shown_groups(_recording(frame)) == (("a", 0, 1), ("b", 1, 2))
    assert shown_groups(_recording(frame, groups=("b",))) == (("b", 1, 2),)


def test_groups_take_the_colour_of_their_layer(drift_recording):
    assert group_colors(drift_recording) == (Palette.PREDATOR, Palette.PREY)


def test_groups_without_a_layer_get_colours_of_their_own():
    recording = _recording(LayerFrame(np.zeros((4, 2, 2))), color=Palette.CYCLE[0])
    assert len(set(group_colors(recording))) == 2
    groups = (("items", 0, 1), ("b", 1, 2))
    first, second = group_colors(dataclasses.replace(recording, groups=groups))
    assert first == Palette.CYCLE[0] != second


def test_only_real_highlights_are_kept(drift_recording, make_recording):
    episode = episode_of(drift_recording, 0)
    assert episode.tracks["predators"].highlight.sum(axis=1).tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert episode.tracks["prey"].highlight is None
    assert episode_of(make_recording(horizon=2), 0).tracks["predators"].highlight is None


def test_items_glide_between_frames():
    between = moment(MOVING, 0.25, jump=1.0)
    np.testing.assert_allclose(between.position[0], [0.05, 0.1])
    assert between.visible.tolist() == [True, True, True]
    assert between.highlight.tolist() == [True, False, False]


def test_items_that_jump_or_vanish_wait():
    between = moment(MOVING, 0.75, jump=1.0)
    np.testing.assert_array_equal(between.position[1:], [[0, 0], [1, 1]])
    np.testing.assert_array_equal(between.heading[1:], [0, 0])


def test_headings_turn_the_short_way():
    turned = moment(MOVING, 0.5, jump=1.0).heading[0]
    assert math.cos(turned) == pytest.approx(-1)


def test_whole_moments_are_frames():
    for playhead in (0, 1):
        frame = moment(MOVING, playhead, jump=1.0)
        np.testing.assert_array_equal(frame.position, MOVING.position[playhead])
        np.testing.assert_array_equal(frame.visible, MOVING.visible[playhead])


def test_jump_distance():
    assert jump_distance(Scene((0, 8, 0, 4), ())) == 1.0
    assert jump_distance(Scene((0, 3, 0, 2), (), cells=np.zeros((2, 3), int))) == 1.5


@pytest.mark.parametrize(("count", "length"), [(0, 8), (10, 8), (10_000, 4), (100_000, 0)])
def test_trails_of_crowds_are_short(count, length):
    assert trail_length(Layer("a", "disc", count, 1, "#fff", trail=8)) == length
