"""IPPO: independent proximal policy optimisation, feed-forward or recurrent.

Every agent learns from its own observations and rewards with the clipped objective of PPO (Schulman
et al. 2017; de Witt et al. 2020 for several agents), all of them at the same time. Rollout and update
compile into one program. Axes are ``[T, E, A]``: time, environments, agents.

    python agents/ippo.py --env tag --seeds 4
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.core import distributions, returns
from flockax.agents.core.actor_critic import Agent
from flockax.agents.core.learning import Activation, Setup, Share, check_settings, traced
from flockax.agents.core.optimiser import init_optimizer
from flockax.agents.core.policy import Policy
from flockax.agents.core.trainer import Trainer, UpdateMetrics, episode_metrics, require
from flockax.envs import Environment, cond_any
from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of IPPO.

    Attributes:
        total_steps: environment steps of one seed; rounded up to whole updates.
        num_envs: environments side by side.
        rollout_length: steps of each environment between updates.
        epochs: passes over each rollout.
        minibatches: parts of a pass; each holds whole sequences of num_envs / minibatches environments.
        learning_rate: step size of Adam.
        anneal: lower the learning rate linearly to 0 over the run.
        gamma: discount.
        gae_lambda: weight of long sums in the advantage.
        clip: how far the probability ratio may move from 1.
        value_clip: how far a value may move from that of the rollout; 0 for no limit.
        entropy_coef: weight of the entropy bonus.
        value_coef: weight of the value loss.
        max_grad_norm: largest norm of the gradient of a set of agents that share parameters.
        hidden: widths of the layers of actor and critic.
        activation: of the layers.
        recurrent: width of a GRU in actor and critic, 0 for none.
        share: which agents share parameters: all, those of a group, or none.
        stagger: start the first episodes at different times, so that they do not end together.
        critic_first: share of the run in which only the critic learns, for a run that starts from
            another whose critic knows nothing.
    """

    total_steps: int = 2_000_000
    num_envs: int = 64
    rollout_length: int = 25
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 4e-3
    anneal: bool = True
    gamma: float = 0.9
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.0
    entropy_coef: float = 0.02
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "relu"
    recurrent: int = 0
    share: Share = "group"
    stagger: bool = True
    critic_first: float = 0.0

    def __post_init__(self) -> None:
        """Refuses settings that make no sense.

        Raises:
            ValueError: naming the setting, its value and what is allowed.
        """
        check_settings(self)
        for name in ("gamma", "gae_lambda", "critic_first"):
            require(self, name, lambda x: 0 <= x <= 1, "in [0, 1]")
        require(self, "clip", lambda x: 0 < x < float("inf"), "finite and above 0")
        for name in ("value_clip", "value_coef"):
            require(self, name, lambda x: 0 <= x < float("inf"), "finite and at least 0")


PRESETS = {
    "default": Config(),
    # The settings of JaxMARL's feed-forward IPPO on its particle worlds (ippo_ff_mpe).
    "jaxmarl": Config(
        total_steps=1_000_000,
        num_envs=16,
        rollout_length=128,
        learning_rate=2.5e-4,
        gamma=0.99,
        value_clip=0.2,
        entropy_coef=0.01,
        activation="tanh",
        share="all",
    ),
}


@struct.dataclass
class Hyper:
    """Rates and coefficients, traced so that a sweep can map over them (see `Config`)."""

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    clip: Array
    value_clip: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array


@struct.dataclass
class TrainState:
    """Everything a run needs to go on.

    Attributes:
        params: of "actor" and "critic", by set of agents.
        optimizer: the state of Adam, by set of agents.
        vector: the environments.
        observation: the last one, with a leading axis ``E``.
        carry: of "actor" and "critic", ``f[E, A, H]``.
        fresh: ``bool[E, A]``, True where an episode or a life begins with `observation`.
        opponent_carry: of the policies that play fixed groups.
        key: drawn from once an update.
        hyper: rates and coefficients.
        update: ``int[]``, updates done.
    """

    params: Any
    optimizer: Any
    vector: Any
    observation: Any
    carry: Any
    fresh: Array
    opponent_carry: Any
    key: Array
    hyper: Hyper
    update: Array


@struct.dataclass
class Rollout:
    """What an update learns from; leading axes ``[T, E, A]``, `done` without the last.

    Attributes:
        features: the observation acted on.
        action_mask: of that observation.
        fresh: the carry was reset before this step.
        raw: raw action.
        log_prob: of the raw action when it was drawn; None until the rollout is complete.
        value: of the observation; likewise.
        reward: after the action.
        bootstrap: the agent lives on after the step.
        done: the episode ended with the step.
        final_value: value of the true last observation where the episode was truncated.
        weight: 1 where an agent was alive and learns, else 0.
    """

    features: Array
    action_mask: Array
    fresh: Array
    raw: Array
    log_prob: Any
    value: Any
    reward: Array
    bootstrap: Array
    done: Array
    final_value: Array
    weight: Array


