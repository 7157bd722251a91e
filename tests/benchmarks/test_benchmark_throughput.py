"""The throughput benchmark: what it plays, what it reports, what it refuses."""

import ast
import json

import jax
import jax.numpy as jnp
import numpy as np
import peers
import pytest
import rollout
import throughput
import turns
from flockax_throughput import make_game

from flockax.envs import VectorEnv, make


def counting_game(num_envs):
    """Environment e counts up from e; an episode ends where a multiple of 4 is reached."""

    def reset(key):
        count = jnp.arange(num_envs, dtype=float)
        return {"count": count}, count

    def step(key, state, action):
        count = state + 1
        return {"count": count}, count, {"a": action, "b": 2 * action}, count % 4 == 0

    return rollout.Game(
        name="counting",
        num_agents=2,
        num_envs=num_envs,
        reset=reset,
        act=lambda key, observation: observation["count"] * 10,
        step=step,
        features=lambda observation: observation,
    )


def test_checksum_folds_what_policies_read_rewards_and_ends():
    timed = rollout.Timed(counting_game(3), steps=6, seeds=1)
    result = timed.repetition(seconds=0)
    # Policies read e .. e + 5, and act ten times as much.
    read = sum(e + t for e in range(3) for t in range(6))
    ends = sum((e + t + 1) % 4 == 0 for e in range(3) for t in range(6))
    assert result["checksum"] == {"observation": read, "reward": 30 * read, "episodes": ends}
    assert result["steps"] == 3 * 6


def test_seeds_multiply_steps_and_checksum():
    one = rollout.Timed(counting_game(3), steps=6, seeds=1).repetition(0)
    two = rollout.Timed(counting_game(3), steps=6, seeds=2).repetition(0)
    assert two["steps"] == 2 * one["steps"]
    assert two["checksum"] == {name: 2 * x for name, x in one["checksum"].items()}


def test_repetition_counts_the_steps_of_all_its_calls():
    timed = rollout.Timed(counting_game(2), steps=1, seeds=1)
    result = timed.repetition(seconds=0.05)
    calls = result["steps"] / 2
    assert calls == int(calls) > 1 and result["seconds"] >= 0.05


@pytest.mark.parametrize("env", ["spread", "tag"])
def test_our_game_plays_the_vector_environment(env):
    game, steps, key = make_game(env, 3, stagger=False), 27, jax.random.key(5)
    start = game.reset(key)
    totals = jax.jit(lambda start: rollout.play(game, steps, start, key))(start)

    environment = make(env)
    vector = VectorEnv(environment, 3)
    observation, state = vector.reset(key)
    step = jax.jit(vector.step)
    expected = np.zeros(3)
    for step_key in jax.random.split(key, steps):
        act_key, env_key = jax.random.split(step_key)
        expected[0] += np.asarray(observation.features, np.float64).sum()
        action = environment.action_spec.sample(act_key, observation.action_mask)
        observation, state, reward, terminated, truncated, _ = step(env_key, state, action)
        expected[1] += np.asarray(reward, np.float64).sum()
        expected[2] += np.sum(terminated | truncated)
    assert game.num_agents == environment.num_agents
    np.testing.assert_allclose([totals[name] for name in rollout.TOTALS], expected, rtol=1e-4)
    assert totals["episodes"] == 3


def test_stagger_spreads_the_ends():
    game, key = make_game("spread", 5, stagger=True), jax.random.key(0)
    # Ends are 5 steps apart: those that started at 20 and 15 of 25 are over after 10 steps.
    assert rollout.play(game, 10, game.reset(key), key)["episodes"] == 2


def test_what_peers_import_has_nothing_of_ours():
    shared = ["protocol.py", "rollout.py", "training_turns.py"]
    workers = [*turns.WORKERS.glob("jaxmarl_*.py"), *(turns.WORKERS / name for name in shared)]
    assert len(workers) == 5
    for path in workers:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "flockax" for name in names), path


