"""Whole episodes beside mpe2's own parallel environment and its world."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpe2 import simple_spread_v3, simple_tag_v3, simple_world_comm_v3
from particle_ours import compiled_step
from particle_peer import (
    distances,
    make_peer,
    observations,
    pad,
    random_actions,
    single,
    snapshot,
)

from flockax.envs import make
from flockax.envs.predator_prey.world_comm import WorldCommState
from flockax.envs.space.particle import ParticleState

pytestmark = pytest.mark.usefixtures("float64")

PARALLEL = {"tag": simple_tag_v3, "spread": simple_spread_v3, "world_comm": simple_world_comm_v3}
DEFAULTS = {
    "tag": {"num_predators": 3, "num_prey": 1, "num_obstacles": 2},
    "spread": {"num_agents": 3},
    "world_comm": {
        "num_predators": 4,
        "num_prey": 2,
        "num_obstacles": 1,
        "num_food": 2,
        "num_forests": 2,
    },
}
CASES = [(id, actions) for id in DEFAULTS for actions in ("discrete", "continuous")]


def one_world(world, time):
    """The state of a peer's world as ours, with a batch of one, batched last."""
    now = snapshot(world)
    bodies = [jnp.asarray(now[name])[..., None] for name in ("position", "velocity", "landmark")]
    steps = jnp.full(1, time, int)
    if world.agents[0].silent:
        return ParticleState(*bodies, steps)
    return WorldCommState(*bodies, steps, message=jnp.asarray(now["message"])[..., None])


@pytest.mark.parametrize(("id", "actions"), CASES)
def test_an_episode_of_the_parallel_environment(id, actions):
    """Teacher-forced: rewards, observations and flags until the time limit; wild actions are clipped."""
    peer = PARALLEL[id].parallel_env(continuous_actions=actions == "continuous")
    world = peer.aec_env.unwrapped.world
    env = make(id, actions=actions)
    assert env.default_params.horizon == 25
    rng = np.random.default_rng(1)
    peer.reset(seed=3)
    names = list(peer.agents)
    assert len(names) == env.num_agents
    for time in range(25):
        assert peer.agents == names
        if actions == "discrete":
            chosen = [int(rng.integers(peer.action_space(name).n)) for name in names]
        else:
            sizes = [peer.action_space(name).shape[0] for name in names]
            chosen = [rng.uniform(-1, 2, size) for size in sizes]
        state, action = one_world(world, time), jnp.asarray(pad(chosen))[..., None]
        seen, reward, terminations, truncations, _ = peer.step(
            dict(zip(names, chosen, strict=True))
        )
        observation, state, our_reward, terminated, truncated, info = compiled_step(env)(
            jax.random.key(0), state, action, env.default_params
        )
        # The peer hands its observations out in float32.
        features = np.asarray(observation.features)[:, :, 0]
        for i, name in enumerate(names):
            width = seen[name].size
            np.testing.assert_allclose(features[i, :width], seen[name], rtol=1e-6, atol=1e-6)
            assert abs(our_reward[i, 0] - reward[name]) <= 1e-9
            assert bool(terminated[0]) == terminations[name]
            assert bool(truncated[0]) == truncations[name] == (time == 24)
        assert not info["invalid_action"][0]
    assert peer.agents == []


@pytest.mark.parametrize(("id", "actions"), CASES)
def test_a_free_running_episode_without_contacts(id, actions):
    env, peer = make(id, actions=actions), make_peer(id, actions, **DEFAULTS[id])
    peer.reset(seed=0)
    world, rng = peer.world, np.random.default_rng(2)
    for i, entity in enumerate(world.entities):
        # Nobody can travel half as far as the spacing.
        entity.state.p_pos = single(np.array([12.0 * i - 20, rng.uniform(-1, 1)]))
    state, step = one_world(world, 0), compiled_step(env)
    moved = state.position
    for _ in range(25):
        chosen = random_actions(rng, peer)
        peer.current_actions = list(chosen)
        peer._execute_world_step()
        action = jnp.asarray(pad(chosen))[..., None]
        observation, state, reward, _, truncated, _ = step(
            jax.random.key(0), state, action, env.default_params
        )
        now = snapshot(world)
        apart = distances(now["position"][None], now["position"][None])[0]
        assert np.min(apart + 10 * np.eye(len(apart))) > 1
        for name in ("position", "velocity"):
            np.testing.assert_allclose(getattr(state, name)[..., 0], now[name], atol=1e-9)
        for i, expected in enumerate(observations(peer)):
            got = observation.features[i, : len(expected), 0]
            np.testing.assert_allclose(got, expected, atol=1e-9)
            agent = world.agents[i].name
            np.testing.assert_allclose(reward[i, 0], peer.rewards[agent], rtol=1e-12, atol=1e-9)
    assert truncated[0] and np.min(np.abs(state.position - moved).sum(axis=1)) > 1e-3
