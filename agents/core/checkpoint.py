"""Checkpoints: the whole training state on disk, atomically, and verified when it is read back.

A thin layer over orbax's `CheckpointManager`. The leaves are written from the host as one flat
dictionary ``{path: array}``, so that any orbax reader can look into a checkpoint. Beside them lies
a JSON record: dtype and shape of every leaf, a SHA-256 digest of their bytes, and the caller's
`meta`. Reading compares all of it; of a damaged checkpoint the one before it takes the place.

One process writes, and has to be able to address the whole state.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from flockax.agents.core.files import first_line, is_disk_full, sync
from flockax.agents.core.leaves import (
    Leaf,
    describe,
    difference,
    digest,
    key_impl,
    place,
    state_digest,
    to_host,
)

__all__ = ["CheckpointError", "Checkpoints", "state_digest"]

_FORMAT = 1
# Room for orbax's own small files, on top of the bytes of the leaves.
_MARGIN_BYTES = 1 << 17
# How often a list of checkpoints is read again that changed meanwhile.
_ATTEMPTS = 10


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or not be read into the state asked for."""


class _Damaged(Exception):
    """The files of a checkpoint are not what was written."""


class Checkpoints:
    """The checkpoints of one run: a folder with one subfolder for each step kept.

    Args:
        directory: the folder, made at the first save.
        keep: how many of the newest checkpoints stay, at least 1. With 2 or more, damage to the
            newest costs one interval.
        read_only: never write or clean up: for looking into a run that may be going on.

    Raises:
        CheckpointError: `keep` is below 1.
    """

    def __init__(
        self, directory: str | os.PathLike[str], keep: int = 2, read_only: bool = False
    ) -> None:
        if keep < 1:
            raise CheckpointError(f"keep={keep}; allowed is 1 or more")
        self.directory = Path(directory).absolute()
        self.keep = keep
        self.read_only = read_only

    def save(self, step: int, state: Any, meta: dict[str, Any]) -> None:
        """Writes a checkpoint and returns when it is on the disk.

        If the process is killed meanwhile, the checkpoints from before stay, and the rest is
        removed when a writer next opens the folder. Unfinished checkpoints and others of this step or
        later are removed first: a run that went back to an earlier step has left them behind.

        Args:
            step: the number of the checkpoint, 0 or more; the largest is the newest.
            state: a pytree of arrays, typed keys and Python bool, int and float.
            meta: JSON values to go with it.

        Raises:
            CheckpointError: the disk is full or cannot be written, or `state` or `meta` hold
                something that cannot be stored. Earlier checkpoints are intact.
        """
        if self.read_only:
            raise CheckpointError(f"{self.directory} is open for reading only")
        try:
            leaves, arrays = describe(state), to_host(state)
            json.dumps(meta, allow_nan=False)
            record = _sealed(
                {
                    "format": _FORMAT,
                    "step": int(step),
                    "meta": meta,
                    "leaves": leaves,
                    "stored": [
                        (str(array.dtype), array.shape, key_impl(x))
                        for array, x in zip(arrays, jax.tree.leaves(state), strict=True)
                    ],
                    "digest": digest(leaves, arrays),
                }
            )
            items = {leaf.path: array for leaf, array in zip(leaves, arrays, strict=True)}
            with _quiet():
                if not self._holds(record):
                    self._write(record, items)
        except Exception as error:
            if is_disk_full(error):
                text = f"disk full: checkpoint {step} does not fit into {self.directory}"
            else:
                text = f"cannot write checkpoint {step} to {self.directory}: {first_line(error)}"
            raise CheckpointError(f"{text}; earlier checkpoints are intact") from error
        finally:
            self._remove_rests()

    def steps(self) -> list[int]:
        """Lists the steps whose checkpoints were written to the end, oldest first."""
        if not self.directory.exists():
            return []
        if not self.directory.is_dir():
            raise CheckpointError(f"{self.directory} is not a folder of checkpoints")
        for attempt in range(_ATTEMPTS):
            # A run that is being written takes old checkpoints away while orbax looks at them.
            with contextlib.suppress(FileNotFoundError), _quiet():
                return sorted(self._manager.all_steps(read=True))
            time.sleep(0.05 * (attempt + 1))
        raise CheckpointError(f"{self.directory} changes faster than it can be read")

    def latest(self) -> int | None:
        """Finds the newest step with a complete checkpoint and an intact record.

        Returns:
            The step, or None if there is no checkpoint.

        Raises:
            CheckpointError: there are checkpoints, but the record of each is damaged.
        """
        damages: list[str] = []
        for step in reversed(self.steps()):
            try:
                self._record(step)
            except _Damaged as damage:
                damages.append(str(damage))
                continue
            return step
        if damages:
            raise CheckpointError(self._nothing_intact(damages))
        return None

    def meta(self, step: int) -> dict[str, Any]:
        """Reads what was saved beside the state of a step, with the step added as ``"step"``.

        Args:
            step: one of `steps()`.

        Returns:
            `meta` as JSON gives it back.

        Raises:
            CheckpointError: there is no such checkpoint or its record is damaged.
        """
        if step not in self.steps():
            raise CheckpointError(f"no checkpoint {step} in {self.directory}")
        try:
            return {**self._record(step)["meta"], "step": step}
        except _Damaged as damage:
            raise CheckpointError(str(damage)) from damage

    def restore(self, step: int | None, example: Any) -> tuple[Any, dict[str, Any]]:
        """Reads a checkpoint back, bit by bit what was saved.

        If it is damaged, the newest older one that is good takes its place, with a
        `RuntimeWarning`; the returned ``meta["step"]`` says which it was.

        Args:
            step: the step to read, None for the newest.
            example: a state of the structure, dtypes and shapes wanted, as values or
                `jax.ShapeDtypeStruct`. A leaf comes back as what it is here: jax array or key
                (with this sharding), numpy array, or Python bool, int or float. (`jax.eval_shape`
                makes arrays of Python numbers, which then differ from what was saved.)

        Returns:
            ``(state, meta)``, `meta` with the step added as ``"step"``.

        Raises:
            CheckpointError: nothing intact is there, or what was saved differs from `example` in
                structure, dtype or shape; the message names the first leaf that does.
        """
        damages: list[str] = []
        for candidate in reversed(self.steps()):
            if step is not None and candidate > step:
                continue
            try:
                restored = self._read(candidate, example)
            except _Damaged as damage:
                damages.append(str(damage))
                continue
            if damages:
                text = f"{'; '.join(damages)}; using checkpoint {candidate} instead"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            return restored
        raise CheckpointError(self._nothing_intact(damages, step))

    def _nothing_intact(self, damages: list[str], step: int | None = None) -> str:
        upto = "" if step is None else f" up to step {step}"
        return "; ".join([f"no intact checkpoint in {self.directory}{upto}", *damages])

    @functools.cached_property
    def _manager(self) -> Any:
        # Importing orbax takes long, and `flockax --help` must not wait for it.
        import orbax.checkpoint as ocp

        if not self.read_only:
            self._remove_rests()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self.keep,
            enable_async_checkpointing=False,
        )
        return ocp.CheckpointManager(self.directory, options=options)

    def _write(self, record: dict[str, Any], items: dict[str, np.ndarray]) -> None:
        import orbax.checkpoint as ocp

        step = record["step"]
        self.directory.mkdir(parents=True, exist_ok=True)
        # Checked first: in the middle of a save orbax notices late, and leaves threads behind.
        needed = sum(array.nbytes for array in items.values()) + _MARGIN_BYTES
        if shutil.disk_usage(self.directory).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finished = {str(earlier) for earlier in self._manager.all_steps() if earlier < step}
        for name in os.listdir(self.directory):
            if name.isdigit() and name not in finished:
                shutil.rmtree(self.directory / name)
                self._manager.reload()
        parts: dict[str, Any] = {"record": ocp.args.JsonSave(record)}
        # Orbax refuses arrays of size 0 and empty dictionaries; the record has all of them.
        stored = {path: array for path, array in items.items() if array.size}
        if stored:
            parts["state"] = ocp.args.StandardSave(stored)
        self._manager.save(step, args=ocp.args.Composite(**parts), force=True)
        for folder, _, files in os.walk(self.directory / str(step)):
            for file in [*files, "."]:
                sync(Path(folder, file))
        sync(self.directory)

    def _holds(self, record: dict[str, Any]) -> bool:
        """Whether this very checkpoint is there: replacing it would leave a moment without it."""
        if not (self.directory / str(record["step"])).exists():
            return False
        with contextlib.suppress(_Damaged):
            return self._record(record["step"]) == record and bool(self._arrays(record))
        return False

    def _remove_rests(self) -> None:
        for rest in self.directory.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(rest, ignore_errors=True)

    def _load(self, step: int, name: str, template: dict[str, np.ndarray] | None = None) -> Any:
        import orbax.checkpoint as ocp

        args = ocp.args.JsonRestore() if template is None else ocp.args.StandardRestore(template)
        # Whatever is wrong with the files, and whatever orbax raises for it, is damage.
        try:
            with _quiet():
                return self._manager.restore(step, args=ocp.args.Composite(**{name: args}))[name]
        except Exception as error:
            raise _Damaged(f"checkpoint {step} is damaged: {first_line(error)}") from error

    def _record(self, step: int) -> dict[str, Any]:
        record = self._load(step, "record")
        if not isinstance(record, dict) or _sealed(record) != record or record["step"] != step:
            raise _Damaged(f"checkpoint {step} is damaged: its record is not what was written")
        if record["format"] != _FORMAT:
            raise CheckpointError(
                f"checkpoint {step} has format {record['format']}; allowed is {_FORMAT}"
            )
        return record

    def _arrays(self, record: dict[str, Any]) -> dict[str, np.ndarray]:
        leaves, step = _leaves(record), record["step"]
        arrays = {
            leaf.path: np.empty(shape, dtype)
            for leaf, (dtype, shape, _) in zip(leaves, record["stored"], strict=True)
        }
        template = {path: array for path, array in arrays.items() if array.size}
        if template:
            arrays |= self._load(step, "state", template)
        if digest(leaves, [arrays[leaf.path] for leaf in leaves]) != record["digest"]:
            raise _Damaged(f"checkpoint {step} is damaged: its values are not what was written")
        return arrays

    def _read(self, step: int, example: Any) -> tuple[Any, dict[str, Any]]:
        record = self._record(step)
        leaves, wanted = _leaves(record), describe(example)
        differs = difference(leaves, wanted)
        if differs:
            raise CheckpointError(
                f"checkpoint {step} in {self.directory} is of another state: {differs}"
            )
        arrays = self._arrays(record)
        impls = {
            leaf.path: impl for leaf, (_, _, impl) in zip(leaves, record["stored"], strict=True)
        }
        values = [
            place(arrays[leaf.path], impls[leaf.path], x)
            for leaf, x in zip(wanted, jax.tree.leaves(example), strict=True)
        ]
        state = jax.tree.unflatten(jax.tree.structure(example), values)
        return state, {**record["meta"], "step": step}


def _leaves(record: dict[str, Any]) -> list[Leaf]:
    return [Leaf(path, dtype, tuple(shape)) for path, dtype, shape in record["leaves"]]


def _sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record as JSON gives it back, with a hash of all but the hash."""
    text = json.dumps({k: v for k, v in record.items() if k != "sha256"}, sort_keys=True)
    return {**json.loads(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps orbax from logging, over pages, an error that becomes one line here."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