def prepared(num_agents=3, jax="1"):
    return {
        "environment": "x",
        "num_agents": num_agents,
        "compile_seconds": 1.5,
        "device": "cpu: cpu",
        "cpu": "a cpu",
        "cores": 2,
        "versions": {"jax": jax, "jaxlib": jax},
    }


def turn(rate, episodes=4.0):
    checksum = {"observation": 1.0, "reward": 2.0, "episodes": episodes}
    return {"steps": 2 * rate, "seconds": 2.0, "checksum": checksum}


def test_report_compares_medians(capsys):
    config = throughput.Config(env="tag", peer="jaxmarl", repeats=3)
    sides = {"ours": prepared(4), "peer": prepared(4)}
    rates = {"ours": [60, 100, 70], "peer": [10, 20, 14]}
    result = throughput.report(
        config, sides, {name: [turn(rate) for rate in rates[name]] for name in sides}
    )
    assert (result["ours"], result["peer"], result["ratio"]) == (70, 14, 5)
    assert result["ratio_of_turns"] == {"low": 5, "high": 6}
    assert result["agent_steps"] == {"ours": 280, "peer": 56}
    assert result["sides"]["peer"]["environment_steps"]["samples"] == rates["peer"]
    assert result["warnings"] == []
    throughput.print_table(json.loads(json.dumps(result)))
    assert "ratio 5.00" in capsys.readouterr().out


def test_report_warns_of_what_is_not_fair():
    config = throughput.Config(peer="jaxmarl")
    sides = {"ours": prepared(3), "peer": prepared(4, jax="2")}
    turns = {"ours": [turn(1), turn(1)], "peer": [turn(1), turn(1, 5.0)]}
    result = throughput.report(config, sides, turns)
    text = " ".join(result["warnings"])
    assert "different jax:" in text and "different jaxlib:" in text
    assert "different numbers of agents" in text and "peer: the checksum differs" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--env", "tog"], "env='tog' is not one of tag, spread"),
        (["--num-envs", "0"], "num_envs=0 is not >= 1"),
        (["--seeds", "-1"], "seeds=-1 is not >= 1"),
        (["--steps", "0"], "steps=0 is not >= 1"),
        (["--repeats", "0"], "repeats=0 is not >= 1"),
        (["--seconds", "-1"], "seconds=-1.0 is not >= 0"),
    ],
)
def test_bad_settings_are_refused(args, message, capsys):
    assert throughput.main([*args, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err


@pytest.mark.parametrize("args", [["--peer", "mava"], ["--num-envs", "many"], ["--nothing"]])
def test_bad_words_are_refused(args, capsys):
    with pytest.raises(SystemExit) as exit:
        throughput.main(args)
    assert exit.value.code == 2 and capsys.readouterr().err


def test_peer_that_is_not_set_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(peers, "REPOSITORY", tmp_path)
    assert throughput.main(["--peer", "jaxmarl"]) == 1
    assert "python benchmarks/peers.py setup jaxmarl" in capsys.readouterr().err


def test_tiny_run(capsys):
    args = ["--env", "spread", "--num-envs", "3", "--steps", "27", "--repeats", "2"]
    assert throughput.main([*args, "--seconds", "0", "--json"]) == 0
    out, _ = capsys.readouterr()
    result = json.loads(out)
    assert result["env"] == "spread" and result["ours"] > 0
    assert result["peer"] is None and result["ratio"] is None
    assert result["agent_steps"]["ours"] == 3 * result["ours"]
    assert (result["num_envs"], result["seeds"], result["steps"]) == (3, 1, 27)
    side = result["sides"]["ours"]
    assert len(side["environment_steps"]["samples"]) == result["repeats"] == 2
    assert side["compile_seconds"] > 0 and side["versions"]["jax"] == jax.__version__
    assert side["device"] and side["cpu"] and side["cores"] >= 1
    # Both repetitions gave the same checksum, and this process computes it too.
    assert result["warnings"] == []
    again = rollout.Timed(make_game("spread", 3, stagger=False), 27, 1).repetition(0)["checksum"]
    assert side["checksum"] == pytest.approx(again, rel=1e-5)
    assert side["checksum"]["episodes"] == 3
