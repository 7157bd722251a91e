"""Throughput worker: random play in an environment of JaxMARL, as its documentation plays it."""

from __future__ import annotations

from functools import partial

import jax
import jaxmarl
from protocol import machine, serve
from rollout import Game, throughput_handlers


def make_game(env: str, num_envs: int) -> Game:
    """JaxMARL's environment `env` (its own name) under `jax.vmap`; its `step` resets by itself."""
    environment = jaxmarl.make(env)

    def reset(key):
        return jax.vmap(environment.reset)(jax.random.split(key, num_envs))

    def act(key, observation):
        keys = jax.random.split(key, (environment.num_agents, num_envs))
        return {
            agent: jax.vmap(environment.action_space(agent).sample)(keys[i])
            for i, agent in enumerate(environment.agents)
        }

    def step(key, state, action):
        keys = jax.random.split(key, num_envs)
        observation, state, reward, done, _ = jax.vmap(environment.step)(keys, state, action)
        return observation, state, reward, done["__all__"]

    return Game(
        name=env,
        num_agents=environment.num_agents,
        num_envs=num_envs,
        reset=reset,
        act=act,
        step=step,
        features=lambda observation: observation,
    )


if __name__ == "__main__":
    serve(throughput_handlers(make_game, partial(machine, "jaxmarl", "flax")))
