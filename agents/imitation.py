"""Imitation: behaviour cloning of an expert on the device, with DAgger.

A planner that sees everything says in every state what it would do; the network, which sees what agents
see, learns to say the same. At first the expert plays in all environments (behaviour cloning); then the
network plays in more and more of them, so that it learns in the states into which it gets itself (Ross,
Gordon and Bagnell 2011, DAgger, with the data of the newest rollout instead of all so far). Expert,
rollout and update compile into one program. Axes are ``[T, E, A]``: time, environments, agents.

    python agents/imitation.py --env grid_pathfinding --env.guide distance
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.core import distributions
from flockax.agents.core.actor_critic import Agent
from flockax.agents.core.learning import Activation, Setup, Share, check_settings, traced
from flockax.agents.core.optimiser import init_optimizer
from flockax.agents.core.policy import Policy
from flockax.agents.core.runs import POLICIES
from flockax.agents.core.trainer import Trainer, UpdateMetrics, episode_metrics, require
from flockax.envs import DiscreteActions, Environment
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array

# LaCAM plays plans that were made before; it does not say what to do where the network strays.
EXPERTS = tuple(name for name in POLICIES if name != "lacam")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of imitation.

    Attributes:
        total_steps: environment steps of one seed; rounded up to whole updates.
        num_envs: environments side by side.
        rollout_length: steps of each environment between updates.
        epochs: passes over each rollout.
        minibatches: parts of a pass; each holds whole sequences of num_envs / minibatches environments.
        expert: the policy to learn from, by name.
        expert_greedy: learn what the expert does where it leaves nothing to chance. That is easier to
            learn; but agents that draw lots come out of each other's way more often.
        cloning: share of the run in which the expert plays everywhere.
        mixing: share of the run, after that, in which the network takes over, one environment after
            the other; from then on it plays alone.
        learning_rate: step size of Adam.
        anneal: lower the learning rate linearly to 0 over the run.
        entropy_coef: weight of an entropy bonus, which keeps the network from being too sure.
        max_grad_norm: largest norm of the gradient of a set of agents that share parameters.
        hidden: widths of the layers.
        activation: of the layers.
        recurrent: width of a GRU, 0 for none.
        share: which agents share parameters: all, those of a group, or none.
        stagger: start the first episodes at different times, so that they do not end together.
    """

    total_steps: int = 1_000_000
    num_envs: int = 32
    rollout_length: int = 16
    epochs: int = 1
    minibatches: int = 4
    expert: str = "pibt"
    expert_greedy: bool = False
    cloning: float = 0.1
    mixing: float = 0.3
    learning_rate: float = 1e-3
    anneal: bool = True
    entropy_coef: float = 0.0
    max_grad_norm: float = 1.0
    hidden: tuple[int, ...] = (128,)
    activation: Activation = "relu"
    recurrent: int = 0
    share: Share = "group"
    stagger: bool = True

    def __post_init__(self) -> None:
        """Refuses settings that make no sense.

        Raises:
            ValueError: naming the setting, its value and what is allowed.
        """
        check_settings(self)
        for name in ("cloning", "mixing"):
            require(self, name, lambda x: 0 <= x <= 1, "in [0, 1]")
        require(self, "expert", lambda x: x in EXPERTS, f"one of {', '.join(EXPERTS)}")


PRESETS = {"default": Config()}


@struct.dataclass
class Hyper:
    """Rates and coefficients, traced so that a sweep can map over them (see `Config`)."""

    learning_rate: Array
    entropy_coef: Array
    max_grad_norm: Array


