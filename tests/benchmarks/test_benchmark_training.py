"""The training benchmark: its clock, its settings, the stand-in's learning, and what it refuses."""

import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import peers
import pytest
import training
import training_turns
from flockax_training import make_learner

from flockax.agents import ippo


def turn(*updates, steps=10, finished=False):
    """Updates are ``(seconds, [sum of returns of each seed], [episodes of each seed])``."""
    total = steps * len(updates)
    return {"steps": total, "seconds": updates[-1][0], "updates": updates, "finished": finished}


def test_progress_waits_for_the_return_over_enough_episodes():
    progress = training.Progress(until=-40.0, window=4)
    progress.add(turn((1.0, [-20.0], [2]), (2.0, [-20.0], [1])))
    # Three lucky episodes are not enough.
    assert progress.mean_return is None and progress.seconds_to_return is None
    progress.add(turn((0.5, [-200.0], [2]), (1.5, [-100.0], [2])))
    # The latest updates that hold four episodes.
    assert progress.mean_return == -75
    progress.add(turn((0.5, [-70.0], [2]), (1.0, [-80.0], [2]), (4.0, [-300.0], [3])))
    # After the sixth update: -150 over 4 episodes, at 2 + 1.5 + 1 seconds.
    assert progress.seconds_to_return == 4.5 and progress.steps_to_return == 60
    assert progress.finished
    assert progress.steps == 70 and progress.seconds == 7.5
    assert progress.rates == [10, 20 / 1.5, 7.5]


def test_progress_averages_seeds():
    progress = training.Progress(until=None, window=4)
    progress.add(turn((1.0, [-20.0, -90.0], [1, 3]), finished=True))
    assert progress.returns == [-20, -30] and progress.mean_return == -25
    assert progress.finished and progress.seconds_to_return is None
    assert progress.curve == [(1.0, 10, [-20.0, -30.0])]


def prepared(jax="1"):
    return {
        "num_agents": 3,
        "compile_seconds": 2.0,
        "device": "cpu: cpu",
        "cpu": "a cpu",
        "cores": 2,
        "versions": {"jax": jax, "jaxlib": jax},
    }


def test_report_compares_turns_that_both_had(capsys):
    config = training.Config(peer="jaxmarl", until=-40.0)
    sides = {name: training.Progress(-40.0, 1) for name in ("ours", "peer")}
    sides["ours"].add(turn((1.0, [-39.0], [1]), steps=60))
    for steps in (20, 1000):
        sides["peer"].add(turn((1.0, [-50.0], [1]), steps=steps))
    result = training.report(config, sides, {"ours": prepared(), "peer": prepared("2")})
    assert result["ratio"] == 3
    assert result["ours"]["steps_per_second"] == 60
    assert result["ours"]["agent_steps_per_second"] == 180
    assert result["ours"]["seconds_to_return"] == 1
    assert result["peer"]["seconds_to_return"] is None
    text = " ".join(result["warnings"])
    assert "different jax:" in text and "preset default" in text
    training.print_table(json.loads(json.dumps(result)))
    out = capsys.readouterr().out
    assert "ratio 3.00" in out and "stand-in" in out


def test_our_preset_has_the_settings_of_the_peer():
    ours, peer = ippo.PRESETS["jaxmarl"], training.JAXMARL
    names = {
        "total_steps": "total_steps",
        "num_envs": "num_envs",
        "rollout_length": "num_steps",
        "epochs": "epochs",
        "minibatches": "minibatches",
        "learning_rate": "lr",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "clip": "clip",
        "value_clip": "clip",
        "entropy_coef": "ent_coef",
        "value_coef": "vf_coef",
        "max_grad_norm": "max_grad_norm",
    }
    assert set(names.values()) | {"hidden"} == set(peer)
    assert {name: getattr(ours, name) for name in names} == {
        name: peer[key] for name, key in names.items()
    }
    assert ours.hidden == (peer["hidden"],) * 2
    assert ours.activation == "tanh" and ours.anneal and ours.share == "all" and not ours.recurrent


@pytest.mark.parametrize("env", ["spread", "tag"])
def test_our_worker_fits_ippo(env):
    learner = make_learner(env, "jaxmarl", 5000)
    assert (learner.steps_per_update, learner.num_updates) == (2048, 3)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    after, metrics = jax.eval_shape(learner.update, state)
    assert after == state
    assert {name: x.shape for name, x in metrics.items()} == {"return_sum": (), "episodes": ()}


def counting_learner(fail_at=-1):
    def update(state):
        count = state["count"] + 1
        returns = jnp.where(count == fail_at, jnp.nan, -count.astype(float))
        return {"count": count}, {"return_sum": returns, "episodes": jnp.asarray(2)}

    return training_turns.Learner(
        "counting", 1, lambda key: {"count": jnp.asarray(0)}, update, 10, 3
    )


