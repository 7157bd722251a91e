"""The timed program of the throughput benchmark, the same for us and for every peer.

A random policy plays many environments. The observation travels through the carry of the loop, where
the policy of a user would read it, and is folded with rewards and ends into a checksum, so that nothing
of it can be optimised away.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
TOTALS = ("observation", "reward", "episodes")


@dataclasses.dataclass(frozen=True)
class Game:
    """Many environments as pure functions, whatever their library calls things.

    Attributes:
        name: as the library calls the environment.
        num_agents: ``A``.
        num_envs: ``E``.
        reset: ``key -> (observation, state)``.
        act: ``(key, observation) -> action``, a random one.
        step: ``(key, state, action) -> (observation, state, reward, done)``; `reward` is an array or a
            tree of arrays, `done` is ``bool[E]``; finished episodes start again.
        features: ``observation -> tree of arrays``, what a policy reads.
    """

    name: str
    num_agents: int
    num_envs: int
    reset: Callable[..., Any]
    act: Callable[..., Any]
    step: Callable[..., Any]
    features: Callable[..., Any]


def total(tree: Any) -> Array:
    """The sum of all numbers in a tree of arrays."""
    return sum((jnp.sum(x, dtype=float) for x in jax.tree.leaves(tree)), jnp.zeros((), float))


def play(game: Game, steps: int, start: Any, key: Array) -> dict[str, Array]:
    """Plays `steps` steps from ``start = (observation, state)`` and returns the `TOTALS`."""

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        observation, state, totals = carry
        act_key, step_key = jax.random.split(key)
        seen = total(game.features(observation))
        action = game.act(act_key, observation)
        observation, state, reward, done = game.step(step_key, state, action)
        folded = {"observation": seen, "reward": total(reward), "episodes": total(done)}
        return (observation, state, jax.tree.map(jnp.add, totals, folded)), None

    zeros = {name: jnp.zeros((), float) for name in TOTALS}
    (_, _, totals), _ = jax.lax.scan(step, (*start, zeros), jax.random.split(key, steps))
    return totals


class Timed:
    """A compiled `play` for some seeds, ready to be timed.

    Seed s starts from ``fold_in(key(0), s)``; several seeds run under one `jax.vmap`. Every call plays
    the same game, so that all calls must give the same checksum.

    Args:
        game: what is played.
        steps: environment steps in one call.
        seeds: how many seeds play at once; 1 plays without a `jax.vmap`.
    """

    def __init__(self, game: Game, steps: int, seeds: int) -> None:
        self.steps_per_call = steps * game.num_envs * seeds

        def begin(key: Array) -> Any:
            return game.reset(key)

        def run(start: Any, key: Array) -> dict[str, Array]:
            return play(game, steps, start, key)

        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), jnp.arange(seeds))
        if seeds == 1:
            keys = keys[0]
        else:
            begin, run = jax.vmap(begin), jax.vmap(run)
        began = time.perf_counter()
        self.arguments = jax.block_until_ready(jax.jit(begin)(keys)), keys
        self.program = jax.jit(run).lower(*self.arguments).compile()
        self.compile_seconds = time.perf_counter() - began
        jax.block_until_ready(self.program(*self.arguments))

    def repetition(self, seconds: float) -> dict[str, Any]:
        """Calls the program, at least once, until `seconds` have passed.

        Returns:
            ``steps`` and ``seconds`` of all calls, and the ``checksum`` of the last, summed over seeds.
        """
        calls, elapsed, began = 0, 0.0, time.perf_counter()
        while calls == 0 or elapsed < seconds:
            totals = jax.block_until_ready(self.program(*self.arguments))
            calls, elapsed = calls + 1, time.perf_counter() - began
        checksum = {name: float(jnp.sum(totals[name])) for name in TOTALS}
        return {"steps": calls * self.steps_per_call, "seconds": elapsed, "checksum": checksum}


def throughput_handlers(
    make_game: Callable[..., Game], machine: Callable[[], dict[str, Any]]
) -> dict[str, Callable[..., dict[str, Any]]]:
    """The requests that a throughput worker answers: ``prepare`` once, then ``repeat``."""
    timed: list[Timed] = []

    def prepare(steps: int, seeds: int, **options: Any) -> dict[str, Any]:
        game = make_game(**options)
        timed[:] = [Timed(game, steps, seeds)]
        return {
            "environment": game.name,
            "num_agents": game.num_agents,
            "compile_seconds": timed[0].compile_seconds,
            **machine(),
        }

    def repeat(seconds: float) -> dict[str, Any]:
        return timed[0].repetition(seconds)

    return {"prepare": prepare, "repeat": repeat}
