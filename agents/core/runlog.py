"""The folder of a run: who writes it, its configuration, its metrics and its summary.

A run folder holds ``config.json`` (all that is needed to repeat the run), ``metrics.jsonl`` (one JSON
object a line), ``checkpoints/``, ``learning_curve.png`` and, at the end, ``summary.json``. All of it
is strict JSON: a number that is not finite is null in metrics and summary, where it is a result, and
a text (``"inf"``, ``"-inf"``, ``"nan"``) in the configuration, where it is an input to be repeated.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import itertools
import json
import os
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax

from flockax.agents.core.dashboards import TensorBoardWriter, WandbWriter
from flockax.agents.core.files import RunError, reported, write_atomically
from flockax.agents.core.metricslog import MetricsLog, read_metrics, read_object, to_json

__all__ = [
    "MetricsLog",
    "RunError",
    "RunFolder",
    "TensorBoardWriter",
    "WandbWriter",
    "read_metrics",
    "to_json",
    "versions",
]

_CONFIG, _LOCK = "config.json", ".lock"

CHECKPOINTS = "checkpoints"


class RunFolder:
    """The folder of one run.

    `create` makes or resumes one and locks it; `RunFolder(path)` only looks into one.

    Args:
        path: a folder with a ``config.json``.

    Raises:
        RunError: it is not there, or has none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        if not (self.path / _CONFIG).is_file():
            raise RunError(f"{path} is not the folder of a run: it has no {_CONFIG}")

    @classmethod
    def create(
        cls,
        out: Path | None,
        learner: str,
        env_id: str,
        resume: bool = False,
        root: Path = Path("runs"),
    ) -> RunFolder:
        """Makes the folder of a new run, or goes on in that of an old one, and locks it.

        The lock belongs to the process: it goes when that ends, whichever way. A folder that holds
        anything else than a run is never touched.

        Args:
            out: the folder, made if it is not there; None for a fresh
                ``<root>/<learner>-<env_id>-<n>`` with the smallest free n from 1.
            learner: name of the learner.
            env_id: id of the environment.
            resume: whether `out` may hold a run already. If it holds none, one starts there.
            root: where folders without `out` go.

        Returns:
            The folder, without a configuration if it is new.

        Raises:
            RunError: `out` is used (and `resume` False), is no run folder, cannot be written, or
                another process writes there; or `resume` is asked for without `out`.
        """
        if out is None and resume:
            raise RunError("resume=True without out; allowed with the folder of the run to resume")
        with reported("make a folder in", root if out is None else out):
            path = _fresh(root, f"{learner}-{env_id}") if out is None else Path(out)
            path.mkdir(parents=True, exist_ok=True)
            _require_usable(path, resume)
            lock = _lock(path)
        try:
            # Another process may have come, written and gone before the lock was ours.
            _require_usable(path, resume)
        except RunError:
            os.close(lock)
            raise
        folder = cls.__new__(cls)
        folder.path, folder._lock = path, lock
        return folder

    def close(self) -> None:
        """Gives up the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / CHECKPOINTS

    @property
    def metrics(self) -> Path:
        """Where the metrics are."""
        return self.path / "metrics.jsonl"

    @property
    def has_config(self) -> bool:
        """Whether a configuration was written: a run that is resumed has one."""
        return (self.path / _CONFIG).is_file()

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes ``config.json``, whole or not at all.

        Raises:
            RunError: the disk is full or cannot be written.
            TypeError: something in it is not JSON, an array, a dataclass or a path.
        """
        _write_json(self.path / _CONFIG, to_json(config, finite=False))

    def read_config(self) -> dict[str, Any]:
        """Reads ``config.json``.

        Raises:
            RunError: it is not there or not a JSON object.
        """
        return read_object(self.path / _CONFIG)

    def check_config(self, config: Mapping[str, Any], may_differ: Collection[str] = ()) -> None:
        """Refuses to go on with another configuration than the one written.

        Args:
            config: the configuration asked for now.
            may_differ: fields that need not be equal, dotted (``"ippo.total_steps"``); a field with
                fields of its own stands for all of them.

        Raises:
            RunError: other fields differ; the message has all of them with both values.
        """
        old = _fields(self.read_config())
        new = _fields(to_json(config, finite=False))
        lines = []
        for name in sorted(old.keys() | new.keys()):
            before, now = old.get(name, "nothing"), new.get(name, "nothing")
            allowed = any(name == field or name.startswith(f"{field}.") for field in may_differ)
            if before != now and not allowed:
                lines.append(f"  {name}: {before} in the run, {now} now")
        if lines:
            what = "\n".join(lines)
            raise RunError(f"{self.path} is a run with another configuration:\n{what}")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes ``summary.json``, whole or not at all.

        Raises:
            RunError: the disk is full or cannot be written.
            TypeError: something in it is not JSON, an array, a dataclass or a path.
        """
        _write_json(self.path / "summary.json", to_json(summary))

    def read_summary(self) -> dict[str, Any]:
        """Reads ``summary.json``.

        Raises:
            RunError: it is not there or not a JSON object.
        """
        return read_object(self.path / "summary.json")


def versions() -> dict[str, Any]:
    """What a run stands on: versions of Python and packages, and kind and number of devices."""
    packages = ("flockax", "jax", "jaxlib", "flax", "optax", "numpy")
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "device": {
            "kind": device.device_kind,
            "platform": device.platform,
            "count": jax.device_count(),
        },
    }


def _fresh(root: Path, name: str) -> Path:
    """Makes ``<root>/<name>-<n>`` with the smallest n from 1 that nobody else has or takes."""
    root.mkdir(parents=True, exist_ok=True)
    for n in itertools.count(1):
        path = root / f"{name}-{n}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError


def _require_usable(path: Path, resume: bool) -> None:
    """Refuses a folder that holds a run, unless it is to be resumed, or anything else."""
    names = {file.name for file in path.iterdir()}
    # A run that was killed before it had its configuration is none yet.
    own = {name for name in names if name == _LOCK or name.startswith(f".{_CONFIG}.")}
    if not names - own:
        return
    if _CONFIG not in names:
        raise RunError(f"{path} is not empty and not the folder of a run; use another --out")
    if not resume:
        raise RunError(f"{path} holds a run; use --resume to go on with it, or another --out")


def _lock(path: Path) -> int:
    """Locks a folder for this process and writes down who has it; returns the lock's descriptor."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        owner = os.pread(lock, 32, 0).decode().strip() or "unknown"
        os.close(lock)
        raise RunError(f"{path} is being written by another process (pid {owner})") from error
    except OSError:
        os.close(lock)
        raise
    return lock


def _fields(value: Any, name: str = "") -> dict[str, Any]:
    """Flattens nested dictionaries to one with dotted names."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _fields(item, f"{name}.{key}" if name else key)
    return flat


def _write_json(path: Path, value: Any) -> None:
    with reported("write", path):
        write_atomically(path, f"{json.dumps(value, indent=2, allow_nan=False)}\n".encode())