def loss(
    agent: Agent,
    hyper: Hyper,
    params: Any,
    carry: Any,
    batch: Rollout,
    advantage: Array,
    target: Array,
) -> tuple[Array, dict[str, Array]]:
    """The PPO loss of a minibatch of whole sequences.

    The losses of agents that share parameters are averaged, those of different sets are added: sets
    have parameters of their own, so each learns as if it were alone.

    Args:
        agent: actor and critic.
        hyper: coefficients.
        params: of actor and critic.
        carry: of actor and critic at the first step, ``f[E, A, H]``.
        batch: ``[T, E, A]``.
        advantage: ``f[T, E, A]``, normalised.
        target: ``f[T, E, A]``, what values should be.

    Returns:
        ``(loss f[], parts)``: scalars averaged over sets.
    """
    _, output = agent.actor(params["actor"], carry["actor"], batch.features, batch.fresh)
    _, value = agent.critic(params["critic"], carry["critic"], batch.features, batch.fresh)
    distribution = agent.distribution(output, batch.action_mask)
    log_ratio = distribution.log_prob(batch.raw) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - hyper.clip, 1 + hyper.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage)

    limit = jnp.where(hyper.value_clip > 0, hyper.value_clip, jnp.inf)
    near = batch.value + jnp.clip(value - batch.value, -limit, limit)
    value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2)
    entropy = distribution.entropy(batch.raw)

    membership = jnp.asarray(agent.sharing.membership, value.dtype)
    counts = jnp.sum(batch.weight, axis=(0, 1)) @ membership
    learning = jnp.maximum(jnp.sum(counts > 0), 1)
    share = batch.weight * (membership @ (1 / jnp.maximum(counts, 1)))

    def over_sets(x: Array) -> Array:
        return jnp.sum(x * share)

    policy_term, value_term, entropy_term = map(over_sets, (policy_loss, value_loss, entropy))
    total = policy_term + hyper.value_coef * value_term - hyper.entropy_coef * entropy_term
    parts = {
        "policy": policy_term,
        "value": value_term,
        "entropy": entropy_term,
        "approx_kl": over_sets(ratio - 1 - log_ratio),
        "clip_fraction": over_sets((jnp.abs(ratio - 1) > hyper.clip).astype(value.dtype)),
    }
    parts = {name: part / learning for name, part in parts.items()}
    parts["ratio_deviation"] = jnp.max(jnp.abs(ratio - 1) * batch.weight)
    return total, parts


