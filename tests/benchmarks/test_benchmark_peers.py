"""Setting up peers; one test runs with the real peer where it is set up."""

import importlib.metadata
import json
import sys
import types
from pathlib import Path

import jax
import peers
import pytest
import throughput
import training

from flockax.envs import make


class Pip:
    """Takes the place of everything that set-up runs; packages "get installed" by a version."""

    def __init__(self, fail_at=None, error=None):
        self.fail_at, self.error = fail_at, error
        self.versions = {}
        self.commands = []

    def __call__(self, command, purpose):
        self.commands.append(command)
        if self.fail_at is not None and self.fail_at in purpose:
            raise self.error
        if "install" in command:
            for word in command:
                if "==" in word:
                    name, version = word.split("==")
                    self.versions[name] = version
            self.versions.setdefault("jax", "0.1")
            return ""
        packages = [{"name": name, "version": v} for name, v in self.versions.items()]
        return json.dumps(packages)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """``fake(**of_pip)`` replaces what set-up runs; peers then live under `tmp_path`."""
    monkeypatch.setattr(peers, "REPOSITORY", tmp_path)

    def create(folder, **options):
        assert options == {"clear": True, "with_pip": True}
        Path(folder).mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(peers.venv, "create", create)

    def install(**of_pip):
        pip = Pip(**of_pip)
        monkeypatch.setattr(peers, "run", pip)
        return pip

    return install


def test_set_up_gives_the_peer_our_jax(fake, capsys):
    pip = fake()
    assert peers.main(["setup", "jaxmarl"]) == 0
    assert pip.versions["jaxmarl"] == "0.2.0"
    assert pip.versions["jax"] == importlib.metadata.version("jax") == jax.__version__
    assert pip.versions["jaxlib"] == importlib.metadata.version("jaxlib")
    # The peer plays last, with everything installed.
    assert pip.commands[-1][1:] == ["-c", peers.PEERS["jaxmarl"].trial]
    python = peers.python_of("jaxmarl")
    assert all(command[0] == str(python) for command in pip.commands)
    err = capsys.readouterr().err
    assert "pip chose jax 0.1" in err and f"jax {jax.__version__} here" in err
    assert peers.main(["list"]) == 0
    assert f"set up, jax {jax.__version__}" in capsys.readouterr().out


@pytest.mark.parametrize("step", ["install jaxmarl", "install jax==", "play"])
def test_failed_set_up_is_told_and_does_not_count(fake, step, capsys):
    fake()
    assert peers.main(["setup", "jaxmarl"]) == 0
    fake(fail_at=step, error=peers.PeerError("no network"))
    assert peers.main(["setup", "jaxmarl"]) == 1
    assert "error: no network" in capsys.readouterr().err
    with pytest.raises(peers.PeerError, match=r"run: python benchmarks/peers\.py setup jaxmarl"):
        peers.python_of("jaxmarl")
    assert peers.main(["list"]) == 0
    assert "not set up" in capsys.readouterr().out


def test_interrupted_set_up_can_be_repeated(fake, capsys):
    fake(fail_at="install jax==", error=KeyboardInterrupt())
    assert peers.main(["setup", "jaxmarl"]) == 130
    assert "run the same command again" in capsys.readouterr().err
    with pytest.raises(peers.PeerError):
        peers.python_of("jaxmarl")
    fake()
    assert peers.main(["setup", "jaxmarl"]) == 0
    assert peers.python_of("jaxmarl")


def test_virtual_environment_that_cannot_be_made(fake, monkeypatch, capsys):
    def create(folder, **options):
        raise OSError("disk full")

    monkeypatch.setattr(peers.venv, "create", create)
    assert peers.main(["setup", "jaxmarl"]) == 1
    assert "disk full" in capsys.readouterr().err


def test_failing_command_says_what_it_said():
    script = "import sys; print('first'); print('no such package', file=sys.stderr); sys.exit(3)"
    with pytest.raises(peers.PeerError, match=r"could not install x \(exit 3\):\s+no such package"):
        peers.run([sys.executable, "-c", script], "install x")
    with pytest.raises(peers.PeerError, match="could not install x: "):
        peers.run(["/nowhere/python"], "install x")
    assert peers.run([sys.executable, "-c", "print(5)"], "count") == "5\n"


def test_accelerator_plugins_come_along(monkeypatch):
    package = types.SimpleNamespace(metadata={"Name": "JAX-cuda13-plugin"})
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [package])
    assert peers.jax_requirements()[0] == f"jax[cuda13]=={jax.__version__}"


def test_peers_see_their_own_packages_only(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    environ = peers.isolated_environ()
    assert "PYTHONPATH" not in environ and environ["PYTHONNOUSERSITE"] == "1"


def test_bad_names_are_refused(capsys):
    with pytest.raises(SystemExit) as exit:
        peers.main(["setup", "mava"])
    assert exit.value.code == 2 and "jaxmarl" in capsys.readouterr().err
    with pytest.raises(peers.PeerError, match="'flock'; it has spread, tag"):
        peers.peer_environment("jaxmarl", "flock")


@pytest.mark.slow
@pytest.mark.skipif(
    not (peers.folder_of("jaxmarl") / peers.MARKER).is_file(),
    reason="python benchmarks/peers.py setup jaxmarl",
)
class TestJaxmarl:
    @pytest.mark.parametrize("env", sorted(peers.PEERS["jaxmarl"].environments))
    def test_throughput(self, env, capsys):
        args = ["--env", env, "--num-envs", "64", "--steps", "104", "--repeats", "1"]
        assert throughput.main([*args, "--seconds", "0", "--peer", "jaxmarl", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["peer"] > 0 and result["ratio"] == result["ours"] / result["peer"]
        assert result["warnings"] == []
        ours, peer = result["sides"]["ours"], result["sides"]["peer"]
        assert peer["versions"]["jax"] == jax.__version__
        assert peer["num_agents"] == make(env).num_agents
        # Episodes of ours have 25 steps, of the peer 26; the same task gives about the same rewards.
        assert ours["checksum"]["episodes"] == peer["checksum"]["episodes"] == 64 * 4
        if env == "spread":
            assert ours["checksum"]["reward"] == pytest.approx(peer["checksum"]["reward"], rel=0.1)

    def test_training(self, capsys):
        args = ["--preset", "jaxmarl", "--total-steps", "8192", "--peer", "jaxmarl", "--turn", "0"]
        assert training.main([*args, "--window", "50", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["ratio"] > 0 and result["warnings"] == []
        for side in (result["ours"], result["peer"]):
            assert side["steps"] == 8192 and -110 < side["return_mean"] < -50
