"""Pictures of a recording: the scene on the left, a panel with titles and returns on the right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flockax.envs.viewer import shapes, timeline
from flockax.envs.viewer.recording import Recording
from flockax.envs.viewer.scene import Layer
from flockax.envs.viewer.theme import theme as theme_of

SUPERSAMPLING = 2
MIN_SIZE = (480, 320)
_PANEL = 256
_MARGIN = 16


class Painter:
    """Draws one episode at any moment; what does not move is drawn once.

    Args:
        recording: the recording.
        episode: which of its episodes.
        size: ``(width, height)`` of the pictures in pixels, even, at least 480 x 320.
        theme: "dark" or "light".

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(
        self,
        recording: Recording,
        episode: int = 0,
        size: tuple[int, int] = (960, 672),
        theme: str = "dark",
    ) -> None:
        width, height = size
        if width % 2 or height % 2 or width < MIN_SIZE[0] or height < MIN_SIZE[1]:
            raise ValueError(
                f"size={size!r} is not two even numbers, at least {MIN_SIZE[0]} x {MIN_SIZE[1]}"
            )
        self.recording = recording
        self.number = episode
        self.episode = timeline.episode_of(recording, episode)
        self.theme = theme_of(theme)
        self._groups = timeline.shown_groups(recording)
        self._colors = timeline.group_colors(recording)
        self._jump = timeline.jump_distance(recording.scene)
        self._unit = float(SUPERSAMPLING)
        self._width, self._height = width * SUPERSAMPLING, height * SUPERSAMPLING
        self._panel_left = self._width - (_PANEL + _MARGIN) * self._unit
        self._view, self._ground = self._draw_ground()

    def draw(self, playhead: float) -> Any:
        """The picture at a time in ``0 .. L``, between two frames where it is no whole number.

        Returns:
            A `PIL.Image.Image` of mode "RGB".
        """
        from PIL import ImageDraw

        image = self._ground.copy()
        draw = ImageDraw.Draw(image, "RGBA")
        counts = []
        for layer in self.recording.scene.layers:
            track = self.episode.tracks[layer.name]
            if layer.trail:
                shapes.draw_trail(draw, self._view, layer, track, playhead, self._jump, self._unit)
            items = timeline.moment(track, playhead, self._jump)
            shapes.draw_items(draw, self._view, layer, items, self.theme, self._unit)
            counts.append(int(items.visible.sum()))
        self._draw_panel(draw, playhead, counts)
        return image.reduce(SUPERSAMPLING)

    def _draw_ground(self) -> tuple[shapes.View, Any]:
        from PIL import Image, ImageDraw

        unit, theme = self._unit, self.theme
        image = Image.new("RGB", (self._width, self._height), theme["page"])
        draw = ImageDraw.Draw(image, "RGBA")
        margin = _MARGIN * unit
        stage = (margin, margin, self._panel_left - margin, self._height - margin)
        draw.rounded_rectangle(stage, 12 * unit, theme["stage"], theme["border"], round(unit))
        inset = 14 * unit
        box = (stage[0] + inset, stage[1] + inset, stage[2] - inset, stage[3] - inset)
        view = shapes.View.fit(self.episode.extent, box)
        shapes.draw_arena(draw, view, self.recording.scene, theme, unit)
        return view, image

    def _draw_panel(self, draw: Any, playhead: float, counts: list[int]) -> None:
        recording, episode, theme, unit = self.recording, self.episode, self.theme, self._unit
        left, right, frame = self._panel_left, self._width - _MARGIN * unit, int(playhead)
        y, title = _MARGIN * unit, recording.scene.title or recording.env_id
        self._text(draw, left, y, title, 20, theme["text"], right - left)
        which = f"episode {self.number + 1} of {recording.num_episodes}"
        self._text(draw, left, y + 28 * unit, which, 13, theme["muted"])
        self._text(
            draw,
            right,
            y + 28 * unit,
            f"step {frame} / {episode.length}",
            13,
            theme["muted"],
            anchor="ra",
        )
        y += 52 * unit
        draw.rounded_rectangle((left, y, right, y + 4 * unit), 2 * unit, theme["border"])
        part = playhead / episode.length
        if part > 0:
            end = left + max(4 * unit, part * (right - left))
            draw.rounded_rectangle((left, y, end, y + 4 * unit), 2 * unit, theme["accent"])
        y += 24 * unit
        y = self._heading(draw, left, y, "RETURN SO FAR")
        rows = zip(self._groups, self._colors, episode.returns[frame], strict=True)
        for (name, _, _), color, value in rows:
            self._row(draw, y, name, number(value), color)
            y += 24 * unit
        if self._groups:
            self._draw_chart(draw, (left, y + 4 * unit, right, y + 104 * unit), playhead)
            y += 104 * unit
        y += 20 * unit
        readouts = zip(recording.scene.readouts, episode.readouts[frame], strict=True)
        y = self._section(
            draw,
            y,
            "THIS STEP",
            [(name.replace("_", " "), number(value), None) for name, value in readouts],
        )
        self._section(
            draw,
            y,
            "LEGEND",
            [
                (layer.legend, str(n) if n == layer.count else f"{n} of {layer.count}", layer)
                for layer, n in zip(recording.scene.layers, counts, strict=True)
                if layer.count and layer.legend
            ],
        )

    def _section(
        self, draw: Any, y: float, heading: str, rows: list[tuple[str, str, Layer | None]]
    ) -> float:
        """Draws names and values, with the look of a layer beside them; returns where it ends."""
        unit, left = self._unit, self._panel_left
        # What a small picture has no room for is left out, not cut in half.
        if not rows or y + 40 * unit > self._height:
            return y
        y = self._heading(draw, left, y, heading)
        for name, value, layer in rows:
            if y + 18 * unit > self._height:
                break
            if layer is not None:
                place = (left + 8 * unit, y + 8 * unit)
                shapes.draw_swatch(draw, layer, *place, 6 * unit, self.theme, unit)
            self._row(draw, y, name, value, None, indent=0 if layer is None else 24 * unit)
            y += 24 * unit
        return y + 16 * unit

    def _draw_chart(self, draw: Any, box: tuple[float, ...], playhead: float) -> None:
        """Draws the accumulated returns of the episode, what is still to come faintly."""
        left, top, right, bottom = box
        unit, returns, length = self._unit, self.episode.returns, self.episode.length
        draw.rounded_rectangle(box, 8 * unit, self.theme["card"], self.theme["border"], round(unit))
        inset = 8 * unit
        low, high = chart_range(returns)

        def point(time: float, value: float) -> tuple[float, float]:
            x = left + inset + (right - left - 2 * inset) * time / length
            y = bottom - inset - (bottom - top - 2 * inset) * (value - low) / (high - low)
            return x, y

        zero = point(0, 0)[1]
        draw.line((left + inset, zero, right - inset, zero), self.theme["border"], round(unit))
        cursor = point(playhead, 0)[0]
        line = (cursor, top + 4 * unit, cursor, bottom - 4 * unit)
        draw.line(line, self.theme["muted"], round(unit))
        # One point for each pixel at most: an episode may be very long.
        times = np.unique(np.linspace(0, length, min(length + 1, 600)).astype(int))
        for column, color in enumerate(self._colors):
            values = returns[:, column]
            known = [t for t in times.tolist() if math.isfinite(values[t])]
            path = [point(t, values[t]) for t in known]
            past = [p for t, p in zip(known, path, strict=True) if t <= playhead]
            faint = shapes.mix(self.theme["card"], color, 0.35)
            for points, ink in ((path, faint), (past, color)):
                if len(points) > 1:
                    draw.line(points, ink, round(1.75 * unit), "curve")
            if past:
                x, y = past[-1]
                draw.ellipse((x - 3 * unit, y - 3 * unit, x + 3 * unit, y + 3 * unit), color)

    def _heading(self, draw: Any, x: float, y: float, text: str) -> float:
        self._text(draw, x, y, text, 11, self.theme["muted"])
        return y + 22 * self._unit

    def _row(
        self, draw: Any, y: float, name: str, value: str, color: str | None, indent: float = 0
    ) -> None:
        left, right, unit = self._panel_left, self._width - _MARGIN * self._unit, self._unit
        if color is not None:
            indent = 20 * unit
            dot = (left + 2 * unit, y + 3 * unit, left + 12 * unit, y + 13 * unit)
            draw.ellipse(dot, fill=color)
        room = right - left - indent - 80 * unit
        self._text(draw, left + indent, y, name, 14, self.theme["text"], room)
        self._text(draw, right, y, value, 14, self.theme["text"], anchor="ra")

    def _text(
        self,
        draw: Any,
        x: float,
        y: float,
        text: str,
        size: int,
        color: str,
        room: float = math.inf,
        anchor: str = "la",
    ) -> None:
        from PIL import ImageFont

        font = ImageFont.load_default(size * SUPERSAMPLING)
        text = " ".join(text.split())
        shown = text
        while font.getlength(shown) > room and text:
            text = text[:-1]
            shown = text.rstrip() + "..."
        draw.text((x, y), shown, color, font, anchor)


def chart_range(returns: np.ndarray) -> tuple[float, float]:
    """The smallest range that holds 0 and all finite values, and is not empty."""
    finite = returns[np.isfinite(returns)]
    low, high = float(np.min(finite, initial=0.0)), float(np.max(finite, initial=0.0))
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def number(value: float) -> str:
    """A short text for a number: whole, or three significant digits and more, or a dash for NaN."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        return f"{value:.2e}"
    if float(value).is_integer() or size >= 1000:
        return f"{value:.0f}"
    return f"{value:.{1 if size >= 100 else 2}f}"
