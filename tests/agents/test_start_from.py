"""Runs that start with the networks of another run."""

import json

import jax
import numpy as np
import pytest

from flockax.agents import cli
from flockax.agents.core.checkpoint import Checkpoints
from flockax.agents.core.runs import make_trainer, weights_from
from flockax.agents.core.trainer import make_init, seed_keys

WORLD = [
    "--env", "grid_pathfinding", "--env.num-agents", "2", "--env.size", "5", "--env.num-maps", "2",
    "--env.obs-radius", "2", "--env.density", "0.1", "--env.on-target", "restart",
    "--env.params.horizon", "8", "--num-envs", "4", "--rollout-length", "8", "--minibatches", "2",
    "--epochs", "1", "--eval-episodes", "4", "--log-interval", "1", "--checkpoint-interval", "2",
]  # fmt: skip
STEPS = ["--total-steps", "128"]


def flockax(*args):
    return cli.run([str(arg) for arg in args])


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "imitation"
    assert flockax("imitation", *WORLD, *STEPS, "--hidden", 8, "--seeds", 2, "--out", out) == 0
    return out


def states(run):
    config = json.loads((run / "config.json").read_text())
    trainer = make_trainer(config)
    first, count = config["run"]["seed"], config["run"]["seeds"]
    example = jax.eval_shape(make_init(trainer, "vmap"), seed_keys(first, count))
    return trainer, Checkpoints(run / "checkpoints", read_only=True).restore(None, example)[0]


def fine_tuned(expert, out, *more):
    """The trainer and the states of a run of ippo that starts from another."""
    args = ["ippo", *WORLD, *STEPS, "--hidden", 8, "--start-from", expert, "--out", out, *more]
    assert flockax(*args) == 0
    return states(out)


def equal(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def test_the_actor_is_that_of_the_other_run(expert, tmp_path):
    """As long as only the critic learns it stays so; seeds take the trained ones in turn."""
    _, source = states(expert)
    out = tmp_path / "fine"
    trainer, state = fine_tuned(expert, out, "--seeds", 3, "--critic-first", 1)
    for seed, trained in enumerate((0, 1, 0)):
        got, wanted = (
            jax.tree.map(lambda x, i=i: x[i], s.params["actor"])
            for s, i in ((state, seed), (source, trained))
        )
        assert equal(got, wanted)
    fresh = make_init(trainer, "vmap")(seed_keys(0, 3))
    assert not equal(state.params["critic"], fresh.params["critic"])
    assert json.loads((out / "config.json").read_text())["run"]["start_from"] == str(expert)


def test_the_actor_learns_after_the_critic(expert, tmp_path):
    _, source = states(expert)
    _, state = fine_tuned(expert, tmp_path / "fine", "--seeds", 1, "--critic-first", 0.5)
    assert not equal(
        jax.tree.map(lambda x: x[0], state.params["actor"]),
        jax.tree.map(lambda x: x[0], source.params["actor"]),
    )


def test_a_resumed_run_needs_the_other_no_more(expert, tmp_path, monkeypatch):
    """Killed after a checkpoint and resumed without the run that it started from: bit-equal."""
    import shutil

    from flockax.agents.core import training

    source = tmp_path / "source"
    shutil.copytree(expert, source)
    args = ["ippo", *WORLD, *STEPS, "--hidden", 8, "--seeds", 1, "--start-from", source]
    assert flockax(*args, "--out", tmp_path / "whole") == 0

    class Kill(Exception):
        pass

    save = training._Loop._save

    def save_and_die(self):
        save(self)
        raise Kill

    monkeypatch.setattr(training._Loop, "_save", save_and_die)
    with pytest.raises(Kill):
        flockax(*args, "--out", tmp_path / "cut")
    monkeypatch.undo()
    shutil.rmtree(source)
    assert flockax("ippo", "--env", "grid_pathfinding", "--out", tmp_path / "cut", "--resume") == 0
    digests = [
        json.loads((tmp_path / name / "summary.json").read_text())["state_digest"]
        for name in ("whole", "cut")
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--hidden", 9], "its actor is another network; hidden, recurrent, share"),
        (["--hidden", 8, "--activation", "tanh"], "activation='relu'"),
        (["--hidden", 8, "--env.obs-radius", 3], "was trained with feature_spec"),
    ],
)
def test_another_network_is_refused_before_anything_is_written(
    expert, tmp_path, change, message, capsys
):
    args = ["ippo", *WORLD, *STEPS, *change, "--start-from", expert, "--out", tmp_path / "no"]
    assert flockax(*args) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_what_is_no_run_is_refused(tmp_path, capsys):
    args = ["ippo", *WORLD, *STEPS, "--start-from", tmp_path / "nothing", "--out", tmp_path / "no"]
    assert flockax(*args) == 1
    assert "is not the folder of a run" in capsys.readouterr().err


def test_resume_of_a_run_that_never_began_starts_it(expert, tmp_path):
    args = ["ippo", *WORLD, *STEPS, "--hidden", 8, "--seeds", 1, "--start-from", expert]
    assert flockax(*args, "--out", tmp_path / "new", "--resume") == 0
    assert (tmp_path / "new" / "summary.json").exists()


def test_a_source_with_a_damaged_configuration_is_refused(expert, tmp_path, capsys):
    import shutil

    shutil.copytree(expert, tmp_path / "odd")
    path = tmp_path / "odd" / "config.json"
    for key, value in (("seeds", "x"), ("seed", -1)):
        config = json.loads((expert / "config.json").read_text())
        config["run"][key] = value
        path.write_text(json.dumps(config))
        args = ["ippo", *WORLD, *STEPS, "--start-from", tmp_path / "odd", "--out", tmp_path / "no"]
        assert flockax(*args) == 1
        assert "describes no run of this version" in capsys.readouterr().err


def test_weights_are_stacked_over_seeds(expert):
    trainer, source = states(expert)
    found = weights_from(expert, trainer, {"activation": "relu"}, 5)
    assert set(found) == {"actor"}
    for new, old in zip(
        jax.tree.leaves(found["actor"]), jax.tree.leaves(source.params["actor"]), strict=True
    ):
        np.testing.assert_array_equal(new, np.asarray(old)[[0, 1, 0, 1, 0]])
