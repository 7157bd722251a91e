"""Mean-field worker: OpenSpiel solves one of its games."""

from __future__ import annotations

from typing import Any

import open_spiel.python.mfg.games.predator_prey as prey
import pyspiel
from open_spiel.python import policy
from open_spiel.python.mfg.algorithms import fictitious_play, mirror_descent, nash_conv
from open_spiel.python.mfg.games import crowd_modelling_2d
from protocol import machine, serve


def solve(
    game: str,
    parameters: dict[str, Any],
    setting: str,
    solver: str,
    iterations: int,
    learning_rate: float | None,
) -> dict[str, Any]:
    """The exploitability of the uniform policy and after each iteration.

    Args:
        game: the name in OpenSpiel.
        parameters: what differs from the setting.
        setting: "four_rooms", "predator_prey" or anything else for the defaults of the game.
        solver: "fictitious_play" or "mirror_descent".
        iterations: how many.
        learning_rate: of the solver, or None for its default.
    """
    settings: dict[str, Any] = {}
    if setting == "four_rooms":
        settings = {**crowd_modelling_2d.FOUR_ROOMS, "only_distribution_reward": True}
    elif setting == "predator_prey":
        three = parameters["players"] == 3
        settings = prey.THREE_POPULATIONS if three else prey.FOUR_POPULATIONS
    loaded = pyspiel.load_game(game, {**settings, **parameters})
    make = {
        "fictitious_play": fictitious_play.FictitiousPlay,
        "mirror_descent": mirror_descent.MirrorDescent,
    }[solver]
    running = make(loaded, **({} if learning_rate is None else {"lr": learning_rate}))
    gains = [conv(loaded, policy.UniformRandomPolicy(loaded))]
    for _ in range(iterations):
        running.iteration()
        gains.append(conv(loaded, running.get_policy()))
    return {"exploitability": gains, **machine("open_spiel", "numpy")}


def conv(game: Any, policy: Any) -> float:
    """How exploitable a policy is."""
    return float(nash_conv.NashConv(game, policy).nash_conv())


if __name__ == "__main__":
    serve({"solve": solve})
