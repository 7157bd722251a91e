"""Policies: what evaluation, replays and opponents know of a player, learned or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.agents.core.distributions import action_noise
from flockax.envs.environment import Environment
from flockax.envs.spec import ActionSpec, Observation

Array = jax.Array


@struct.dataclass
class Policy:
    """Chooses the actions of all agents of many environments.

    A policy is a pytree: its arrays can be stacked over seeds and mapped.
    """

    def init(self, num_envs: int) -> Any:
        """The carry before the first step, with a leading axis of `num_envs`."""
        return ()

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
        """Chooses actions.

        Args:
            key: a typed key.
            carry: what the policy remembers.
            observation: with a leading batch axis ``E``.
            env_state: with a leading batch axis; only planners may read it.
            params: parameters of the environment.
            reset: ``bool[E]``, True where an episode has just begun.
            greedy: the most probable action instead of a sample.

        Returns:
            ``(action int[E, A] or f[E, A, D], carry)``.
        """
        raise NotImplementedError


@struct.dataclass
class RandomPolicy(Policy):
    """Open actions uniformly at random; greedy or not makes no difference."""

    env: Environment = struct.field(pytree_node=False)

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
        """See `Policy.act`."""
        return self.env.action_spec.sample(key, observation.action_mask), carry


@struct.dataclass
class NetworkPolicy(Policy):
    """A learned actor.

    Attributes:
        variables: the parameters of the actor.
        apply: ``(variables, carry f[E, A, H], features f[T, E, A, F], reset bool[T, E, A])`` to
            ``(carry, output f[T, E, A, O])``.
        distribution: ``(output, action_mask)`` to an action distribution.
        action_spec: the action space.
        carry_shape: ``(A, H)``.
    """

    variables: Any
    apply: Callable[..., Any] = struct.field(pytree_node=False)
    distribution: Callable[..., Any] = struct.field(pytree_node=False)
    action_spec: ActionSpec = struct.field(pytree_node=False)
    carry_shape: tuple[int, int] = struct.field(pytree_node=False)

    def init(self, num_envs: int) -> Any:
        """Zero carries, and who was alive before."""
        dtype = jax.tree.leaves(self.variables)[0].dtype
        carry = jnp.zeros((num_envs, *self.carry_shape), dtype)
        return carry, jnp.ones((num_envs, self.carry_shape[0]), bool)

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
        """See `Policy.act`; memory is cleared where an episode or a life has just begun."""
        hidden, was_alive = carry
        fresh = reset[:, None] | (observation.alive & ~was_alive)
        hidden, output = self.apply(self.variables, hidden, observation.features[None], fresh[None])
        distribution = self.distribution(output[0], observation.action_mask)
        raw = distribution.mode()
        if not greedy:
            noise = action_noise(self.action_spec, key, observation.alive.shape)
            raw = distribution.sample(noise)
        return distribution.action(raw), (hidden, observation.alive)


@struct.dataclass
class GroupedPolicy(Policy):
    """One policy for most agents, others for the slots of some groups.

    Attributes:
        base: plays every slot that no other policy plays.
        others: policies by group name.
        env: the environment.
    """

    base: Policy
    others: dict[str, Policy]
    env: Environment = struct.field(pytree_node=False)

    def init(self, num_envs: int) -> Any:
        """The carries of all the policies."""
        carries = {name: policy.init(num_envs) for name, policy in self.others.items()}
        return self.base.init(num_envs), carries

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
        """See `Policy.act`; only `base` is greedy, the others always play as they were trained."""
        base_carry, carries = carry
        rest = (observation, env_state, params, reset)
        action, base_carry = self.base.act(key, base_carry, *rest, greedy)
        new_carries = {}
        for i, (name, policy) in enumerate(self.others.items()):
            other, new_carries[name] = policy.act(
                jax.random.fold_in(key, i + 1), carries[name], *rest, False
            )
            action = replace_group(self.env, name, action, other)
        return action, (base_carry, new_carries)


def replace_group(env: Environment, name: str, action: Array, other: Array) -> Array:
    """``[E, A, ...]``: `action` with the slots of one group taken from `other`."""
    slots = group_slots(env, name)
    return jnp.where(slots.reshape((1, -1) + (1,) * (action.ndim - 2)), other, action)


def group_slots(env: Environment, name: str) -> np.ndarray:
    """``bool[A]``: the slots of a group.

    Raises:
        ValueError: for a group that the environment does not have.
    """
    for group in env.groups:
        if group.name == name:
            index = np.arange(env.num_agents)
            return (index >= group.start) & (index < group.stop)
    known = ", ".join(group.name for group in env.groups)
    raise ValueError(f"{type(env).__name__} has no group {name!r}; it has {known}")
