"""Arrays over agents, cut into what one agent, or one controller of all agents, sees and does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.environment import Environment
from flockax.envs.spec import ArraySpec, DiscreteActions, EntitySet, Group
from flockax.envs.vector import VectorEnv

Array = jax.Array


def agent_names(env: Environment) -> tuple[str, ...]:
    """The names of the slots, in order: ``predators_0, predators_1, prey_0``."""
    return tuple(f"{group.name}_{i}" for group in env.groups for i in range(group.size))


def slot_groups(env: Environment) -> list[Group]:
    """The group of each slot."""
    return [group for group in env.groups for _ in range(group.size)]


def map_parts(function: Callable[[Any], Any], tree: Any) -> Any:
    """Applies a function to the features, or to the parts of an `EntitySet`, which become a dict."""
    if isinstance(tree, EntitySet):
        return {name: function(getattr(tree, name)) for name in ("own", "entities", "mask")}
    return function(tree)


def agent_spec(env: Environment, group: Group) -> Any:
    """The `ArraySpec` of what one agent of a group sees, or a dict of three."""

    def own(spec: ArraySpec) -> ArraySpec:
        shape = (group.observation_size,) if _is_vector(env) else spec.shape[1:]
        return dataclasses.replace(spec, shape=shape)

    return map_parts(own, env.feature_spec)


def agent_view(env: Environment, features: Any, slot: int) -> Any:
    """What the agent in a slot sees, of its true width; `features` as in an `Observation`."""
    if _is_vector(env):
        return features[slot, : slot_groups(env)[slot].observation_size]
    return map_parts(lambda x: x[slot], features)


def joint_spec(env: Environment) -> Any:
    """The `ArraySpec` of what all agents see together, or a dict of three; of one agent its own."""
    if env.num_agents == 1:
        return agent_spec(env, env.groups[0])
    if _is_vector(env):
        width = sum(group.size * group.observation_size for group in env.groups)
        return dataclasses.replace(env.feature_spec, shape=(width,))
    return map_parts(lambda spec: spec, env.feature_spec)


def joint_view(env: Environment, features: Any) -> Any:
    """What all agents see together; see `joint_spec`."""
    if env.num_agents == 1:
        return agent_view(env, features, 0)
    if _is_vector(env):
        groups = env.groups
        parts = [features[g.start : g.stop, : g.observation_size].reshape(-1) for g in groups]
        return jnp.concatenate(parts)
    return map_parts(lambda x: x, features)


def split_actions(env: Environment, action: Any, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Actions ``[*batch, A]`` or ``[*batch, A, D]`` from joint ones of the agents' true components."""
    shape = (*batch, *env.action_spec.shape)
    if isinstance(env.action_spec, DiscreteActions):
        return np.asarray(action).reshape(shape)
    real = np.arange(env.action_spec.size) < np.array(action_sizes(env))[:, None]
    split = np.zeros(shape, jnp.result_type(float))
    split[..., real] = action
    return split


def action_sizes(env: Environment) -> list[int]:
    """The true number of actions, or of continuous components, of each slot."""
    return [group.action_size for group in slot_groups(env)]


def compiled(env: Environment | VectorEnv, params: Any) -> tuple[Any, Any]:
    """`reset` and `step` that split the key themselves and return the rest of it first."""

    def reset(key: Array) -> Any:
        key, own = jax.random.split(key)
        return key, *env.reset(own, params)

    def step(key: Array, state: Any, action: Array) -> Any:
        key, own = jax.random.split(key)
        return key, env.step(own, state, action, params)

    return jax.jit(reset), jax.jit(step)


def _is_vector(env: Environment) -> bool:
    spec = env.feature_spec
    return not isinstance(spec, EntitySet) and len(spec.shape) == 2
