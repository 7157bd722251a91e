"""Throughput worker: random play in an environment of ours."""

from __future__ import annotations

from functools import partial
from typing import Any

from protocol import machine, serve
from rollout import Game, throughput_handlers

from flockax.envs import VectorEnv, make


def make_game(env: str, num_envs: int, stagger: bool, fields: dict[str, Any] | None = None) -> Game:
    """Our environment as a `Game`; `stagger` spreads the first ends of the episodes evenly."""
    environment = make(env, **(fields or {}))
    vector = VectorEnv(environment, num_envs)

    def step(key, state, action):
        observation, state, reward, terminated, truncated, _ = vector.step(key, state, action)
        return observation, state, reward, terminated | truncated

    return Game(
        name=env,
        num_agents=environment.num_agents,
        num_envs=num_envs,
        reset=partial(vector.reset, stagger=stagger),
        act=lambda key, seen: environment.action_spec.sample(key, seen.action_mask),
        step=step,
        features=lambda observation: observation.features,
    )


if __name__ == "__main__":
    serve(throughput_handlers(make_game, partial(machine, "flockax", "flax")))
