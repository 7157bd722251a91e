"""Peers: other people's environments, each in a virtual environment of its own.

    python benchmarks/peers.py list
    python benchmarks/peers.py setup jaxmarl

A peer is installed from PyPI into ``.peers/NAME`` and then given the jax of the Python that runs this
script, even where one of its dependencies asks for an older one: a comparison on two versions of jax
measures jax. Set-up ends with a trial in which the peer plays an episode, and only then counts as done;
one that was interrupted is repeated from the start.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import tyro

REPOSITORY = Path(__file__).resolve().parents[1]
MARKER = "peer.json"


class PeerError(RuntimeError):
    """A peer cannot be set up or used; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """A peer and what it is compared with.

    Attributes:
        name: its name here and, unless `package` says otherwise, on PyPI.
        version: the version that is compared.
        environments: our environment ids, or mean-field games, and the peer's names for the same.
        trial: Python code that plays a little; it fails where the installed versions do not work.
        undeclared: packages that it or its dependencies import without asking for them.
        jax: whether it computes with jax.
        package: its name on PyPI, where that is another.
    """

    name: str
    version: str
    environments: Mapping[str, str]
    trial: str
    undeclared: tuple[str, ...] = ()
    jax: bool = True
    package: str | None = None


PEERS = {
    "jaxmarl": Peer(
        "jaxmarl",
        "0.2.0",
        {
            "spread": "MPE_simple_spread_v3",
            "tag": "MPE_simple_tag_v3",
            "world_comm": "MPE_simple_world_comm_v3",
        },
        """
import jax, jaxmarl
from jaxmarl.wrappers.baselines import LogWrapper
env = LogWrapper(jaxmarl.make("MPE_simple_spread_v3"))
key = jax.random.key(0)
observation, state = env.reset(key)
for _ in range(3):
    action = {agent: env.action_space(agent).sample(key) for agent in env.agents}
    observation, state, reward, done, info = env.step(key, state, action)
jax.block_until_ready(reward)
""",
        undeclared=("six",),  # imported by gymnax 1.0.1
    ),
    "pogema": Peer(
        "pogema",
        "1.4.0",
        {"grid_pathfinding": "pogema_v0"},
        """
from pogema import GridConfig, pogema_v0
world = pogema_v0(GridConfig(num_agents=4, size=8, seed=0))
world.reset()
for _ in range(3):
    world.step([1, 2, 3, 4])
""",
        jax=False,
    ),
    "esquilax": Peer(
        "esquilax",
        "2.1.0",
        {"flock": "spatial"},
        """
import esquilax, jax
x = jax.numpy.array([[0.1, 0.1], [0.6, 0.6], [0.7, 0.7]])
a = jax.numpy.arange(3)
add = esquilax.reductions.add(dtype=int)
near = esquilax.transforms.spatial(
    lambda p, a, b: a + b, i_range=0.5, reduction=add, include_self=False
)
jax.block_until_ready(near(None, a, a, pos=x))
""",
    ),
    "openspiel": Peer(
        "openspiel",
        "2.0.2",
        {
            "crowd_modelling": "mfg_crowd_modelling",
            "crowd_modelling_2d": "mfg_crowd_modelling_2d",
            "four_rooms": "mfg_crowd_modelling_2d",
            "predator_prey": "python_mfg_predator_prey",
        },
        """
import pyspiel
import open_spiel.python.mfg.games.predator_prey
from open_spiel.python.mfg.algorithms import mirror_descent
for name in ("mfg_crowd_modelling_2d(size=3,horizon=2)", "python_mfg_predator_prey"):
    mirror_descent.MirrorDescent(pyspiel.load_game(name)).iteration()
""",
        jax=False,
        package="open_spiel",
    ),
}
PeerName = Literal["jaxmarl", "pogema", "esquilax", "openspiel"]


def folder_of(name: str, root: Path | None = None) -> Path:
    """Where the peer's virtual environment is or will be."""
    return (root or REPOSITORY / ".peers") / name


def python_of(name: str, root: Path | None = None) -> Path:
    """The Python of a peer that is set up.

    Raises:
        PeerError: if it is not.
    """
    folder = folder_of(name, root)
    if not (folder / MARKER).is_file():
        raise PeerError(
            f"the peer {name} is not set up; run: python benchmarks/peers.py setup {name}"
        )
    return folder / "bin" / "python"


