"""The contract that every environment fulfils and every learner relies on.

An environment is a frozen dataclass of sizes and switches: hashable, static under `jax.jit`. Numbers
to tune live in its parameters (a `flax.struct` of arrays), everything that changes lives in its
state. `reset` and `step` are pure functions of their arguments.

Shapes are written for one environment. ``A`` is the number of agents, ``F`` the number of features,
``n`` the number of discrete actions, ``D`` the number of continuous components.

**The trailing-batch rule.** With the batch axis innermost, CPU code vectorises over environments and
runs several times faster than under `jax.vmap`, which puts it outermost. An environment that sets
``batched_last = True`` promises that `step`, `observe` and `global_state` accept any extra trailing
axes on all state leaves and on the action (``[A, *batch]``, ``[A, D, *batch]``) and return results
with the same trailing axes. It then indexes leading axes only and never reduces over ``axis=-1``.
`reset` always makes one environment. `flockax.envs.VectorEnv` uses the promise; nothing else needs to.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.parameters import checked
from flockax.envs.spec import (
    ActionSpec,
    ArraySpec,
    DiscreteActions,
    Group,
    Observation,
    float_dtype,
    int_dtype,
)

Array = jax.Array


@struct.dataclass
class Transition:
    """What the rules of an environment return for one step (see `Environment.transition`).

    Attributes:
        state: the next state; its `time` is set by `Environment.step`.
        reward: ``f[A]``.
        terminated: ``bool[]``, the episode ended by its rules.
        metrics: a dict of scalars with fixed keys.
        overflow: ``int[]``, how much exceeded a capacity, or None where nothing can.
    """

    state: Any
    reward: Any
    terminated: Any
    metrics: Any
    overflow: Any = None


class Environment(abc.ABC):
    """A multi-agent environment: subclasses are frozen dataclasses of sizes and switches.

    A subclass gives `groups`, `action_spec`, `default_params`, `feature_spec`, `global_state_spec`,
    `initial_state`, `transition`, `features` and `global_state`; `reset`, `step` and `observe` are
    made of these here, so that invalid actions, time limits and dead agents mean the same everywhere.
    """

    batched_last: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def groups(self) -> tuple[Group, ...]:
        """Contiguous slots of one role, covering ``0 .. A - 1`` in order."""

    @property
    def num_agents(self) -> int:
        """``A``, the number of agent slots."""
        return self.groups[-1].stop

    @property
    def competitive(self) -> bool:
        """Whether groups play against each other; then a return is that of the first group."""
        return len(self.groups) > 1

    @property
    @abc.abstractmethod
    def action_spec(self) -> ActionSpec:
        """The space of actions."""

    @property
    @abc.abstractmethod
    def default_params(self) -> Any:
        """Parameters with their default values: a `flax.struct` of strong-typed arrays."""

    @property
    @abc.abstractmethod
    def feature_spec(self) -> Any:
        """The `ArraySpec` of the features, or an `EntitySet` of three."""

    @property
    @abc.abstractmethod
    def global_state_spec(self) -> Any:
        """The `ArraySpec` of the global state, or an `EntitySet` of three."""

    @abc.abstractmethod
    def initial_state(self, key: Array, params: Any) -> Any:
        """Draws the state at the start of an episode, for one environment; its `time` is 0."""

    @abc.abstractmethod
    def transition(self, key: Array, state: Any, action: Array, params: Any) -> Transition:
        """The rules: one step from `state` under a valid `action`."""

    @abc.abstractmethod
    def features(self, state: Any, params: Any) -> Any:
        """What each agent sees (see `Observation.features`)."""

    @abc.abstractmethod
    def global_state(self, state: Any, params: Any = None) -> Any:
        """The whole state for a central critic: ``f[G]`` or an `EntitySet` without an agent axis."""

    def alive(self, state: Any) -> Array:
        """``bool[A]``: which slots hold a living agent. All of them, unless overridden."""
        return jnp.ones((self.num_agents, *state.time.shape), bool)

    def available(self, state: Any, params: Any) -> Array | None:
        """``bool[A, n]``: the open actions where they depend on the state, else None."""
        return None

    @property
    def observation_spec(self) -> Observation:
        """An `Observation` whose leaves are `ArraySpec`."""
        agents, width = self.num_agents, self._action_width
        return Observation(
            features=self.feature_spec,
            action_mask=ArraySpec((agents, width), "bool", 0, 1),
            alive=ArraySpec((agents,), "bool", 0, 1),
        )

    def make_params(self, **overrides: Any) -> Any:
        """The default parameters with some values replaced.

        Args:
            **overrides: values by parameter name; numbers or arrays of the parameter's shape.

        Returns:
            Parameters of the same structure, shapes and dtypes as `default_params`.

        Raises:
            ValueError: for an unknown name, a wrong shape, a value that is not finite or out of range.
        """
        params = self.default_params
        fields = {field.name: field for field in dataclasses.fields(params)}
        changed = {}
        for name, value in overrides.items():
            if name not in fields:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(fields)}"
                )
            changed[name] = checked(name, value, getattr(params, name), fields[name].metadata)
        return params.replace(**changed)

    def reset(self, key: Array, params: Any = None) -> tuple[Observation, Any]:
        """Starts an episode.

        Args:
            key: a typed key (`jax.random.key`).
            params: parameters, or None for `default_params`.

        Returns:
            ``(observation, state)``.
        """
        params = self.default_params if params is None else params
        state = self.initial_state(key, params)
        return self.observe(state, params), state

    def step(
        self, key: Array, state: Any, action: Array, params: Any = None
    ) -> tuple[Observation, Any, Array, Array, Array, dict[str, Any]]:
        """Plays one step. It never resets; `VectorEnv` does.

        Args:
            key: a typed key; environments with deterministic rules ignore it.
            state: the state.
            action: ``int[A]`` or ``f[A, D]``. A discrete action that is out of range or masked
                becomes 0; a component that is not finite becomes 0; components are clipped to the
                bounds of `action_spec`. What a dead agent does is ignored.
            params: parameters, or None for `default_params`.

        Returns:
            ``(observation, state, reward f[A], terminated bool[], truncated bool[], info)``.
            `terminated` and `truncated` are of the whole episode and never both true; a time limit
            is always truncation. ``info`` has ``metrics`` (scalars), ``invalid_action`` (the number
            of agents whose action was replaced) and ``overflow``.
        """
        params = self.default_params if params is None else params
        alive = self.alive(state)
        action, invalid = self._sanitize(action, alive, self.available(state, params))
        result = self.transition(key, state, action, params)
        time = state.time + 1
        next_state = result.state.replace(time=time)
        terminated = result.terminated
        truncated = (time >= params.horizon) & ~terminated
        overflow = jnp.zeros_like(time) if result.overflow is None else result.overflow
        info = {"metrics": result.metrics, "invalid_action": invalid, "overflow": overflow}
        reward = jnp.where(alive, result.reward, 0)
        return self.observe(next_state, params), next_state, reward, terminated, truncated, info

    def observe(self, state: Any, params: Any = None) -> Observation:
        """What the agents see in `state`."""
        params = self.default_params if params is None else params
        alive = self.alive(state)

        def hide_dead(x: Array) -> Array:
            between = (1,) * (x.ndim - alive.ndim)
            return jnp.where(alive.reshape(alive.shape[:1] + between + alive.shape[1:]), x, 0)

        features = self.features(state, params)
        if type(self).alive is not Environment.alive:
            features = jax.tree.map(lambda x: hide_dead(x).astype(x.dtype), features)
        mask = self.available(state, params)
        if mask is None:
            open_ = np.arange(self._action_width)[None, :] < self._action_sizes[:, None]
            batch = state.time.shape
            mask = jnp.broadcast_to(
                open_.reshape(open_.shape + (1,) * len(batch)), open_.shape + batch
            )
        return Observation(features=features, action_mask=mask, alive=alive)

    def grown(self) -> Environment:
        """The environment with doubled capacities.

        Raises:
            ValueError: where nothing has a capacity.
        """
        raise ValueError(f"{type(self).__name__} has no capacity to grow")

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """What the literature reports of whole episodes; nothing by default.

        Args:
            total: the metrics of the steps summed over each episode, ``f[...]``.
            final: the metrics of its last step, ``f[...]``.
            length: its steps, ``int[...]``.

        Returns:
            Numbers by name, ``f[...]``, of which the mean over episodes makes sense.
        """
        return {}

    def scene(self, params: Any = None) -> Any:
        """What a replay draws (`flockax.envs.viewer.Scene`)."""
        raise ValueError(f"{type(self).__name__} does not describe a scene")

    def frame(self, state: Any, params: Any = None) -> dict[str, Any]:
        """Where the things of `scene` are in `state`, by layer name."""
        raise ValueError(f"{type(self).__name__} does not describe a scene")

    @property
    def _action_width(self) -> int:
        spec = self.action_spec
        return spec.n if isinstance(spec, DiscreteActions) else spec.size

    @property
    def _action_sizes(self) -> np.ndarray:
        return np.repeat([g.action_size for g in self.groups], [g.size for g in self.groups])

    def _sanitize(self, action: Array, alive: Array, mask: Array | None) -> tuple[Array, Array]:
        """Replaces invalid actions by 0; returns the actions and the count ``int[]`` replaced."""
        spec, batch = self.action_spec, (1,) * (alive.ndim - 1)
        sizes = self._action_sizes.reshape((-1, *batch))
        action = jnp.asarray(action)
        expected = (*spec.shape, *alive.shape[1:])
        if action.shape != expected:
            raise ValueError(f"the action has shape {action.shape}, not {expected}")
        if isinstance(spec, DiscreteActions):
            # A float or a bool here is a caller's mistake that a cast would hide.
            if not jnp.issubdtype(action.dtype, jnp.integer):
                raise TypeError(f"discrete actions must be integers, got {action.dtype}")
            valid = (action >= 0) & (action < sizes)
            if mask is not None:
                ids = np.arange(spec.n).reshape((1, -1, *batch))
                valid &= jnp.any(mask & (action[:, None] == ids), axis=1)
            invalid = ~valid & alive
            # One dtype for the rules, whatever the caller's: arithmetic on uint8 would wrap.
            action = jnp.where(valid & alive, action, 0).astype(int_dtype())
            return action, jnp.sum(invalid, axis=0, dtype=int_dtype())
        real = np.arange(spec.size).reshape((1, -1, *batch)) < sizes[:, None]
        finite = jnp.isfinite(action) | ~real
        clipped = jnp.clip(jnp.where(finite, action, 0), spec.low, spec.high)
        action = jnp.where(real & alive[:, None], clipped, 0).astype(float_dtype())
        invalid = jnp.any(~finite, axis=1) & alive
        return action, jnp.sum(invalid, axis=0, dtype=int_dtype())
