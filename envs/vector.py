"""Many environments side by side, with episodes that start again at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.batching import cond_any
from flockax.envs.environment import Environment
from flockax.envs.parameters import require_int
from flockax.envs.spec import Observation, float_dtype, int_dtype

Array = jax.Array


@struct.dataclass
class VectorState:
    """The state of a `VectorEnv`; its layout is internal, use `VectorEnv.env_state` to look inside.

    Attributes:
        env: the states of the environments, with the batch axis where the environment wants it.
        start: for each environment the state in which its next episode starts, drawn ahead.
        start_used: ``bool[E]``, True where `start` was played and must be drawn anew before its use.
        index: ``uint[E]``, the global index of each environment.
        key: ``key[E]``, one for each global environment index.
        episode: ``int[E]``, how many starts each environment has drawn.
        partial: ``bool[E]``, True during a first episode that was entered in its middle.
        episode_return: the running return of each agent.
        episode_length: ``int[E]``, transitions since the start.
    """

    env: Any
    start: Any
    start_used: Any
    index: Any
    key: Any
    episode: Any
    partial: Any
    episode_return: Any
    episode_length: Any


@dataclasses.dataclass(frozen=True)
class VectorEnv:
    """`num_envs` environments that reset by themselves; everything outward has a leading axis ``E``.

    A finished episode starts again within the same step: the observation returned is the first of the
    next episode, the true last one is ``info["final_observation"]``. Starts are drawn ahead, for all
    environments at once, and only in the step in which one is first needed twice: with episodes of
    length H, a reset costs 1/H of drawing a start at every step, whether the episodes end together or
    not, and also under a vmap over seeds (`cond_any`). Every start is drawn from the key of its
    environment and the number of its episode, and played once: when it is drawn changes nothing.

    Attributes:
        env: the environment.
        num_envs: ``E``, at least 1.
    """

    env: Environment
    num_envs: int

    def __post_init__(self) -> None:
        """Checks the fields."""
        if not isinstance(self.env, Environment):
            raise TypeError(f"env={self.env!r} is not an Environment; use flockax.envs.make")
        require_int(self, "num_envs", 1)

    @property
    def _axis(self) -> int:
        return -1 if self.env.batched_last else 0

    def reset(
        self, key: Array, params: Any = None, *, stagger: bool = False, first: int = 0
    ) -> tuple[Observation, VectorState]:
        """Starts all environments.

        Args:
            key: a typed key; environment i uses ``fold_in(key, first + i)``.
            params: parameters shared by all environments, or None for the defaults.
            stagger: enter the first episodes at evenly spread times, so that they do not all end
                together. These shortened episodes are not reported in ``info["episode"]["done"]``.
            first: the global index of the first environment.

        Returns:
            ``(observation, state)``.
        """
        params = self.env.default_params if params is None else params
        indices = jnp.asarray(first, jnp.uint32) + jnp.arange(self.num_envs, dtype=jnp.uint32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, indices)
        number = jnp.zeros(self.num_envs, int_dtype())
        # Both in one draw: a second one would be compiled for itself.
        drawn = jax.vmap(self._draw, (None, 0, None))(keys, jnp.stack([number, number + 1]), params)
        state, start = (jax.tree.map(lambda x, i=i: x[i], drawn) for i in range(2))
        if stagger:
            state = state.replace(time=state.time + self._offsets(params.horizon))
        agents = (self.env.num_agents,)
        shape = (*agents, self.num_envs) if self._axis == -1 else (self.num_envs, *agents)
        vector_state = VectorState(
            env=state,
            start=start,
            start_used=jnp.zeros(self.num_envs, bool),
            index=indices,
            key=keys,
            episode=number + 1,
            partial=state.time > 0,
            episode_return=jnp.zeros(shape, float_dtype()),
            episode_length=jnp.zeros(self.num_envs, int_dtype()),
        )
        return self._outward(self._observe(state, params)), vector_state

    def step(
        self, key: Array, state: VectorState, action: Array, params: Any = None
    ) -> tuple[Observation, VectorState, Array, Array, Array, dict[str, Any]]:
        """Plays one step everywhere and starts finished episodes again.

        Args:
            key: a typed key for this step; an environment folds its global index into it.
            state: the state.
            action: ``int[E, A]`` or ``f[E, A, D]``.
            params: as in `reset`.

        Returns:
            ``(observation, state, reward f[E, A], terminated bool[E], truncated bool[E], info)``.
            ``info`` adds to that of the environment ``final_observation`` (before any reset) and
            ``episode``: ``return f[E, A]`` and ``length int[E]`` so far, ``done bool[E]`` where an
            episode that was played from its start has just ended.
        """
        env = self.env
        params = env.default_params if params is None else params
        expected = (self.num_envs, *env.action_spec.shape)
        if jnp.shape(action) != expected:
            raise ValueError(f"the action has shape {jnp.shape(action)}, not {expected}")
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, state.index)
        if env.batched_last:
            stepped = env.step(keys, state.env, jnp.moveaxis(action, 0, -1), params)
        else:
            stepped = jax.vmap(env.step, (0, 0, 0, None))(keys, state.env, action, params)
        final_observation, final_state, reward, terminated, truncated, info = stepped
        done = terminated | truncated
        total = state.episode_return + reward
        length = state.episode_length + 1

        needed = done & state.start_used
        start, episode = cond_any(
            needed,
            self._redraw,
            lambda start, used, needed, key, episode, params: (start, episode),
            *(state.start, state.start_used, needed, state.key, state.episode, params),
        )
        # Redrawing replaced every used start, so those are fresh again.
        used = state.start_used & (episode == state.episode)
        env_state = self._select(done, start, final_state)
        observation = self._observe(env_state, params)
        next_state = dataclasses.replace(
            state,
            env=env_state,
            start=start,
            start_used=used | done,
            episode=episode,
            partial=state.partial & ~done,
            episode_return=self._select(done, jnp.zeros_like(total), total),
            episode_length=jnp.where(done, 0, length),
        )
        info = {
            **info,
            "final_observation": self._outward(final_observation),
            "episode": {
                "return": self._outward(total),
                "length": length,
                "done": done & ~state.partial,
            },
        }
        outward = self._outward(observation), self._outward(reward)
        return outward[0], next_state, outward[1], terminated, truncated, info

    def env_state(self, state: VectorState) -> Any:
        """The environments' states with a leading batch axis, as planners read them."""
        return self._outward(state.env)

    def global_state(self, state: VectorState, params: Any = None) -> Any:
        """``f[E, G]`` (or an EntitySet with a leading ``E``): `Environment.global_state` of each."""
        params = self.env.default_params if params is None else params
        if self.env.batched_last:
            return self._outward(self.env.global_state(state.env, params))
        return jax.vmap(self.env.global_state, (0, None))(state.env, params)

    def _draw(self, keys: Array, number: Array, params: Any) -> Any:
        def one(key: Array, number: Array) -> Any:
            return self.env.initial_state(jax.random.fold_in(key, number), params)

        return jax.vmap(one, out_axes=self._axis)(keys, number.astype(jnp.uint32))

    def _redraw(
        self, start: Any, used: Array, needed: Array, key: Array, episode: Array, params: Any
    ) -> Any:
        # Under a vmap over seeds this also runs for seeds that need nothing: they stay as they are, so
        # that the state of a seed does not depend on the others.
        used = used & jnp.any(needed)
        fresh = self._draw(key, episode + 1, params)
        return self._select(used, fresh, start), episode + used

    def _offsets(self, horizon: Array) -> Array:
        """``int[E]``: times spread evenly over an episode, ``i * horizon // E`` without overflow."""
        i = jnp.arange(self.num_envs, dtype=jnp.uint32)
        whole, rest = jnp.divmod(jnp.asarray(horizon, jnp.uint32), jnp.uint32(self.num_envs))
        return (i * whole + i * rest // self.num_envs).astype(int_dtype())

    def _observe(self, state: Any, params: Any) -> Observation:
        if self.env.batched_last:
            return self.env.observe(state, params)
        return jax.vmap(self.env.observe, (0, None))(state, params)

    def _select(self, pred: Array, new: Any, old: Any) -> Any:
        def choose(new: Array, old: Array) -> Array:
            trailing = 0 if self._axis == -1 else new.ndim - 1
            return jnp.where(pred.reshape(pred.shape + (1,) * trailing), new, old)

        return jax.tree.map(choose, new, old)

    def _outward(self, tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.moveaxis(x, self._axis, 0), tree)
