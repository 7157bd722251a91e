"""Advantages and returns that keep termination and truncation apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    bootstrap: Array,
    done: Array,
    gamma: Array | float,
    gae_lambda: Array | float,
) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, equations 11 to 16).

    ``A_t = delta_t + gamma lambda c_t A_{t+1}`` with ``delta_t = r_t + gamma b_t V'_t - V_t``. A time
    limit bootstraps from the value of the true last observation (b = 1) and then cuts the sum (c = 0);
    termination and the death of an agent cut both.

    Args:
        reward: ``f[T, E, A]``, r.
        value: ``f[T, E, A]``, V of the observation acted on.
        next_value: ``f[T, E, A]``, V' of the observation that followed, before any reset.
        bootstrap: ``bool[T, E, A]``, b: the agent goes on living after the step.
        done: ``bool[T, E]``, the episode ended with the step, for whatever reason.
        gamma: discount in [0, 1].
        gae_lambda: weight of long sums in [0, 1].

    Returns:
        ``f[T, E, A]``, the advantages; ``advantage + value`` is the lambda-return.
    """
    delta = reward + gamma * jnp.where(bootstrap, next_value, 0) - value
    factor = gamma * gae_lambda * (bootstrap & ~done[:, :, None])

    def backwards(advantage: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, factor = step
        advantage = delta + factor * advantage
        return advantage, advantage

    start = jnp.zeros_like(delta[0])
    _, advantages = jax.lax.scan(backwards, start, (delta, factor), reverse=True, unroll=8)
    return advantages


def following_values(value: Array, last_value: Array, final_value: Array, done: Array) -> Array:
    """V' of `gae`: the value of what followed each step, before any reset.

    Args:
        value: ``f[T, E, A]``.
        last_value: ``f[E, A]``, of the observation after the last step.
        final_value: ``f[T, E, A]``, of the true last observation where an episode ended.
        done: ``bool[T, E]``.

    Returns:
        ``f[T, E, A]``.
    """
    after = jnp.concatenate([value[1:], last_value[None]])
    return jnp.where(done[:, :, None], final_value, after)


def normalise(advantage: Array, weight: Array, membership: Array) -> Array:
    """Advantages with mean 0 and standard deviation 1 within each set of agents.

    Args:
        advantage: ``f[T, E, A]``.
        weight: ``f[T, E, A]``, 0 where an entry does not count.
        membership: ``f[A, S]``, one-hot: which of the S sets an agent belongs to. Sets keep their own
            scale, so that the one with the larger returns does not drown the others.

    Returns:
        ``f[T, E, A]``.
    """

    def per_agent(x: Array) -> Array:
        return membership @ (jnp.sum(x, axis=(0, 1)) @ membership)

    count = jnp.maximum(per_agent(weight), 1)
    centred = advantage - per_agent(advantage * weight) / count
    variance = per_agent(centred * centred * weight) / count
    return centred / (jnp.sqrt(variance) + 1e-8)