def test_run_trains_in_turns_to_its_end():
    run = training_turns.Run(counting_learner(), seeds=2)
    first = run.turn(seconds=0)
    assert first["steps"] == 20 and not first["finished"]
    rest = run.turn(seconds=60)
    assert rest["steps"] == 40 and rest["finished"]
    assert [update[1:] for update in rest["updates"]] == [
        [[-2.0, -2.0], [2.0, 2.0]],
        [[-3.0, -3.0], [2.0, 2.0]],
    ]
    assert rest["updates"][-1][0] == rest["seconds"] > 0


def test_run_refuses_returns_that_are_not_finite():
    run = training_turns.Run(counting_learner(fail_at=2), seeds=1)
    run.turn(seconds=0)
    with pytest.raises(FloatingPointError, match="update 2"):
        run.turn(seconds=0)


@pytest.fixture
def stand_in(monkeypatch):
    """The peer's worker, without the peer: its pure functions need none."""
    for name in ("jaxmarl", "jaxmarl.wrappers", "jaxmarl.wrappers.baselines"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["jaxmarl.wrappers.baselines"].LogWrapper = object
    monkeypatch.delitem(sys.modules, "jaxmarl_training", raising=False)
    import jaxmarl_training

    yield jaxmarl_training
    del sys.modules["jaxmarl_training"]


def test_stand_in_advantages(stand_in):
    rng = np.random.default_rng(0)
    value, reward = rng.normal(size=(2, 6, 4))
    last, done = rng.normal(size=4), rng.random((6, 4)) < 0.3
    rows = stand_in.Rows(None, None, None, jnp.asarray(value), jnp.asarray(reward), done)
    actual = stand_in.advantages_of(rows, jnp.asarray(last), 0.9, 0.7)
    following = np.concatenate([value[1:], last[None]])
    delta = reward + 0.9 * following * ~done - value
    expected = np.zeros((6, 4))
    for t in range(6):
        factor = np.ones(4)
        for k in range(t, 6):
            expected[t] += factor * delta[k]
            factor *= 0.9 * 0.7 * ~done[k]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_stand_in_loss(stand_in):
    rng = np.random.default_rng(1)
    logits, value = rng.normal(size=(8, 5)), rng.normal(size=8)
    old_value, old_log_prob, advantage = rng.normal(size=(3, 8))
    action = rng.integers(0, 5, 8)
    rows = stand_in.Rows(None, action, old_log_prob, old_value, None, None)
    settings = {"clip": 0.2, "vf_coef": 0.5, "ent_coef": 0.01}
    actual = stand_in.ppo_loss(jnp.asarray(logits), jnp.asarray(value), rows, advantage, settings)

    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    ratio = np.exp(log_p[np.arange(8), action] - old_log_prob)
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = np.minimum(ratio * scaled, np.clip(ratio, 0.8, 1.2) * scaled).mean()
    target, near = advantage + old_value, old_value + np.clip(value - old_value, -0.2, 0.2)
    value_loss = np.maximum((value - target) ** 2, (near - target) ** 2).mean() / 2
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
    expected = -policy + 0.5 * value_loss - 0.01 * entropy
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--env", "tog"], "env='tog' is not one of tag, spread"),
        (["--preset", "fast"], "preset='fast' is not one of default, jaxmarl"),
        (["--seeds", "0"], "seeds=0 is not >= 1"),
        (["--window", "0"], "window=0 is not >= 1"),
        (["--turn", "-1"], "turn=-1.0 is not >= 0"),
        (["--total-steps", "0"], "total_steps=0 is not >= 1"),
        (["--env", "tag", "--peer", "jaxmarl"], "env='tag' with peer='jaxmarl' is not one of"),
    ],
)
def test_bad_settings_are_refused(args, message, capsys):
    assert training.main(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err


def test_peer_that_is_not_set_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(peers, "REPOSITORY", tmp_path)
    assert training.main(["--peer", "jaxmarl"]) == 1
    assert "python benchmarks/peers.py setup jaxmarl" in capsys.readouterr().err


@pytest.mark.slow
def test_tiny_training(capsys):
    args = ["--total-steps", "6400", "--seeds", "2", "--turn", "0", "--window", "10"]
    assert training.main([*args, "--until", "-1000", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["env"] == "spread" and result["peer"] is None and result["ratio"] is None
    ours = result["ours"]
    assert ours["steps_per_second"] > 0 and ours["compile_seconds"] > 0
    # Random play already passes so low a bar, once the window is full.
    assert 0 < ours["seconds_to_return"] <= ours["seconds"]
    assert len(ours["return_per_seed"]) == 2 and -200 < ours["return_mean"] < -20
