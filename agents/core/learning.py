"""What learners share: checks of settings, who learns, opponents, and gradient steps on rollouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from flockax.agents.core import networks
from flockax.agents.core.actor_critic import Agent
from flockax.agents.core.optimiser import apply_gradients
from flockax.agents.core.policy import Policy, group_slots, replace_group
from flockax.agents.core.trainer import require
from flockax.envs import Environment, VectorEnv
from flockax.envs.spec import Observation, float_dtype

Array = jax.Array

Activation = Literal["tanh", "relu"]
Share = Literal["all", "group", "none"]

WIDEST = 2**16


def check_settings(config: Any) -> None:
    """Refuses settings that make no sense, of those that all learners have.

    Args:
        config: the settings of a learner.

    Raises:
        ValueError: naming the setting, its value and what is allowed.
    """
    for name in ("total_steps", "num_envs", "rollout_length", "epochs", "minibatches"):
        require(config, name, lambda x: x >= 1, "at least 1")
    for name in ("learning_rate", "max_grad_norm"):
        require(config, name, lambda x: 0 < x < float("inf"), "finite and above 0")
    require(config, "entropy_coef", lambda x: 0 <= x < float("inf"), "finite and at least 0")
    require(config, "recurrent", lambda x: 0 <= x <= WIDEST, f"in 0 .. {WIDEST}")
    allowed = f"widths in 1 .. {WIDEST}"
    require(config, "hidden", lambda x: all(1 <= width <= WIDEST for width in x), allowed)
    per_update = config.num_envs * config.rollout_length
    require(config, "num_envs", lambda x: per_update < 2**31, "below 2^31 / rollout_length")
    allowed = "below 2^31 updates of num_envs * rollout_length steps"
    require(config, "total_steps", lambda x: x / per_update < 2**31 - 1, allowed)
    require(config, "activation", lambda x: x in networks.ACTIVATIONS, "tanh or relu")
    require(config, "share", lambda x: x in ("all", "group", "none"), "all, group or none")
    allowed = f"a divisor of num_envs={config.num_envs}"
    require(config, "minibatches", lambda x: config.num_envs % x == 0, allowed)


def traced(cls: type, config: Any) -> Any:
    """The settings that a class has fields for, as arrays, so that a sweep can map over them."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: jnp.asarray(getattr(config, name), float_dtype()) for name in names})


@dataclasses.dataclass(frozen=True)
class Setup:
    """A learner on an environment: who learns, from what, and how long.

    Attributes:
        config: the settings of the learner.
        env: the environment.
        params: its parameters.
        opponents: policies that play whole groups instead of learning, by group name.
    """

    config: Any
    env: Environment
    params: Any
    opponents: dict[str, Policy]

    def __post_init__(self) -> None:
        """Refuses what nobody can learn from.

        Raises:
            ValueError: for features without a network, an unknown group, or no group left to learn.
        """
        networks.window_shape(self.env.feature_spec)
        if not self.learns.any():
            raise ValueError(f"opponents {', '.join(self.opponents)} leave no group to learn")

    @property
    def learns(self) -> np.ndarray:
        """``bool[A]``: the slots that no opponent plays."""
        learns = np.ones(self.env.num_agents, bool)
        for name in self.opponents:
            learns &= ~group_slots(self.env, name)
        return learns

    @property
    def vector_env(self) -> VectorEnv:
        """The environments side by side."""
        return VectorEnv(self.env, self.config.num_envs)

    @property
    def agent(self) -> Agent:
        """Actor and critic."""
        return Agent(self.env, self.config)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one seed in an update."""
        return int(self.config.num_envs * self.config.rollout_length)

    @property
    def num_updates(self) -> int:
        """Updates of a whole run."""
        return int(-(-self.config.total_steps // self.steps_per_update))

    def progress(self, update: Array) -> Array:
        """``f[]`` in [0, 1): the part of the run that is done before an update."""
        return update / self.num_updates

    def rate(self, learning_rate: Array, update: Array) -> Array:
        """``f[]``: the learning rate of an update."""
        return learning_rate * (1 - self.progress(update) if self.config.anneal else 1.0)

    def opponents_init(self) -> dict[str, Any]:
        """What the opponents remember before the first step."""
        return {name: p.init(self.config.num_envs) for name, p in self.opponents.items()}

    def opponents_act(
        self,
        key: Array,
        carries: dict[str, Any],
        observation: Observation,
        env_state: Any,
        reset: Array,
        action: Array,
    ) -> tuple[Array, dict[str, Any]]:
        """Puts the opponents' actions in place of those of the groups that they play.

        Args:
            key: a typed key.
            carries: what they remember.
            observation: with a leading axis ``E``.
            env_state: likewise.
            reset: ``bool[E]``, True where an episode has just begun.
            action: of all agents, ``[E, A, ...]``.

        Returns:
            ``(action, carries)``.
        """
        new = {}
        for i, (name, policy) in enumerate(self.opponents.items()):
            own_key = jax.random.fold_in(key, i)
            seen = observation, env_state, self.params, reset, False
            other, new[name] = policy.act(own_key, carries[name], *seen)
            action = replace_group(self.env, name, action, other)
        return action, new

    def fit(
        self,
        loss: Callable[[Any, Any, Any], tuple[Array, dict[str, Array]]],
        key: Array,
        state: Any,
        carry: Any,
        data: Any,
        actor_learns: Array | None = None,
    ) -> tuple[Any, dict[str, Array]]:
        """Steps of Adam on minibatches of whole sequences, every pass in a new order.

        Args:
            loss: ``(weights, carry, data) -> (f[], parts)`` of a minibatch.
            key: of the orders.
            state: of the learner; its `params`, `optimizer` and `update` change, and its `hyper` has
                `learning_rate` and `max_grad_norm`.
            carry: of the networks at the first step, ``[E, ...]``.
            data: ``[T, E, ...]``.
            actor_learns: ``bool[]``, False to leave the actor as it is; None for True.

        Returns:
            ``(state, parts)``, one update later, the parts ``f[epochs * minibatches]``.
        """
        rate = self.rate(state.hyper.learning_rate, state.update)
        max_norm = state.hyper.max_grad_norm

        def minibatch(learned: tuple[Any, Any], index: Array) -> tuple[Any, Any]:
            weights, optimizer = learned
            part = jax.tree.map(lambda x: jnp.take(x, index, axis=1, mode="clip"), data)
            start = jax.tree.map(lambda x: x[index], carry)
            gradients, parts = jax.grad(loss, has_aux=True)(weights, start, part)
            sharing = self.agent.sharing
            new, optimizer = apply_gradients(sharing, rate, max_norm, weights, optimizer, gradients)
            if actor_learns is not None:
                pairs = new["actor"], weights["actor"]
                kept = jax.tree.map(lambda x, old: jnp.where(actor_learns, x, old), *pairs)
                new = {**new, "actor": kept}
            return (new, optimizer), parts

        config = self.config
        orders = jax.vmap(lambda k: jax.random.permutation(k, config.num_envs))(
            jax.random.split(key, config.epochs)
        )
        orders = orders.reshape((config.epochs * config.minibatches, -1))
        learned = state.params, state.optimizer
        (weights, optimizer), parts = jax.lax.scan(minibatch, learned, orders)
        new = {"params": weights, "optimizer": optimizer, "update": state.update + 1}
        return dataclasses.replace(state, **new), parts
