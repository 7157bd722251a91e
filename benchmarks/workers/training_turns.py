"""What the training workers of all sides share: compiling apart, and training in short turns."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Learner:
    """A training run as pure functions.

    Attributes:
        name: as its library calls the environment.
        num_agents: ``A``.
        init: ``key -> state``.
        update: ``state -> (state, metrics)`` with ``return_sum`` and ``episodes``: over the episodes
            that ended, the sum of their team returns (all agents' rewards added up) and their number.
        steps_per_update: environment steps of one call of `update`.
        num_updates: calls of `update` in the whole training.
    """

    name: str
    num_agents: int
    init: Callable[..., Any]
    update: Callable[..., Any]
    steps_per_update: int
    num_updates: int


class Run:
    """The training of some seeds at once (under one `jax.vmap` if several), compiled and stoppable."""

    def __init__(self, learner: Learner, seeds: int) -> None:
        self.learner, self.seeds, self.updates = learner, seeds, 0
        keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
        init, update = learner.init, learner.update
        if seeds == 1:
            keys = keys[0]
        else:
            init, update = jax.vmap(init), jax.vmap(update)
        began = time.perf_counter()
        # A leaf that occurs twice in the state could not be donated.
        self.state = jax.tree.map(jnp.copy, jax.block_until_ready(jax.jit(init)(keys)))
        self.program = jax.jit(update, donate_argnums=0).lower(self.state).compile()
        self.compile_seconds = time.perf_counter() - began

    def turn(self, seconds: float) -> dict[str, Any]:
        """Trains until `seconds` have passed, at least one update, or to the end.

        Returns:
            ``steps`` and ``seconds`` of this turn; ``updates``, for each one ``[seconds since the turn
            began, sums of team returns, numbers of episodes]``, the latter two of each seed;
            ``finished``.

        Raises:
            FloatingPointError: if a return is not finite.
        """
        updates: list[Any] = []
        elapsed, began = 0.0, time.perf_counter()
        while not self.finished and (not updates or elapsed < seconds):
            self.state, metrics = self.program(self.state)
            jax.block_until_ready((self.state, metrics))
            elapsed = time.perf_counter() - began
            returns, episodes = (
                np.atleast_1d(metrics[name]).astype(float) for name in ("return_sum", "episodes")
            )
            self.updates += 1
            if not np.isfinite(returns).all():
                raise FloatingPointError(f"update {self.updates}: returns {returns} are not finite")
            updates.append([elapsed, returns.tolist(), episodes.tolist()])
        steps = len(updates) * self.learner.steps_per_update * self.seeds
        return {"steps": steps, "seconds": elapsed, "updates": updates, "finished": self.finished}

    @property
    def finished(self) -> bool:
        """True when all updates are done."""
        return self.updates >= self.learner.num_updates


def training_handlers(
    make_learner: Callable[..., Learner], machine: Callable[[], dict[str, Any]]
) -> dict[str, Callable[..., dict[str, Any]]]:
    """The requests that a training worker answers: ``prepare`` once, then ``turn``."""
    runs: list[Run] = []

    def prepare(seeds: int, **options: Any) -> dict[str, Any]:
        learner = make_learner(**options)
        runs[:] = [Run(learner, seeds)]
        return {
            "environment": learner.name,
            "num_agents": learner.num_agents,
            "steps_per_update": learner.steps_per_update,
            "num_updates": learner.num_updates,
            "compile_seconds": runs[0].compile_seconds,
            **machine(),
        }

    def turn(seconds: float) -> dict[str, Any]:
        return runs[0].turn(seconds)

    return {"prepare": prepare, "turn": turn}
