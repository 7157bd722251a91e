"""A capacity that is exceeded grows while a run trains, and stays grown when it goes on."""

import json

import pytest

from flockax.agents import load
from flockax.agents.cli import run as flockax

SMALL = ["--seeds", "1", "--num-envs", "2", "--rollout-length", "5", "--minibatches", "1"]
SMALL += ["--hidden", "4", "--epochs", "1", "--eval-episodes", "1", "--log-interval", "1"]
FLOCK = ["--env", "flock", "--env.num-agents", "24", "--env.search", "sorted"]
FLOCK += ["--env.params.horizon", "10"]


def test_capacity_grows_while_training(tmp_path, capsys):
    run = tmp_path / "run"
    words = ["ippo", *FLOCK, "--env.capacity", "4", *SMALL, "--out", str(run)]
    assert flockax([*words, "--total-steps", "60"]) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    overflow = [line["overflow"][0] for line in lines]
    grown = sum(x > 0 for x in overflow)
    assert len(overflow) == 6 and 1 <= grown <= 2 and overflow[-1] == 0
    assert overflow == sorted(overflow, reverse=True), "what grew must not shrink"
    capacity = json.loads((run / "config.json").read_text())["env"]["fields"]["capacity"]
    assert capacity == 4 * 2**grown == load(run).env.capacity
    assert capsys.readouterr().err.count("a capacity was exceeded") == grown


@pytest.mark.slow
def test_resumed_run_keeps_its_capacity(tmp_path):
    digests = []
    for name, killed in (("whole", False), ("resumed", True)):
        run = tmp_path / name
        words = ["ippo", *FLOCK, "--env.capacity", "2", *SMALL, "--out", str(run)]
        words += ["--total-steps", "60", "--checkpoint-interval", "1"]
        assert flockax(words) == 0
        if killed:  # as if before the last update was saved
            last = [p for p in (run / "checkpoints").iterdir() if p.name.endswith("6")]
            assert len(last) == 1
            last[0].rename(tmp_path / "last")
            assert flockax(["ippo", "--out", str(run), "--resume"]) == 0
        digests.append(json.loads((run / "summary.json").read_text())["state_digest"])
    assert digests[0] == digests[1]
