"""Plays one episode of one environment step by step.

Recording and re-simulation use the same compiled step. Fused with a policy into a scan, the same
arithmetic may round differently, and a replay would drift away from what was played.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Outcome(NamedTuple):
    """What one step of an environment gives, and the frame to draw after it."""

    observation: Any
    state: Any
    frame: Any
    reward: Any
    terminated: Any
    truncated: Any
    metrics: Any


class Played(NamedTuple):
    """One episode of ``L`` steps as NumPy arrays: ``L + 1`` frames, else ``L`` rows."""

    frames: Any
    actions: np.ndarray
    rewards: np.ndarray
    metrics: Any
    terminated: bool


def episode_keys(seed: int, episode: int) -> tuple[jax.Array, jax.Array]:
    """The key of the environment and the key of the policy in one episode."""
    env_key, policy_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), episode))
    return env_key, policy_key


@functools.partial(jax.jit, static_argnums=0)
def start(env: Any, key: Any, params: Any) -> tuple[Any, Any, Any]:
    """Resets the environment: ``(observation, state, frame)``."""
    observation, state = env.reset(jax.random.fold_in(key, 0), params)
    return observation, state, env.frame(state, params)


@functools.partial(jax.jit, static_argnums=0)
def advance(env: Any, key: Any, time: Any, state: Any, action: Any, params: Any) -> Outcome:
    """Plays step `time` (``int32[]``, from 0) of the episode whose environment has `key`."""
    key = jax.random.fold_in(key, time + 1)
    observation, state, reward, terminated, truncated, info = env.step(key, state, action, params)
    frame = env.frame(state, params)
    return Outcome(observation, state, frame, reward, terminated, truncated, info["metrics"])


def play(
    env: Any, act: Callable[..., tuple[Any, Any]], carry: Any, seed: int, episode: int, params: Any
) -> Played:
    """Plays an episode to its end.

    Args:
        env: the environment.
        act: ``(key, time, carry, observation, state, params, reset) -> (action, carry)``, compiled.
        carry: what `act` gets first.
        seed: of the recording.
        episode: its number in the recording.
        params: parameters of the environment.
    """
    env_key, policy_key = episode_keys(seed, episode)
    observation, state, frame = start(env, env_key, params)
    frames, actions, outcomes = [frame], [], []
    for t in range(int(params.horizon)):
        time, reset = np.int32(t), np.bool_(t == 0)
        action, carry = act(policy_key, time, carry, observation, state, params, reset)
        outcome = advance(env, env_key, time, state, action, params)
        observation, state = outcome.observation, outcome.state
        frames.append(outcome.frame)
        actions.append(action)
        outcomes.append((outcome.reward, outcome.metrics))
        if outcome.terminated or outcome.truncated:
            break
    rewards, metrics = stack(outcomes)
    return Played(stack(frames), stack(actions), rewards, metrics, bool(outcome.terminated))


def replay(
    env: Any, seed: int, episode: int, actions: np.ndarray, params: Any
) -> tuple[Any, Any, np.ndarray]:
    """Plays the recorded `actions` of an episode again: ``(states, frames, rewards)``."""
    env_key, _ = episode_keys(seed, episode)
    _, state, frame = start(env, env_key, params)
    states, frames, rewards = [_without_keys(state)], [frame], []
    for t, action in enumerate(actions):
        outcome = advance(env, env_key, np.int32(t), state, action, params)
        state = outcome.state
        states.append(_without_keys(state))
        frames.append(outcome.frame)
        rewards.append(outcome.reward)
    return stack(states), stack(frames), stack(rewards)


def stack(trees: list[Any]) -> Any:
    """Equal trees of device arrays as one tree of NumPy arrays with a new leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(trees))


def concatenate(trees: list[Any]) -> Any:
    """Trees of NumPy arrays, joined along the leading axis."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def _without_keys(state: Any) -> Any:
    """The state with typed keys replaced by their data, which NumPy can hold."""

    def convert(x: Any) -> Any:
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return jax.tree.map(convert, state)
