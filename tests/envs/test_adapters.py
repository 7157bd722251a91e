"""The adapters, against the checkers of the libraries that they adapt to."""

import functools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pettingzoo.test
import pytest
from colony import Colony
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pettingzoo.test.seed_test import parallel_seed_test

from flockax.envs import adapters, make

REPOSITORY = Path(__file__).parents[2]
ENVS = {
    "spread": make("spread"),
    "tag": make("tag", num_prey=2, actions="continuous"),
    "alone": make("spread", num_agents=1),
    "alone_continuous": make("spread", num_agents=1, actions="continuous"),
    "world_comm": make("world_comm"),
    "colony": Colony(),
    "colony_large": Colony(nest_capacity=8),
    "colony_continuous": Colony(actions="continuous"),
    "colony_entities": Colony(view="entities"),
    "colony_window": Colony(view="window", num_foragers=1, num_guards=0),
}
pytestmark = pytest.mark.filterwarnings("error::UserWarning:pettingzoo")


@functools.cache
def of(adapter, name):
    """An adapter around an environment; compiled once, so tests start with a reset."""
    return adapter(ENVS[name])


@functools.cache
def vector_of(name, num_envs=3):
    env = ENVS[name]
    return adapters.to_gymnasium_vector(env, num_envs, env.make_params(horizon=6))


@functools.cache
def raw(name):
    """The environment's own reset and step, compiled."""
    return jax.jit(ENVS[name].reset), jax.jit(ENVS[name].step)


# --- PettingZoo -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENVS)
def test_pettingzoo_parallel_api(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        if name.startswith("colony"):  # slots that were never born never end, which it remarks
            warnings.filterwarnings("ignore", "No agents present but not all possible_agents")
        pettingzoo.test.parallel_api_test(of(adapters.to_pettingzoo, name), num_cycles=60)


@pytest.mark.parametrize("name", ["tag", "colony"])
def test_pettingzoo_seeds(name):
    parallel_seed_test(lambda: adapters.to_pettingzoo(ENVS[name]), num_cycles=30)


def test_pettingzoo_names_spaces_and_state():
    env = of(adapters.to_pettingzoo, "world_comm")
    observations, infos = env.reset(seed=1)
    groups = ENVS["world_comm"].groups
    assert env.possible_agents == [f"{g.name}_{i}" for g in groups for i in range(g.size)]
    for group in groups:
        name = f"{group.name}_0"
        assert env.observation_space(name).shape == (group.observation_size,)
        assert observations[name].shape == (group.observation_size,)
        assert env.action_space(name).n == group.action_size
        assert infos[name]["action_mask"].shape == (group.action_size,)
    assert env.state().shape == ENVS["world_comm"].global_state_spec.shape
    assert len({group.observation_size for group in groups}) > 1


# With much food and a large nest, slots that were empty from the start are born.
LIVELY = {"food": 3.0, "plenty": 100.0, "horizon": 30}


@pytest.mark.parametrize(
    ("name", "params"), [("tag", {}), ("colony", {}), ("colony_large", LIVELY)]
)
def test_pettingzoo_plays_the_environment(name, params):
    """The same numbers as the environment's own step; the dead leave, the reborn stay away."""
    params = ENVS[name].make_params(**params)
    env, (reset, step) = adapters.to_pettingzoo(ENVS[name], params), raw(name)
    slots = {x: slot for slot, x in enumerate(env.possible_agents)}
    left_early = joined_late = 0
    rng = np.random.default_rng(0)
    for seed in range(6):
        observations, _ = env.reset(seed=seed)
        for slot, x in enumerate(env.possible_agents):
            env.action_space(x).seed(100 * seed + slot)
        key, own = jax.random.split(jax.random.key(seed))
        observation, state = reset(own, params)
        left = set()
        while env.agents:
            for x, seen in observations.items():
                own_features = observation.features[slots[x], : len(seen)]
                np.testing.assert_allclose(seen, own_features, rtol=1e-5, atol=1e-5)
            actions = {x: env.action_space(x).sample() for x in env.agents}
            if name == "colony_large":  # mostly eats
                actions = {x: 1 if rng.random() < 0.7 else action for x, action in actions.items()}
            joint = np.zeros(ENVS[name].action_spec.shape, float if name == "tag" else int)
            for x, action in actions.items():
                joint[slots[x]] = action
            key, own = jax.random.split(key)
            observation, state, reward, terminated, truncated, _ = step(own, state, joint, params)
            before = set(env.agents)
            observations, rewards, ends, limits, _ = env.step(actions)
            assert before <= set(rewards) == set(observations) == set(ends) == set(limits)
            joined_late += len(set(rewards) - before)
            assert not left & set(rewards)
            for x in rewards:
                assert rewards[x] == pytest.approx(float(reward[slots[x]]), rel=1e-5, abs=1e-5)
                alive = bool(observation.alive[slots[x]])
                assert ends[x] == (bool(terminated) or not alive)
                assert limits[x] == (bool(truncated) and alive)
                left |= {x} if ends[x] or limits[x] else set()
                left_early += (ends[x] or limits[x]) and not (terminated or truncated)
        assert env.step({}) == ({}, {}, {}, {}, {})
    assert left_early >= (0 if name == "tag" else 3)
    assert joined_late >= (2 if name == "colony_large" else 0)


def test_pettingzoo_refuses_actions_of_the_dead():
    env = of(adapters.to_pettingzoo, "spread")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"\['nobody_0'\] cannot act; the agents are \['agents_0'"):
        env.step({"nobody_0": 1})
    with pytest.raises(TypeError, match="discrete actions must be integers"):
        env.step({"agents_0": 1.5})


