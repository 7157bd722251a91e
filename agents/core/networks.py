"""Networks that learners share: they take whole sequences ``[T, ..., F]`` and step with T = 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from flockax.envs.spec import ArraySpec, float_dtype, unpack

Array = jax.Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": nn.tanh, "relu": nn.relu}


def window_shape(spec: Any) -> tuple[int, int, int] | None:
    """``(C, H, W)`` of a window observation as networks read it, flags apart; None for a vector.

    Raises:
        ValueError: for features that are neither; no network here reads them yet.
    """
    if isinstance(spec, ArraySpec) and len(spec.shape) == 2:
        return None
    if isinstance(spec, ArraySpec) and len(spec.shape) == 4:
        shape = jax.eval_shape(lambda x: unpack(x, spec), jnp.zeros(spec.shape, spec.dtype)).shape
        return shape[1], shape[2], shape[3]
    raise ValueError(
        f"features {spec} are neither a vector f[A, F] nor a window int[A, C, H, W]: "
        "no network reads them"
    )


def as_vectors(features: Array, spec: ArraySpec) -> Array:
    """``f[..., F]``: features as networks take them.

    The flags of a window come apart and its numbers are compressed, ``sign(x) log(1 + |x|)``, so that
    near ones stay apart and far ones don't drown the rest. They become floats here and not before:
    rollouts keep the small integers.

    Args:
        features: ``f[..., A, F]`` or ``int[..., A, C, H, W]``.
        spec: of the features.
    """
    shape = window_shape(spec)
    if shape is None:
        return features.astype(float_dtype())
    x = unpack(features, spec).astype(float_dtype())
    if max(-spec.low, spec.high) > 1:
        x = jnp.sign(x) * jnp.log1p(jnp.abs(x))
    return x.reshape((*x.shape[:-3], math.prod(shape)))


class WindowTorso(nn.Module):
    """Convolutions of 3 by 3 over a window, the second and later ones with stride 2.

    Each is a product with the matrix of all patches: where the kernels of several seeds are mapped
    over, XLA on CPU runs convolutions hundreds of times slower.

    Attributes:
        shape: ``(C, H, W)``.
        channels: of each convolution.
        activation: "tanh" or "relu".
    """

    shape: tuple[int, int, int]
    channels: tuple[int, ...] = (16, 32)
    activation: str = "relu"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``f[N, C * H * W] -> f[N, F]``."""
        x = jnp.moveaxis(x.reshape((-1, *self.shape)), 1, -1)
        for i, channels in enumerate(self.channels):
            x = _patches(x, stride=1 if i == 0 else 2)
            rows = nn.Dense(channels, name=f"conv_{i}")(x.reshape((-1, x.shape[-1])))
            x = ACTIVATIONS[self.activation](rows).reshape((*x.shape[:-1], channels))
        return x.reshape((x.shape[0], -1))


def _patches(x: Array, stride: int) -> Array:
    """``f[N, H', W', 9 C]``: the 3 by 3 surroundings of cells of ``f[N, H, W, C]``.

    Cells at the edge have none of their own unless the map is narrower than 3, where it is padded.
    """
    short = [max(0, 3 - size) for size in x.shape[1:3]]
    x = jnp.pad(x, ((0, 0), (0, short[0]), (0, short[1]), (0, 0)))
    height, width = x.shape[1] - 2, x.shape[2] - 2
    parts = [
        x[:, row : row + height : stride, column : column + width : stride]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(parts, axis=-1)


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
        gates = nn.Dense(3 * self.size, name="input")(x.reshape((-1, x.shape[-1])))
        gates = gates.reshape((*x.shape[:-1], 3 * self.size))
        kernel = self.param("carry_kernel", nn.initializers.zeros, (self.size, 3 * self.size))
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


class Mlp(nn.Module):
    """Dense layers, an optional GRU, and a linear head.

    Attributes:
        hidden: widths of the dense layers.
        out: width of the head.
        activation: "tanh" or "relu".
        recurrent: width of the GRU between the layers and the head, 0 for none.
        head_scale: gain of the initial weights of the head.
        window: ``(C, H, W)`` where the input begins with a window, which a `WindowTorso` reads.
    """

    hidden: tuple[int, ...]
    out: int
    activation: str = "tanh"
    recurrent: int = 0
    head_scale: float = 1.0
    window: tuple[int, int, int] | None = None

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
        # As one matrix: XLA on CPU takes 1.6 times as long for the gradients of [T, E, A, F] products.
        leading = x.shape[:-1]
        x = x.reshape((-1, x.shape[-1]))
        if self.window is not None:
            size = math.prod(self.window)
            seen = WindowTorso(self.window, activation=self.activation, name="window")(x[:, :size])
            x = jnp.concatenate([seen, x[:, size:]], axis=1)
        for i, width in enumerate(self.hidden):
            x = activation(nn.Dense(width, name=f"dense_{i}")(x))
        if self.recurrent:
            x = x.reshape((*leading, x.shape[-1]))
            carry, x = Gru(self.recurrent, name="gru")(carry, x, reset)
            x = x.reshape((-1, x.shape[-1]))
        return carry, nn.Dense(self.out, name="head")(x).reshape((*leading, self.out))

    def gain(self, layer: str) -> float:
        """The gain of the initial weights of a layer."""
        return {"gru": 1.0, "head": self.head_scale}.get(layer, float(np.sqrt(2)))


def draw_params(network: Mlp, key: Array, size: int, count: int) -> Any:
    """Draws the initial parameters of `count` networks of the same architecture.

    Weights are normal with standard deviation ``gain / sqrt(inputs)`` (He et al. 2015), biases 0.
    All come out of one draw: a draw for each layer took several seconds to compile. Orthogonal weights,
    usual for PPO, were left for their compilation too; how the two train was not compared.

    Args:
        network: the architecture.
        key: a typed key.
        size: ``F``, width of the input.
        count: how many.

    Returns:
        Parameters with a leading axis of `count`.
    """
    dtype = float_dtype()
    x, carry = jnp.zeros((1, 1, size), dtype), jnp.zeros((1, network.recurrent), dtype)
    template = jax.eval_shape(network.init, key, carry, x, jnp.zeros((1, 1), bool))
    leaves, structure = jax.tree.flatten_with_path(template)
    total = sum(leaf.size for _, leaf in leaves)
    noise = jax.random.normal(key, (count, total), dtype)
    params, start = [], 0
    for path, leaf in leaves:
        part = noise[:, start : start + leaf.size].reshape((count, *leaf.shape))
        start += leaf.size
        inputs = math.prod(leaf.shape[:-1])
        std = network.gain(path[1].key) / np.sqrt(inputs) if leaf.ndim > 1 else 0.0
        params.append(part * jnp.asarray(std, dtype))
    return jax.tree.unflatten(structure, params)
