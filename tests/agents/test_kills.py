"""A run that is killed again and again ends as one that never was."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flockax.agents.core.metricslog import read_metrics

pytestmark = pytest.mark.slow

KILLS = 20
INTERVAL = 20
COMMAND = [
    sys.executable, str(Path(__file__).parents[2] / "train.py"), "ippo", "--env", "tag", "--seeds", "2",
    "--num-envs", "8", "--rollout-length", "25", "--hidden", "16", "--total-steps", "200000",
    "--log-interval", "5", "--checkpoint-interval", str(INTERVAL), "--eval-episodes", "8",
]  # fmt: skip


def updates(out):
    path = out / "metrics.jsonl"
    return [line["update"] for line in read_metrics(path)] if path.exists() else []


def test_killed_twenty_times_the_end_is_bit_equal(tmp_path):
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*COMMAND, "--out", whole], env=env, check=True, capture_output=True)
    expected = json.loads((whole / "summary.json").read_text())["state_digest"]

    rng = random.Random(0)
    kills, repeated = 0, []
    while True:
        reached = max(updates(killed), default=0)
        process = subprocess.Popen(
            [*COMMAND, "--out", killed, "--resume"], env=env, stderr=subprocess.PIPE, text=True
        )
        if kills < KILLS:
            # Some kills come while it starts, most at a random moment between a few lines of the log.
            goal = reached + rng.randrange(1000 // KILLS)
            deadline = time.monotonic() + 120
            while process.poll() is None and max(updates(killed), default=0) < goal:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(rng.random() * 0.05)
            process.send_signal(signal.SIGKILL)
        _, log = process.communicate(timeout=240)
        start = next((int(line.split()[3]) for line in log.splitlines() if "resumed at" in line), 0)
        if "compiled" in log:
            repeated.append(reached - start)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, log
        kills += 1
    assert kills == KILLS
    assert max(repeated) <= INTERVAL, repeated
    assert min(repeated) >= 0, repeated
    assert json.loads((killed / "summary.json").read_text())["state_digest"] == expected
    assert updates(killed) == updates(whole)
