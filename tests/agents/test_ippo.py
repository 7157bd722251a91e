"""IPPO: probability ratios, gradients, known values, seeds, sharing, opponents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Probe

from flockax.agents import ippo
from flockax.agents.core.evaluation import play_episodes, summarise
from flockax.agents.core.policy import RandomPolicy
from flockax.agents.core.trainer import make_chunk, make_init, seed_keys
from flockax.envs import make

TINY = ippo.Config(
    total_steps=10_000,
    num_envs=4,
    rollout_length=6,
    epochs=2,
    minibatches=2,
    hidden=(8,),
    learning_rate=1e-2,
)
VARIANTS = {
    "discrete": (TINY, {}),
    "continuous": (TINY, {"actions": "continuous"}),
    "recurrent": (dataclasses.replace(TINY, recurrent=5), {}),
    "recurrent_continuous": (dataclasses.replace(TINY, recurrent=5), {"actions": "continuous"}),
    "shared": (dataclasses.replace(TINY, recurrent=5, share="all"), {}),
    "separate": (dataclasses.replace(TINY, recurrent=5, share="none"), {}),
}


def after(trainer, updates, seeds=1, seed_loop="vmap", seed=0):
    states = make_init(trainer, seed_loop)(seed_keys(seed, seeds))
    return make_chunk(trainer, seed_loop)(states, jnp.int32(updates))


def small_tag(**fields):
    # A short horizon puts several ends of episodes into every rollout.
    env = make("tag", num_predators=2, num_prey=1, num_obstacles=1, **fields)
    return env, env.make_params(horizon=4)


SLOW = pytest.mark.slow
QUICK = ("discrete", "recurrent_continuous", "separate")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=SLOW) for n in VARIANTS]
)
def test_ratio_is_one_at_first_and_every_parameter_gets_a_gradient(name):
    """Adam moves a parameter by about its rate in the first update unless its gradient is zero."""
    config, fields = VARIANTS[name]
    trainer = ippo.make_train(config, *small_tag(**fields))
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    old = jax.tree.map(np.asarray, states.params)
    states, metrics = make_chunk(trainer, "vmap")(states, jnp.int32(4))
    assert 0 <= float(metrics.loss["ratio_deviation"][0]) <= 1e-5
    for path, change in jax.tree.leaves_with_path(
        jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)), old, states.params)
    ):
        assert change.max() > 1e-4, path
        # First layers see constant zeros: the padding of the smaller group, the idle component.
        assert (change > 0).mean() > 0.5, path


@pytest.mark.parametrize("name", [pytest.param("continuous", marks=SLOW), "recurrent"])
def test_ratio_is_one_in_float64(name):
    config, fields = VARIANTS[name]
    with jax.enable_x64(True):
        trainer = ippo.make_train(config, *small_tag(**fields))
        states, metrics = after(trainer, 3)
        dtypes = {x.dtype for x in jax.tree.leaves((states.params, states.carry))}
        assert dtypes == {np.dtype("float64")}
        assert 0 <= float(metrics.loss["ratio_deviation"][0]) <= 1e-12


@pytest.mark.parametrize("fault", ["reset", "carry"])
def test_a_shift_of_the_recurrent_bookkeeping_shows_in_the_ratio(fault, monkeypatch):
    right = ippo.loss

    def wrong(agent, hyper, params, carry, batch, advantage, target):
        if fault == "reset":
            batch = dataclasses.replace(batch, fresh=jnp.roll(batch.fresh, 1, axis=0))
        else:
            moved, _ = agent.actor(
                params["actor"], carry["actor"], batch.features[:1], batch.fresh[:1]
            )
            carry = {**carry, "actor": moved}
            batch = dataclasses.replace(batch, fresh=batch.fresh.at[0].set(False))
        return right(agent, hyper, params, carry, batch, advantage, target)

    monkeypatch.setattr(ippo, "loss", wrong)
    config = dataclasses.replace(TINY, recurrent=5, learning_rate=0.05)
    trainer = ippo.make_train(config, *small_tag())
    _, metrics = after(trainer, 3)
    assert float(metrics.loss["ratio_deviation"][0]) > 1e-4


VALUES = {
    "constant": lambda gamma, cue: 1 / (1 - gamma) + 0 * cue,
    "terminal": lambda gamma, cue: 1 + gamma + gamma**2 + 0 * cue,
    "cue": lambda gamma, cue: cue,
}


@pytest.mark.parametrize(
    "kind", ["constant", pytest.param("terminal", marks=SLOW), pytest.param("cue", marks=SLOW)]
)
def test_critic_finds_known_values(kind):
    config = ippo.Config(
        total_steps=40_000, num_envs=8, rollout_length=16, learning_rate=1e-2, gamma=0.8, hidden=(16,),
        minibatches=2, entropy_coef=0.0, value_coef=1.0, max_grad_norm=10.0,
    )  # fmt: skip
    env = Probe(kind)
    trainer = ippo.make_train(config, env)
    states, _ = after(trainer, trainer.num_updates)
    agent = ippo.Agent(env, config)
    weights = jax.tree.map(lambda x: x[0], states.params)
    for seed in range(3):
        observation, state = env.reset(jax.random.key(seed))
        _, value = agent.critic(
            weights["critic"],
            jnp.zeros((1, 2, 0)),
            observation.features[None, None],
            jnp.ones((1, 1, 2), bool),
        )
        np.testing.assert_allclose(
            value[0, 0], VALUES[kind](0.8, np.asarray(state.cue)), rtol=0.05, atol=0.05
        )


LEARNING = ippo.Config(
    total_steps=30_000, num_envs=8, rollout_length=16, learning_rate=5e-3, hidden=(16,), minibatches=2,
    entropy_coef=0.001, gamma=0.9,
)  # fmt: skip


def returns_by_group(trainer, states, greedy=False):
    policy = jax.vmap(trainer.policy)(states)
    episodes = play_episodes(policy, trainer.env, trainer.params, 64, greedy, True)
    return {k: v["return_mean"] for k, v in summarise(trainer.env, episodes)["per_group"].items()}


@pytest.mark.parametrize(
    "share", ["group", pytest.param("all", marks=SLOW), pytest.param("none", marks=SLOW)]
)
def test_each_group_learns_its_own_best_action(share):
    config = dataclasses.replace(LEARNING, share=share)
    trainer = ippo.make_train(config, Probe("choice"))
    states, _ = after(trainer, trainer.num_updates)
    result = returns_by_group(trainer, states)
    assert min(result.values()) > 0.95, result


@SLOW
def test_continuous_actions_find_the_target():
    trainer = ippo.make_train(LEARNING, Probe("target"))
    states, _ = after(trainer, trainer.num_updates)
    assert min(returns_by_group(trainer, states, greedy=True).values()) > -0.003


@SLOW
def test_memory_needs_recurrence():
    config = dataclasses.replace(LEARNING, total_steps=60_000, recurrent=16, share="all")
    trainer = ippo.make_train(config, Probe("memory", 1))
    states, _ = after(trainer, trainer.num_updates)
    assert returns_by_group(trainer, states)["a"] > 0.9
    blind = ippo.make_train(dataclasses.replace(config, recurrent=0), Probe("memory", 1))
    states, _ = after(blind, blind.num_updates)
    assert returns_by_group(blind, states)["a"] < 0.65


@pytest.fixture(scope="module")
def tiny_spread():
    return ippo.make_train(TINY, make("spread", num_agents=2))


def assert_same(a, b):
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y, err_msg=str(path))


def one(states, i):
    return jax.tree.map(lambda x: x[i], states)


def test_seed_s_starts_from_key_s_whatever_their_number(tiny_spread):
    alone = make_init(tiny_spread, "map")(seed_keys(2, 1))
    among = make_init(tiny_spread, "map")(seed_keys(0, 4))
    assert_same(one(alone, 0), one(among, 2))
    direct = jax.jit(tiny_spread.init)(jax.random.key(2))
    assert_same(direct.key, one(among, 2).key)
    assert_same(direct.vector.index, one(among, 2).vector.index)
    vmapped = make_init(tiny_spread, "vmap")(seed_keys(0, 4))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        one(among, 2).params,
        one(vmapped, 2).params,
    )


def test_map_gives_the_same_numbers_for_any_number_of_seeds(tiny_spread):
    alone, _ = after(tiny_spread, 5, 1, "map", seed=1)
    among, _ = after(tiny_spread, 5, 3, "map", seed=0)
    assert_same(one(alone, 0), one(among, 1))


def test_vmap_does_not_mix_seeds(tiny_spread):
    """The seed at a position computes the same, bit for bit, whoever its neighbours are."""
    init, chunk = make_init(tiny_spread, "vmap"), make_chunk(tiny_spread, "vmap")
    results = []
    for keys in ([5, 1, 2], [7, 1, 9]):
        states = init(jax.vmap(jax.random.key)(np.array(keys, np.uint32)))
        results.append(chunk(states, jnp.int32(5))[0])
    assert_same(one(results[0], 1), one(results[1], 1))
    differ = np.abs(
        np.asarray(results[0].observation.features[0] - results[1].observation.features[0])
    )
    assert differ.max() > 0


def test_vmap_agrees_with_map_at_first(tiny_spread):
    by_vmap, _ = after(tiny_spread, 2, 3, "vmap")
    by_map, _ = after(tiny_spread, 2, 3, "map")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        by_vmap.params,
        by_map.params,
    )


def test_chunks_of_any_length_give_the_same_state(tiny_spread):
    init, chunk = make_init(tiny_spread, "vmap"), make_chunk(tiny_spread, "vmap")
    whole, _ = chunk(init(seed_keys(0, 3)), jnp.int32(6))
    parts = init(seed_keys(0, 3))
    for n in (1, 3, 2):
        parts, _ = chunk(parts, jnp.int32(n))
    assert_same(whole, parts)
    assert chunk._cache_size() == 1


def test_a_sweep_maps_over_rates(tiny_spread):
    rates = jnp.asarray([0.0, 1e-2])
    hyper = jax.vmap(lambda r: dataclasses.replace(ippo.default_hyper(TINY), learning_rate=r))(
        rates
    )
    states = jax.vmap(tiny_spread.init, (None, 0))(jax.random.key(0), hyper)
    old = jax.tree.map(np.asarray, states.params)
    states, _ = make_chunk(tiny_spread, "vmap")(states, jnp.int32(1))
    moved = [
        np.abs(a - np.asarray(b)).max(axis=tuple(range(1, a.ndim)))
        for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(states.params), strict=True)
    ]
    assert max(m[0] for m in moved) == 0
    assert min(m[1] for m in moved) > 0


@SLOW
def test_learning_rate_falls_to_zero_over_the_run():
    config = dataclasses.replace(TINY, total_steps=TINY.num_envs * TINY.rollout_length * 4)
    trainer = ippo.make_train(config, make("spread", num_agents=2))
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    chunk = make_chunk(trainer, "vmap")
    assert trainer.num_updates == 4
    sizes = []
    for _ in range(6):
        old = jax.tree.map(np.asarray, states.params)
        states, _ = chunk(states, jnp.int32(1))
        sizes.append(
            max(
                np.abs(a - np.asarray(b)).max()
                for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(states.params), strict=True)
            )
        )
    assert sizes[0] > sizes[2] > sizes[3] > 0
    assert sizes[4] == 0


def test_a_fixed_group_does_not_learn_and_plays_its_policy():
    env, params = small_tag()
    trainer = ippo.make_train(TINY, env, params, {"prey": RandomPolicy(env)})
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    old = jax.tree.map(np.asarray, states.params)
    states, metrics = make_chunk(trainer, "vmap")(states, jnp.int32(3))
    same = jax.tree.map(lambda a, b: bool((a == np.asarray(b)).all()), old, states.params)
    for role in ("actor", "critic"):
        assert all(jax.tree.leaves(same[role]["prey"]))
        assert not any(jax.tree.leaves(same[role]["predators"]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics.loss))


def test_no_group_left_and_unknown_groups_are_refused():
    env = make("tag")
    both = {"prey": RandomPolicy(env), "predators": RandomPolicy(env)}
    with pytest.raises(ValueError, match="no group to learn"):
        ippo.make_train(TINY, env, None, both)
    with pytest.raises(ValueError, match="no group 'cats'; it has predators, prey"):
        ippo.make_train(TINY, env, None, {"cats": RandomPolicy(env)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total_steps", 0), ("num_envs", 0), ("minibatches", 3), ("gamma", 1.5), ("gamma", float("nan")),
        ("learning_rate", 0.0), ("learning_rate", float("inf")), ("clip", -1.0), ("hidden", (8, 0)),
        ("activation", "gelu"), ("share", "some"), ("recurrent", -1), ("entropy_coef", -0.1),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(TINY, **{name: value})


def test_non_finite_rewards_are_noticed_with_their_update():
    trainer = ippo.make_train(TINY, Probe("nan"))
    _, metrics = after(trainer, 4)
    assert int(metrics.first_bad[0]) == 0
    fine = ippo.make_train(TINY, Probe("constant"))
    assert int(after(fine, 4)[1].first_bad[0]) == -1


def test_learned_policies_do_not_look_at_the_state():
    env, params = small_tag()
    trainer = ippo.make_train(dataclasses.replace(TINY, recurrent=5), env, params)
    states = make_init(trainer, "vmap")(seed_keys(0, 1))
    policy = trainer.policy(one(states, 0))
    observation, state = jax.vmap(env.reset, (0, None))(
        jax.random.split(jax.random.key(0), 3), params
    )
    hidden = jax.tree.map(
        lambda x: jnp.full_like(x, jnp.nan) if x.dtype.kind == "f" else x * 0 - 1, state
    )
    acts = [
        policy.act(
            jax.random.key(1), policy.init(3), observation, s, params, jnp.ones(3, bool), False
        )
        for s in (state, hidden)
    ]
    assert_same(*acts)