def peer_environment(name: str, env: str) -> str:
    """The peer's name for one of our environments.

    Raises:
        PeerError: if the peer has no such environment.
    """
    known = PEERS[name].environments
    if env not in known:
        raise PeerError(f"the peer {name} has no environment {env!r}; it has {', '.join(known)}")
    return known[env]


def isolated_environ() -> dict[str, str]:
    """Environment variables under which a peer's Python sees its own packages only."""
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**own, "PYTHONNOUSERSITE": "1"}


def jax_requirements() -> list[str]:
    """What to install so that a peer has the jax of this Python, its accelerator plugin included."""
    version = importlib.metadata.version
    installed = {dist.metadata["Name"].lower() for dist in importlib.metadata.distributions()}
    extras = [x for x in ("cuda12", "cuda13") if f"jax-{x}-plugin" in installed]
    suffix = f"[{','.join(extras)}]" if extras else ""
    return [f"jax{suffix}=={version('jax')}", f"jaxlib=={version('jaxlib')}"]


def run(command: list[str], purpose: str) -> str:
    """Runs a command of a set-up and returns its standard output.

    Raises:
        PeerError: if it fails, with what it said last.
    """
    try:
        done = subprocess.run(command, env=isolated_environ(), capture_output=True, text=True)
    except OSError as error:
        raise PeerError(f"could not {purpose}: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
        raise PeerError("\n  ".join([f"could not {purpose} (exit {done.returncode}):", *said]))
    return done.stdout


def versions_in(python: Path) -> dict[str, str]:
    """The versions of all packages a Python has."""
    listed = run([str(python), "-m", "pip", "list", "--format=json"], "list the packages")
    return {package["name"].lower(): package["version"] for package in json.loads(listed)}


def set_up(name: str, root: Path | None = None) -> dict[str, str]:
    """Makes the peer's virtual environment anew and tries the peer in it.

    Args:
        name: a key of `PEERS`.
        root: the folder of all peers; ``.peers`` of the repository if None.

    Returns:
        The versions installed.

    Raises:
        PeerError: if a step fails.
    """
    peer, folder = PEERS[name], folder_of(name, root)
    python = folder / "bin" / "python"
    (folder / MARKER).unlink(missing_ok=True)
    say(f"making {folder}")
    try:
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerError(f"could not make the virtual environment {folder}: {error}") from error
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = f"{peer.package or peer.name}=={peer.version}"
    say(f"installing {wanted} from PyPI")
    run([*install, wanted, *peer.undeclared], f"install {wanted}")
    pair = "without jax"
    if peer.jax:
        chosen = versions_in(python)["jax"]
        pins = jax_requirements()
        say(f"pip chose jax {chosen} for the peer; giving it {' '.join(pins)}")
        run([*install, *pins], f"install {' '.join(pins)} beside {wanted}")
        here, there = importlib.metadata.version("jax"), versions_in(python)["jax"]
        pair = f"jax {here} here, {there} in the peer"
    versions = versions_in(python)
    say("letting the peer play")
    run([str(python), "-c", peer.trial], f"let {wanted} play ({pair})")
    (folder / MARKER).write_text(json.dumps(versions, indent=1))
    say(f"{wanted} is ready: {pair}")
    return versions


def say(line: str) -> None:
    """Progress goes to standard error, results to standard output."""
    print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Setup:
    """Install a peer from PyPI, with the jax of this Python."""

    name: Annotated[PeerName, tyro.conf.Positional]
    """The peer."""


@dataclasses.dataclass(frozen=True)
class List:
    """List the peers and whether they are set up."""


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    command = tyro.cli(Setup | List, args=args, description=__doc__)
    try:
        if isinstance(command, Setup):
            set_up(command.name)
            return 0
    except PeerError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again")
        return 130
    for peer in PEERS.values():
        marker = folder_of(peer.name) / MARKER
        state = "not set up"
        if marker.is_file():
            state = f"set up, jax {json.loads(marker.read_text()).get('jax', 'not used')}"
        print(f"{peer.name} {peer.version} ({', '.join(peer.environments)}): {state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
