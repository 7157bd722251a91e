"""Code written for JaxMARL, run by JaxMARL's own wrappers on our view; see `test_adapters`.

Run by the Python of a virtual environment that has jaxmarl.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxmarl.environments import spaces
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper, get_space_dim

from flockax.envs import make
from flockax.envs.adapters import to_jaxmarl

NUM_ENVS, HORIZON = 4, 6


def view_of(id, **fields):
    env = make(id, **fields)
    return to_jaxmarl(env, env.make_params(horizon=HORIZON), spaces=spaces)


def check_log_wrapper():
    """A rollout as the IPPO script of JaxMARL makes it."""
    env = LogWrapper(view_of("tag"))
    num_actors = NUM_ENVS * env.num_agents
    max_dim = max(get_space_dim(env.observation_space(a)) for a in env.agents)

    def batchify(x):
        rows = [jnp.pad(x[a], ((0, 0), (0, max_dim - x[a].shape[-1]))) for a in env.agents]
        return jnp.stack(rows).reshape((num_actors, -1))

    def one(carry, _):
        observations, state, rng = carry
        rng, action_rng, step_rng = jax.random.split(rng, 3)
        assert batchify(observations).shape == (num_actors, max_dim)
        flat = jax.random.randint(action_rng, (num_actors,), 0, env.action_space(env.agents[0]).n)
        actions = dict(zip(env.agents, flat.reshape((env.num_agents, NUM_ENVS)), strict=True))
        rng_step = jax.random.split(step_rng, NUM_ENVS)
        observations, state, rewards, dones, info = jax.vmap(env.step)(rng_step, state, actions)
        info = jax.tree.map(lambda x: x.reshape(num_actors), info)
        return (observations, state, rng), (rewards, dones, info)

    rng = jax.random.PRNGKey(0)
    observations, state = jax.vmap(env.reset)(jax.random.split(rng, NUM_ENVS))
    scan = jax.jit(lambda carry: jax.lax.scan(one, carry, None, 2 * HORIZON))
    _, (rewards, dones, info) = scan((observations, state, rng))
    returned = np.asarray(info["returned_episode"]).reshape(-1, NUM_ENVS, env.num_agents)
    np.testing.assert_array_equal(returned[..., 0], np.asarray(dones["__all__"]))
    assert (np.flatnonzero(returned[:, 0, 0]) == [HORIZON - 1, 2 * HORIZON - 1]).all()
    returns = np.asarray(info["returned_episode_returns"]).reshape(returned.shape)[HORIZON - 1]
    for i, agent in enumerate(env.agents):
        total = np.asarray(rewards[agent])[:HORIZON].sum(0)
        np.testing.assert_allclose(returns[:, i], total, rtol=1e-5, atol=1e-5)
    lengths = np.asarray(info["returned_episode_lengths"]).reshape(returned.shape)[HORIZON - 1]
    assert (lengths == HORIZON).all()


def check_rollout_manager():
    """What JaxMARL's Q-learning scripts use: groups of unlike sizes are padded by it."""
    env = view_of("world_comm")
    manager = CTRolloutManager(env, batch_size=NUM_ENVS)
    rng = jax.random.PRNGKey(1)
    observations, state = manager.batch_reset(rng)
    width = max(get_space_dim(env.observation_space(a)) for a in env.agents) + env.num_agents
    for _ in range(HORIZON):
        actions = {agent: manager.batch_sample(rng, agent) for agent in env.agents}
        assert all(observations[a].shape == (NUM_ENVS, width) for a in env.agents)
        observations, state, rewards, dones, _ = manager.batch_step(rng, state, actions)
        team = sum(np.asarray(rewards[agent]) for agent in env.agents)
        np.testing.assert_allclose(rewards["__all__"], team, rtol=1e-5, atol=1e-5)
    assert np.asarray(dones["__all__"]).all()


if __name__ == "__main__":
    check_log_wrapper()
    check_rollout_manager()
    print("ok")
