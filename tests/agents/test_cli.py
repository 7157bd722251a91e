"""The command line from end to end, with tiny runs in this process."""

import dataclasses
import json
import re
import shutil
import signal

import jax
import numpy as np
import pytest

from flockax.agents import cli, ippo, load
from flockax.agents.core import training
from flockax.agents.core.metricslog import read_metrics

TINY = [
    "ippo", "--env", "spread", "--env.num-agents", "2", "--env.params.horizon", "6", "--seeds", "2",
    "--num-envs", "4", "--rollout-length", "6", "--minibatches", "2", "--epochs", "1", "--hidden", "8",
    "--total-steps", "480", "--log-interval", "2", "--checkpoint-interval", "4", "--eval-episodes", "5",
]  # fmt: skip


def flockax(*args):
    return cli.run([str(arg) for arg in args])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "spread"
    assert flockax(*TINY, "--out", out) == 0
    return out


def test_a_run_leaves_all_its_files(trained):
    config = json.loads((trained / "config.json").read_text())
    assert config["learner"] == "ippo"
    assert config["env"]["id"] == "spread"
    assert config["env"]["fields"]["num_agents"] == 2
    assert config["env"]["params"]["horizon"] == 6
    assert config["config"]["total_steps"] == 480
    assert config["run"]["seeds"] == 2
    assert config["versions"]["jax"] == jax.__version__
    assert config["versions"]["device"]["platform"] == "cpu"
    lines = read_metrics(trained / "metrics.jsonl")
    assert [line["update"] for line in lines] == list(range(2, 21, 2))
    assert [line["env_steps"] for line in lines] == [24 * n for n in range(2, 21, 2)]
    assert all(len(line["return_mean"]) == len(line["loss"]["value"]) == 2 for line in lines)
    summary = json.loads((trained / "summary.json").read_text())
    assert len(summary["state_digest"]) == 64
    assert summary["env_steps_per_seed"] == 480
    assert summary["agent_steps_per_seed"] == 960
    assert (
        summary["seconds"] > 0
        and summary["env_steps_per_second"] > 0
        and summary["compile_seconds"] > 0
    )
    assert "sum of undiscounted rewards over the 2 agents" in summary["convention"]
    assert (trained / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_repeats_bit_for_bit(trained, tmp_path):
    assert flockax(*TINY, "--out", tmp_path / "again") == 0
    digests = {
        json.loads((p / "summary.json").read_text())["state_digest"]
        for p in (trained, tmp_path / "again")
    }
    assert len(digests) == 1


def test_evaluate_prints_one_object_and_the_same_each_time(trained, capsys):
    outputs = []
    for _ in range(2):
        assert flockax("evaluate", trained, "--episodes", 7) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    result = json.loads(outputs[0])
    for name in (
        "return_mean",
        "return_iqm",
        "per_seed",
        "per_group",
        "convention",
        "episodes",
        "greedy",
    ):
        assert name in result
    assert result["episodes"] == 7
    assert result["seeds"] == [0, 1]
    assert np.isclose(result["return_mean"], np.mean(result["per_seed"]))
    assert result["length_mean"] == 6


def test_evaluate_is_a_plain_loop_over_episodes(trained):
    """Greedy actions against a Python loop over raw steps from the same starts."""
    from flockax.agents.core import evaluation

    player = load(trained)
    episodes = evaluation.play_episodes(player.policy, player.env, player.params, 3, True, True)
    policy, env = player.one(1), player.env
    reset_key, _ = jax.random.split(jax.random.key(evaluation.EVALUATION_KEY))
    for i in range(3):
        key = jax.random.fold_in(jax.random.fold_in(reset_key, i), 0)
        state = env.initial_state(key, player.params)
        carry, total = policy.init(1), 0.0
        for t in range(6):
            batched = jax.tree.map(lambda x: x[None], env.observe(state, player.params))
            action, carry = policy.act(
                key, carry, batched, None, player.params, np.array([t == 0]), True
            )
            _, state, reward, _, _, _ = env.step(key, state, action[0], player.params)
            total += float(reward.sum())
        np.testing.assert_allclose(episodes.returns[1, i].sum(), total, rtol=1e-4)


def test_a_named_policy_is_evaluated_too(capsys):
    assert flockax("evaluate", "random", "--env", "tag", "--env.num-prey", 2, "--episodes", 4) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["per_group"]) == {"predators", "prey"}
    assert result["return_mean"] == result["per_group"]["predators"]["return_mean"]


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_watch_and_plot(trained, tmp_path, suffix, capsys):
    out = tmp_path / f"replay{suffix}"
    assert flockax("watch", trained, "--out", out, "--episodes", 1, "--seed", 1) == 0
    assert out.stat().st_size > 1000
    assert flockax("plot", trained, trained, "--out", tmp_path / "curves.png") == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_list_names_everything(capsys):
    assert flockax("--list") == 0
    out = capsys.readouterr().out
    for name in ("tag", "spread", "world_comm", "ippo", "random"):
        assert f"\n  {name} " in out