@struct.dataclass
class TrainState:
    """Everything a run needs to go on.

    Attributes:
        params: of the "actor", by set of agents.
        optimizer: the state of Adam, by set of agents.
        vector: the environments.
        observation: the last one, with a leading axis ``E``.
        carry: of the actor, ``f[E, A, H]``.
        fresh: ``bool[E, A]``, True where an episode or a life begins with `observation`.
        reset: ``bool[E]``, True where an episode begins with it.
        expert_carry: what the expert remembers.
        opponent_carry: of the policies that play fixed groups.
        key: drawn from once an update.
        hyper: rates and coefficients.
        update: ``int[]``, updates done.
    """

    params: Any
    optimizer: Any
    vector: Any
    observation: Any
    carry: Array
    fresh: Array
    reset: Array
    expert_carry: Any
    opponent_carry: Any
    key: Array
    hyper: Hyper
    update: Array


@struct.dataclass
class Lesson:
    """What an update learns from; leading axes ``[T, E, A]``.

    Attributes:
        features: what was seen.
        action_mask: of that observation.
        fresh: the carry was reset before this step.
        label: what the expert would have done.
        weight: 1 where an agent was alive and learns, else 0.
    """

    features: Any
    action_mask: Array
    fresh: Array
    label: Array
    weight: Array


def loss(
    agent: Agent, hyper: Hyper, params: Any, carry: Array, lesson: Lesson
) -> tuple[Array, dict[str, Array]]:
    """The mean negative log-probability of the expert's actions.

    Args:
        agent: the actor.
        hyper: coefficients.
        params: of the actor.
        carry: of the actor at the first step, ``f[E, A, H]``.
        lesson: ``[T, E, A]``.

    Returns:
        ``(loss f[], parts)``, among the parts the share of steps in which the most probable action is
        the expert's.
    """
    _, output = agent.actor(params["actor"], carry, lesson.features, lesson.fresh)
    distribution = agent.distribution(output, lesson.action_mask)
    weight = lesson.weight / jnp.maximum(jnp.sum(lesson.weight), 1)
    cross_entropy = -jnp.sum(distribution.log_prob(lesson.label) * weight)
    entropy = jnp.sum(distribution.entropy(lesson.label) * weight)
    agreement = jnp.sum((distribution.mode() == lesson.label) * weight)
    total = cross_entropy - hyper.entropy_coef * entropy
    return total, {
        "cross_entropy": cross_entropy,
        "entropy": entropy,
        "agreement": agreement,
    }


