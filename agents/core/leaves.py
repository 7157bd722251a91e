"""The leaves of a training state on the host: named, described, hashed and put back in place.

A leaf is an array of any numeric dtype, a typed key (`jax.random.key`), or a Python bool, int or
float. On the host a key is its key data, a Python number a 0-d array of 8 bytes (bool: 1 byte).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_PYTHON_DTYPES = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64)}


class Leaf(NamedTuple):
    """What a leaf is, without its values: where it stands, its dtype and its shape."""

    path: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def is_key(leaf: Any) -> bool:
    """Whether a leaf is (or stands for) an array of typed keys."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def key_impl(leaf: Any) -> str | None:
    """The name of the implementation of a typed key, None for another leaf."""
    return str(jax.random.key_impl(leaf)) if is_key(leaf) else None


def describe(state: Any) -> list[Leaf]:
    """Describes every leaf, in the order of `jax.tree.leaves`.

    A path is made of field names, dictionary keys and positions joined by ``/``, so it does not
    depend on whether a container is a dictionary, a NamedTuple or a flax struct.

    Args:
        state: a pytree of leaves or of `jax.ShapeDtypeStruct`.

    Returns:
        The descriptions.

    Raises:
        TypeError: a leaf is neither an array, a typed key, nor a Python bool, int or float.
        ValueError: two leaves have the same path.
    """
    described = []
    for keys, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        path = jax.tree_util.keystr(keys, simple=True, separator="/")
        if type(leaf) in _PYTHON_DTYPES:
            described.append(Leaf(path, f"Python {type(leaf).__name__}", ()))
        elif hasattr(leaf, "dtype") and hasattr(leaf, "shape") and not _is_foreign(leaf.dtype):
            described.append(Leaf(path, str(leaf.dtype), tuple(leaf.shape)))
        else:
            raise TypeError(
                f"leaf {path} is a {type(leaf).__name__}; allowed are numeric arrays, typed keys "
                "and Python bool, int and float"
            )
    paths = [leaf.path for leaf in described]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"two leaves have the path {twice}; allowed is one leaf a path")
    return described


def to_host(state: Any) -> list[np.ndarray]:
    """Copies every leaf to the host, in the order of `jax.tree.leaves`.

    Args:
        state: a pytree of leaves.

    Returns:
        One array a leaf; keys as their key data (``uint32[..., words]``).

    Raises:
        OverflowError: a Python int does not fit into 64 bits.
    """
    leaves = [
        jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in jax.tree.leaves(state)
    ]
    return [np.asarray(leaf, _PYTHON_DTYPES.get(type(leaf))) for leaf in jax.device_get(leaves)]


def digest(leaves: Sequence[Leaf], arrays: Sequence[np.ndarray]) -> str:
    """Hashes described leaves and their host arrays; see `state_digest`."""
    sha = hashlib.sha256()
    for leaf, array in sorted(zip(leaves, arrays, strict=True), key=lambda pair: pair[0].path):
        # The length in front keeps the end of one text from passing for the start of the next.
        text = f"{leaf.path}\0{leaf}".encode()
        sha.update(len(text).to_bytes(8, "little") + text)
        sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return sha.hexdigest()


def state_digest(state: Any) -> str:
    """Hashes a state: path, dtype, shape and bytes of every leaf, in the order of the paths.

    The same for equal values in other containers (a dictionary for a flax struct), on other
    devices and in other processes; different if a single bit of a leaf is.

    Args:
        state: a pytree of leaves.

    Returns:
        SHA-256 as 64 hexadecimal digits.

    Raises:
        TypeError: a leaf is neither an array, a typed key, nor a Python bool, int or float.
        ValueError: two leaves have the same path.
        OverflowError: a Python int does not fit into 64 bits.
    """
    return digest(describe(state), to_host(state))


def difference(found: Sequence[Leaf], expected: Sequence[Leaf]) -> str | None:
    """Says where two states differ first in structure, dtype or shape, or None if they don't."""
    by_path = {leaf.path: leaf for leaf in found}
    for leaf in expected:
        if by_path.get(leaf.path) != leaf:
            what = by_path.get(leaf.path, "nothing")
            return f"leaf {leaf.path}: found {what}, expected {leaf}"
    paths = {leaf.path for leaf in expected}
    for leaf in found:
        if leaf.path not in paths:
            return f"leaf {leaf.path}: found {leaf}, expected nothing"
    return None


def place(array: np.ndarray, impl: str | None, example: Any) -> Any:
    """Makes of a host array the kind of leaf that `example` is, where `example` is.

    Args:
        array: what `to_host` gave.
        impl: the name of the key implementation, None if the leaf is no key.
        example: a leaf or `jax.ShapeDtypeStruct` of the same dtype and shape.

    Returns:
        A jax array or key with the example's sharding, a numpy array, or a Python number.
    """
    if type(example) in _PYTHON_DTYPES:
        return type(example)(array.item())
    if isinstance(example, np.generic):
        return array[()]
    if isinstance(example, np.ndarray):
        return array
    # Committing what was not committed would compile the caller's functions once more.
    sharding = example.sharding if getattr(example, "committed", True) else None
    if impl is None:
        return jax.device_put(array, sharding, may_alias=False)
    return jax.device_put(jax.random.wrap_key_data(jnp.asarray(array), impl=impl), sharding)


def _is_foreign(dtype: Any) -> bool:
    """Whether arrays of this dtype (objects, texts, dates, records) are more than their bytes."""
    return isinstance(dtype, np.dtype) and (dtype.kind in "OSUMm" or dtype.names is not None)
