"""The mean-field benchmark, beside what was recorded of the peer or the peer itself."""

import json
from pathlib import Path

import mean_field
import numpy as np
import peers
import pytest

RECORD = Path(__file__).parents[1] / "fixtures" / "mean_field.npz"
SMALL = ["--game", "crowd_modelling", "--size", "7", "--horizon", "5"]


class Recorded:
    """Takes the place of the worker and answers what was recorded."""

    asked: list = []  # noqa: RUF012

    def __init__(self, script, peer):
        assert script == "openspiel_mean_field.py" and peer == "openspiel"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def ask(self, do, **fields):
        self.asked.append((do, fields))
        with np.load(RECORD) as record:
            first = record["beach_7/nash_conv"][:1]
            gains = np.concatenate([first, record[f"beach_7/{fields['solver']}"]])
        count = fields["iterations"] + 1
        return {"exploitability": gains[:count].tolist(), "versions": {"open_spiel": "2.0.2"}}


@pytest.mark.parametrize("solver", ["fictitious_play", "mirror_descent"])
def test_beside_the_peer(solver, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(mean_field, "Worker", Recorded)
    monkeypatch.setattr(Recorded, "asked", [])
    picture = tmp_path / "curve.svg"
    words = [*SMALL, "--solver", solver, "--iterations", "12", "--peer", "openspiel"]
    assert mean_field.main([*words, "--picture", str(picture), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 <= result["largest_difference"] < 1e-11
    assert len(result["exploitability"]) == len(result["peer"]) == 13 and result["compat"]
    assert result["versions"]["open_spiel"] == "2.0.2"
    ((do, asked),) = Recorded.asked
    assert do == "solve" and asked["game"] == "mfg_crowd_modelling"
    assert asked["parameters"] == {"size": 7, "horizon": 5}
    assert picture.read_text().startswith("<?xml")
    assert mean_field.main(words) == 0
    printed = capsys.readouterr().out
    assert "largest difference" in printed and "1.165700848" in printed


def test_alone_without_the_faults_of_the_peer(capsys):
    words = [*SMALL, "--iterations", "3", "--solver", "mirror_descent", "--json"]
    results = []
    for more in ([], ["--compat"]):
        assert mean_field.main([*words, *more]) == 0
        results.append(json.loads(capsys.readouterr().out))
    right, compat = (np.array(result["exploitability"]) for result in results)
    assert results[0]["peer"] is None and results[0]["largest_difference"] is None
    assert np.abs(right - compat).max() > 1e-3
    assert mean_field.main([word for word in words if word != "--json"]) == 0
    assert "peer" not in capsys.readouterr().out


@pytest.mark.parametrize("game", ["predator_prey", "four_rooms", "crowd_modelling_2d"])
def test_other_games(game, capsys):
    assert mean_field.main(["--game", game, "--horizon", "2", "--iterations", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["horizon"] == 2 and len(result["exploitability"]) == 2
    assert result["size"] == {"predator_prey": 5, "four_rooms": 13}.get(game, 10)


def test_refused(capsys, tmp_path, monkeypatch):
    for words, message in (
        (["--iterations", "0"], "iterations=0 is not >= 1"),
        (["--learning-rate", "-1"], "learning_rate=-1.0 is not a positive number"),
        (["--learning-rate", "nan"], "learning_rate=nan"),
        (["--game", "predator_prey", "--size", "4"], "size=4 cannot be chosen"),
        (["--picture", "curve.gif"], "does not end in .png"),
        (["--size", "1"], "size=1 is not"),
    ):
        assert mean_field.main(words) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr(peers, "REPOSITORY", tmp_path)
    assert mean_field.main([*SMALL, "--iterations", "1", "--peer", "openspiel"]) == 1
    assert "peers.py setup openspiel" in capsys.readouterr().err


def test_openspiel_is_installed_by_its_name_on_pypi(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "REPOSITORY", tmp_path)
    monkeypatch.setattr(peers.venv, "create", lambda folder, **_: Path(folder).mkdir(parents=True))
    commands = []
    monkeypatch.setattr(peers, "run", lambda command, _: commands.append(command) or "[]")
    assert peers.main(["setup", "openspiel"]) == 0
    assert commands[0][-1] == "open_spiel==2.0.2"


@pytest.mark.slow
@pytest.mark.skipif(
    not (peers.folder_of("openspiel") / peers.MARKER).is_file(),
    reason="python benchmarks/peers.py setup openspiel",
)
@pytest.mark.parametrize(
    ("game", "solver"),
    [
        ("crowd_modelling", "fictitious_play"),
        ("crowd_modelling", "mirror_descent"),
        ("crowd_modelling_2d", "mirror_descent"),
        ("predator_prey", "fictitious_play"),
        ("predator_prey", "mirror_descent"),
    ],
)
def test_the_peer_itself(game, solver, capsys):
    """Fictitious play on the torus is left out: rounding decides between mirror images there."""
    words = ["--game", game, "--solver", solver, "--iterations", "4", "--horizon", "4"]
    assert mean_field.main([*words, "--peer", "openspiel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest_difference"] < 1e-10
