"""The self-contained page: packs a recording into the template ``replay.html``.

Positions are quantised to 16 bits over the extent of their episode and written as base64; a layer
that does not move is written once an episode. The page needs no network, no server and no library.
"""

from __future__ import annotations

import base64
import html
import importlib.resources
import json
import re
from typing import Any

import numpy as np

from flockax.envs.viewer.recording import Recording
from flockax.envs.viewer.scene import Layer
from flockax.envs.viewer.theme import THEMES
from flockax.envs.viewer.timeline import (
    Episode,
    Extent,
    Track,
    episode_of,
    group_colors,
    jump_distance,
    shown_groups,
    trail_length,
)

# Codes 0 .. LEVELS span the extent; HIDDEN marks an item that is not drawn.
LEVELS = 65_534
HIDDEN = 65_535
# Headings are whole multiples of a 256th of a turn.
TURN = 256


def quantise(position: np.ndarray, visible: np.ndarray, extent: Extent) -> np.ndarray:
    """Positions as 16-bit codes, off by at most half a code: ``(x_max - x_min) / (2 * 65534)``.

    Args:
        position: ``f[..., 2]``, finite and inside `extent` where visible.
        visible: ``bool[...]``.
        extent: ``(x_min, x_max, y_min, y_max)``.

    Returns:
        ``uint16[..., 2]``.
    """
    x_min, x_max, y_min, y_max = extent
    low, span = np.array([x_min, y_min]), np.array([x_max - x_min, y_max - y_min])
    codes = np.rint((position - low) / span * LEVELS)
    return np.where(visible[..., None], np.clip(codes, 0, LEVELS), HIDDEN).astype("<u2")


def dequantise(codes: np.ndarray, extent: Extent) -> tuple[np.ndarray, np.ndarray]:
    """What the page makes of the codes: ``(position f64[..., 2], visible bool[...])``."""
    x_min, x_max, y_min, y_max = extent
    low, span = np.array([x_min, y_min]), np.array([x_max - x_min, y_max - y_min])
    return low + codes.astype(np.float64) / LEVELS * span, codes[..., 0] != HIDDEN


def page(recording: Recording) -> str:
    """The whole page as text."""
    template = importlib.resources.files("flockax.envs.viewer").joinpath("replay.html")
    title = recording.scene.title or recording.env_id
    data = json.dumps(_contents(recording), separators=(",", ":"), allow_nan=False)
    # Inside a script element "<" could end it; an escaped "/" keeps every "//" out of the page.
    data = data.replace("<", "\\u003c").replace("/", "\\/")
    parts = {"TITLE": html.escape(title), "DATA": data}
    # In one pass: a title may itself contain a placeholder.
    fill = re.compile(r"\{\{(TITLE|DATA)\}\}")
    return fill.sub(lambda match: parts[match[1]], template.read_text(encoding="utf-8"))


def _contents(recording: Recording) -> dict[str, Any]:
    scene = recording.scene
    colors = group_colors(recording)
    groups = [name for name, _, _ in shown_groups(recording)]
    return {
        "title": scene.title or recording.env_id,
        "about": _about(recording),
        "bounds": scene.bounds,
        "cells": None if scene.cells is None else _cells(scene.cells),
        "jump": jump_distance(scene),
        "groups": [{"name": n, "color": c} for n, c in zip(groups, colors, strict=True)],
        "readouts": scene.readouts,
        "layers": [_layer(layer) for layer in scene.layers],
        "episodes": [
            _episode(episode_of(recording, i), scene.layers, bool(recording.terminated[i]))
            for i in range(recording.num_episodes)
        ],
        "themes": THEMES,
    }


def _about(recording: Recording) -> str:
    versions = recording.versions
    made = ", ".join(f"{name} {versions[name]}" for name in ("flockax", "jax") if name in versions)
    return f"{recording.env_id}, seed {recording.seed}" + (f", {made}" if made else "")


def _cells(cells: np.ndarray) -> dict[str, Any]:
    return {"rows": cells.shape[0], "columns": cells.shape[1], "walls": _base64(cells, "u1")}


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "kind": layer.kind,
        "count": layer.count,
        "size": layer.size,
        "color": layer.color,
        "opacity": layer.opacity,
        "trail": trail_length(layer),
        "outline": layer.outline,
        "legend": layer.legend,
    }


def _episode(episode: Episode, layers: tuple[Layer, ...], terminated: bool) -> dict[str, Any]:
    return {
        "length": episode.length,
        "terminated": terminated,
        "extent": episode.extent,
        "tracks": [_track(episode.tracks[layer.name], episode.extent) for layer in layers],
        "returns": _base64(episode.returns, "<f4"),
        "readouts": _base64(episode.readouts, "<f4"),
    }


def _track(track: Track, extent: Extent) -> dict[str, Any]:
    codes = quantise(track.position, track.visible, extent)
    turns = None if track.heading is None else _turns(track.heading)
    still = bool(np.all(codes == codes[:1])) and (turns is None or bool(np.all(turns == turns[:1])))
    if still:
        codes, turns = codes[:1], None if turns is None else turns[:1]
    return {
        "still": still,
        "position": _base64(codes, "<u2"),
        "heading": None if turns is None else _base64(turns, "u1"),
        "highlight": None if track.highlight is None else _base64(track.highlight, "u1"),
    }


def _turns(heading: np.ndarray) -> np.ndarray:
    return (np.rint(heading / (2 * np.pi) * TURN) % TURN).astype(np.uint8)


def _base64(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype)).decode("ascii")
