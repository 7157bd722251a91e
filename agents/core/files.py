"""Files that are whole or not there, and what to say when they cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class RunError(RuntimeError):
    """A run folder or a file of it cannot be used as asked, or cannot be written."""


@contextlib.contextmanager
def reported(verb: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an `OSError` into a `RunError` of one line that names the file.

    Args:
        verb: what was tried, such as ``"write"``.
        path: on which file or folder.

    Raises:
        RunError: the body raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        what = "disk full" if is_disk_full(error) else error.strerror or first_line(error)
        raise RunError(f"cannot {verb} {path}: {what}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file such that a reader, or a kill at any moment, sees the old one or the new one.

    Args:
        path: where to; its folder exists.
        content: all of it.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    # Starts with a dot and ends with the process: two writers don't share it, listings hide it.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Returns when a file, or the list of names in a folder, is on the disk.

    Raises:
        OSError: it could not be written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or one that led to it, says that a disk or a quota is used up.

    Libraries wrap the operating system's error, some of them leave only its text.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.errno in _DISK_FULL:
            return True
        if any(os.strerror(code) in str(link) for code in _DISK_FULL):
            return True
        link = link.__cause__ or link.__context__
    return False


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type if it has none, in at most 200 characters."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return line if len(line) <= 200 else f"{line[:197]}..."
