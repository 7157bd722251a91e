"""TensorBoard and Weights & Biases, for those who ask for them; nothing of them is imported before.

Both writers take the records of ``metrics.jsonl``. They show one curve a metric: the mean over the
seeds that have a value; the seed axis stays in ``metrics.jsonl``.
"""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flockax.agents.core.files import RunError, first_line, reported, write_atomically


def scalars(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Flattens a record to one number a metric.

    Args:
        record: numbers, lists of numbers and nulls over seeds, and dictionaries of them.
        prefix: goes in front of the names.

    Returns:
        ``{"loss/actor": mean over the finite values, ...}``; metrics without one are left out.
    """
    flat: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= scalars(value, f"{prefix}{name}/")
        elif not isinstance(value, str):
            numbers = np.asarray(value, dtype=float)
            finite = numbers[np.isfinite(numbers)]
            if finite.size:
                flat[prefix + name] = float(finite.mean())
    return flat


class TensorBoardWriter:
    """Writes event files to ``<run>/tensorboard``.

    Args:
        run: the folder of the run.
        last_step: of the checkpoint the run goes on from; what was written after it is dropped.

    Raises:
        RunError: tensorboardX is not installed or the folder cannot be written.
    """

    def __init__(self, run: Path, last_step: int = 0) -> None:
        tensorboard = _import("tensorboardX", "tensorboard")
        with reported("write", run / "tensorboard"):
            self._writer = tensorboard.SummaryWriter(
                logdir=str(run / "tensorboard"), purge_step=last_step + 1
            )

    def log(self, step: int, record: Mapping[str, Any]) -> None:
        """Writes one record.

        Args:
            step: position on the horizontal axis, such as environment steps.
            record: see `scalars`.
        """
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is still held back."""
        self._writer.close()


class WandbWriter:
    """Sends records to Weights & Biases, or keeps them in ``<run>/wandb`` if ``WANDB_MODE=offline``.

    A run that is resumed goes on under its old id.

    Args:
        run: the folder of the run; its name is the name shown.
        config: goes with the run.
        project: where it is shown.

    Raises:
        RunError: wandb is not installed, or it cannot start (no login, no network).
    """

    def __init__(self, run: Path, config: Mapping[str, Any], project: str = "flockax") -> None:
        wandb = _import("wandb", "wandb")
        known = run / "wandb_id.txt"
        with reported("write", known):
            if not known.exists():
                write_atomically(known, secrets.token_hex(4).encode())
            identity = known.read_text()
        try:
            self._run = wandb.init(
                project=project,
                name=run.resolve().name,
                id=identity,
                dir=str(run),
                config=dict(config),
                resume="allow",
            )
        except Exception as error:
            raise RunError(f"wandb cannot start: {first_line(error)}") from error

    def log(self, step: int, record: Mapping[str, Any]) -> None:
        """Sends one record.

        Args:
            step: position on the horizontal axis, such as environment steps.
            record: see `scalars`.
        """
        self._run.log(scalars(record), step=step)

    def close(self) -> None:
        """Sends what is still held back."""
        self._run.finish()


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RunError(
            f"--{extra} needs the package {module}: pip install 'flockax[{extra}]'"
        ) from error