def make_train(
    config: Config,
    env: Environment,
    params: Any = None,
    opponents: dict[str, Policy] | None = None,
) -> Trainer:
    """Builds the pure functions that train a network to act like an expert.

    Args:
        config: the settings.
        env: the environment, with discrete actions.
        params: its parameters, or None for the defaults.
        opponents: policies that play whole groups instead of learning, by group name.

    Returns:
        The trainer.

    Raises:
        ValueError: for continuous actions, features without a network, an expert that does not play
            this environment, an unknown group, or no group left to learn.
    """
    params = env.default_params if params is None else params
    setup = Setup(config, env, params, dict(opponents or {}))
    vector_env, agent, learns = setup.vector_env, setup.agent, setup.learns
    if not isinstance(env.action_spec, DiscreteActions):
        raise ValueError(f"imitation learns discrete actions; {env} has continuous ones")
    expert = POLICIES[config.expert][1](env, params)

    def init(key: Array, hyper: Hyper | None = None) -> TrainState:
        net_key, env_key, key = jax.random.split(key, 3)
        weights = {"actor": agent.init(net_key)["actor"]}
        observation, vector = vector_env.reset(env_key, params, stagger=config.stagger)
        return TrainState(
            params=weights,
            optimizer=init_optimizer(agent.sharing, weights),
            vector=vector,
            observation=observation,
            carry=jnp.zeros((config.num_envs, env.num_agents, config.recurrent), float_dtype()),
            fresh=jnp.ones((config.num_envs, env.num_agents), bool),
            reset=jnp.ones(config.num_envs, bool),
            expert_carry=expert.init(config.num_envs),
            opponent_carry=setup.opponents_init(),
            key=key,
            hyper=default_hyper(config) if hyper is None else hyper,
            update=jnp.zeros((), int_dtype()),
        )

    def expert_plays(update: Array) -> Array:
        """``bool[E]``: the first environments, fewer from update to update."""
        share = 1 - (setup.progress(update) - config.cloning) / max(config.mixing, 1e-6)
        return jnp.arange(config.num_envs) < jnp.ceil(share * config.num_envs)

    def rollout_step(state: TrainState, key: Array) -> tuple[TrainState, Any]:
        act_key, expert_key, opponent_key, env_key = jax.random.split(key, 4)
        observation, fresh = state.observation, state.fresh
        carry, output = agent.actor(
            state.params["actor"],
            state.carry,
            jax.tree.map(lambda x: x[None], observation.features),
            fresh[None],
        )
        distribution = agent.distribution(output[0], observation.action_mask)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(act_key, state.vector.index)
        noise = jax.vmap(
            lambda key: distributions.action_noise(env.action_spec, key, (env.num_agents,))
        )(keys)
        own = distribution.sample(noise)
        env_state = vector_env.env_state(state.vector)
        seen = observation, env_state, params, state.reset
        label, expert_carry = expert.act(
            expert_key, state.expert_carry, *seen, config.expert_greedy
        )
        action = jnp.where(expert_plays(state.update)[:, None], label, own)
        action, opponent_carry = setup.opponents_act(
            opponent_key, state.opponent_carry, observation, env_state, state.reset, action
        )
        next_observation, vector, _, terminated, truncated, info = vector_env.step(
            env_key, state.vector, action, params
        )
        done = terminated | truncated
        lesson = Lesson(
            features=observation.features,
            action_mask=observation.action_mask,
            fresh=fresh,
            label=label,
            weight=(observation.alive & learns).astype(float_dtype()),
        )
        born = info["final_observation"].alive & ~observation.alive
        state = dataclasses.replace(
            state,
            vector=vector,
            observation=next_observation,
            carry=carry,
            fresh=done[:, None] | born,
            reset=done,
            expert_carry=expert_carry,
            opponent_carry=opponent_carry,
        )
        return state, (lesson, episode_metrics(env, info))

    def update(state: TrainState) -> tuple[TrainState, UpdateMetrics]:
        key, step_key, shuffle_key = jax.random.split(state.key, 3)
        first_carry, hyper = state.carry, state.hyper
        step_keys = jax.random.split(step_key, config.rollout_length)
        state, (lessons, episodes) = jax.lax.scan(rollout_step, state, step_keys)

        def minibatch_loss(weights: Any, start: Any, lesson: Lesson) -> Any:
            return loss(agent, hyper, weights, start, lesson)

        share = jnp.mean(expert_plays(state.update), dtype=float_dtype())
        state, parts = setup.fit(minibatch_loss, shuffle_key, state, first_carry, lessons)
        means = {name: jnp.mean(part) for name, part in parts.items()}
        means["expert_plays"] = share
        return dataclasses.replace(state, key=key), UpdateMetrics(
            means, jax.tree.map(lambda x: jnp.sum(x, axis=0), episodes)
        )

    return Trainer(
        init=init,
        update=update,
        policy=lambda state: agent.policy(state.params["actor"]),
        env=env,
        params=params,
        steps_per_update=setup.steps_per_update,
        num_updates=setup.num_updates,
        note=f"{config.expert} plays too until {min(config.cloning + config.mixing, 1):.0%} of the run",
    )


def default_hyper(config: Config) -> Hyper:
    """The rates and coefficients of the settings as arrays."""
    hyper: Hyper = traced(Hyper, config)
    return hyper


def main() -> None:
    """Runs this learner from the command line."""
    from flockax.agents.cli import main as cli

    cli(learner="imitation")


if __name__ == "__main__":
    # Run as a script, this file must be the one that the package knows, not a second copy of it.
    from flockax.agents import imitation

    imitation.main()
