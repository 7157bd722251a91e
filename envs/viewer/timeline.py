"""One episode of a recording, prepared for drawing: clean positions, extent, accumulated returns."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flockax.envs.viewer.recording import Recording
from flockax.envs.viewer.scene import Layer, LayerFrame, Palette, Scene

Extent = tuple[float, float, float, float]

# An item that crosses more of the nominal area than this in one step has jumped (it respawned, or
# wrapped around a border): drawing it half way would show it where it never was.
JUMP = 0.25

# Positions beyond this are the debris of a numerical explosion; they count as not finite.
FAR = 1e30


class Track(NamedTuple):
    """The items of a layer through an episode of ``L`` steps.

    Attributes:
        position: ``float64[L + 1, count, 2]``, finite; 0 where hidden.
        heading: ``float64[L + 1, count]``, finite, or None.
        visible: ``bool[L + 1, count]``, False also where the position is not finite.
        highlight: ``bool[L + 1, count]``, or None where nothing ever is.
    """

    position: np.ndarray
    heading: np.ndarray | None
    visible: np.ndarray
    highlight: np.ndarray | None


class Episode(NamedTuple):
    """What is drawn of one episode of ``L`` steps.

    Attributes:
        length: ``L``.
        extent: ``(x_min, x_max, y_min, y_max)`` that holds the nominal area and all visible items.
        tracks: by layer name.
        returns: ``float64[L + 1, G]``, the reward so far, summed over the agents of each group shown.
        readouts: ``float64[L + 1, R]``, the metrics shown; NaN at the start, where there is none yet.
    """

    length: int
    extent: Extent
    tracks: dict[str, Track]
    returns: np.ndarray
    readouts: np.ndarray


def episode_of(recording: Recording, index: int) -> Episode:
    """Prepares one episode.

    Raises:
        ValueError: where there is no such episode.
    """
    count = recording.num_episodes
    if not 0 <= index < count:
        raise ValueError(f"episode={index!r} is not one of the {count} recorded, 0 .. {count - 1}")
    scene, steps = recording.scene, recording.steps_of(index)
    tracks = {
        layer.name: _track(recording.frames[layer.name], recording.frames_of(index))
        for layer in scene.layers
    }
    rewards = recording.rewards[steps].astype(np.float64)
    per_group = [rewards[:, start:stop].sum(axis=1) for _, start, stop in shown_groups(recording)]
    metrics = [recording.metrics[name][steps].astype(np.float64) for name in scene.readouts]
    return Episode(
        length=int(recording.lengths[index]),
        extent=_extent(scene, tracks),
        tracks=tracks,
        returns=_columns([np.cumsum(group) for group in per_group], 0.0, len(rewards)),
        readouts=_columns(metrics, math.nan, len(rewards)),
    )


def shown_groups(recording: Recording) -> tuple[tuple[str, int, int], ...]:
    """The groups in the panel of returns: ``(name, first slot, one past the last slot)``."""
    by_name = {group[0]: group for group in recording.groups}
    return tuple(by_name[name] for name in recording.scene.groups or by_name)


def group_colors(recording: Recording) -> tuple[str, ...]:
    """A colour for each group shown: that of the layer of the same name, else a free one."""
    by_layer = {layer.name: layer.color for layer in recording.scene.layers}
    names = [name for name, _, _ in shown_groups(recording)]
    taken = {by_layer[name] for name in names if name in by_layer}
    free = [color for color in Palette.CYCLE if color not in taken] or list(Palette.CYCLE)
    missing = iter(range(len(names)))
    return tuple(
        by_layer[name] if name in by_layer else free[next(missing) % len(free)] for name in names
    )


def jump_distance(scene: Scene) -> float:
    """How far an item may move in one step, in world units, and still be drawn as gliding."""
    x_min, x_max, y_min, y_max = scene.bounds
    width, height = x_max - x_min, y_max - y_min
    if scene.cells is None:
        return JUMP * min(width, height)
    rows, columns = scene.cells.shape
    return max(JUMP * min(width, height), 1.5 * max(width / columns, height / rows))


def moment(track: Track, playhead: float, jump: float) -> Track:
    """The items at a time between two frames, without the leading axis.

    Args:
        track: an episode of ``L`` steps.
        playhead: in 0 .. L; whole numbers are frames.
        jump: items that move farther than this in a step stay until it is over.
    """
    last = len(track.position) - 1
    now = min(int(playhead), last)
    later, part = min(now + 1, last), playhead - now
    moved = track.position[later] - track.position[now]
    glides = track.visible[now] & track.visible[later]
    glides &= np.hypot(moved[:, 0], moved[:, 1]) <= jump
    heading = None
    if track.heading is not None:
        turned = track.heading[later] - track.heading[now]
        turned = (turned + np.pi) % (2 * np.pi) - np.pi
        heading = track.heading[now] + part * np.where(glides, turned, 0)
    return Track(
        position=track.position[now] + part * np.where(glides[:, None], moved, 0),
        heading=heading,
        visible=track.visible[now],
        highlight=None if track.highlight is None else track.highlight[now],
    )


def trail_length(layer: Layer, budget: int = 40_000) -> int:
    """The frames of trail that are drawn: fewer than asked for where the items are very many."""
    return min(layer.trail, budget // max(layer.count, 1))


def _track(frame: LayerFrame, frames: slice) -> Track:
    position = np.asarray(frame.position[frames], np.float64)
    visible = (np.abs(position) < FAR).all(axis=-1)
    if frame.visible is not None:
        visible &= frame.visible[frames].astype(bool)
    heading = None
    if frame.heading is not None:
        heading = np.asarray(frame.heading[frames], np.float64)
        heading = np.where(np.isfinite(heading), heading, 0)
    highlight = None
    if frame.highlight is not None and np.any(frame.highlight[frames]):
        highlight = frame.highlight[frames].astype(bool)
    return Track(np.where(visible[..., None], position, 0), heading, visible, highlight)


def _extent(scene: Scene, tracks: dict[str, Track]) -> Extent:
    x_min, x_max, y_min, y_max = scene.bounds
    low, high = np.array([x_min, y_min]), np.array([x_max, y_max])
    for layer in scene.layers:
        track = tracks[layer.name]
        reach = np.broadcast_to(layer.sizes[:, None], track.position.shape)
        seen = np.broadcast_to(track.visible[..., None], track.position.shape)
        axes = (0, 1)
        low = np.minimum(low, np.min(track.position - reach, axes, initial=np.inf, where=seen))
        high = np.maximum(high, np.max(track.position + reach, axes, initial=-np.inf, where=seen))
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])


def _columns(series: list[np.ndarray], first: float, length: int) -> np.ndarray:
    """Series ``[L]`` as columns ``[L + 1, n]`` that begin with `first`."""
    table = np.full((length + 1, len(series)), first)
    for column, values in enumerate(series):
        table[1:, column] = values
    return table
