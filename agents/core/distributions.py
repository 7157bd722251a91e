"""Distributions over the actions of all agents; the only place that imports distrax."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.spec import ActionSpec, ContinuousActions, DiscreteActions, float_dtype, int_dtype

Array = jax.Array

MIN_LOG_STD, MAX_LOG_STD = -5.0, 2.0


@functools.cache
def _distrax() -> Any:
    # Late, because it loads TensorFlow Probability: half a second that `--help` should not wait for.
    import distrax

    return distrax


def output_size(spec: ActionSpec) -> int:
    """The number of network outputs for one agent that `action_distribution` wants."""
    return spec.n if isinstance(spec, DiscreteActions) else 2 * spec.size


@struct.dataclass
class MaskedCategorical:
    """A categorical distribution over the open actions of each agent.

    Attributes:
        logits: ``f[..., n]``, very negative where closed.
    """

    logits: Array

    def sample(self, noise: Array) -> Array:
        """``int[...]``: the action that Gumbel noise ``f[..., n]`` picks; it is its own raw form."""
        return jnp.argmax(self.logits + noise, axis=-1).astype(int_dtype())

    def mode(self) -> Array:
        """``int[...]``: the most probable action."""
        return jnp.argmax(self.logits, axis=-1).astype(int_dtype())

    def action(self, raw: Array) -> Array:
        """The action that a raw sample stands for: itself."""
        return raw

    def log_prob(self, raw: Array) -> Array:
        """``f[...]``: log-probability of a raw sample."""
        log_p = self._log_p
        action = jnp.arange(len(log_p)).reshape((-1,) + (1,) * raw.ndim)
        return jnp.sum(jnp.where(action == raw, log_p, 0), axis=0)

    def entropy(self, raw: Array) -> Array:
        """``f[...]``: entropy in nats; exact, so `raw` is not used."""
        log_p = self._log_p
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=0)

    @property
    def _log_p(self) -> Array:
        # ``f[n, ...]``: with the few actions first the sums over them vectorise. distrax.Categorical
        # sums over the last axis, and the gradient of a PPO loss takes four times as long on CPU.
        return jax.nn.log_softmax(jnp.moveaxis(self.logits, -1, 0), axis=0)


@struct.dataclass
class SquashedNormal:
    """Independent normal components squashed by a sigmoid into the bounds of the action.

    A raw sample is the normal one, before squashing: log-probabilities of stored raw samples need no
    inverse, which would lose all digits near the bounds.

    Attributes:
        mean: ``f[..., D]``.
        log_std: ``f[..., D]``.
        mask: ``bool[..., D]``, True for real components; others count for nothing and act as `low`.
        low: lower bound of every component.
        high: upper bound of every component.
    """

    mean: Array
    log_std: Array
    mask: Array
    low: float = struct.field(pytree_node=False)
    high: float = struct.field(pytree_node=False)

    def sample(self, noise: Array) -> Array:
        """``f[..., D]``: the raw sample that standard normal noise ``f[..., D]`` stands for."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        """``f[..., D]``: the raw form of the median action."""
        return self.mean

    def action(self, raw: Array) -> Array:
        """``f[..., D]`` in [low, high]: the action that a raw sample stands for."""
        return jnp.where(self.mask, self._squash.forward(raw), self.low)

    def log_prob(self, raw: Array) -> Array:
        """``f[...]``: log-density of the action of a raw sample, summed over real components."""
        density = self._normal.log_prob(raw) - self._squash.forward_log_det_jacobian(raw)
        return jnp.sum(jnp.where(self.mask, density, 0), axis=-1)

    def entropy(self, raw: Array) -> Array:
        """``f[...]``: entropy in nats, estimated without bias from one raw sample of this distribution.

        The normal part is exact, the change of volume is taken at the sample ``mean + std * noise``
        with the noise held, so that its gradient is that of the entropy.
        """
        std = jnp.exp(self.log_std)
        noise = jax.lax.stop_gradient((raw - self.mean) / std)
        volume = self._squash.forward_log_det_jacobian(self.mean + std * noise)
        return jnp.sum(jnp.where(self.mask, self._normal.entropy() + volume, 0), axis=-1)

    @property
    def _normal(self) -> Any:
        return _distrax().Normal(self.mean, jnp.exp(self.log_std))

    @property
    def _squash(self) -> Any:
        distrax = _distrax()
        scale = distrax.ScalarAffine(shift=self.low, scale=self.high - self.low)
        return distrax.Chain([scale, distrax.Sigmoid()])


ActionDistribution = MaskedCategorical | SquashedNormal


def action_noise(spec: ActionSpec, key: Array, shape: tuple[int, ...]) -> Array:
    """Noise for the `sample` of action distributions.

    It does not depend on what is sampled, so a whole rollout's is drawn at once, in one wide operation.

    Args:
        spec: the action space.
        key: a typed key.
        shape: leading axes, the last of them ``A``.

    Returns:
        ``f[*shape, n]``, Gumbel, or ``f[*shape, D]``, standard normal.
    """
    discrete = isinstance(spec, DiscreteActions)
    whole = (*shape, spec.n if isinstance(spec, DiscreteActions) else spec.size)
    draw = jax.random.gumbel if discrete else jax.random.normal
    # The same bits as with the shape given, but a flat draw vectorises.
    return draw(key, (math.prod(whole),), float_dtype()).reshape(whole)


def action_distribution(spec: ActionSpec, output: Array, mask: Array) -> ActionDistribution:
    """The distribution that a policy network describes.

    Args:
        spec: the action space.
        output: ``f[..., A, output_size(spec)]``: logits, or means followed by log standard deviations.
        mask: ``bool[..., A, n]`` or ``bool[..., A, D]``, as in `Observation.action_mask`.
    """
    if isinstance(spec, DiscreteActions):
        # Not -inf: its gradient is NaN. Half the range leaves room to subtract the normaliser.
        closed = jnp.finfo(output.dtype).min / 2
        return MaskedCategorical(jnp.where(mask, output, closed))
    assert isinstance(spec, ContinuousActions)
    mean, log_std = jnp.split(output, 2, axis=-1)
    log_std = jnp.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)
    return SquashedNormal(mean, log_std, mask, spec.low, spec.high)
