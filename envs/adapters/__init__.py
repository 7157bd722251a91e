"""Environments as other libraries know them: PettingZoo, gymnasium, and code written for JaxMARL.

Adapters are for the edge: they turn arrays over agents into what another library expects. Those for
PettingZoo and gymnasium leave the device at every step, so they are slow beside `VectorEnv`. Agents are
called ``<group>_<i>``, such as ``predators_0``, and see their group's true number of features, without
padding. The libraries are imported when asked for: ``pip install "flockax[adapters]"``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flockax.envs.adapters.views import agent_names
from flockax.envs.environment import Environment

if TYPE_CHECKING:
    from flockax.envs.adapters.gymnasium_envs import BatchedEnv, SingleEnv
    from flockax.envs.adapters.jaxmarl_view import JaxMARLView
    from flockax.envs.adapters.parallel_env import ParallelEnv

__all__ = [
    "agent_names",
    "to_gymnasium",
    "to_gymnasium_vector",
    "to_jaxmarl",
    "to_pettingzoo",
]


def to_pettingzoo(env: Environment, params: Any = None, *, seed: int = 0) -> ParallelEnv:
    """A `pettingzoo.ParallelEnv` of one environment.

    An agent that dies is terminated and leaves for good, as PettingZoo asks: should its slot be born
    again, it plays action 0 unseen until the episode ends. A slot that is empty at the start joins when
    it is first born. ``infos[agent]["action_mask"]`` (int8) holds the open actions, `state` the global
    state as one vector. Entity sets are dicts of ``own``, ``entities`` and ``mask`` (int8).

    Args:
        env: the environment.
        params: its parameters, or None for the defaults.
        seed: of the episodes until `reset` gets a seed.

    Returns:
        The environment; it passes `pettingzoo.test.parallel_api_test`.

    Raises:
        ImportError: if PettingZoo is not installed.
    """
    return _load("parallel_env").ParallelEnv(env, params, seed)


def to_gymnasium(env: Environment, params: Any = None, *, seed: int = 0) -> SingleEnv:
    """A `gymnasium.Env` of one environment; many agents become one that controls all.

    One agent: ``Discrete(n)`` or ``Box(D)`` actions, its own observation. Several: the joint action
    (``MultiDiscrete``, or a ``Box`` of the true components of all agents in slot order), the
    concatenated true features (windows and entity sets keep an agent axis), and the sum of all rewards.
    ``info`` has ``action_mask`` (int8, padded with 0 to the largest group), ``alive``, ``rewards`` of
    the agents, ``metrics``, ``invalid_action`` and ``overflow``.

    Args:
        env: the environment.
        params: its parameters, or None for the defaults.
        seed: of the episodes until `reset` gets a seed.

    Returns:
        The environment; it passes `gymnasium.utils.env_checker.check_env`.

    Raises:
        ImportError: if gymnasium is not installed.
    """
    return _load("gymnasium_envs").SingleEnv(env, params, seed)


def to_gymnasium_vector(
    env: Environment, num_envs: int, params: Any = None, *, seed: int = 0
) -> BatchedEnv:
    """A `gymnasium.vector.VectorEnv` of a `VectorEnv`, with the spaces of `to_gymnasium`.

    It resets in the same step (``AutoresetMode.SAME_STEP``): where an episode ended,
    ``infos["final_obs"]`` has the true last observation and ``infos["_final_obs"]`` is True.

    Args:
        env: the environment.
        num_envs: ``E``.
        params: parameters, or None for the defaults.
        seed: of the episodes until `reset` gets a seed; environment i folds i into it.

    Returns:
        The vector environment.

    Raises:
        ImportError: if gymnasium is not installed.
    """
    return _load("gymnasium_envs").BatchedEnv(env, num_envs, params, seed)


def to_jaxmarl(env: Environment, params: Any = None, *, spaces: Any = None) -> JaxMARLView:
    """A dict-of-agents view for code written for JaxMARL 0.2; JaxMARL itself is not needed.

    ``reset(key) -> (obs, state)`` and ``step(key, state, actions[, reset_state]) -> (obs, state,
    rewards, dones, info)`` are pure, take one environment (vmap them) and reset by themselves, as
    JaxMARL does; `step_env` does not reset. As there, ``dones`` does not tell a time limit from an end:
    ``info["truncated"]`` does. ``dones[agent]`` is also True for an agent that is dead. Every leaf of
    ``info`` has shape ``[A]``. Entity sets are dicts of ``own``, ``entities`` and ``mask``.

    Args:
        env: the environment.
        params: its parameters, or None for the defaults.
        spaces: a module with `Discrete` and `Box`, for code that looks at the types of spaces:
            `jaxmarl.environments.spaces`. None for ones of the same interface.

    Returns:
        The view.
    """
    return _load("jaxmarl_view").JaxMARLView(env, params, spaces)


def _load(module: str) -> Any:
    """A module of this package, which imports the library that it adapts to.

    Raises:
        ImportError: naming what is missing and how to install it.
    """
    try:
        return importlib.import_module(f"{__name__}.{module}")
    except ImportError as error:
        raise ImportError(
            f'this adapter cannot be used ({error}); try: pip install "flockax[adapters]"'
        ) from error
