"""What observations and actions are: their structures, dtypes, shapes and ranges."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array


def float_dtype() -> Any:
    """The dtype of all floats: float32, or float64 under ``jax_enable_x64``."""
    return jnp.result_type(float)


def int_dtype() -> Any:
    """The dtype of counters: int32, or int64 under ``jax_enable_x64``."""
    return jnp.result_type(int)


@struct.dataclass
class EntitySet:
    """What an agent sees of a varying number of things, as one row each.

    Attributes:
        own: ``f[A, F]``, the agent's own features.
        entities: ``f[A, K, G]``, a row of features for each thing; zero where `mask` is False.
        mask: ``bool[A, K]``, True where a row holds a thing.
    """

    own: Any
    entities: Any
    mask: Any


@struct.dataclass
class Observation:
    """What the agents see and may do.

    Attributes:
        features: a vector ``f[A, F]`` (smaller groups zero-padded), a window of small integers
            ``int[A, C, H, W]``, or an `EntitySet`. Zero for agents that are not alive.
        action_mask: ``bool[A, n]`` of open discrete actions, or ``bool[A, D]`` of the real components
            of a continuous action.
        alive: ``bool[A]``.
    """

    features: Any
    action_mask: Any
    alive: Any


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Shape, dtype and range of an array, without a batch axis.

    Attributes:
        shape: the shape for one environment.
        dtype: the NumPy dtype name ("float32", "bool", ...).
        low: smallest value that can occur (``-inf`` if unbounded).
        high: largest value that can occur (``inf`` if unbounded).
        flags: how many of the lowest bits of each integer are flags of their own, see `unpack`.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float = -math.inf
    high: float = math.inf
    flags: int = 0


def unpack(window: Array, spec: ArraySpec) -> Array:
    """Takes the flags in the integers of a window apart.

    Args:
        window: ``int[..., C, H, W]``.
        spec: of these integers.

    Returns:
        ``int[..., C * (flags + 1), H, W]``: for each channel its flags, 0 or 1, the lowest first, then
        the number above them. Without flags the window itself, and without a last channel where
        `spec` leaves no room for a number.
    """
    if not spec.flags:
        return window
    parts = [(window >> bit) & 1 for bit in range(spec.flags)]
    if spec.high >= 2**spec.flags or spec.low < 0:
        parts.append(window >> spec.flags)
    stacked = jnp.stack(parts, axis=-3)
    return stacked.reshape((*window.shape[:-3], -1, *window.shape[-2:]))


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """Actions ``int[A]`` in ``0 .. n - 1``; action 0 is what an invalid action becomes.

    Attributes:
        num_agents: ``A``.
        n: the number of actions of the largest group; masks close the rest for smaller groups.
    """

    num_agents: int
    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        """``(A,)``, of the actions of one environment."""
        return (self.num_agents,)

    def sample(self, key: Array, mask: Array) -> Array:
        """Draws an open action for each agent uniformly.

        Args:
            key: a typed key.
            mask: ``bool[..., A, n]``, True where open.

        Returns:
            ``int[..., A]``.
        """
        # One draw an agent, turned into the rank of an open action: a Gumbel draw an action is slower.
        rank = jnp.cumsum(mask, axis=-1)
        uniform = _uniform(key, mask.shape[:-1])
        chosen = jnp.floor(uniform * rank[..., -1]) + 1
        return jnp.sum(rank < chosen[..., None], axis=-1, dtype=int_dtype())


@dataclasses.dataclass(frozen=True)
class ContinuousActions:
    """Actions ``f[A, D]`` with every component in ``[low, high]``; the environment clips.

    Attributes:
        num_agents: ``A``.
        size: ``D``, the number of components of the largest group.
        low: smallest value of a component.
        high: largest value of a component.
    """

    num_agents: int
    size: int
    low: float
    high: float

    @property
    def shape(self) -> tuple[int, ...]:
        """``(A, D)``, of the actions of one environment."""
        return (self.num_agents, self.size)

    def sample(self, key: Array, mask: Array) -> Array:
        """Draws each real component uniformly; padded components are 0.

        Args:
            key: a typed key.
            mask: ``bool[..., A, D]``, True where a component is real.

        Returns:
            ``f[..., A, D]``.
        """
        uniform = self.low + (self.high - self.low) * _uniform(key, mask.shape)
        return jnp.where(mask, uniform, 0)


ActionSpec = DiscreteActions | ContinuousActions


def _uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform draws in [0, 1): the same bits as with `shape` given, but a flat draw vectorises."""
    return jax.random.uniform(key, (math.prod(shape),), float_dtype()).reshape(shape)


@dataclasses.dataclass(frozen=True)
class Group:
    """A contiguous run of agent slots that share a role.

    Attributes:
        name: such as "predators".
        start: first slot.
        stop: one past the last slot.
        observation_size: the true number of features before zero-padding (0 where the features are
            not a vector).
        action_size: the true number of actions, or of continuous components.
    """

    name: str
    start: int
    stop: int
    observation_size: int
    action_size: int

    @property
    def size(self) -> int:
        """The number of slots."""
        return self.stop - self.start
