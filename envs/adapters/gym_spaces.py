"""Specs as gymnasium's spaces, which PettingZoo uses too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from flockax.envs.spec import ActionSpec, ArraySpec, DiscreteActions


def space_of(spec: Any) -> spaces.Space:
    """A `Box` of an `ArraySpec`, or a `Dict` of a dict of them; booleans become int8."""
    if isinstance(spec, dict):
        return spaces.Dict({name: space_of(part) for name, part in spec.items()})
    return _box(spec)


def _box(spec: ArraySpec) -> spaces.Box:
    dtype = np.dtype(np.int8 if spec.dtype == "bool" else spec.dtype)
    low, high = spec.low, spec.high
    if dtype.kind == "i":
        low, high = max(low, np.iinfo(dtype).min), min(high, np.iinfo(dtype).max)
    return spaces.Box(dtype.type(low), dtype.type(high), spec.shape, dtype.type)


def action_space_of(spec: ActionSpec, sizes: list[int]) -> spaces.Space:
    """The space of the actions of agents with these numbers of actions or components, as one."""
    if isinstance(spec, DiscreteActions):
        return spaces.MultiDiscrete(sizes) if len(sizes) > 1 else spaces.Discrete(sizes[0])
    dtype = np.dtype(jnp.result_type(float)).type
    return spaces.Box(dtype(spec.low), dtype(spec.high), (sum(sizes),), dtype)


def to_numpy(tree: Any) -> Any:
    """Writable NumPy arrays of the caller's own; booleans become int8, as in `space_of`."""

    def convert(x: Any) -> np.ndarray:
        x = np.array(x)
        return x.astype(np.int8) if x.dtype == bool else x

    return jax.tree.map(convert, tree)
