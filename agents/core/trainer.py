"""What a learner gives to the host loop, and chunks of updates over seeds as one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.agents.core.policy import Policy
from flockax.envs.environment import Environment
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array

SEED_LOOPS = ("vmap", "map")


@struct.dataclass
class UpdateMetrics:
    """What one update reports.

    Attributes:
        loss: scalars, among them every part of the loss; all must be finite.
        episodes: sums over the rollout, see `episode_metrics`.
    """

    loss: dict[str, Array]
    episodes: dict[str, Any]


@struct.dataclass
class ChunkMetrics:
    """What a chunk of updates reports.

    Attributes:
        loss: means over the updates.
        episodes: sums over the updates.
        first_bad: ``int[]``, the number of the first update with a loss that is not finite, or -1.
    """

    loss: dict[str, Array]
    episodes: dict[str, Any]
    first_bad: Array


@dataclasses.dataclass(frozen=True)
class Trainer:
    """The pure functions of one learner on one environment, for one seed.

    Attributes:
        init: ``(key, hyper=None) -> state``; `hyper` holds rates and coefficients as arrays.
        update: ``state -> (state, UpdateMetrics)``: one rollout and its gradient steps. The state is
            a `flax.struct` with an ``int[]`` field `update` that counts them.
        policy: ``state -> Policy``: what the trained agents play.
        env: the environment.
        params: its parameters.
        steps_per_update: environment steps of one seed in an update.
        num_updates: updates of a whole run.
        note: what one must know to read its returns; nothing for most.
    """

    init: Callable[..., Any]
    update: Callable[[Any], tuple[Any, UpdateMetrics]]
    policy: Callable[[Any], Policy]
    env: Environment
    params: Any
    steps_per_update: int
    num_updates: int
    note: str = ""


def require(config: Any, name: str, valid: Callable[[Any], bool], allowed: str) -> None:
    """Checks one setting of a learner.

    Raises:
        ValueError: naming the setting, its value and what is allowed.
    """
    value = getattr(config, name)
    if not valid(value):
        raise ValueError(f"{name}={value!r} is not {allowed}")


def group_sums(env: Environment, x: Any) -> Any:
    """``[..., G]`` from ``[..., A]``: sums over the agents of each group."""
    return jnp.stack([jnp.sum(x[..., g.start : g.stop], axis=-1) for g in env.groups], axis=-1)


def episode_metrics(env: Environment, info: dict[str, Any]) -> dict[str, Any]:
    """Sums over environments of what a step of `VectorEnv` reports.

    Args:
        env: the environment.
        info: as returned by `VectorEnv.step`.

    Returns:
        ``count`` of episodes that ended, and over these ``returns f[G]`` by group and ``length``;
        ``steps`` counted and over these the environment's ``metrics``, ``invalid_action``,
        ``overflow``.
    """
    done, dtype = info["episode"]["done"], float_dtype()
    returns = group_sums(env, info["episode"]["return"])
    return {
        "count": jnp.sum(done, dtype=dtype),
        "returns": jnp.sum(jnp.where(done[:, None], returns, 0), axis=0),
        "length": jnp.sum(jnp.where(done, info["episode"]["length"], 0), dtype=dtype),
        "steps": jnp.asarray(done.shape[0], dtype),
        "metrics": {name: jnp.sum(x, dtype=dtype) for name, x in info["metrics"].items()},
        "invalid_action": jnp.sum(info["invalid_action"], dtype=dtype),
        "overflow": jnp.sum(info["overflow"], dtype=dtype),
    }


def over_seeds(function: Callable[..., Any], seed_loop: str) -> Callable[..., Any]:
    """Maps a function of one seed's state over the leading axis of its first argument.

    Args:
        function: of the state and, without a seed axis, further arguments.
        seed_loop: "vmap", all seeds at once; or "map", one after the other, in which a seed's
            numbers do not depend on the number of seeds, bit for bit.

    Raises:
        ValueError: for another `seed_loop`.
    """
    if seed_loop not in SEED_LOOPS:
        raise ValueError(f"seed_loop={seed_loop!r} is not one of {', '.join(SEED_LOOPS)}")

    def mapped(states: Any, *rest: Any) -> Any:
        def one(state: Any) -> Any:
            return function(state, *rest)

        return jax.vmap(one)(states) if seed_loop == "vmap" else jax.lax.map(one, states)

    return mapped


def seed_keys(seed: int, seeds: int) -> Array:
    """``key[seeds]``: seed s is ``jax.random.key(s)``, for ``seed .. seed + seeds - 1``."""
    return jax.vmap(jax.random.key)(np.arange(seed, seed + seeds, dtype=np.uint32))


def make_init(trainer: Trainer, seed_loop: str) -> Callable[[Array], Any]:
    """Compiles ``keys [S] -> states``, the states with a leading axis of seeds."""
    return jax.jit(over_seeds(trainer.init, seed_loop))


def make_chunk(
    trainer: Trainer, seed_loop: str
) -> Callable[[Any, Array], tuple[Any, ChunkMetrics]]:
    """Compiles ``(states, n) -> (states, ChunkMetrics)``: n updates of every seed.

    One program serves every n. The states are donated: the ones passed in are gone.
    """

    def one(state: Any, n: Array) -> tuple[Any, ChunkMetrics]:
        shapes = jax.eval_shape(lambda state: trainer.update(state)[1], state)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        def body(_: Array, carry: tuple[Any, UpdateMetrics, Array]) -> Any:
            state, sums, first_bad = carry
            number = state.update
            state, metrics = trainer.update(state)
            finite = jnp.all(jnp.isfinite(jnp.stack(list(metrics.loss.values()))))
            first_bad = jnp.where((first_bad < 0) & ~finite, number, first_bad)
            return state, jax.tree.map(jnp.add, sums, metrics), first_bad

        none = jnp.full((), -1, int_dtype())
        state, sums, first_bad = jax.lax.fori_loop(0, n, body, (state, zeros, none))
        # The last gradient step is in no loss yet.
        finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(state.params)]
        first_bad = jnp.where(
            (first_bad < 0) & ~jnp.all(jnp.stack(finite)), state.update - 1, first_bad
        )
        loss = jax.tree.map(lambda x: x / n, sums.loss)
        return state, ChunkMetrics(loss, sums.episodes, first_bad)

    return jax.jit(over_seeds(one, seed_loop), donate_argnums=0)
