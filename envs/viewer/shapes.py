"""Items, trails and maps drawn with Pillow onto a picture of pixels.

`View` turns world units into pixels. Everything is drawn at twice the final size and scaled down,
because Pillow's drawing is not anti-aliased.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flockax.envs.viewer.scene import Layer, Scene
from flockax.envs.viewer.timeline import Extent, Track, moment, trail_length

# The dart of an "arrow" as (angle from the heading, distance from the middle / size).
_DART = ((0.0, 1.2), (2.4, 1.05), (math.pi, 0.4), (-2.4, 1.05))
_SQUARE = tuple((math.pi * (0.25 + 0.5 * i), math.sqrt(2)) for i in range(4))


class View(NamedTuple):
    """The map from world units to pixels: ``px = left + scale (x - x_min)``, y turned over.

    Attributes:
        left: pixels.
        bottom: pixels.
        scale: pixels per world unit.
        x_min: world units.
        y_min: world units.
    """

    left: float
    bottom: float
    scale: float
    x_min: float
    y_min: float

    @classmethod
    def fit(cls, extent: Extent, box: tuple[float, float, float, float]) -> View:
        """The largest undistorted view of `extent` in the middle of ``(left, top, right, bottom)``."""
        x_min, x_max, y_min, y_max = extent
        left, top, right, bottom = box
        scale = min((right - left) / (x_max - x_min), (bottom - top) / (y_max - y_min))
        return cls(
            left=(left + right - scale * (x_max - x_min)) / 2,
            bottom=(top + bottom + scale * (y_max - y_min)) / 2,
            scale=scale,
            x_min=x_min,
            y_min=y_min,
        )

    def pixels(self, position: np.ndarray) -> np.ndarray:
        """``f[..., 2]`` world units to ``f[..., 2]`` pixels, y down."""
        x = self.left + self.scale * (position[..., 0] - self.x_min)
        y = self.bottom - self.scale * (position[..., 1] - self.y_min)
        return np.stack([x, y], axis=-1)


def rgba(color: str, opacity: float = 1.0) -> tuple[int, int, int, int]:
    """``#rrggbb`` as four bytes."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue, round(255 * opacity)


def mix(color: str, other: str, part: float) -> str:
    """The colour that lies `part` of the way from one to the other."""
    pairs = zip(rgba(color)[:3], rgba(other)[:3], strict=True)
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in pairs)


def draw_arena(draw: Any, view: View, scene: Scene, theme: dict[str, str], unit: float) -> None:
    """Draws the nominal area with its grid lines, or with its map."""
    x_min, x_max, y_min, y_max = scene.bounds
    corners = view.pixels(np.array([[x_min, y_max], [x_max, y_min]]))
    (left, top), (right, bottom) = corners.tolist()
    draw.rectangle((left, top, right, bottom), fill=theme["arena"])
    if scene.cells is None:
        columns, rows = grid_lines(scene.bounds)
    else:
        rows, columns = scene.cells.shape
    width, height = (right - left) / columns, (bottom - top) / rows
    if min(width, height) > 4 * unit:
        for i in range(1, columns):
            x = left + i * width
            draw.line((x, top, x, bottom), fill=theme["grid"], width=round(unit))
        for i in range(1, rows):
            y = top + i * height
            draw.line((left, y, right, y), fill=theme["grid"], width=round(unit))
    if scene.cells is not None:
        for row, column in np.argwhere(scene.cells):
            x, y = left + column * width, top + row * height
            draw.rectangle((x, y, x + width, y + height), fill=theme["wall"])
    draw.rectangle((left, top, right, bottom), outline=theme["border"], width=round(1.5 * unit))


def grid_lines(bounds: Extent) -> tuple[int, int]:
    """Into how many parts grid lines divide the nominal area: 8 along its shorter side."""
    width, height = bounds[1] - bounds[0], bounds[3] - bounds[2]
    unit = min(width, height) / 8
    return min(round(width / unit), 64), min(round(height / unit), 64)


