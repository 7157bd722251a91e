"""An environment behind the interface of JaxMARL 0.2; made by `flockax.envs.adapters.to_jaxmarl`."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import jax
import jax.numpy as jnp

from flockax.envs.adapters.views import agent_names, agent_spec, agent_view, slot_groups
from flockax.envs.environment import Environment
from flockax.envs.spec import DiscreteActions

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Integers ``0 .. n - 1``, with the interface of JaxMARL's space of the same name.

    Attributes:
        n: how many.
        shape: of a sample.
        dtype: of a sample.
    """

    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32

    def sample(self, key: Array) -> Array:
        """``int[]``, uniform."""
        return jax.random.randint(key, self.shape, 0, self.n, self.dtype)

    def contains(self, x: Array) -> Array:
        """``bool[]``."""
        return (x >= 0) & (x < self.n)


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays within bounds, with the interface of JaxMARL's space of the same name.

    Attributes:
        low: smallest value.
        high: largest value.
        shape: of a sample.
        dtype: of a sample.
    """

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any

    def sample(self, key: Array) -> Array:
        """Uniform where the bounds are finite, else normal."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            drawn = jax.random.uniform(key, self.shape, minval=self.low, maxval=self.high)
        else:
            drawn = jax.random.normal(key, self.shape)
        return drawn.astype(self.dtype)

    def contains(self, x: Array) -> Array:
        """``bool[]``."""
        return jnp.all((x >= self.low) & (x <= self.high))


class JaxMARLView:
    """One environment, with dicts of agents; see `flockax.envs.adapters.to_jaxmarl`.

    Attributes:
        env: the environment.
        params: its parameters.
        name: of the environment's class.
        agents: names, in slot order.
        num_agents: how many.
        agent_classes: the names by group.
        observation_spaces: by name.
        action_spaces: by name.
    """

    def __init__(self, env: Environment, params: Any, spaces: Any) -> None:
        self.env = env
        self.params = env.default_params if params is None else params
        self.name, self.num_agents = type(env).__name__, env.num_agents
        self.agents = list(agent_names(env))
        self.agent_classes = {g.name: self.agents[g.start : g.stop] for g in env.groups}
        self._sizes = [group.action_size for group in slot_groups(env)]
        spaces = sys.modules[__name__] if spaces is None else spaces
        pairs = list(zip(self.agents, slot_groups(env), strict=True))

        def box(spec: Any) -> Any:
            return spaces.Box(spec.low, spec.high, spec.shape, jnp.dtype(spec.dtype))

        def actions(size: int) -> Any:
            spec = env.action_spec
            if isinstance(spec, DiscreteActions):
                return spaces.Discrete(size)
            return spaces.Box(spec.low, spec.high, (size,), jnp.result_type(float))

        self.observation_spaces = {x: _map_specs(box, agent_spec(env, g)) for x, g in pairs}
        self.action_spaces = {x: actions(group.action_size) for x, group in pairs}
        # Compiled for those who call them outside of a jit of their own.
        self.reset = jax.jit(self._reset)
        self.step = jax.jit(self._step)
        self.step_env = jax.jit(self._step_env)
        self.get_obs = jax.jit(self._get_obs)
        self.get_avail_actions = jax.jit(self._get_avail_actions)

    def observation_space(self, agent: str) -> Any:
        """The space of what an agent sees; a dict of three for entity sets."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The space of an agent's actions."""
        return self.action_spaces[agent]

    def _reset(self, key: Array) -> tuple[dict[str, Any], Any]:
        observation, state = self.env.reset(key, self.params)
        return self._views(observation.features), state

    def _step(
        self, key: Array, state: Any, actions: dict[str, Any], reset_state: Any = None
    ) -> tuple[dict[str, Any], Any, dict[str, Array], dict[str, Array], dict[str, Any]]:
        key, reset_key = jax.random.split(key)
        views, next_state, rewards, dones, info = self._step_env(key, state, actions)
        if reset_state is None:
            first = self._reset(reset_key)
        else:
            first = self._get_obs(reset_state), reset_state
        done = dones["__all__"]
        views, next_state = jax.tree.map(
            lambda new, old: jnp.where(done, new, old), first, (views, next_state)
        )
        return views, next_state, rewards, dones, info

    def _step_env(
        self, key: Array, state: Any, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], Any, dict[str, Array], dict[str, Array], dict[str, Any]]:
        result = self.env.step(key, state, self._joint(actions), self.params)
        observation, next_state, reward, terminated, truncated, info = result
        done = terminated | truncated
        dones = {name: done | ~observation.alive[i] for i, name in enumerate(self.agents)}
        rewards = {name: reward[i] for i, name in enumerate(self.agents)}
        flat = {**info["metrics"], "terminated": terminated, "truncated": truncated}
        flat |= {name: info[name] for name in ("invalid_action", "overflow")}
        # Scripts reshape every leaf of info to [environments * agents].
        wide = {name: jnp.broadcast_to(x, (self.num_agents,)) for name, x in flat.items()}
        views = self._views(observation.features)
        return views, next_state, rewards, {**dones, "__all__": done}, wide

    def _joint(self, actions: dict[str, Any]) -> Array:
        rows = [jnp.asarray(actions[name]) for name in self.agents]
        spec = self.env.action_spec
        if not isinstance(spec, DiscreteActions):
            missing = [spec.size - size for size in self._sizes]
            rows = [jnp.pad(row, (0, n)) for row, n in zip(rows, missing, strict=True)]
        return jnp.stack(rows)

    def _get_obs(self, state: Any) -> dict[str, Any]:
        return self._views(self.env.observe(state, self.params).features)

    def _get_avail_actions(self, state: Any) -> dict[str, Array]:
        mask = self.env.observe(state, self.params).action_mask
        pairs = zip(self.agents, self._sizes, strict=True)
        return {name: mask[i, :size] for i, (name, size) in enumerate(pairs)}

    def _views(self, features: Any) -> dict[str, Any]:
        return {x: agent_view(self.env, features, slot) for slot, x in enumerate(self.agents)}


def _map_specs(function: Any, spec: Any) -> Any:
    """Applies a function to an `ArraySpec` or to each of a dict of them."""
    if isinstance(spec, dict):
        return {name: function(part) for name, part in spec.items()}
    return function(spec)
