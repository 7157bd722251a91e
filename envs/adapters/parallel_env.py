"""One environment as a `pettingzoo.ParallelEnv`; made by `flockax.envs.adapters.to_pettingzoo`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pettingzoo

from flockax.envs.adapters.gym_spaces import action_space_of, space_of, to_numpy
from flockax.envs.adapters.views import agent_names, agent_spec, agent_view, compiled, slot_groups
from flockax.envs.environment import Environment
from flockax.envs.spec import DiscreteActions, Observation


class ParallelEnv(pettingzoo.ParallelEnv):
    """One environment; agents are named, dead ones leave.

    Attributes:
        env: the environment.
        params: its parameters.
        possible_agents: the names of all slots, in order.
        agents: the names of those that are playing.
        observation_spaces: by name.
        action_spaces: by name.
    """

    def __init__(self, env: Environment, params: Any, seed: int) -> None:
        self.env = env
        self.params = env.default_params if params is None else params
        self.metadata = {
            "name": type(env).__name__,
            "is_parallelizable": True,
            "render_modes": [],
        }
        self.render_mode = None
        self.possible_agents = list(agent_names(env))
        self.agents: list[str] = []
        self._slots = {name: slot for slot, name in enumerate(self.possible_agents)}
        self._sizes = {
            name: group.action_size
            for name, group in zip(self.possible_agents, slot_groups(env), strict=True)
        }
        self.observation_spaces = {
            name: space_of(agent_spec(env, group))
            for name, group in zip(self.possible_agents, slot_groups(env), strict=True)
        }
        self.action_spaces = {
            name: action_space_of(env.action_spec, [size]) for name, size in self._sizes.items()
        }
        self._key = jax.random.key(seed)
        self._reset, self._step = compiled(env, self.params)
        self._state: Any = None
        self._left: set[str] = set()

    def observation_space(self, agent: str) -> Any:
        """The space of what an agent sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The space of an agent's actions."""
        return self.action_spaces[agent]

    def state(self) -> np.ndarray:
        """The global state as one vector of floats."""
        whole = jax.device_get(self.env.global_state(self._state, self.params))
        return np.concatenate([np.ravel(part).astype(float) for part in jax.tree.leaves(whole)])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Starts an episode; ``(observations, infos)``."""
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, observation, self._state = self._reset(self._key)
        observation = jax.device_get(observation)
        self.agents, self._left = self._living(observation), set()
        return self._views(observation, self.agents), self._infos(observation, self.agents)

    def step(self, actions: dict[str, Any]) -> Any:
        """Plays one step; agents without an action play 0.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)`` by agent, of those that were
            playing and of those just born.

        Raises:
            ValueError: for the action of an agent that is not playing.
        """
        if not self.agents:
            return {}, {}, {}, {}, {}
        unknown = sorted(set(actions) - set(self.agents))
        if unknown:
            raise ValueError(f"{unknown} cannot act; the agents are {self.agents}")
        self._key, result = self._step(self._key, self._state, self._joint(actions))
        self._state = result[1]
        observation, _, reward, terminated, truncated, _ = jax.device_get(result)
        living = self._living(observation)
        born = [name for name in living if name not in self._left]
        reported = sorted({*self.agents, *born}, key=self._slots.__getitem__)
        ends = {name: bool(terminated) or name not in living for name in reported}
        limits = {name: bool(truncated) and not ends[name] for name in reported}
        rewards = {name: float(reward[self._slots[name]]) for name in reported}
        self._left.update(name for name in reported if ends[name] or limits[name])
        self.agents = [name for name in reported if name not in self._left]
        views, infos = self._views(observation, reported), self._infos(observation, reported)
        return views, rewards, ends, limits, infos

    def _joint(self, actions: dict[str, Any]) -> np.ndarray:
        spec = self.env.action_spec
        if isinstance(spec, DiscreteActions):
            return np.stack([np.asarray(actions.get(name, 0)) for name in self.possible_agents])
        joint = np.zeros(spec.shape)
        for name, action in actions.items():
            joint[self._slots[name], : self._sizes[name]] = action
        return joint

    def _living(self, observation: Observation) -> list[str]:
        return [name for name, slot in self._slots.items() if observation.alive[slot]]

    def _views(self, observation: Observation, agents: list[str]) -> dict[str, Any]:
        features = observation.features
        return {x: to_numpy(agent_view(self.env, features, self._slots[x])) for x in agents}

    def _infos(self, observation: Observation, agents: list[str]) -> dict[str, Any]:
        mask = observation.action_mask
        return {
            x: {"action_mask": to_numpy(mask[self._slots[x], : self._sizes[x]])} for x in agents
        }
