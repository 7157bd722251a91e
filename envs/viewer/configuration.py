"""What a recording keeps of an environment, so that it can be made again."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def current_versions() -> dict[str, str]:
    """Versions and device that decide whether a recording re-simulates to the same bits."""
    try:
        version = importlib.metadata.version("flockax")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    device = jax.devices()[0]
    return {
        "jax": jax.__version__,
        "flockax": version,
        "device": f"{device.platform} {device.device_kind}",
        "x64": str(bool(jax.config.jax_enable_x64)),
    }


def registered_id(env: Any) -> str:
    """The name under which the registry makes environments of this class, or the class name."""
    # The registry imports every environment, and these import this package for their scenes.
    from flockax.envs.registry import registered

    return next((entry.id for entry in registered() if entry.cls is type(env)), type(env).__name__)


def plain_fields(env: Any) -> dict[str, Any]:
    """Sizes and switches of an environment by name.

    Raises:
        ValueError: naming a field whose value JSON cannot hold.
    """
    fields = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)}
    for name, value in fields.items():
        if not _is_plain(value):
            raise ValueError(
                f"{type(env).__name__}: field {name}={value!r} cannot be recorded; it must be a "
                "bool, number, string, None or a tuple of these"
            )
    return fields


def named_leaves(params: Any) -> dict[str, np.ndarray]:
    """The leaves of parameters by path.

    Raises:
        ValueError: naming a leaf that does not hold numbers.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    named = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    for name, leaf in named.items():
        if leaf.dtype.kind not in "biuf":
            raise ValueError(f"parameter {name} of dtype {leaf.dtype} cannot be recorded")
    return named


def restored_params(env: Any, stored: dict[str, np.ndarray]) -> Any:
    """Parameters of `env` with the leaves that `named_leaves` returned.

    Raises:
        ValueError: where the names are not those of the parameters of `env`.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(env.default_params)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    if set(names) != set(stored):
        raise ValueError(
            f"the recording has the parameters {', '.join(sorted(stored))}; "
            f"{type(env).__name__} has {', '.join(sorted(names))}"
        )
    return jax.tree.unflatten(structure, [jnp.asarray(stored[name]) for name in names])


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
