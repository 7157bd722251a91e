"""One environment, or many side by side, as gymnasium's; made by `flockax.envs.adapters`."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from flockax.envs.adapters.gym_spaces import action_space_of, space_of, to_numpy
from flockax.envs.adapters.views import (
    action_sizes,
    compiled,
    joint_spec,
    joint_view,
    split_actions,
)
from flockax.envs.environment import Environment
from flockax.envs.spec import Observation
from flockax.envs.vector import VectorEnv


class SingleEnv(gymnasium.Env):
    """One environment whose agents are controlled together.

    Attributes:
        env: the environment.
        params: its parameters.
        observation_space: of the joint observation.
        action_space: of the joint action.
    """

    def __init__(self, env: Environment, params: Any, seed: int) -> None:
        self.env = env
        self.metadata = {"render_modes": []}
        self.params = env.default_params if params is None else params
        self.observation_space = space_of(joint_spec(env))
        self.action_space = action_space_of(env.action_spec, action_sizes(env))
        self._key = jax.random.key(seed)
        self._reset, self._step = compiled(env, self.params)
        self._view = jax.jit(lambda features: joint_view(env, features))
        self._state: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Starts an episode; ``(observation, info)``."""
        super().reset(seed=seed)
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, observation, self._state = self._reset(self._key)
        return to_numpy(self._view(observation.features)), _info(self.env, observation)

    def step(self, action: Any) -> Any:
        """Plays one step; ``(observation, reward, terminated, truncated, info)``."""
        action = split_actions(self.env, action)
        self._key, result = self._step(self._key, self._state, action)
        observation, self._state, reward, terminated, truncated, info = result
        view = to_numpy(self._view(observation.features))
        reward, info = np.array(reward), jax.device_get(info)
        info = {**_info(self.env, observation), "rewards": reward, **info}
        return view, float(reward.sum()), bool(terminated), bool(truncated), info


class BatchedEnv(GymnasiumVectorEnv):
    """Many environments side by side; finished episodes start again in the same step.

    Attributes:
        vector: the `VectorEnv`.
        params: its parameters.
        num_envs: ``E``.
        single_observation_space: of one environment; see `SingleEnv`.
        single_action_space: of one environment.
        observation_space: of all.
        action_space: of all.
    """

    def __init__(self, env: Environment, num_envs: int, params: Any, seed: int) -> None:
        self.vector = VectorEnv(env, num_envs)
        self.params = env.default_params if params is None else params
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.num_envs = self.vector.num_envs
        self.single_observation_space = space_of(joint_spec(env))
        self.single_action_space = action_space_of(env.action_spec, action_sizes(env))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._key = jax.random.key(seed)
        self._reset, self._step = compiled(self.vector, self.params)
        self._view = jax.jit(jax.vmap(lambda features: joint_view(env, features)))
        self._state: Any = None

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Starts all episodes; ``(observations, infos)``.

        Raises:
            ValueError: for a partial reset, which the autoreset mode makes pointless.
        """
        if options and "reset_mask" in options:
            raise ValueError(
                "options['reset_mask'] is for AutoresetMode.DISABLED, this is SAME_STEP"
            )
        super().reset(seed=seed)
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, observation, self._state = self._reset(self._key)
        infos = _marked(_info(self.vector.env, observation), self.num_envs)
        return to_numpy(self._view(observation.features)), infos

    def step(self, actions: Any) -> Any:
        """Plays one step; ``(observations, rewards, terminations, truncations, infos)``."""
        actions = split_actions(self.vector.env, actions, (self.num_envs,))
        self._key, result = self._step(self._key, self._state, actions)
        observation, self._state, reward, terminated, truncated, info = result
        final = to_numpy(self._view(info["final_observation"].features))
        reward, terminated, truncated = (np.array(x) for x in (reward, terminated, truncated))
        raw = {name: info[name] for name in ("metrics", "invalid_action", "overflow")}
        infos = {**_info(self.vector.env, observation), "rewards": reward, **jax.device_get(raw)}
        infos = _marked(infos, self.num_envs)
        done = terminated | truncated
        if done.any():
            infos["final_obs"], infos["_final_obs"] = np.full(self.num_envs, None, object), done
            for i in np.flatnonzero(done):
                infos["final_obs"][i] = jax.tree.map(lambda x, i=i: x[i], final)
        view = to_numpy(self._view(observation.features))
        return view, reward.sum(1, dtype=float), terminated, truncated, infos


def _info(env: Environment, observation: Observation) -> dict[str, Any]:
    """The part of ``info`` that belongs to an observation."""
    mask = to_numpy(observation.action_mask)
    mask = mask.squeeze(-2) if env.num_agents == 1 else mask
    return {"action_mask": mask, "alive": np.array(observation.alive)}


def _marked(infos: dict[str, Any], num_envs: int) -> dict[str, Any]:
    """Adds what gymnasium asks for: ``_name`` tells which environments have ``name``."""
    return {**infos, **{f"_{name}": np.ones(num_envs, bool) for name in infos}}
