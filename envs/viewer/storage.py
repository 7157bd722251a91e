"""Recordings as files: one ``.npz`` of plain arrays with a JSON header, never a pickle."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from flockax.envs.viewer.files import atomic
from flockax.envs.viewer.recording import Recording
from flockax.envs.viewer.scene import LayerFrame, Scene

FORMAT = "flockax-recording"
VERSION = 1
_FRAME_FIELDS = ("position", "heading", "visible", "highlight")


class RecordingError(ValueError):
    """A file that does not hold a recording which this version can read."""


def save(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Writes a recording; `load` reads it back to the same bits.

    Args:
        recording: the recording.
        path: the file, usually ``*.npz``. It appears whole or not at all.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "env_id": recording.env_id,
        "fields": recording.fields,
        "params": list(recording.params),
        "seed": recording.seed,
        "versions": recording.versions,
        "groups": recording.groups,
        "scene": recording.scene.to_dict(),
        "metrics": list(recording.metrics),
    }
    arrays = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        "lengths": recording.lengths,
        "terminated": recording.terminated,
        "actions": recording.actions,
        "rewards": recording.rewards,
    }
    if recording.scene.cells is not None:
        arrays["cells"] = recording.scene.cells
    # Numbered, because names of layers, metrics and parameters need not be fit for file names.
    for kind, values in (("params", recording.params), ("metrics", recording.metrics)):
        arrays.update({f"{kind}/{i}": array for i, array in enumerate(values.values())})
    for i, layer in enumerate(recording.scene.layers):
        for field in _FRAME_FIELDS:
            array = getattr(recording.frames[layer.name], field)
            if array is not None:
                arrays[f"frames/{i}/{field}"] = array
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: str | os.PathLike[str]) -> Recording:
    """Reads a recording.

    Args:
        path: a file that `save` wrote.

    Raises:
        OSError: where the file cannot be opened.
        RecordingError: where it is damaged, holds something else, or comes from a newer version.
    """
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            return _decode(arrays)
        except KeyError as error:
            raise RecordingError(f"{path} is not a recording: it lacks {error}") from error
        # Damaged archives make NumPy and zipfile raise nearly anything; all of it means the same.
        except Exception as error:
            raise RecordingError(f"{path} is not a recording: {error}") from error


def _decode(arrays: dict[str, np.ndarray]) -> Recording:
    header = json.loads(arrays["header"].tobytes())
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {header['format']!r}, not {FORMAT!r}")
    if header["version"] != VERSION:
        raise ValueError(
            f"its format has version {header['version']!r}; this flockax reads version {VERSION}"
        )
    scene = Scene.from_dict(header["scene"], arrays.get("cells"))
    return Recording(
        env_id=header["env_id"],
        fields={name: _with_tuples(value) for name, value in header["fields"].items()},
        params={name: arrays[f"params/{i}"] for i, name in enumerate(header["params"])},
        seed=header["seed"],
        versions=header["versions"],
        groups=tuple((name, start, stop) for name, start, stop in header["groups"]),
        scene=scene,
        lengths=arrays["lengths"],
        terminated=arrays["terminated"],
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        metrics={name: arrays[f"metrics/{i}"] for i, name in enumerate(header["metrics"])},
        frames={layer.name: _layer_frame(arrays, i) for i, layer in enumerate(scene.layers)},
    )


def _layer_frame(arrays: dict[str, np.ndarray], index: int) -> LayerFrame:
    found = {field: arrays.get(f"frames/{index}/{field}") for field in _FRAME_FIELDS}
    if found["position"] is None:
        raise KeyError(f"frames/{index}/position")
    return LayerFrame(**found)


def _with_tuples(value: Any) -> Any:
    """JSON lists as the tuples they were, so that an environment stays hashable."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
