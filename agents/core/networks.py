"""Networks that learners share: they take whole sequences ``[T, ..., F]`` and step with T = 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from flockax.envs.environment import ArraySpec

Array = jax.Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": nn.tanh, "relu": nn.relu}


def feature_size(spec: Any) -> int:
    """``F`` of a vector observation.

    Raises:
        ValueError: for features that are not a vector; no network here reads them yet.
    """
    if not isinstance(spec, ArraySpec) or len(spec.shape) != 2:
        raise ValueError(f"features {spec} are not a vector f[A, F]: no network reads them")
    return spec.shape[1]


class Gru(nn.Module):
    """A gated recurrent unit over time (Cho et al. 2014, in the form of `flax.linen.GRUCell`).

    The products with the input do not depend on the carry and are taken for all times at once.

    Attributes:
        size: ``H``.
    """

    size: int

    @nn.compact
    def __call__(self, carry: Array, x: Array, reset: Array) -> tuple[Array, Array]:
        """Runs over time.

        Args:
            carry: ``f[..., H]`` before the first step.
            x: ``f[T, ..., F]``.
            reset: ``bool[T, ...]``, True where the carry is set to 0 before the step.

        Returns:
            ``(carry f[..., H], outputs f[T, ..., H])``.
        """
        gates = nn.Dense(3 * self.size, name="input")(x)
        kernel = self.param("carry_kernel", _stacked_orthogonal, (self.size, 3 * self.size))
        bias = self.param("candidate_bias", nn.initializers.zeros, (self.size,))

        def step(h: Array, gates: Array, reset: Array) -> Array:
            h = jnp.where(reset[..., None], 0, h)
            in_r, in_z, in_n = jnp.split(gates, 3, axis=-1)
            h_r, h_z, h_n = jnp.split(h @ kernel, 3, axis=-1)
            r, z = nn.sigmoid(in_r + h_r), nn.sigmoid(in_z + h_z)
            n = nn.tanh(in_n + r * (h_n + bias))
            return (1 - z) * n + z * h

        if x.shape[0] == 1:
            carry = step(carry, gates[0], reset[0])
            return carry, carry[None]

        def scanned(h: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
            h = step(h, *xs)
            return h, h

        return jax.lax.scan(scanned, carry, (gates, reset))


def _stacked_orthogonal(key: Array, shape: tuple[int, ...]) -> Array:
    """One orthogonal matrix for each of the three gates, side by side."""
    size = shape[0]
    make = nn.initializers.orthogonal()
    return jnp.concatenate([make(k, (size, size)) for k in jax.random.split(key, 3)], axis=1)


class Mlp(nn.Module):
    """Dense layers, an optional GRU, and a linear head.

    Attributes:
        hidden: widths of the dense layers.
        out: width of the head.
        activation: "tanh" or "relu".
        recurrent: width of the GRU between the layers and the head, 0 for none.
        head_scale: gain of the orthogonal initialisation of the head.
    """

    hidden: tuple[int, ...]
    out: int
    activation: str = "tanh"
    recurrent: int = 0
    head_scale: float = 1.0

    @nn.compact
    def __call__(self, carry: Array, x: Array, reset: Array) -> tuple[Array, Array]:
        """Runs over time.

        Args:
            carry: ``f[..., recurrent]``.
            x: ``f[T, ..., F]``.
            reset: ``bool[T, ...]``.

        Returns:
            ``(carry, f[T, ..., out])``.
        """
        activation = ACTIVATIONS[self.activation]
        gain = nn.initializers.orthogonal(np.sqrt(2))
        for width in self.hidden:
            x = activation(nn.Dense(width, kernel_init=gain)(x))
        if self.recurrent:
            carry, x = Gru(self.recurrent)(carry, x, reset)
        head = nn.Dense(self.out, kernel_init=nn.initializers.orthogonal(self.head_scale))
        return carry, head(x)
