"""Recordings: episodes that can be drawn anywhere and re-simulated where they were made.

A `Recording` holds the configuration, the seed and the actions, which determine every state on the
same device and versions, and the frames that are drawn, which play everywhere else.

Shapes: ``N`` episodes; episode e has ``L_e`` transitions and ``L_e + 1`` frames (the start included).
Steps and frames of all episodes lie one after the other: ``T = sum(L_e)`` steps, ``T + N`` frames.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from flockax.envs.viewer import rollout
from flockax.envs.viewer.configuration import (
    current_versions,
    named_leaves,
    plain_fields,
    registered_id,
    restored_params,
)
from flockax.envs.viewer.scene import LayerFrame, Scene

PolicyAct = Callable[..., tuple[Any, Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Whole episodes of one environment.

    Attributes:
        env_id: the name under which `flockax.envs.make` makes the environment.
        fields: its sizes and switches, by name; plain values.
        params: the leaves of its parameters, by path; arrays of their own dtypes.
        seed: episode e is played with the key ``fold_in(key(seed), e)``.
        versions: versions of jax and flockax, and the device, where it was recorded.
        groups: ``(name, first slot, one past the last slot)`` of each group of agents.
        scene: what is drawn.
        lengths: ``int32[N]``, the transitions of each episode.
        terminated: ``bool[N]``, whether the episode ended by its rules (else by the time limit).
        actions: ``[T, A]`` or ``[T, A, D]``.
        rewards: ``f[T, A]``.
        metrics: ``[T]`` for each entry of ``info["metrics"]``.
        frames: by layer name, a `LayerFrame` with a leading axis ``T + N``.

    Raises:
        ValueError: where the parts do not fit together.
    """

    env_id: str
    fields: dict[str, Any]
    params: dict[str, np.ndarray]
    seed: int
    versions: dict[str, str]
    groups: tuple[tuple[str, int, int], ...]
    scene: Scene
    lengths: np.ndarray
    terminated: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    metrics: dict[str, np.ndarray]
    frames: dict[str, LayerFrame]

    def __post_init__(self) -> None:
        _check(self)

    @property
    def num_episodes(self) -> int:
        """``N``."""
        return len(self.lengths)

    def steps_of(self, episode: int) -> slice:
        """The steps of an episode in `actions`, `rewards` and `metrics`."""
        start = int(self.lengths[:episode].sum())
        return slice(start, start + int(self.lengths[episode]))

    def frames_of(self, episode: int) -> slice:
        """The frames of an episode in `frames`, one more than it has steps."""
        steps = self.steps_of(episode)
        return slice(steps.start + episode, steps.stop + episode + 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording as one ``.npz`` file without pickles."""
        from flockax.envs.viewer import storage

        storage.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Reads a recording; see `flockax.envs.viewer.storage.load`."""
        from flockax.envs.viewer import storage

        return storage.load(path)


load = Recording.load


class Resimulation(NamedTuple):
    """What `resimulate` computes again.

    Attributes:
        states: the states of the environment, with a leading axis ``T + N`` on every leaf (keys
            as their key data).
        frames: as in `Recording`.
        rewards: ``f[T, A]``.
    """

    states: Any
    frames: dict[str, LayerFrame]
    rewards: np.ndarray


def record(
    env: Any,
    policy_act: PolicyAct,
    seed: int,
    episodes: int,
    params: Any = None,
    carry: Any = None,
    env_id: str | None = None,
) -> Recording:
    """Plays whole episodes and keeps what is needed to show and to repeat them.

    Args:
        env: an `Environment` that describes its `scene` and `frame`.
        policy_act: ``(key, carry, observation, state, params, reset) -> (action, carry)`` for one
            environment without a batch axis; it is compiled. ``reset`` is ``bool[]``, True at the
            first step of an episode.
        seed: an integer >= 0.
        episodes: how many, at least 1.
        params: parameters of the environment, or None for its defaults.
        carry: what `policy_act` gets at the start of every episode.
        env_id: the name to `make` the environment again; None to ask the registry for it.

    Returns:
        The recording. Each episode lasts until the environment says ``terminated`` or ``truncated``,
        at most ``params.horizon`` steps.

    Raises:
        ValueError: naming what does not fit.
    """
    for name, value, low in (("seed", seed, 0), ("episodes", episodes, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
            raise ValueError(f"record: {name}={value!r} is not an integer >= {low}")
    params = env.default_params if params is None else params

    @jax.jit
    def act(key: Any, time: Any, *rest: Any) -> tuple[Any, Any]:
        return policy_act(jax.random.fold_in(key, time), *rest)

    played = [rollout.play(env, act, carry, seed, e, params) for e in range(episodes)]
    return Recording(
        env_id=registered_id(env) if env_id is None else env_id,
        fields=plain_fields(env),
        params=named_leaves(params),
        seed=int(seed),
        versions=current_versions(),
        groups=tuple((group.name, group.start, group.stop) for group in env.groups),
        scene=env.scene(params),
        lengths=np.asarray([len(episode.rewards) for episode in played], np.int32),
        terminated=np.asarray([episode.terminated for episode in played], bool),
        actions=rollout.concatenate([episode.actions for episode in played]),
        rewards=rollout.concatenate([episode.rewards for episode in played]),
        metrics=rollout.concatenate([episode.metrics for episode in played]),
        frames=rollout.concatenate([episode.frames for episode in played]),
    )


def resimulate(recording: Recording, env: Any = None) -> Resimulation:
    """Plays the recorded actions again, from the configuration and the seed.

    On the device and versions of the recording (`current_versions`) states, frames and rewards are
    identical to the recorded ones; elsewhere they may differ in rounding.

    Args:
        recording: the recording.
        env: the environment, or None to `make` it by its id and fields.

    Raises:
        ValueError: where the environment does not take the recorded parameters.
    """
    if env is None:
        from flockax.envs.registry import make

        env = make(recording.env_id, **recording.fields)
    params = restored_params(env, recording.params)
    played = [
        rollout.replay(env, recording.seed, e, recording.actions[recording.steps_of(e)], params)
        for e in range(recording.num_episodes)
    ]
    return Resimulation(*rollout.concatenate(played))


def _check(recording: Recording) -> None:
    """Refuses parts that do not fit together."""
    lengths = recording.lengths
    if lengths.ndim != 1 or len(lengths) == 0 or lengths.dtype.kind != "i" or lengths.min() < 1:
        raise ValueError("lengths are not a non-empty vector of integers >= 1")
    steps, episodes = int(lengths.sum()), len(lengths)
    agents = max((stop for _, _, stop in recording.groups), default=0)
    _require("terminated", recording.terminated, (episodes,))
    _require("rewards", recording.rewards, (steps, agents))
    if recording.actions.shape[:2] != (steps, agents) or recording.actions.ndim > 3:
        raise ValueError(f"actions have shape {recording.actions.shape}, not {(steps, agents)}")
    for name, values in recording.metrics.items():
        _require(f"metric {name}", values, (steps,))
    scene, names = recording.scene, [group[0] for group in recording.groups]
    for kind, wanted, known in (
        ("group", scene.groups, names),
        ("readout", scene.readouts, recording.metrics),
        ("layer", [layer.name for layer in scene.layers], recording.frames),
    ):
        for name in wanted:
            if name not in known:
                raise ValueError(f"the scene's {kind} {name!r} is not among: {', '.join(known)}")
    for layer in scene.layers:
        frame, shape = recording.frames[layer.name], (steps + episodes, layer.count)
        _require(f"layer {layer.name!r}: position", frame.position, (*shape, 2))
        for field in ("heading", "visible", "highlight"):
            if getattr(frame, field) is not None:
                _require(f"layer {layer.name!r}: {field}", getattr(frame, field), shape)


def _require(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, not {shape}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} of dtype {array.dtype} does not hold numbers")
