"""Training worker: a stand-in for JaxMARL's feed-forward IPPO on JaxMARL's own environment.

JaxMARL's training scripts are not in its wheel. This is not its code: it is written anew from the
description of the algorithm and its settings (independent PPO, parameters shared by all agents, whose
rows are flattened into one batch), around JaxMARL's environment and `LogWrapper`, and exists only to
have something to train in turn with ours on the same jax.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxmarl
import optax
from flax import struct
from jaxmarl.wrappers.baselines import LogWrapper
from protocol import machine, serve
from training_turns import Learner, training_handlers

Array = jax.Array


class ActorCritic(nn.Module):
    """Two separate tanh networks for logits and value: ``f[..., F] -> f[..., n], f[...]``."""

    num_actions: int
    hidden: int

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Returns logits and values."""

        def network(x: Array, outputs: int, scale: float) -> Array:
            for _ in range(2):
                x = nn.tanh(
                    nn.Dense(self.hidden, kernel_init=nn.initializers.orthogonal(2**0.5))(x)
                )
            return nn.Dense(outputs, kernel_init=nn.initializers.orthogonal(scale))(x)

        return network(x, self.num_actions, 0.01), network(x, 1, 1.0)[..., 0]


@struct.dataclass
class Rows:
    """What a rollout stores, a row for each agent of each environment: all ``[T, A * E, ...]``."""

    x: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    done: Any


@struct.dataclass
class State:
    """Everything that changes in training; environment states have a leading ``E``."""

    key: Any
    params: Any
    optimizer: Any
    env: Any
    observation: Any


def log_prob_of(logits: Array, action: Array) -> Array:
    """``log p(action)`` under a categorical distribution."""
    return jnp.take_along_axis(nn.log_softmax(logits), action[..., None], -1)[..., 0]


def advantages_of(rows: Rows, last_value: Array, gamma: float, gae_lambda: float) -> Array:
    """Generalised advantage estimates ``f[T, A * E]``; the end of an episode is worth nothing."""

    def backwards(carry: Any, row: Rows) -> tuple[Any, Array]:
        advantage, next_value = carry
        going_on = 1.0 - row.done
        delta = row.reward + gamma * next_value * going_on - row.value
        advantage = delta + gamma * gae_lambda * going_on * advantage
        return (advantage, row.value), advantage

    start = jnp.zeros_like(last_value), last_value
    return jax.lax.scan(backwards, start, rows, reverse=True, unroll=16)[1]


def ppo_loss(logits: Array, value: Array, rows: Rows, advantage: Array, s: dict) -> Array:
    """Clipped PPO loss of a minibatch; `rows` hold what the policy that acted thought."""
    ratio = jnp.exp(log_prob_of(logits, rows.action) - rows.log_prob)
    target = advantage + rows.value
    near = rows.value + jnp.clip(value - rows.value, -s["clip"], s["clip"])
    value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - s["clip"], 1 + s["clip"])
    policy_loss = -jnp.minimum(ratio * scaled, clipped * scaled).mean()
    log_p = nn.log_softmax(logits)
    entropy = -(jnp.exp(log_p) * log_p).sum(-1).mean()
    return policy_loss + s["vf_coef"] * value_loss - s["ent_coef"] * entropy


def make_learner(env: str, settings: dict[str, Any]) -> Learner:
    """IPPO on JaxMARL's environment `env` with settings named as in ``training.JAXMARL``."""
    s = settings
    world = LogWrapper(jaxmarl.make(env))
    agents, num_agents, num_envs = world.agents, world.num_agents, s["num_envs"]
    network = ActorCritic(world.action_space(agents[0]).n, s["hidden"])
    num_updates = s["total_steps"] // (num_envs * s["num_steps"])
    per_update = s["epochs"] * s["minibatches"]
    optimizer = optax.chain(
        optax.clip_by_global_norm(s["max_grad_norm"]),
        optax.adam(lambda i: s["lr"] * (1 - (i // per_update) / num_updates), eps=1e-5),
    )

    def flat(values: dict[str, Array]) -> Array:
        return jnp.concatenate([values[agent] for agent in agents])

    def init(key: Array) -> State:
        key, params_key, env_key = jax.random.split(key, 3)
        observation, env_state = jax.vmap(world.reset)(jax.random.split(env_key, num_envs))
        params = network.init(params_key, flat(observation))
        return State(key, params, optimizer.init(params), env_state, observation)

    def act_and_step(state: State, _: None) -> tuple[State, Any]:
        key, act_key, step_key = jax.random.split(state.key, 3)
        x = flat(state.observation)
        logits, value = network.apply(state.params, x)
        action = jax.random.categorical(act_key, logits)
        actions = dict(zip(agents, action.reshape(num_agents, num_envs), strict=True))
        step_keys = jax.random.split(step_key, num_envs)
        observation, env_state, reward, done, info = jax.vmap(world.step)(
            step_keys, state.env, actions
        )
        log_prob = log_prob_of(logits, action)
        rows = Rows(x, action, log_prob, value, flat(reward), flat(done))
        return state.replace(key=key, env=env_state, observation=observation), (rows, info)

    def minibatch(carry: Any, batch: Any) -> tuple[Any, None]:
        params, opt_state = carry
        rows, advantage = batch
        grads = jax.grad(
            lambda params: ppo_loss(*network.apply(params, rows.x), rows, advantage, s)
        )(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    def update(state: State) -> tuple[State, dict[str, Array]]:
        state, (rows, info) = jax.lax.scan(act_and_step, state, None, s["num_steps"])
        last_value = network.apply(state.params, flat(state.observation))[1]
        advantage = advantages_of(rows, last_value, s["gamma"], s["gae_lambda"])
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (rows, advantage))

        def epoch(carry: Any, key: Array) -> tuple[Any, None]:
            order = jax.random.permutation(key, batch[1].size)
            shuffled = jax.tree.map(
                lambda x: x[order].reshape(s["minibatches"], -1, *x.shape[1:]), batch
            )
            return jax.lax.scan(minibatch, carry, shuffled)

        key, epoch_key = jax.random.split(state.key)
        learned, _ = jax.lax.scan(
            epoch, (state.params, state.optimizer), jax.random.split(epoch_key, s["epochs"])
        )
        ended = info["returned_episode"][..., 0]
        team = info["returned_episode_returns"].sum(-1)
        metrics = {"return_sum": jnp.where(ended, team, 0).sum(), "episodes": ended.sum()}
        return state.replace(key=key, params=learned[0], optimizer=learned[1]), metrics

    return Learner(env, num_agents, init, update, num_envs * s["num_steps"], num_updates)


if __name__ == "__main__":
    serve(training_handlers(make_learner, partial(machine, "jaxmarl", "flax", "optax")))
