"""The planning benchmark on a small map, beside a stand-in for the clone of the peer."""

import json
import sys

import numpy as np
import planning
import pytest

MAP = "type octile\nheight 3\nwidth 4\nmap\n....\n.@..\n....\n"
PEER = """
import time

class PIBT:
    made = []

    def __init__(self, grid, starts, goals):
        self.given = grid, starts, goals
        self.made.append(self)

    def run(self, max_timestep):
        time.sleep(0.01)
        return [self.given[1]] * (max_timestep - 1)
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "small.map").write_text(MAP)
    (tmp_path / "clone/pypibt").mkdir(parents=True)
    (tmp_path / "clone/pypibt/__init__.py").write_text("")
    (tmp_path / "clone/pypibt/pibt.py").write_text(PEER)
    yield tmp_path
    for name in ("pypibt", "pypibt.pibt"):
        sys.modules.pop(name, None)


def words(files, *more):
    sizes = ["--num-agents", "2", "--num-envs", "3", "--steps", "6", "--repeats", "2"]
    return ["--maps", str(files / "small.map"), *sizes, "--json", *more]


def test_both_sides_plan_from_the_same_starts(files, capsys):
    args = ["--pypibt", str(files / "clone"), "--peer-envs", "4"]
    assert planning.main(words(files, *args)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ours"] > 0 and len(result["samples"]["peer"]) == 2
    # Four runs of 10 ms with four steps of two agents each.
    assert 100 < result["peer"] <= 4 * 4 * 2 / 0.04
    ratios = [a / b for a, b in zip(*result["samples"].values(), strict=True)]
    assert min(ratios) <= result["ratio"] <= max(ratios)
    made = sys.modules["pypibt.pibt"].PIBT.made
    assert len(made) == 4
    free = np.ones((3, 4), bool)
    free[1, 1] = False
    for planner in made:
        grid, starts, goals = planner.given
        np.testing.assert_array_equal(grid, free)
        assert len(set(starts)) == len(set(goals)) == 2
        assert all(grid[cell] for cell in starts + goals)
    assert len({str(planner.given) for planner in made}) > 1


def test_alone(files, capsys):
    assert planning.main(words(files)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["peer"] is None and result["ratio"] is None and result["num_envs"] == 3
    assert planning.main([word for word in words(files) if word != "--json"]) == 0
    assert "small.map" in capsys.readouterr().out


def test_refused(files, capsys):
    assert planning.main(words(files, "--pypibt", str(files / "none"))) == 2
    assert "is no clone of pypibt" in capsys.readouterr().err
    assert planning.main(words(files, "--steps", "0")) == 2
    assert "steps" in capsys.readouterr().err
    (files / "two.yaml").write_text('"a": |-\n  ....\n"b": |-\n  ....\n')
    args = words(files)
    args[1] = str(files / "two.yaml")
    assert planning.main(args) == 2
    assert "holds 2 maps, not one" in capsys.readouterr().err
    args[1] = str(files / "none.map")
    assert planning.main(args) == 2
    assert "none.map" in capsys.readouterr().err
