"""Metrics as JSON lines: appended while a run goes, cut back to a checkpoint when it is resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from flockax.agents.core.files import RunError, reported, write_atomically


class MetricsLog:
    """A ``metrics.jsonl`` to append to.

    Opening cuts off a last line that was not written to its end.

    Args:
        path: the file, made if it is not there.

    Raises:
        RunError: it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with reported("write", self.path):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            content = self.path.read_bytes() if self.path.is_file() else b""
            if not content.endswith(b"\n") and content:
                os.ftruncate(self._file, content.rfind(b"\n") + 1)

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds a line; when it returns, a kill of the process cannot take the line away.

        Args:
            record: JSON values, numpy or jax arrays, which become lists.

        Raises:
            RunError: the disk is full or cannot be written; the lines before are intact.
            TypeError: something in it is not JSON, an array, a dataclass or a path.
        """
        text = json.dumps(to_json(record), allow_nan=False, separators=(",", ":"))
        rest = f"{text}\n".encode()
        with reported("write", self.path):
            size = os.fstat(self._file).st_size
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, size)
                raise

    def sync(self) -> None:
        """Returns when all lines are on the disk: call it before a checkpoint that stands on them.

        Raises:
            RunError: they could not be written.
        """
        with reported("write", self.path):
            os.fsync(self._file)

    def truncate_to(self, step: int, field: str) -> None:
        """Removes the lines after a checkpoint, which the resumed run writes again.

        Args:
            step: the last value of `field` that stays.
            field: ``"update"`` or ``"env_steps"``; lines without it stay.

        Raises:
            RunError: the file is damaged or cannot be written.
        """
        records = read_metrics(self.path)
        kept = [record for record in records if record.get(field, step) <= step]
        lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in kept]
        with reported("write", self.path):
            write_atomically(self.path, "".join(lines).encode())
            os.close(self._file)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads a ``metrics.jsonl``, which may be growing.

    Args:
        path: the file.

    Returns:
        One dictionary a line. A last line that was not written to its end is left out.

    Raises:
        RunError: the file cannot be read, or a line before the last is not a JSON object.
    """
    with reported("read", path):
        *lines, _ = Path(path).read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif number < len(lines):
            raise RunError(f"{path} line {number} is damaged; allowed is a JSON object")
    return records


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        RunError: it cannot be read or holds something else.
    """
    with reported("read", path):
        content = Path(path).read_bytes()
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged; allowed is a JSON object")
    return value


def to_json(value: Any, finite: bool = True) -> Any:
    """Makes strict JSON values of Python, numpy and jax values.

    Args:
        value: None, bool, int, float, str, path, array, dataclass, or dictionaries and sequences of
            them.
        finite: whether numbers that are not finite become null; else they become texts.

    Returns:
        None, bool, int, finite float, str, list or dict.

    Raises:
        TypeError: `value` holds something else.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if finite else str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): to_json(item, finite) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: to_json(getattr(value, f.name), finite) for f in fields}
    if isinstance(value, list | tuple):
        return [to_json(item, finite) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        # bfloat16 and its like are no numbers to numpy.
        number = array.astype(np.float64) if array.dtype.kind == "V" else array
        if number.dtype.kind in "biufU":
            return to_json(number.tolist(), finite)
    raise TypeError(f"{value!r} is a {type(value).__name__}; allowed is what JSON or arrays hold")