def make_train(
    config: Config,
    env: Environment,
    params: Any = None,
    opponents: dict[str, Policy] | None = None,
) -> Trainer:
    """Builds the pure functions that train IPPO on an environment.

    Args:
        config: the settings.
        env: the environment.
        params: its parameters, or None for the defaults.
        opponents: policies that play whole groups instead of learning, by group name.

    Returns:
        The trainer.

    Raises:
        ValueError: for features without a network, an unknown group, or no group left to learn.
    """
    params = env.default_params if params is None else params
    setup = Setup(config, env, params, dict(opponents or {}))
    vector_env, agent, learns = setup.vector_env, setup.agent, setup.learns

    def init(key: Array, hyper: Hyper | None = None) -> TrainState:
        net_key, env_key, key = jax.random.split(key, 3)
        weights = agent.init(net_key)
        observation, vector = vector_env.reset(env_key, params, stagger=config.stagger)
        carry = jnp.zeros((config.num_envs, env.num_agents, config.recurrent), float_dtype())
        return TrainState(
            params=weights,
            optimizer=init_optimizer(agent.sharing, weights),
            vector=vector,
            observation=observation,
            carry={"actor": carry, "critic": carry},
            fresh=jnp.ones((config.num_envs, env.num_agents), bool),
            opponent_carry=setup.opponents_init(),
            key=key,
            hyper=default_hyper(config) if hyper is None else hyper,
            update=jnp.zeros((), int_dtype()),
        )

    def draw_noise(key: Array, index: Array) -> Array:
        """``f[T, E, A, ...]``: the noise of all actions; each environment has its key."""
        shape = (config.rollout_length, env.num_agents)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, index)
        draw = jax.vmap(lambda key: distributions.action_noise(env.action_spec, key, shape))
        return jnp.moveaxis(draw(keys), 1, 0)

    def value_at_end(truncated: Array, *inputs: Any) -> Array:
        """``f[E, A]``: values of the last observations, computed only if an episode was truncated."""

        def compute(weights: Any, carry: Array, features: Array, fresh: Array) -> Array:
            return agent.critic(weights, carry, features[None], fresh[None])[1][0]

        def nothing(weights: Any, carry: Array, features: Array, fresh: Array) -> Array:
            return jnp.zeros(fresh.shape, float_dtype())

        return cond_any(truncated, compute, nothing, *inputs)

    def rollout_step(state: TrainState, inputs: tuple[Array, Array]) -> tuple[TrainState, Any]:
        key, noise = inputs
        opponent_key, env_key = jax.random.split(key)
        observation, fresh = state.observation, state.fresh
        seen = observation.features[None], fresh[None]
        actor_carry, output = agent.actor(state.params["actor"], state.carry["actor"], *seen)
        critic_carry = state.carry["critic"]
        if config.recurrent:
            critic_carry, _ = agent.critic(state.params["critic"], critic_carry, *seen)
        distribution = agent.distribution(output[0], observation.action_mask)
        raw = distribution.sample(noise)
        action, opponent_carry = setup.opponents_act(
            opponent_key,
            state.opponent_carry,
            observation,
            vector_env.env_state(state.vector),
            jnp.all(fresh, axis=1),
            distribution.action(raw),
        )
        next_observation, vector, reward, terminated, truncated, info = vector_env.step(
            env_key, state.vector, action, params
        )
        done = terminated | truncated
        final = info["final_observation"]
        born = final.alive & ~observation.alive
        final_value = value_at_end(
            truncated, state.params["critic"], critic_carry, final.features, born
        )
        step = Rollout(
            features=observation.features,
            action_mask=observation.action_mask,
            fresh=fresh,
            raw=raw,
            log_prob=None,
            value=None,
            reward=reward,
            bootstrap=~terminated[:, None] & final.alive,
            done=done,
            final_value=final_value,
            weight=(observation.alive & learns).astype(float_dtype()),
        )
        state = dataclasses.replace(
            state,
            vector=vector,
            observation=next_observation,
            carry={"actor": actor_carry, "critic": critic_carry},
            fresh=done[:, None] | born,
            opponent_carry=opponent_carry,
        )
        return state, (step, output[0], episode_metrics(env, info))

    def valued(weights: Any, carry: Any, rollout: Rollout, output: Array) -> Rollout:
        """The rollout with its values and log-probabilities: all at once, which is faster."""
        distribution = agent.distribution(output, rollout.action_mask)
        seen = rollout.features, rollout.fresh
        _, value = agent.critic(weights["critic"], carry["critic"], *seen)
        return dataclasses.replace(
            rollout, log_prob=distribution.log_prob(rollout.raw), value=value
        )

    def update(state: TrainState) -> tuple[TrainState, UpdateMetrics]:
        key, step_key, noise_key, shuffle_key = jax.random.split(state.key, 4)
        first_carry = state.carry
        step_keys = jax.random.split(step_key, config.rollout_length)
        noise = draw_noise(noise_key, state.vector.index)
        state, (rollout, output, episodes) = jax.lax.scan(rollout_step, state, (step_keys, noise))

        rollout = valued(state.params, first_carry, rollout, output)
        hyper, r = state.hyper, rollout
        seen = state.observation.features[None], state.fresh[None]
        _, last_value = agent.critic(state.params["critic"], state.carry["critic"], *seen)
        next_value = returns.following_values(r.value, last_value[0], r.final_value, r.done)
        advantage = returns.gae(
            r.reward, r.value, next_value, r.bootstrap, r.done, hyper.gamma, hyper.gae_lambda
        )
        target = advantage + rollout.value
        membership = jnp.asarray(agent.sharing.membership, advantage.dtype)
        advantage = returns.normalise(advantage, rollout.weight, membership)

        def minibatch_loss(weights: Any, start: Any, part: Any) -> Any:
            return loss(agent, hyper, weights, start, *part)

        later = setup.progress(state.update) >= config.critic_first
        state, parts = setup.fit(
            minibatch_loss,
            shuffle_key,
            state,
            first_carry,
            (rollout, advantage, target),
            actor_learns=later if config.critic_first else None,
        )
        means = {name: jnp.mean(part) for name, part in parts.items()}
        means["ratio_deviation"] = parts["ratio_deviation"][0]
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
    )


def default_hyper(config: Config) -> Hyper:
    """The rates and coefficients of the settings as arrays."""
    hyper: Hyper = traced(Hyper, config)
    return hyper


def main() -> None:
    """Runs this learner from the command line."""
    from flockax.agents.cli import main as cli

    cli(learner="ippo")


if __name__ == "__main__":
    # Run as a script, this file must be the one that the package knows, not a second copy of it.
    from flockax.agents import ippo

    ippo.main()
