"""Plays whole episodes with fixed keys and says what they returned, and by which convention."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.agents.core.plotting import bootstrap_interval, iqm
from flockax.agents.core.policy import Policy
from flockax.agents.core.trainer import group_sums
from flockax.envs.environment import Environment
from flockax.envs.vector import VectorEnv

Array = jax.Array

MAX_PARALLEL = 256  # episodes played side by side for each seed, so that memory stays bounded
EVALUATION_KEY = 20_000_003  # apart from the seeds that people train with


@struct.dataclass
class Episodes:
    """Results of whole episodes.

    Attributes:
        returns: ``f[N, G]``, summed over the agents of each group.
        length: ``int[N]``.
        metrics: the environment's metrics summed over each episode, ``f[N]`` each.
        scores: of each episode, ``f[N]`` each, see `Environment.scores`.
    """

    returns: Array
    length: Array
    metrics: dict[str, Array]
    scores: dict[str, Array]


@functools.partial(jax.jit, static_argnames=("env", "num_envs", "horizon", "greedy", "stacked"))
def _play(
    policy: Policy,
    key: Array,
    first: Array,
    params: Any,
    env: Environment,
    num_envs: int,
    horizon: int,
    greedy: bool,
    stacked: bool,
) -> Episodes:
    """One episode in each of `num_envs` environments, for each seed if the policy is stacked."""
    vector_env = VectorEnv(env, num_envs)

    def play(policy: Policy) -> Episodes:
        reset_key, step_key = jax.random.split(key)
        observation, state = vector_env.reset(reset_key, params, first=first)
        start = (observation, state, policy.init(num_envs), jnp.ones(num_envs, bool))

        def step(carry: Any, key: Array) -> Any:
            observation, state, memory, reset = carry
            act_key, env_key = jax.random.split(jax.random.fold_in(key, first))
            env_state = vector_env.env_state(state)
            action, memory = policy.act(
                act_key, memory, observation, env_state, params, reset, greedy
            )
            observation, state, reward, terminated, truncated, info = vector_env.step(
                env_key, state, action, params
            )
            done = terminated | truncated
            return (observation, state, memory, done), (reward, done, info["metrics"])

        _, (reward, done, metrics) = jax.lax.scan(step, start, jax.random.split(step_key, horizon))
        # What comes after the first end belongs to another episode.
        during = jnp.cumsum(done, axis=0) - done == 0
        rewards = jnp.where(during[:, :, None], group_sums(env, reward), 0)
        length = jnp.sum(during, axis=0)
        total = {k: jnp.sum(jnp.where(during, m, 0), axis=0) for k, m in metrics.items()}
        last = jnp.arange(horizon)[:, None] == length - 1
        final = {k: jnp.sum(jnp.where(last, m, 0), axis=0) for k, m in metrics.items()}
        return Episodes(
            returns=jnp.sum(rewards, axis=0),
            length=length,
            metrics=total,
            scores=env.scores(total, final, length),
        )

    return jax.vmap(play)(policy) if stacked else play(policy)


def play_episodes(
    policy: Policy, env: Environment, params: Any, episodes: int, greedy: bool, stacked: bool
) -> Episodes:
    """Plays whole episodes; the same ones, whoever plays.

    Args:
        policy: who plays; a pytree with a leading axis of seeds on every array if `stacked`.
        env: the environment.
        params: its parameters.
        episodes: how many, N.
        greedy: most probable actions instead of samples.
        stacked: whether `policy` has a seed axis.

    Returns:
        NumPy arrays with a leading axis of seeds (of length 1 if not stacked), then N.

    Raises:
        ValueError: for fewer than one episode.
    """
    if episodes < 1:
        raise ValueError(f"episodes={episodes} is not at least 1")
    num_envs = min(episodes, MAX_PARALLEL)
    parts = []
    for first in range(0, episodes, num_envs):
        part = _play(
            policy,
            jax.random.key(EVALUATION_KEY),
            jnp.uint32(first),
            params,
            env=env,
            num_envs=num_envs,
            horizon=int(params.horizon),
            greedy=greedy,
            stacked=stacked,
        )
        parts.append(jax.device_get(part if stacked else jax.tree.map(lambda x: x[None], part)))
    return jax.tree.map(lambda *xs: np.concatenate(xs, axis=1)[:, :episodes], *parts)


def convention(env: Environment, params: Any, over: str, actions: str) -> str:
    """One sentence that says what a return stands for.

    Args:
        env: the environment.
        params: its parameters.
        over: which episodes the mean is over, such as "256 episodes with fixed keys and over seeds".
        actions: "sampled" or "greedy".
    """
    group = env.groups[0]
    agents = group.size if env.competitive else env.num_agents
    who = f"the {agents} agents" if agents > 1 else "the one agent"
    whose = f" of group {group.name}" if env.competitive else ""
    return (
        f"return_mean: sum of undiscounted rewards over {who}{whose}, per episode of at most "
        f"{int(params.horizon)} steps, mean over {over}; actions {actions}"
    )


def summarise(env: Environment, episodes: Episodes) -> dict[str, Any]:
    """Returns by seed and by group as plain numbers.

    Args:
        env: the environment.
        episodes: with leading axes of seeds and episodes.

    Returns:
        ``return_mean``, ``return_iqm`` and ``return_interval`` (95 %, bootstrap over seeds, None for
        one seed) of the team or, where groups compete, the first group; ``per_seed``; ``per_group``;
        ``length_mean``; ``metrics_per_episode``, sums over an episode; and ``scores``, where the
        environment has some.
    """
    scores = {name: float(value.mean()) for name, value in episodes.scores.items()}
    by_group = episodes.returns.mean(axis=1)
    team = by_group[:, 0] if env.competitive else by_group.sum(axis=1)
    interval = bootstrap_interval(team)
    return {
        "return_mean": float(team.mean()),
        "return_iqm": float(iqm(team)),
        "return_interval": None if interval is None else [float(x) for x in interval],
        "per_seed": [float(x) for x in team],
        "per_group": {
            group.name: {
                "return_mean": float(by_group[:, i].mean()),
                "per_seed": [float(x) for x in by_group[:, i]],
            }
            for i, group in enumerate(env.groups)
        },
        "length_mean": float(episodes.length.mean()),
        "metrics_per_episode": {
            name: float(value.mean()) for name, value in episodes.metrics.items()
        },
        **({"scores": scores} if scores else {}),
    }


def evaluate(
    policy: Policy, env: Environment, params: Any, episodes: int, stacked: bool
) -> dict[str, Any]:
    """Evaluates with sampled actions, and with greedy ones beside them.

    Args:
        policy: see `play_episodes`.
        env: the environment.
        params: its parameters.
        episodes: how many for each seed.
        stacked: whether `policy` has a seed axis.

    Returns:
        What `summarise` returns for sampled actions, with ``convention``, ``episodes`` and
        ``greedy``, the same for greedy actions.
    """
    results = {}
    for actions, greedy in (("sampled", False), ("greedy", True)):
        played = play_episodes(policy, env, params, episodes, greedy, stacked)
        results[actions] = {
            **summarise(env, played),
            "convention": convention(
                env, params, f"{episodes} episodes with fixed keys and over seeds", actions
            ),
        }
    return {**results["sampled"], "episodes": episodes, "greedy": results["greedy"]}
