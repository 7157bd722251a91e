"""Encodes pictures as an H.264 film with the ffmpeg that the extra ``video`` brings."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def find_ffmpeg() -> str:
    """The path of ffmpeg.

    Raises:
        ModuleNotFoundError: where the extra is not installed, with the command that installs it.
    """
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'writing .mp4 needs the extra "video": pip install "flockax[video]"', name=error.name
        ) from error
    return imageio_ffmpeg.get_ffmpeg_exe()


def encode(pictures: Iterable[Any], path: Path, rate: float, size: tuple[int, int]) -> None:
    """Writes a film.

    Args:
        pictures: `PIL.Image.Image` of mode "RGB", all of one size.
        path: the file.
        rate: pictures per second.
        size: width and height in pixels, even.

    Raises:
        OSError: where ffmpeg fails, with what it said.
    """
    source = f"-f rawvideo -pix_fmt rgb24 -s {size[0]}x{size[1]} -r {rate} -i -"
    target = "-an -c:v libx264 -crf 18 -pix_fmt yuv420p -movflags +faststart -f mp4"
    command = [find_ffmpeg(), "-y", "-v", "error", *source.split(), *target.split(), str(path)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)
        try:
            _feed(process, pictures)
            status = process.wait()
        finally:
            process.kill()
            process.wait()
        if status != 0:
            errors.seek(0)
            raise OSError(
                f"ffmpeg could not write {path}: {errors.read().decode(errors='replace')}"
            )


def _feed(process: subprocess.Popen[bytes], pictures: Iterable[Any]) -> None:
    assert process.stdin is not None
    try:
        with process.stdin:
            for picture in pictures:
                process.stdin.write(picture.tobytes())
    except BrokenPipeError:
        # ffmpeg has given up; its exit status and its words say why.
        return