def draw_trail(
    draw: Any, view: View, layer: Layer, track: Track, playhead: float, jump: float, unit: float
) -> None:
    """Draws the recent way of every item as a line that fades and narrows with age."""
    now, length = int(playhead), trail_length(layer)
    first = max(0, math.ceil(playhead) - length)
    times = [*range(first, now + 1)]
    points = [(track.position[t], track.visible[t]) for t in times]
    if playhead > now:
        between = moment(track, playhead, jump)
        points.append((between.position, between.visible))
        times.append(playhead)
    for i in range(len(points) - 1):
        (start, seen), (end, still_seen) = points[i], points[i + 1]
        moved = np.hypot(*(end - start).T)
        shown = seen & still_seen & (moved <= jump) & (moved > 0)
        freshness = 1 - (playhead - times[i + 1]) / length
        color = rgba(layer.color, 0.65 * layer.opacity * freshness)
        width = max(1, round(unit * (1 + 1.5 * freshness)))
        segments = np.concatenate([view.pixels(start[shown]), view.pixels(end[shown])], axis=-1)
        for segment in segments.tolist():
            draw.line(segment, fill=color, width=width)


def draw_items(
    draw: Any, view: View, layer: Layer, items: Track, theme: dict[str, str], unit: float
) -> None:
    """Draws the items of a layer at one moment."""
    shown = np.flatnonzero(items.visible)
    pixels = view.pixels(items.position[shown])
    # However far the view zooms out, an item stays visible.
    smallest = (3.0 if layer.kind == "arrow" else 2.0) * unit
    radii = np.maximum(view.scale * layer.sizes[shown], smallest)
    headings = np.zeros(len(shown)) if items.heading is None else items.heading[shown]
    flashing = np.zeros(len(shown), bool) if items.highlight is None else items.highlight[shown]
    has_nose = items.heading is not None
    for (x, y), radius, heading, flash in zip(
        pixels.tolist(), radii.tolist(), headings.tolist(), flashing.tolist(), strict=True
    ):
        color = mix(layer.color, theme["flash"], 0.35) if flash else layer.color
        if flash:
            _glow(draw, x, y, radius, theme["flash"], unit)
        _item(draw, layer, x, y, radius, heading if has_nose else None, color, theme, unit)


def draw_swatch(
    draw: Any, layer: Layer, x: float, y: float, radius: float, theme: dict[str, str], unit: float
) -> None:
    """Draws one item of a layer at a place of the legend."""
    heading = 0.0 if layer.kind in ("arrow", "line") else None
    radius *= 1.25 if layer.kind == "arrow" else 1
    _item(draw, layer, x, y, radius, heading, layer.color, theme, unit)


def _item(
    draw: Any,
    layer: Layer,
    x: float,
    y: float,
    radius: float,
    heading: float | None,
    color: str,
    theme: dict[str, str],
    unit: float,
) -> None:
    fill = rgba(color, layer.opacity)
    edge = rgba(layer.outline or theme["arena"], layer.opacity)
    # A rim in the colour of the ground keeps items apart that overlap.
    rim = round(min(1.5 * unit, radius / 6))
    box = (x - radius, y - radius, x + radius, y + radius)
    turn = heading or 0.0

    def at(angle: float, distance: float) -> tuple[float, float]:
        return x + distance * math.cos(turn + angle), y - distance * math.sin(turn + angle)

    if layer.kind == "disc":
        draw.ellipse(box, fill=fill, outline=edge, width=rim)
        if heading is not None and radius > 4 * unit:
            nose = rgba(theme["arena"], 0.85)
            draw.line((*at(0, 0.35 * radius), *at(0, 0.85 * radius)), nose, max(1, int(radius / 4)))
    elif layer.kind == "ring":
        draw.ellipse(box, outline=fill, width=max(round(1.5 * unit), round(radius / 5)))
    elif layer.kind in ("square", "arrow"):
        corners = _DART if layer.kind == "arrow" else _SQUARE
        draw.polygon([at(a, d * radius) for a, d in corners], fill=fill, outline=edge, width=rim)
    elif layer.kind == "cross":
        width = max(round(2 * unit), round(radius / 2.5))
        for angle in (math.pi / 4, 3 * math.pi / 4):
            draw.line((*at(angle, radius), *at(angle + math.pi, radius)), fill, width)
    else:
        draw.line((*at(0, radius), *at(math.pi, radius)), fill, round(2 * unit))


def _glow(draw: Any, x: float, y: float, radius: float, color: str, unit: float) -> None:
    for reach, opacity in ((2.1, 0.12), (1.7, 0.2)):
        r = reach * radius
        draw.ellipse((x - r, y - r, x + r, y + r), fill=rgba(color, opacity))
    r = 1.45 * radius
    box = (x - r, y - r, x + r, y + r)
    draw.ellipse(box, outline=rgba(color, 0.9), width=round(1.5 * unit))
