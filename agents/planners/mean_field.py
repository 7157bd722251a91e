"""Equilibria of mean-field games, and the policy that plays one in the environment `crowd`.

Both solvers start from the uniform policy and are one compiled scan; the steps are those of OpenSpiel
2.0.2. Fictitious play (Perrin et al. 2020) averages best responses, weighted by how many agents are in
a cell under each. Online mirror descent (Perolat et al. 2021) plays the softmax of the sum of the action
values of all policies so far. Shapes are those of `flockax.envs.swarm.mean_field`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.core.policy import Policy
from flockax.envs.environment import Environment
from flockax.envs.spec import Observation, int_dtype
from flockax.envs.swarm import mean_field as mf

Array = jax.Array


@struct.dataclass
class Solution:
    """What a solver found.

    Attributes:
        policy: ``f[H, P, A, X, Y]``, the last one.
        exploitability: ``f[iterations + 1]``, NashConv of the uniform policy and after each iteration.
    """

    policy: Any
    exploitability: Any


@functools.partial(jax.jit, static_argnames=("iterations",))
def fictitious_play(game: mf.MeanFieldGame, iterations: int, learning_rate: Any = None) -> Solution:
    """Averages best responses to the density of the average.

    Args:
        game: the game.
        iterations: how many, at least 0.
        learning_rate: the weight of the newest best response, in (0, 1]; None for ``1 / (i + 1)`` in
            iteration i = 1, 2, ...

    Returns:
        The average policy and how exploitable it was. A cell in which no agent is gets the uniform
        policy; of equally good actions the first is best.
    """
    uniform = mf.uniform_policy(game)

    def step(policy: Array, number: Array) -> tuple[Array, Array]:
        densities = mf.flow(game, policy)
        response = mf.best_response(game, densities)
        weight = 1 / (number + 1) if learning_rate is None else learning_rate
        old = ((1 - weight) * densities)[:, :, None]
        new = (weight * mf.flow(game, response))[:, :, None]
        total = old + new
        mixed = (old * policy + new * response) / jnp.where(total > 0, total, 1)
        policy = jnp.where(total > 0, mixed, uniform)
        return policy, mf.exploitability(game, policy)

    numbers = jnp.arange(1, iterations + 1, dtype=uniform.dtype)
    return _solved(game, uniform, *jax.lax.scan(step, uniform, numbers))


@functools.partial(jax.jit, static_argnames=("iterations",))
def online_mirror_descent(
    game: mf.MeanFieldGame, iterations: int, learning_rate: Any = 0.01
) -> Solution:
    """Plays the softmax of ``learning_rate`` times the sum of the action values so far.

    Args:
        game: the game.
        iterations: how many, at least 0.
        learning_rate: positive.

    Returns:
        The last policy and how exploitable each was.
    """
    uniform = mf.uniform_policy(game)

    def softmax(total: Array) -> Array:
        return jax.nn.softmax(total, axis=-3, where=game.is_open)

    def as_peer(earlier: tuple[Array, Array], values: Array) -> Array:
        total, early = earlier
        return softmax(total + jnp.where(early, learning_rate * values, 0))

    def step(carry: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], Array]:
        policy, total = carry
        densities = mf.flow(game, policy)
        if game.early is None:
            values = mf.action_values(game, policy, densities)
        else:
            # The first policy is not made of the sums, so they don't matter yet.
            early = game.early & (number > 0)
            values = mf.action_values(game, (total, early), densities, as_peer)
        total = total + learning_rate * values
        policy = softmax(total)
        return (policy, total), mf.exploitability(game, policy)

    start = (uniform, jnp.zeros_like(uniform))
    (policy, _), gains = jax.lax.scan(step, start, jnp.arange(iterations))
    return _solved(game, uniform, policy, gains)


SOLVERS: dict[str, Callable[..., Solution]] = {
    "fictitious_play": fictitious_play,
    "mirror_descent": online_mirror_descent,
}


def _solved(game: mf.MeanFieldGame, uniform: Array, policy: Array, gains: Array) -> Solution:
    """The solution, with the exploitability of the first policy before that of the others."""
    return Solution(policy, jnp.concatenate([mf.exploitability(game, uniform)[None], gains]))
