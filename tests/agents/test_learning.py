"""IPPO with its defaults learns the particle worlds, by the convention that the README states."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from flockax.agents import ippo
from flockax.agents.core.evaluation import evaluate
from flockax.agents.core.policy import GroupedPolicy, RandomPolicy
from flockax.agents.core.trainer import make_chunk, make_init, seed_keys
from flockax.envs import make

pytestmark = pytest.mark.slow
EPISODES = 256


def trained(env, **settings):
    trainer = ippo.make_train(dataclasses.replace(ippo.Config(), **settings), env)
    states = make_init(trainer, "vmap")(seed_keys(0, 2))
    states, metrics = make_chunk(trainer, "vmap")(states, jnp.int32(trainer.num_updates))
    assert int(metrics.first_bad.max()) == -1
    return jax.vmap(trainer.policy)(states)


def returns(policy, env, stacked=True):
    result = evaluate(policy, env, env.default_params, EPISODES, stacked)
    return {name: group["return_mean"] for name, group in result["per_group"].items()}


@pytest.mark.parametrize(
    ("fields", "settings", "least"),
    [
        ({}, {}, -38),
        ({"actions": "continuous"}, {}, -45),
        ({}, {"recurrent": 32, "total_steps": 600_000}, -50),
    ],
    ids=["discrete", "continuous", "recurrent"],
)
def test_spread(fields, settings, least):
    env = make("spread", **fields)
    untrained = returns(RandomPolicy(env), env, stacked=False)["agents"]
    assert untrained < -70
    policy = trained(env, **{"total_steps": 1_000_000, **settings})
    assert returns(policy, env)["agents"] > least


def test_tag_both_sides_learn():
    env = make("tag")
    random = returns(RandomPolicy(env), env, stacked=False)
    policy = trained(env)

    def against_random(group):
        return returns(GroupedPolicy(policy, {group: RandomPolicy(env)}, env), env)

    hunted = against_random("prey")
    assert hunted["predators"] > 80 and hunted["predators"] > 4 * random["predators"]
    # Prey learned from predators that hunt, and flee those that wander too.
    assert against_random("predators")["prey"] > random["prey"] + 6
    # Against the same predators, trained prey are caught much less than random ones.
    both = returns(policy, env)
    assert both["predators"] < 0.7 * hunted["predators"]
    assert both["prey"] > 0.7 * hunted["prey"]
