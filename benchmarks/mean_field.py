"""Exploitability by iteration of a solver in a mean-field game, alone or beside OpenSpiel.

    python benchmarks/mean_field.py --game predator_prey --solver mirror_descent --learning-rate 0.1
    python benchmarks/mean_field.py --game crowd_modelling_2d --peer openspiel --picture curve.png

Both sides compute in double precision from the uniform policy. Beside the peer, ours repeats what
the peer's results owe to the order of its search (`compat`), without which they would differ by
more than rounding; ``--compat`` does the same alone. Where actions are mirror images of each other,
as in four rooms, rounding decides which is the best response, and fictitious play may part ways
there. ``peers.py setup openspiel`` installs the peer.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import peers
import tyro
from rich.console import Console
from rich.table import Table
from turns import Worker, finish, require_at_least, say

from flockax.agents.planners.mean_field import SOLVERS
from flockax.envs.swarm import mean_field_games as games

FORMATS = ("png", "svg", "pdf")


@dataclasses.dataclass(frozen=True)
class Config:
    """Which game is solved, and how."""

    game: Literal["crowd_modelling", "crowd_modelling_2d", "four_rooms", "predator_prey"] = (
        "crowd_modelling_2d"
    )
    """The game; four_rooms is crowd_modelling_2d with walls, where only the density counts."""
    solver: Literal["fictitious_play", "mirror_descent"] = "fictitious_play"
    """What solves it."""
    size: int | None = None
    """Cells a side; the peer's if not given. Fixed in predator_prey and four_rooms."""
    horizon: int | None = None
    """Steps; the peer's if not given."""
    num_populations: Literal[3, 4] = 3
    """Of predator_prey."""
    iterations: int = 20
    """Iterations of the solver."""
    learning_rate: float | None = None
    """Of the solver; 0.01 of mirror descent and one over the number of policies if not given."""
    compat: bool = False
    """Follow the order of the peer's search; always so beside the peer."""
    peer: Literal["openspiel"] | None = None
    """Have this peer solve it too."""
    picture: Path | None = None
    """Save the curves as .png, .svg or .pdf."""
    json: bool = False
    """Print one JSON object instead of a table."""


def measure(config: Config) -> dict[str, Any]:
    """Solves the game and, if asked for, has the peer solve it.

    Raises:
        ValueError: for settings that make no sense.
        peers.PeerError: if the peer is not set up.

    Returns:
        The object that ``--json`` prints: ``exploitability`` and ``peer`` (NashConv before and after
        each iteration), ``largest_difference``, the configuration, versions and ``warnings``.
    """
    require_at_least(1, iterations=config.iterations)
    if config.learning_rate is not None and not 0 < config.learning_rate < np.inf:
        raise ValueError(f"learning_rate={config.learning_rate} is not a positive number")
    if config.size is not None and config.game in ("predator_prey", "four_rooms"):
        raise ValueError(f"size={config.size} cannot be chosen for game={config.game!r}")
    if config.picture is not None and config.picture.suffix.lower()[1:] not in FORMATS:
        endings = ", .".join(FORMATS)
        raise ValueError(f"picture={str(config.picture)!r} does not end in .{endings}")
    with jax.enable_x64(True):
        game = make_game(config)
        say(f"ours: {config.iterations} iterations of {config.solver}")
        rate = {} if config.learning_rate is None else {"learning_rate": config.learning_rate}
        ours = np.asarray(SOLVERS[config.solver](game, config.iterations, **rate).exploitability)
    result: dict[str, Any] = {
        "benchmark": "mean_field",
        "unit": "exploitability",
        "exploitability": ours.tolist(),
        "peer": None,
        "largest_difference": None,
        "versions": {"jax": jax.__version__, "python": sys.version.split()[0]},
        "warnings": [],
    }
    if config.peer is not None:
        with Worker("openspiel_mean_field.py", config.peer) as worker:
            say(f"{config.peer}: the same")
            answer = worker.ask(
                "solve",
                game=peers.peer_environment(config.peer, config.game),
                parameters=peer_parameters(config),
                setting=config.game,
                solver=config.solver,
                iterations=config.iterations,
                learning_rate=config.learning_rate,
            )
        difference = np.abs(ours - np.array(answer["exploitability"])).max()
        result["peer"] = answer["exploitability"]
        result["largest_difference"] = float(difference)
        result["versions"] |= answer["versions"]
    for name in ("game", "solver", "iterations", "learning_rate", "num_populations"):
        result[name] = getattr(config, name)
    result |= {"size": game.place.shape[0], "horizon": game.horizon}
    result |= {"compat": config.compat or config.peer is not None}
    if config.picture is not None:
        draw(result, config.picture)
    return result


def make_game(config: Config) -> Any:
    """Our game."""
    named = {"size": config.size, "horizon": config.horizon}
    numbers: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    numbers["compat"] = config.compat or config.peer is not None
    if config.game == "crowd_modelling":
        return games.crowd_modelling(**numbers)
    if config.game == "predator_prey":
        return games.predator_prey(num_populations=config.num_populations, **numbers)
    if config.game == "four_rooms":
        start = np.zeros((13, 13))
        start[1, 1] = 1
        walls = games.four_rooms()
        numbers = {"size": 13, "horizon": 40, **numbers}
        return games.crowd_modelling_2d(only_density=True, forbidden=walls, start=start, **numbers)
    return games.crowd_modelling_2d(**numbers)


def peer_parameters(config: Config) -> dict[str, int]:
    """What differs from the peer's defaults."""
    named = {"size": config.size, "horizon": config.horizon}
    numbers = {name: value for name, value in named.items() if value is not None}
    return {**numbers, "players": config.num_populations} if "prey" in config.game else numbers


def draw(result: dict[str, Any], path: Path) -> None:
    """Saves the curves of a result.

    Args:
        result: see `measure`.
        path: a ``.png``, ``.svg`` or ``.pdf`` file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(result["exploitability"], color="#0072B2", label="flockax")
    if result["peer"] is not None:
        axes.semilogy(result["peer"], ".", color="#D55E00", label="OpenSpiel")
        axes.legend()
    axes.set_xlabel("iteration")
    axes.set_ylabel("exploitability")
    axes.set_title(f"{result['solver'].replace('_', ' ')}, {result['game'].replace('_', ' ')}")
    figure.savefig(path, dpi=160)
    say(f"saved {path}")


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    table = Table(title=f"{result['solver']}, {result['game']}: exploitability")
    for column in ("iteration", "ours", "peer")[: 2 + (result["peer"] is not None)]:
        table.add_column(column, justify="right")
    for number, ours in enumerate(result["exploitability"]):
        peer = [] if result["peer"] is None else [f"{result['peer'][number]:.9f}"]
        table.add_row(f"{number}", f"{ours:.9f}", *peer)
    console = Console()
    console.print(table)
    if result["largest_difference"] is not None:
        console.print(f"largest difference {result['largest_difference']:.1e}")


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    return finish(lambda: measure(config), print_table, config.json)


if __name__ == "__main__":
    sys.exit(main())
