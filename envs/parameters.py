"""Numbers and sizes of environments: how they are declared, converted and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array


def parameter(default: Any, low: float = -math.inf, high: float = math.inf) -> Any:
    """Declares a number of an environment's parameters, with the closed range it may have.

    Args:
        default: a Python bool, int or float, or a tuple of floats; its type fixes the dtype.
        low: smallest value allowed.
        high: largest value allowed.
    """
    return struct.field(pytree_node=True, default=default, metadata={"low": low, "high": high})


def as_arrays(params: Any) -> Any:
    """Turns the numbers, and tuples of numbers, of a parameter structure into strong-typed arrays.

    NumPy arrays keep their dtype.
    """

    def convert(x: Any) -> Any:
        if isinstance(x, jax.Array):
            return x
        if isinstance(x, np.ndarray):
            return jnp.asarray(x)
        kind = np.asarray(x).dtype.kind
        dtype = {"f": float_dtype(), "i": int_dtype(), "u": int_dtype(), "b": np.dtype(bool)}[kind]
        return jnp.asarray(x, dtype)

    return jax.tree.map(convert, params, is_leaf=lambda x: isinstance(x, tuple))


def require_int(owner: Any, name: str, low: int, high: float = math.inf) -> None:
    """Checks an integer field of a frozen dataclass and makes it a Python int.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """
    value = getattr(owner, name)
    allowed = f"an integer >= {low}" if high == math.inf else f"an integer in {low} .. {high}"
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is not {allowed}")
    # A NumPy integer would overflow in the arithmetic of sizes and does not fit into JSON.
    object.__setattr__(owner, name, int(value))


def require_number(owner: Any, name: str, low: float, high: float) -> None:
    """Checks a field of a frozen dataclass that is a number, and makes it a Python float.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """
    value = getattr(owner, name)
    number = isinstance(value, int | float | np.integer | np.floating)
    if not number or isinstance(value, bool) or not low <= value <= high:
        allowed = f"a number in [{low}, {high}]"
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is not {allowed}")
    object.__setattr__(owner, name, float(value))


def require_choice(owner: Any, name: str, choices: tuple[Any, ...]) -> None:
    """Checks that a field of a frozen dataclass is one of `choices`.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """
    value = getattr(owner, name)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{type(owner).__name__}: {name}={value!r} is not one of {allowed}")


def checked(name: str, value: Any, default: Array, metadata: Mapping[str, Any]) -> Array:
    """The value of a parameter as an array of the default's shape and dtype, or a ValueError."""
    kind = np.dtype(default.dtype).kind
    wanted = {"b": "a bool", "f": "a number"}.get(kind, "an integer")
    traced = isinstance(value, jax.core.Tracer)
    given = value if traced else _as_numpy(value)
    # The values of a traced float are not known, so it cannot be seen to be whole.
    kinds = {"b": "b", "f": "iuf"}.get(kind, "iu" if traced else "iuf")
    if given is None or given.dtype.kind not in kinds:
        raise ValueError(f"parameter {name}={value!r} is not {wanted}")
    if given.shape != default.shape:
        raise ValueError(f"parameter {name} has shape {given.shape}, not {default.shape}")
    if traced:
        return jnp.asarray(given, default.dtype)
    low, high = metadata.get("low", -math.inf), metadata.get("high", math.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        array = given.astype(default.dtype)
    if kind == "f":
        # The bounds are compared as the dtype has them, or the bound itself could be refused.
        dtype = array.dtype.type
        inside = np.isfinite(array) & (array >= dtype(low)) & (array <= dtype(high))
        if not np.all(inside):
            raise ValueError(
                f"parameter {name}={value!r} is not a finite number in [{low}, {high}]"
            )
    if kind in "iu" and not np.all((array == given) & (given >= low) & (given <= high)):
        raise ValueError(f"parameter {name}={value!r} is not an integer in [{low}, {high}]")
    return jnp.asarray(array)


def _as_numpy(value: Any) -> np.ndarray | None:
    """The value as a NumPy array, or None where it is not one (a ragged list, a typed key)."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return None
