"""Turns a recording into a picture, an animation, a film or a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flockax.envs.viewer.files import atomic
from flockax.envs.viewer.film import encode, find_ffmpeg
from flockax.envs.viewer.html import page
from flockax.envs.viewer.raster import Painter
from flockax.envs.viewer.recording import Recording

PathLike = str | os.PathLike[str]


def to_png(
    recording: Recording,
    path: PathLike,
    frame: int | None = None,
    episode: int = 0,
    size: tuple[int, int] = (960, 672),
    theme: str = "dark",
) -> None:
    """Writes one frame as a picture.

    Args:
        recording: the recording.
        path: the file; it appears whole or not at all.
        frame: 0 is the start of the episode, L its end; negative ones count from the end; None is
            the end.
        episode: which episode.
        size: width and height in pixels.
        theme: "dark" or "light".

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """
    painter = Painter(recording, episode, size, theme)
    frames = painter.episode.length + 1
    chosen = -1 if frame is None else frame
    if not -frames <= chosen < frames:
        raise ValueError(f"frame={frame!r} is not one of the {frames} of episode {episode}")
    with atomic(path) as temporary:
        painter.draw(chosen % frames).save(temporary, format="PNG")


def to_gif(
    recording: Recording,
    path: PathLike,
    episodes: Sequence[int] | None = None,
    steps_per_second: float = 10,
    substeps: int = 2,
    size: tuple[int, int] = (640, 448),
    theme: str = "dark",
) -> None:
    """Writes an animation that repeats for ever.

    Args:
        recording: the recording.
        path: the file; it appears whole or not at all.
        episodes: which episodes, in this order; None for all.
        steps_per_second: the pace; a GIF shows at most 50 pictures a second.
        substeps: pictures for each step; more than 1 lets items glide.
        size: width and height in pixels.
        theme: "dark" or "light".

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """
    from PIL import Image

    rate = _rate(steps_per_second, substeps)
    painters = _painters(recording, episodes, size, theme)
    # One palette for all pictures, from two that show most of what occurs: no flicker, small files.
    middle, end = (painters[0].draw(part * painters[0].episode.length) for part in (0.5, 1))
    both = Image.new("RGB", (middle.width, 2 * middle.height))
    both.paste(middle, (0, 0))
    both.paste(end, (0, middle.height))
    palette = both.quantize(255, method=Image.Quantize.MEDIANCUT)
    frames = (
        picture.quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in _pictures(painters, substeps)
    )
    first = next(frames)
    with atomic(path) as temporary:
        first.save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=frames,
            duration=max(20, round(1000 / rate)),
            loop=0,
        )


def to_mp4(
    recording: Recording,
    path: PathLike,
    episodes: Sequence[int] | None = None,
    steps_per_second: float = 10,
    substeps: int = 3,
    size: tuple[int, int] = (960, 672),
    theme: str = "dark",
) -> None:
    """Writes a film (H.264), which needs the extra ``video``.

    Args:
        recording: the recording.
        path: the file; it appears whole or not at all.
        episodes: which episodes, in this order; None for all.
        steps_per_second: the pace.
        substeps: pictures for each step; more than 1 lets items glide.
        size: width and height in pixels.
        theme: "dark" or "light".

    Raises:
        ModuleNotFoundError: where the extra is not installed, with the command that installs it.
        OSError: where ffmpeg fails, with what it said.
        ValueError: naming the argument, its value and what is allowed.
    """
    find_ffmpeg()
    rate = _rate(steps_per_second, substeps)
    painters = _painters(recording, episodes, size, theme)
    with atomic(path) as temporary:
        encode(_pictures(painters, substeps), temporary, rate, size)


def to_html(recording: Recording, path: PathLike) -> None:
    """Writes a page that plays the recording in any browser, without a network or a server.

    Args:
        recording: the recording.
        path: the file; it appears whole or not at all.
    """
    text = page(recording)
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


_WRITERS: dict[str, Callable[[Recording, PathLike], None]] = {
    ".html": to_html,
    ".gif": to_gif,
    ".mp4": to_mp4,
    ".png": to_png,
}


def save_replay(recording: Recording, path: PathLike) -> None:
    """Writes a replay in the format that the suffix names.

    Args:
        recording: the recording.
        path: a file that ends in ``.html``, ``.gif``, ``.mp4`` or ``.png`` (the last frame of the
            first episode).

    Raises:
        ValueError: for any other suffix, with those allowed.
    """
    check_suffix(path)
    _WRITERS[Path(path).suffix.lower()](recording, path)


def check_suffix(path: PathLike) -> None:
    """Refuses a path that `save_replay` could not write, before any work is done.

    Raises:
        ValueError: with the suffixes that are allowed.
    """
    if Path(path).suffix.lower() not in _WRITERS:
        raise ValueError(f"{os.fspath(path)!r} does not end in one of {', '.join(_WRITERS)}")


def _rate(steps_per_second: float, substeps: int) -> float:
    """Pictures per second."""
    if not 0 < steps_per_second <= 1000:
        raise ValueError(f"steps_per_second={steps_per_second!r} is not in (0, 1000]")
    if isinstance(substeps, bool) or not isinstance(substeps, int) or not 1 <= substeps <= 100:
        raise ValueError(f"substeps={substeps!r} is not an integer in 1 .. 100")
    return steps_per_second * substeps


def _painters(
    recording: Recording, episodes: Sequence[int] | None, size: tuple[int, int], theme: str
) -> list[Painter]:
    chosen = range(recording.num_episodes) if episodes is None else episodes
    if len(chosen) == 0:
        raise ValueError(f"episodes={episodes!r} names no episode")
    return [Painter(recording, episode, size, theme) for episode in chosen]


def _pictures(painters: list[Painter], substeps: int) -> Iterator[Any]:
    """The pictures of the episodes one after the other; each rests a moment on its last frame."""
    for painter in painters:
        for i in range(painter.episode.length * substeps + 1):
            picture = painter.draw(i / substeps)
            yield picture
        for _ in range(4 * substeps):
            yield picture
