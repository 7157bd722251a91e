"""The protocol runner on small sets of its own."""

import gzip
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pathfinding
import pytest
from small_set import MAPS, SCENARIOS

from flockax.agents.cli import run as flockax
from flockax.envs.pathfinding import metrics


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    (folder / "maps.yaml").write_text(MAPS)
    (folder / "mapf.json").write_text(json.dumps({"on_target": "nothing", "scenarios": SCENARIOS}))
    pairs = [zip(s["targets_xy"], s["agents_xy"], strict=True) for s in SCENARIOS]
    queues = [[[goal, start] for goal, start in pair] for pair in pairs]
    lifelong = [{**s, "targets_xy": q} for s, q in zip(SCENARIOS, queues, strict=True)]
    text = json.dumps({"on_target": "restart", "max_episode_steps": 20, "scenarios": lifelong})
    (folder / "lmapf.json.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def words(files, *more, instances="mapf.json", policy="pibt"):
    return [
        "--policy", str(policy), "--maps", str(files / "maps.yaml"),
        "--instances", str(files / instances), "--json", *more,
    ]  # fmt: skip


def result_of(capsys, args):
    assert pathfinding.main(args) == 0
    return json.loads(capsys.readouterr().out)


def test_a_planner_solves_a_small_set(files, capsys):
    result = result_of(capsys, words(files, "--num-agents", "1,3"))
    one, three = result["rows"]
    assert [one["num_agents"], three["num_agents"]] == [1, 3]
    assert one["instances"] == three["instances"] == 2
    assert one["csr"] == one["isr"] == 1 and one["throughput"] is None
    # Alone, an agent walks a shortest path: 4 steps in the hall, 2 + 3 through the door.
    assert one["soc"] == one["makespan"] == 4.5
    assert three["isr"] > 0.5 and three["soc"] > 3 * 3
    assert one["instance_hash"] != three["instance_hash"]
    assert one["seconds"] > 0
    again = result_of(capsys, words(files, "--num-agents", "1,3"))
    for a, b in zip(result["rows"], again["rows"], strict=True):
        assert {**a, "seconds": 0, "agent_steps_per_second": 0} == {
            **b, "seconds": 0, "agent_steps_per_second": 0
        }  # fmt: skip


def test_lifelong_counts_goals_by_the_horizon_of_the_file(files, capsys):
    args = words(files, "--task", "lmapf", "--num-agents", "1", instances="lmapf.json.gz")
    result = result_of(capsys, args)
    assert result["horizon"] == 20
    (row,) = result["rows"]
    # To the goal and back: 20 / 4 arrivals in the hall, 20 / 5 through the door.
    np.testing.assert_allclose(row["throughput"], (5 / 20 + 4 / 20) / 2)
    assert row["csr"] is None


def test_the_file_says_what_the_task_is(files, capsys):
    args = words(files, "--num-agents", "1", instances="lmapf.json.gz")
    assert result_of(capsys, args)["task"] == "lmapf"
    other = result_of(capsys, [*args, "--task", "mapf"])
    assert other["task"] == "mapf" and "is made for lmapf" in other["warnings"][0]
    assert pathfinding.main([*words(files), "--task", "lmapf"]) == 2
    assert "one goal only; the lifelong task needs more" in capsys.readouterr().err


def test_random_moves_collide_and_rarely_arrive(files, capsys):
    (row,) = result_of(capsys, words(files, "--horizon", "5", policy="random"))["rows"]
    assert row["csr"] == 0 and row["soc"] >= 2 * 5
    assert row["agent_collisions"] + row["obstacle_collisions"] > 0


def test_a_trained_run_plays_with_other_numbers_of_agents(files, capsys, tmp_path):
    run = tmp_path / "run"
    trained = [
        "imitation", "--env", "grid_pathfinding", "--env.num-agents", "2", "--env.size", "5",
        "--env.num-maps", "2", "--env.density", "0.1", "--env.obs-radius", "2",
        "--env.guide", "distance", "--total-steps", "16", "--num-envs", "2", "--rollout-length", "4",
        "--minibatches", "1", "--hidden", "8", "--seeds", "2", "--eval-episodes", "2", "--out", str(run),
    ]  # fmt: skip
    assert flockax(trained) == 0
    capsys.readouterr()
    args = words(files, "--num-agents", "3", "--horizon", "6", "--seed", "1", policy=run)
    (row,) = result_of(capsys, args)["rows"]
    assert row["num_agents"] == 3 and 0 <= row["isr"] <= 1
    assert pathfinding.main(words(files, "--seed", "7", policy=run)) == 2
    assert "--seed 7 was not trained; there are 0, 1" in capsys.readouterr().err
    config = (run / "config.json").read_text()
    for damaged in ('{"learner": "imitation"}', config.replace('"seeds": 2', '"seeds": "x"')):
        (run / "config.json").write_text(damaged)
        assert pathfinding.main(words(files, policy=run)) == 1
        captured = capsys.readouterr()
        assert "describes no run of this version" in captured.err
        assert "Traceback" not in captured.err
    (run / "config.json").write_text(config)
    shutil.rmtree(run / "checkpoints")
    assert pathfinding.main(words(files, policy=run)) == 1
    captured = capsys.readouterr()
    assert "no intact checkpoint" in captured.err and "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--num-agents", "4"], "num_agents='4' is not an integer in 1 .. 3"),
        (["--num-agents", "two"], "num_agents='two'"),
        (["--policy", "nobody"], "'nobody' is neither"),
        (["--maps", "nowhere.yaml"], "nowhere.yaml"),
        (["--horizon", "-1"], "horizon=-1"),
        (["--horizon", "1000000000000"], "horizon=1000000000000 is more than"),
        (["--key", "4294967296"], "key=4294967296 is more than"),
    ],
)
def test_mistakes_get_a_message(files, more, message, capsys):
    assert pathfinding.main([*words(files), *more]) in (1, 2)
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err


def test_the_length_of_an_episode_ends_with_its_success():
    on_goal = jnp.asarray([[[True, False], [True, True], [False, False]]])
    found = metrics.one_shot(on_goal, jnp.asarray([2]))
    assert float(found["csr"][0]) == 1 and int(found["soc"][0]) == 3