def test_stop_and_resume_end_in_the_same_state(trained, tmp_path, monkeypatch, capsys):
    """SIGTERM after the third chunk, with the handler that a run installs."""
    chunks = []
    record = training._Loop._record

    def stop(self, *args):
        chunks.append(self.done)
        if len(chunks) == 3:
            signal.raise_signal(signal.SIGTERM)
        return record(self, *args)

    monkeypatch.setattr(training._Loop, "_record", stop)
    out = tmp_path / "stopped"
    assert flockax(*TINY, "--out", out) == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after update 6 of 20" in capsys.readouterr().err
    assert not (out / "summary.json").exists()
    monkeypatch.undo()
    # All options come from the run.
    assert flockax("--out", out, "--resume") == 0
    assert "resumed at update 6 of 20" in capsys.readouterr().err
    digests = {json.loads((p / "summary.json").read_text())["state_digest"] for p in (trained, out)}
    assert len(digests) == 1
    assert [line["update"] for line in read_metrics(out / "metrics.jsonl")] == list(range(2, 21, 2))


def test_resume_with_another_setting_is_refused_with_both_values(trained, capsys):
    changed = [*TINY, "--out", str(trained), "--resume", "--learning-rate", "0.5"]
    assert flockax(*changed) == 1
    assert "config.learning_rate" in capsys.readouterr().err


def test_help_explains_every_parameter_of_an_environment(capsys):
    with pytest.raises(SystemExit) as exit:
        flockax("ippo", "--env", "spread", "--help")
    assert exit.value.code == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    options = re.findall(r"--env\.params\.([\w-]+) \S+ (\S+)", text)
    assert {"damping", "local-ratio"} <= {name for name, _ in options}
    assert all(not help.startswith("(default") for _, help in options), options


MISTAKES = [
    (["nonsense"], "no learner 'nonsense'; there are ippo"),
    (["ippo", "--env", "chess"], "no environment 'chess'; there are tag"),
    (["ippo", "--preset", "mine"], "no preset 'mine'; it has default"),
    ([*TINY, "--env.num-agents", "0"], "num_agents=0 is not an integer >= 1"),
    ([*TINY, "--env.params.dt", "nan"], "parameter dt=nan"),
    ([*TINY, "--minibatches", "3"], "minibatches=3 is not a divisor of num_envs=4"),
    ([*TINY, "--total-steps", "1e30"], "below 2^31 updates"),
    ([*TINY, "--hidden", "99999999999"], "widths in 1 .. 65536"),
    (["watch", "random", "--env", "tag", "--out", "x.foo"], "'x.foo' does not end in one of"),
    ([*TINY, "--seeds", "0"], "seeds=0 is not at least 1"),
    ([*TINY, "--opponent", "cats=random"], "no group 'cats'"),
    ([*TINY, "--opponent", "prey"], "is not GROUP=random"),
    (["evaluate", "no/such/folder"], "neither the folder of a run nor a policy"),
    (["evaluate", "random"], "needs an environment"),
    (["evaluate", "random", "--env", "tag", "--episodes", "0"], "--episodes 0"),
    (["ippo", "--resume"], "needs the folder"),
]


