"""Writing files so that a reader never meets half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which takes its place when the block succeeds.

    The folder is made where it is missing. If the block raises, `path` is left as it was and the
    temporary file is removed.

    Args:
        path: the file to write. The temporary path has the same suffix, because some writers choose
            their format by it.

    Raises:
        OSError: where `path` cannot be written, or is a folder.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
