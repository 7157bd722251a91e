"""What `tests/fixtures/record_mean_field.py` recorded of OpenSpiel, beside the same games of ours."""

import functools
from pathlib import Path

import numpy as np

from flockax.envs.swarm import mean_field_games as games

PATH = Path(__file__).parents[2] / "fixtures" / "mean_field.npz"
NAMES = (
    *("beach_2", "beach_7", "beach_10", "torus_3", "torus_6", "torus_10", "walls_5", "four_rooms"),
    *("prey_3", "prey_4", "prey_torus"),
)


@functools.cache
def archive():
    return np.load(PATH)


def load(name):
    """The arrays of one game."""
    data = archive()
    return {key.split("/")[1]: data[key] for key in data.files if key.split("/")[0] == name}


def make(name, compat=True):
    """Our game, as the peer's was made."""
    record = load(name)
    number = int(name.split("_")[-1]) if name[-1].isdigit() else None
    if name.startswith("beach"):
        return games.crowd_modelling(number, {2: 3, 7: 5, 10: 10}[number], compat=compat)
    side = int(np.sqrt(record["walls"].size))
    walls = record["walls"].reshape(side, side)
    start = record["start"].reshape(-1, side, side)
    if name.startswith("torus"):
        more = {
            3: {"bars": ((0, 1, 0.5), (2, 0, 0.125))},
            6: {"noise": 0.3, "aversion": 0.7, "congestion": True},
        }.get(number, {})
        return games.crowd_modelling_2d(number, {3: 4, 6: 5, 10: 10}[number], compat=compat, **more)
    if name == "walls_5":
        return games.crowd_modelling_2d(
            5, 7, noise=0.6, forbidden=walls, start=start[0], compat=compat,
            bars=((1, 1, 0.25), (4, 3, 0.5)),
        )  # fmt: skip
    if name == "four_rooms":
        return games.crowd_modelling_2d(
            13, 40, only_density=True, forbidden=walls, start=start[0], compat=compat
        )
    if name == "prey_torus":
        return games.predator_prey(
            4, 6, 3, noise=0.35, aversion=0.6, torus=True, start=start, compat=compat,
            interaction=[[0.5, -2, 1], [1, 0, -0.25], [3, 1, -1]],
        )  # fmt: skip
    return games.predator_prey(num_populations=number, compat=compat)


def cells(game, array):
    """An array whose last axis numbers cells, with axes ``X, Y`` instead."""
    return np.reshape(array, (*np.shape(array)[:-1], *game.place.shape))
