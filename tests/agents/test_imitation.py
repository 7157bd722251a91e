"""Imitation: the network learns what the expert does, in states that it meets itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.agents import imitation
from flockax.agents.core.trainer import make_chunk, make_init, seed_keys
from flockax.agents.planners.pibt import PibtPolicy
from flockax.envs import make

TINY = imitation.Config(
    total_steps=64 * 40,
    num_envs=8,
    rollout_length=8,
    minibatches=2,
    hidden=(16,),
    learning_rate=5e-3,
)
FIELDS = {"num_agents": 2, "size": 5, "num_maps": 4, "density": 0.2, "obs_radius": 2}


def small(**fields):
    env = make(
        "grid_pathfinding", **{**FIELDS, "guide": "distance", "on_target": "restart", **fields}
    )
    return env, env.make_params(horizon=12)


def train(config, seeds=1, updates=None, seed_loop="vmap"):
    trainer = imitation.make_train(config, *small())
    states = make_init(trainer, seed_loop)(seed_keys(0, seeds))
    return make_chunk(trainer, seed_loop)(states, jnp.int32(updates or trainer.num_updates))


def test_the_network_comes_to_agree_with_the_expert():
    config = dataclasses.replace(TINY, total_steps=64 * 150)
    trainer = imitation.make_train(config, *small())
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    chunk = make_chunk(trainer, "vmap")
    states, first = chunk(states, jnp.int32(5))
    states, _ = chunk(states, jnp.int32(135))
    states, last = chunk(states, jnp.int32(10))
    assert float(first.loss["expert_plays"][0]) == 1 and float(last.loss["expert_plays"][0]) == 0
    assert float(first.loss["cross_entropy"][0]) > 1.2
    assert float(last.loss["cross_entropy"][0]) < 0.7
    assert float(last.loss["agreement"][0]) > 0.7


@pytest.mark.parametrize("greedy", [False, True])
def test_the_expert_is_asked_with_or_without_chance(greedy, monkeypatch):
    asked = []
    act = PibtPolicy.act

    def noting(self, *args):
        asked.append(args[-1])
        return act(self, *args)

    monkeypatch.setattr(PibtPolicy, "act", noting)
    trainer = imitation.make_train(dataclasses.replace(TINY, expert_greedy=greedy), *small())
    jax.eval_shape(lambda key: trainer.update(trainer.init(key)), jax.random.key(0))
    assert set(asked) == {greedy}


def test_every_parameter_gets_a_gradient_and_nothing_else_is_trained():
    trainer = imitation.make_train(dataclasses.replace(TINY, recurrent=4), *small())
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    old = jax.tree.map(np.asarray, states.params)
    states, metrics = make_chunk(trainer, "vmap")(states, jnp.int32(4))
    assert set(states.params) == {"actor"} and int(metrics.first_bad[0]) == -1
    for path, change in jax.tree.leaves_with_path(
        jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)), old, states.params)
    ):
        assert change.max() > 1e-4, path


def test_the_network_takes_over_environment_by_environment():
    config = dataclasses.replace(TINY, cloning=0.25, mixing=0.5)
    shares = []
    trainer = imitation.make_train(config, *small())
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    chunk = make_chunk(trainer, "vmap")
    for _ in range(trainer.num_updates // 5):
        states, metrics = chunk(states, jnp.int32(5))
        shares.append(float(metrics.loss["expert_plays"][0]))
    assert shares[:2] == [1.0, 1.0] and shares[-2:] == [0.0, 0.0]
    assert shares == sorted(shares, reverse=True) and 0.3 < shares[len(shares) // 2] < 0.7


def test_seeds_do_not_depend_on_each_other_when_mapped():
    alone, _ = train(TINY, seeds=1, updates=2, seed_loop="map")
    both, _ = train(TINY, seeds=2, updates=2, seed_loop="map")
    for a, b in zip(jax.tree.leaves(alone.params), jax.tree.leaves(both.params), strict=True):
        np.testing.assert_array_equal(a[0], b[0])


def test_what_cannot_be_imitated_is_refused():
    with pytest.raises(ValueError, match="discrete"):
        imitation.make_train(TINY, make("tag", actions="continuous"))
    with pytest.raises(ValueError, match="plays grid_pathfinding only"):
        imitation.make_train(TINY, make("tag"))
    with pytest.raises(ValueError, match="expert='nobody' is not one of"):
        imitation.Config(expert="nobody")
    # It would not say what to do where the network strays from its plans.
    with pytest.raises(ValueError, match="expert='lacam' is not one of random, pibt, prioritized"):
        imitation.Config(expert="lacam")