@pytest.mark.parametrize(
    ("args", "message"), MISTAKES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_mistakes_get_a_short_message_and_status_2(args, message, capsys):
    try:
        status = flockax(*args)
    except SystemExit as exit:
        status = exit.code
    captured = capsys.readouterr()
    assert status == 2
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_an_existing_run_and_a_foreign_folder_are_left_alone(trained, tmp_path, capsys):
    before = (trained / "metrics.jsonl").read_bytes()
    assert flockax(*TINY, "--out", trained) == 1
    assert "--resume" in capsys.readouterr().err
    assert (trained / "metrics.jsonl").read_bytes() == before
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("words")
    assert flockax(*TINY, "--out", foreign, "--resume") == 1
    assert [p.name for p in foreign.iterdir() if not p.name.startswith(".")] == ["chapter.txt"]


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    tmp_path, monkeypatch, capsys
):
    """The loss of seed 1 is NaN at update 9."""
    make_train = ippo.make_train

    def poisoned(*args):
        trainer = make_train(*args)
        update = trainer.update

        def bad(state):
            state, metrics = update(state)
            poison = (state.update == 9) & (
                jax.random.key_data(state.vector.key)[0, 1] != seed_zero
            )
            loss = {k: jax.numpy.where(poison, jax.numpy.nan, v) for k, v in metrics.loss.items()}
            return state, dataclasses.replace(metrics, loss=loss)

        seed_zero = np.asarray(
            jax.random.key_data(jax.jit(trainer.init)(jax.random.key(0)).vector.key)
        )[0, 1]
        return dataclasses.replace(trainer, update=bad)

    monkeypatch.setattr(ippo, "make_train", poisoned)
    out = tmp_path / "nan"
    assert flockax(*TINY, "--out", out) == 1
    assert (
        "seed 1 at update 9; checkpoints: the last good one is of update 8"
        in capsys.readouterr().err
    )
    monkeypatch.undo()
    assert flockax("evaluate", out, "--episodes", 2) == 0


def test_a_log_without_a_checkpoint_is_set_aside(trained, tmp_path, capsys):
    out = tmp_path / "copy"
    shutil.copytree(trained, out)
    shutil.rmtree(out / "checkpoints")
    before = (out / "metrics.jsonl").read_bytes()
    assert flockax("--out", out, "--resume") == 0
    assert "the old log is now metrics-1.jsonl" in capsys.readouterr().err
    assert (out / "metrics-1.jsonl").read_bytes() == before
    (out / "config.json").write_text('{"learner": "ippo"}')
    assert flockax("evaluate", out) == 1
    assert "describes no run of this version" in capsys.readouterr().err


def test_a_run_keeps_its_world(trained, capsys):
    args = (
        "evaluate",
        trained,
        "--env",
        "spread",
        "--env.num-agents",
        2,
        "--env.params.horizon",
        3,
    )
    assert flockax(*args) == 2
    assert "leave out --env" in capsys.readouterr().err


def test_integers_may_be_written_with_an_exponent():
    assert cli._plain_integer("2e6") == "2000000"
    assert cli._plain_integer("2.5E+3") == "2500"
    assert cli._plain_integers(["--seeds", "1e1", "--out", "1e3"]) == [
        "--seeds",
        "10",
        "--out",
        "1e3",
    ]
    for word in ("1e-3", "2.5e0", "runs/2e6", "1e", "-1e3"):
        assert cli._plain_integer(word) == word
