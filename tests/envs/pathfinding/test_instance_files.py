"""Instances from a file: as fields of `grid_pathfinding`, on the command line, and what they score."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import small_set
from small_set import MAPS

from flockax.agents.cli import run as flockax
from flockax.envs import make
from flockax.envs.pathfinding.formats import load_instances, load_maps
from flockax.envs.pathfinding.given import from_instances

SCENARIOS = [
    *small_set.SCENARIOS,
    {"map_name": "hall", "seed": 2, "agents_xy": [[0, 1], [1, 1]], "targets_xy": [[1, 1], [0, 1]]},
]
ONE_SHOT = {"collision": "soft", "on_target": "nothing"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    (folder / "maps.yaml").write_text(MAPS)
    (folder / "two.json").write_text(json.dumps({"scenarios": SCENARIOS}))
    (folder / "same.json").write_text(
        json.dumps({"scenarios": [{**SCENARIOS[0], "targets_xy": [[0, 4], [0, 4], [0, 0]]}]})
    )
    return {"maps": str(folder / "maps.yaml"), "instances": str(folder / "two.json")}


def test_episodes_are_those_of_the_file(files):
    env = make("grid_pathfinding", num_agents=2, **files, **ONE_SHOT)
    assert (env.num_instances, env.queue_length, env.size, env.width) == (3, 1, 3, 5)
    assert make("grid_pathfinding", **dataclasses.asdict(env)) == env
    params, seen = env.default_params, set()
    for key in jax.random.split(jax.random.key(0), 20):
        state = env.reset(key)[1]
        scenario = SCENARIOS[int(state.instance)]
        seen.add(int(state.instance))
        assert state.position.tolist() == scenario["agents_xy"][:2]
        assert state.goal.tolist() == scenario["targets_xy"][:2]
        assert ["hall", "door"][int(state.map)] == scenario["map_name"]
    assert seen == {0, 1, 2}
    maps = load_maps(files["maps"])
    chosen = load_instances(files["instances"], maps)
    other, other_params = from_instances(maps, chosen, num_agents=2, **ONE_SHOT)
    for i in range(3):
        a, b = env.instance_state(params, i), other.instance_state(other_params, i)
        np.testing.assert_array_equal(
            env.observe(a, params).features, other.observe(b, other_params).features
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_agents": 3}, r"two.json: num_agents=3 is not an integer in 1 .. 2"),
        ({"maps": "random"}, "needs the file of their maps, not maps='random'"),
        ({"instances": "nothing.json"}, r"nothing.json: No such file"),
        ({"instances": 3}, "instances=3 is not a name or a path"),
        ({"on_target": "restart"}, "instance 0 has an agent with one goal only"),
        ({"instances": "same.json"}, r"instance 0: agent 1: has its goal in cell .* like agent 0"),
    ],
)
def test_what_cannot_be_played_is_refused(files, fields, message):
    if fields.get("instances") == "same.json":
        fields = {"instances": files["instances"].replace("two", "same")}
    with pytest.raises(ValueError, match=message):
        make("grid_pathfinding", **{"num_agents": 2, **files, **ONE_SHOT, **fields})


def words(files, **fields):
    pairs = {**files, "num_agents": 2, **ONE_SHOT, **fields}
    return [
        word
        for name, value in pairs.items()
        for word in (f"--env.{name.replace('_', '-')}", str(value))
    ]


@pytest.mark.parametrize(("policy", "csr"), [("lacam", 1.0), ("random", 0.0)])
def test_evaluate_says_how_many_were_solved(files, policy, csr, capsys):
    args = ["evaluate", policy, "--env", "grid_pathfinding", "--episodes", "12", *words(files)]
    horizon = 40 if policy == "lacam" else 1
    assert flockax([*args, "--env.params.horizon", str(horizon)]) == 0
    said = capsys.readouterr()
    scores = json.loads(said.out)["scores"]
    assert scores["csr"] == csr and csr <= scores["isr"] < 1 + csr
    assert "playing 12 episodes" in said.err


def test_scores_are_what_the_literature_reports():
    total, length = {"arrivals": np.array([6.0, 0.0])}, np.array([12, 12])
    final = {"on_goal": np.array([1.0, 0.75])}
    lifelong = make("grid_pathfinding", num_agents=4, on_target="restart")
    assert lifelong.scores(total, final, length)["throughput"].tolist() == [0.5, 0.0]
    for on_target in ("finish", "nothing"):
        env = make("grid_pathfinding", num_agents=4, on_target=on_target)
        scores = env.scores(total, final, length)
        assert scores["csr"].tolist() == [1, 0] and scores["isr"].tolist() == [1, 0.75]