# --- gymnasium ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENVS)
def test_gymnasium_check_env(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # Observations without bounds and environments that are not in its registry are meant.
        warnings.filterwarnings("ignore", ".*(infinity|alternative render modes).*")
        warnings.filterwarnings("ignore", ".*symmetric and normalized space.*")
        check_env(of(adapters.to_gymnasium, name))


@pytest.mark.parametrize(
    ("name", "observation", "action"),
    [
        ("alone", (6,), "Discrete(5)"),
        ("alone_continuous", (6,), "Box(0.0, 1.0, (5,), float32)"),
        ("spread", (54,), "MultiDiscrete([5 5 5])"),
        ("tag", (3 * 20 + 2 * 18,), "Box(0.0, 1.0, (25,), float32)"),
        ("colony", (3 * 6 + 2 * 3,), "MultiDiscrete([4 4 4 2 2])"),
        ("colony_continuous", (24,), "Box(-0.5, 1.0, (8,), float32)"),
        ("colony_window", (2, 3, 3), "Discrete(4)"),
    ],
)
def test_gymnasium_spaces(name, observation, action):
    env = of(adapters.to_gymnasium, name)
    assert env.observation_space.shape == observation and str(env.action_space) == action


@pytest.mark.parametrize("name", ["tag", "colony", "colony_continuous", "alone"])
def test_gymnasium_plays_the_environment(name):
    env, (reset, step) = of(adapters.to_gymnasium, name), raw(name)
    seen, info = env.reset(seed=3)
    env.action_space.seed(3)
    key, own = jax.random.split(jax.random.key(3))
    observation, state = reset(own)
    groups, spec = ENVS[name].groups, ENVS[name].action_spec
    for _ in range(5):
        parts = [observation.features[g.start : g.stop, : g.observation_size] for g in groups]
        flat = np.concatenate([np.ravel(part) for part in parts])
        np.testing.assert_allclose(seen, flat, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(info["alive"], observation.alive)
        np.testing.assert_array_equal(info["action_mask"], np.squeeze(observation.action_mask))
        action = env.action_space.sample()
        joint = np.reshape(action, -1)
        if len(spec.shape) == 2:
            sizes = np.repeat([g.action_size for g in groups], [g.size for g in groups])
            rows = np.split(joint, np.cumsum(sizes)[:-1])
            joint = np.stack([np.pad(row, (0, spec.size - len(row))) for row in rows])
        key, own = jax.random.split(key)
        observation, state, reward, *ends, own_info = step(own, state, joint)
        seen, total, terminated, truncated, info = env.step(action)
        assert total == pytest.approx(float(np.sum(reward)), rel=1e-5, abs=1e-5)
        np.testing.assert_allclose(info["rewards"], reward, rtol=1e-5)
        assert [terminated, truncated] == [bool(x) for x in ends]
        assert info["metrics"].keys() == own_info["metrics"].keys()
        if terminated or truncated:
            break


@pytest.mark.parametrize("name", ["tag", "colony", "colony_entities", "alone"])
def test_gymnasium_vector_env(name):
    """Spaces, dtypes and the layout of infos are those of gymnasium's own `SyncVectorEnv`."""
    env = vector_of(name)
    single = adapters.to_gymnasium(ENVS[name])
    peer = SyncVectorEnv([lambda: single] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    assert env.metadata["autoreset_mode"] is peer.metadata["autoreset_mode"]
    assert env.single_observation_space == peer.single_observation_space
    assert env.single_action_space == peer.single_action_space
    assert env.observation_space == peer.observation_space
    assert env.action_space == peer.action_space
    observations, infos = env.reset(seed=0)
    assert observations in env.observation_space
    again = env.reset(seed=0)
    assert data_equivalence((observations, infos), again)
    assert not data_equivalence(observations, env.reset()[0])
    env.action_space.seed(0)
    finished = 0
    for _ in range(14):
        observations, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
        assert observations in env.observation_space
        assert rewards.shape == (3,) and rewards.dtype == np.float64
        assert terminated.dtype == truncated.dtype == bool
        np.testing.assert_allclose(infos["rewards"].sum(1), rewards, rtol=1e-5, atol=1e-5)
        done = terminated | truncated
        finished += done.sum()
        assert ("final_obs" in infos) == done.any()
        assert all(infos[f"_{x}"].shape == (3,) for x in infos if not x.startswith("_"))
        if done.any():
            assert (infos["_final_obs"] == done).all()
            for i in range(3):
                final = infos["final_obs"][i]
                assert (final in env.single_observation_space) if done[i] else final is None
    assert finished >= 6


def test_gymnasium_vector_env_under_its_own_wrapper():
    env = RecordEpisodeStatistics(vector_of("spread"))
    env.reset(seed=0)
    total = np.zeros(3)
    for t in range(12):
        _, rewards, _, truncated, infos = env.step(env.action_space.sample())
        total += rewards
        assert truncated.all() == (t in (5, 11))
        if truncated.all():
            np.testing.assert_allclose(infos["episode"]["r"], total, rtol=1e-5)
            assert (infos["episode"]["l"] == 6).all()
            total[:] = 0


def test_gymnasium_vector_env_refuses_partial_resets():
    with pytest.raises(ValueError, match="reset_mask"):
        vector_of("spread").reset(options={"reset_mask": np.ones(3, bool)})
    with pytest.raises(ValueError, match="num_envs=0"):
        adapters.to_gymnasium_vector(ENVS["spread"], 0)


def test_what_is_returned_is_writable_and_kept():
    env = of(adapters.to_gymnasium, "alone")
    first, _ = env.reset(seed=0)
    copy = first.copy()
    env.step(1)
    np.testing.assert_array_equal(first, copy)
    first[:] = 0


# --- JaxMARL --------------------------------------------------------------------------------------

MEMBERS = {
    "action_space", "action_spaces", "agent_classes", "agents", "get_avail_actions", "get_obs", "name",
    "num_agents", "observation_space", "observation_spaces", "reset", "step", "step_env",
}  # fmt: skip


@pytest.mark.parametrize("name", ENVS)
def test_jaxmarl_interface(name):
    view, env = adapters.to_jaxmarl(ENVS[name]), ENVS[name]
    assert {x for x in dir(view) if not x.startswith("_")} >= MEMBERS  # of JaxMARL 0.2.0
    key = jax.random.key(0)
    observations, state = jax.eval_shape(view.reset, key)
    assert list(observations) == view.agents == list(adapters.agent_names(env))
    groups = {f"{g.name}_{i}": g for g in env.groups for i in range(g.size)}
    for agent, group in groups.items():
        space = view.observation_space(agent)
        assert view.action_space(agent) is view.action_spaces[agent]
        seen, known = jax.tree.leaves(observations[agent]), jax.tree.leaves(space)
        assert [x.shape for x in seen] == [x.shape for x in known]
        assert [x.dtype for x in seen] == [x.dtype for x in known]
        assert agent in view.agent_classes[group.name]
    actions = {x: jax.eval_shape(view.action_space(x).sample, key) for x in view.agents}
    after, next_state, rewards, dones, info = jax.eval_shape(view.step, key, state, actions)
    same = jax.tree.map(lambda x, y: x.shape == y.shape and x.dtype == y.dtype, after, observations)
    assert all(jax.tree.leaves(same))
    same = jax.tree.map(lambda x, y: x.shape == y.shape and x.dtype == y.dtype, next_state, state)
    assert all(jax.tree.leaves(same))
    assert set(rewards) == set(view.agents) and set(dones) == {*view.agents, "__all__"}
    assert all(x.shape == () for x in jax.tree.leaves((rewards, dones)))
    assert all(x.shape == (env.num_agents,) for x in jax.tree.leaves(info))
    available = jax.eval_shape(view.get_avail_actions, state)
    assert all(available[x].shape == (groups[x].action_size,) for x in view.agents)


@pytest.mark.parametrize("name", ["tag", "colony"])
def test_jaxmarl_view_plays_the_environment_and_resets(name):
    env = ENVS[name]
    params = env.make_params(horizon=6)
    view = adapters.to_jaxmarl(env, params)
    _, step = raw(name)
    observations, state = view.reset(jax.random.key(0))
    ended = died = 0
    for t in range(20):
        key = jax.random.fold_in(jax.random.key(1), t)
        names = enumerate(view.agents)
        actions = {x: view.action_space(x).sample(jax.random.fold_in(key, i)) for i, x in names}
        step_key, reset_key = jax.random.split(key)
        wide = [jnp.asarray(actions[x]) for x in view.agents]
        observation, expected, reward, terminated, truncated, info = step(
            step_key, state, jnp.stack(wide), params
        )
        observations, state, rewards, dones, infos = view.step(key, state, actions)
        done = bool(terminated | truncated)
        ended += done
        if done:
            first, start = view.reset(reset_key)
            assert_close((observations, state), (first, start))
        else:
            assert_close(state, expected)
            for i, agent in enumerate(view.agents):
                width = observations[agent].shape[0]
                assert_close(observations[agent], observation.features[i, :width])
        assert bool(dones["__all__"]) == done
        for i, agent in enumerate(view.agents):
            died += not done and not observation.alive[i]
            assert bool(dones[agent]) == (done or not observation.alive[i])
            assert float(rewards[agent]) == pytest.approx(float(reward[i]), rel=1e-5, abs=1e-6)
        assert infos["truncated"].tolist() == [bool(truncated)] * env.num_agents
        assert set(info["metrics"]) < set(infos)
    assert ended >= 3 and (died > 0) == (name == "colony")


def test_jaxmarl_view_under_vmap_and_with_a_state_to_reset_to():
    view = adapters.to_jaxmarl(ENVS["spread"], ENVS["spread"].make_params(horizon=1))
    keys = jax.random.split(jax.random.PRNGKey(0), 4)  # as its scripts make them
    _, state = jax.vmap(view.reset)(keys)
    actions = {x: jnp.zeros(4, int) for x in view.agents}
    observations, next_state, _, dones, _ = jax.vmap(view.step)(keys, state, actions)
    assert dones["__all__"].all() and observations["agents_0"].shape == (4, 18)
    assert not np.array_equal(next_state.position, state.position)
    _, back, *_ = jax.vmap(view.step)(keys, next_state, actions, state)
    assert_close(back, state)
    seen = jax.vmap(view.get_obs)(state)
    after, *_ = jax.vmap(view.step)(keys, next_state, actions, state)
    assert_close(after, seen)
    _, raw_state, *_ = jax.vmap(view.step_env)(keys, state, actions)
    assert (raw_state.time == 1).all()


def test_jaxmarl_spaces():
    view = adapters.to_jaxmarl(ENVS["world_comm"])
    key = jax.random.key(0)
    for agent in view.agents:
        space = view.action_space(agent)
        draws = jax.vmap(space.sample)(jax.random.split(key, 200))
        assert set(np.asarray(draws)) == set(range(space.n)) and space.contains(draws).all()
        assert not space.contains(jnp.asarray(space.n)) and not space.contains(jnp.asarray(-1))
        assert space.shape == () and draws.dtype == jnp.int32
        assert jnp.isfinite(view.observation_space(agent).sample(key)).all()
    box = adapters.to_jaxmarl(ENVS["tag"]).action_space("prey_0")
    draws = jax.vmap(box.sample)(jax.random.split(key, 200))
    assert draws.shape == (200, 5) and box.contains(draws)
    assert draws.min() < 0.02 and draws.max() > 0.98 and not box.contains(draws - 0.1)


@pytest.mark.slow
def test_jaxmarl_wrappers_run_on_the_view(tmp_path):
    """JaxMARL's own `LogWrapper` and `CTRolloutManager`, in a virtual environment that has it."""
    ready = REPOSITORY / ".peers" / "jaxmarl" / "peer.json"
    root = REPOSITORY / ".peers" if ready.is_file() else tmp_path / "peers"
    setup = f"import pathlib, peers; peers.set_up('jaxmarl', pathlib.Path({str(root)!r}))"
    if not ready.is_file():
        benchmarks = {**os.environ, "PYTHONPATH": str(REPOSITORY / "benchmarks")}
        subprocess.run([sys.executable, "-c", setup], env=benchmarks, check=True)
    # The peer has no flockax: a folder of that name leads it to ours.
    (tmp_path / "flockax").mkdir()
    (tmp_path / "flockax" / "envs").symlink_to(REPOSITORY / "envs")
    python, client = (
        root / "jaxmarl" / "bin" / "python",
        Path(__file__).with_name("jaxmarl_client.py"),
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([python, client], env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("ok\n"), done.stderr


def assert_close(actual, expected):
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


# --- without the libraries --------------------------------------------------------------------------


def test_missing_libraries_are_named():
    code = """
import sys
sys.modules["gymnasium"] = sys.modules["pettingzoo"] = None
from flockax.envs import adapters, make
env = make("spread")
vector = lambda env: adapters.to_gymnasium_vector(env, 2)
for adapter in (adapters.to_pettingzoo, adapters.to_gymnasium, vector):
    try:
        adapter(env)
    except ImportError as error:
        assert 'pip install "flockax[adapters]"' in str(error), error
        assert "gymnasium" in str(error) or "pettingzoo" in str(error), error
    else:
        raise SystemExit("no error")
adapters.to_jaxmarl(env)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
