"""Equilibria of mean-field games, and the policy that plays one in the environment `crowd`.

Both solvers start from the uniform policy and are one compiled scan; the steps are those of
OpenSpiel 2.0.2. Fictitious play (Perrin et al. 2020) averages best responses, weighted by how many
agents are in a cell under each. Online mirror descent (Perolat et al. 2021) plays the softmax of
the sum of the action values of all policies so far. Shapes are those of
`flockax.envs.swarm.mean_field`.
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
        exploitability: ``f[iterations + 1]``, NashConv of the uniform policy and after each
            iteration.
    """

    policy: Any
    exploitability: Any


@functools.partial(jax.jit, static_argnames=("iterations",))
def fictitious_play(game: mf.MeanFieldGame, iterations: int, learning_rate: Any = None) -> Solution:
    """Averages best responses to the density of the average.

    Args:
        game: the game.
        iterations: how many, at least 0.
        learning_rate: the weight of the newest best response, in (0, 1]; None for ``1 / (i + 1)``
            in iteration i = 1, 2, ...

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


@struct.dataclass
class MeanFieldPolicy(Policy):
    """Plays a policy of a mean-field game with finitely many agents; made by `MeanField`.

    It is mixed, and to play the most probable actions is no equilibrium, so greedy or not makes no
    difference.

    Attributes:
        cumulative: ``f[H, P, X, Y, n]``, the probability of each action of the environment or of
            one before it.
        population: ``int[A]``.
    """

    cumulative: Any
    population: Any

    def act(
        self,
        key: Array,
        carry: Any,
        observation: Observation,
        env_state: Any,
        params: Any,
        reset: Array,
        greedy: bool,
    ) -> tuple[Array, Any]:
        """See `Policy.act`; reads `position` and `time` of the state."""
        time = jnp.minimum(env_state.time, len(self.cumulative) - 1)[:, None]
        x, y = jnp.moveaxis(env_state.position, -1, 0)
        bounds = self.cumulative[time, self.population, x, y]
        drawn = jax.random.uniform(key, (*x.shape, 1), bounds.dtype) * bounds[..., -1:]
        return jnp.sum(drawn >= bounds[..., :-1], axis=-1, dtype=int_dtype()), carry


def MeanField(
    env: Environment, params: Any, iterations: int = 200, learning_rate: float = 0.1
) -> MeanFieldPolicy:
    """The policy that online mirror descent finds for infinitely many agents in `crowd`.

    Args:
        env: a `Crowd`.
        params: its parameters; those given to `act` change nothing.
        iterations: of `online_mirror_descent`, at least 1.
        learning_rate: of it, positive.

    Raises:
        ValueError: for a number out of its range.
    """
    if iterations < 1:
        raise ValueError(f"MeanField: iterations={iterations!r} is not >= 1")
    if not learning_rate > 0:
        raise ValueError(f"MeanField: learning_rate={learning_rate!r} is not positive")
    game = env.game(params, int(params.horizon))
    policy = online_mirror_descent(game, iterations, learning_rate).policy
    ordered = jnp.moveaxis(policy[:, :, env.action_order], 2, -1)
    return MeanFieldPolicy(jnp.cumsum(ordered, axis=-1), jnp.asarray(env.population))
