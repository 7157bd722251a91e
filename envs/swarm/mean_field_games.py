"""The mean-field games of OpenSpiel 2.0.2 on grids, for `flockax.envs.swarm.mean_field`.

`crowd_modelling` is its ``mfg_crowd_modelling``, `crowd_modelling_2d` its
``mfg_crowd_modelling_2d`` and `predator_prey` its ``python_mfg_predator_prey``: the same sizes,
moves, noise, starts, rewards and horizons by default. Numbers that may be traced (`noise`,
`aversion`, `interaction`) are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from flockax.envs.spec import float_dtype
from flockax.envs.swarm.mean_field import MeanFieldGame, Move
from flockax.envs.swarm.mean_field_compat import depth_first

MOVES_1D: tuple[Move, ...] = ((-1, 0), (0, 0), (1, 0))
MOVES_2D: tuple[Move, ...] = ((0, -1), (-1, 0), (0, 0), (1, 0), (0, 1))
MOVES_PREY: tuple[Move, ...] = ((0, 0), (1, 0), (0, 1), (0, -1), (-1, 0))

# Added to a density before its logarithm. Two of the peer's games hold it in single precision.
EPSILON = 1e-25
EPSILON_SINGLE = float(np.float32(EPSILON))


def crowd_modelling(
    size: int = 10,
    horizon: int = 10,
    *,
    noise: Any = 1.0,
    aversion: Any = 1.0,
    compat: bool = False,
) -> MeanFieldGame:
    """Agents on a ring go to a bar and avoid the crowd.

    ``r = 1 - |x - size // 2| / (size // 2) - |a| / size - aversion log(mu(x))``, a being the last
    action. Actions: x - 1, stay, x + 1. With probability `noise` one of them is made once more.

    Args:
        size: cells, at least 2.
        horizon: steps, at least 1.
        noise: in [0, 1]; the peer's is 1.
        aversion: not negative; the peer's is 1.
        compat: as in `crowd_modelling_2d`.

    Raises:
        ValueError: for a number out of its range.
    """
    _require("crowd_modelling", size=(size, 2), horizon=(horizon, 1))
    half = size // 2
    place = 1 - np.abs(np.arange(size) - half)[:, None] / half
    start = np.full((size, 1), 1 / size)
    free = np.ones((size, 1), bool)
    return _crowd(MOVES_1D, free, horizon, place, start, noise, aversion, False, compat)


def crowd_modelling_2d(
    size: int = 10,
    horizon: int = 10,
    *,
    noise: Any = 1.0,
    aversion: Any = 1.0,
    only_density: bool = False,
    congestion: bool = False,
    forbidden: Any = None,
    start: Any = None,
    bars: Sequence[tuple[int, int, float]] = (),
    compat: bool = False,
) -> MeanFieldGame:
    """Agents on a torus go to bars and avoid the crowd.

    In cell c, ``r = 2 - sum_b (2 w_b / size) |c - b| - |a| / size - aversion log(mu(c))``, with a
    the last action and ``|c - b|`` the steps to bar b on the grid that does not wrap. Actions:
    y - 1, x - 1, stay, x + 1, y + 1; those into forbidden cells are illegal. With probability
    `noise` one of the legal moves, staying included, is made once more.

    Args:
        size: cells a side, at least 2.
        horizon: steps, at least 1.
        noise: in [0, 1].
        aversion: not negative.
        only_density: pay for the density only.
        congestion: multiply the cost of a move by the density where it led to.
        forbidden: ``bool[size, size]`` by (x, y), cells that cannot be entered, or None.
        start: ``f[size, size]``, the initial density; None for an even one over free cells.
        bars: (x, y, w) of each; none stands for one in the middle, of weight 1.
        compat: the peer's faults. The price of moves and mirror descent follow the order of its
            search (see `flockax.envs.swarm.mean_field_compat`), and what it pays at time 0 is for
            an even density, wherever agents start.

    Raises:
        ValueError: for a number out of its range, an array of another shape, or a start in a
            forbidden cell.
    """
    _require("crowd_modelling_2d", size=(size, 2), horizon=(horizon, 1))
    shape = (size, size)
    free = np.ones(shape, bool) if forbidden is None else ~np.asarray(forbidden, bool)
    if free.shape != shape or not free.any():
        raise ValueError(f"crowd_modelling_2d: forbidden of shape {free.shape} leaves no {shape}")
    start = free / free.sum() if start is None else np.asarray(start, np.float64)
    if start.shape != shape or not np.isclose(start.sum(), 1) or (start < 0).any():
        raise ValueError(f"crowd_modelling_2d: start is not a density of shape {shape}")
    if start[~free].any():
        raise ValueError("crowd_modelling_2d: start has mass in forbidden cells")
    x, y = np.indices(shape)
    across, along = np.ones(shape), np.ones(shape)
    for bar_x, bar_y, weight in bars or ((size // 2, size // 2, 1.0),):
        across = across - 2.0 * weight / size * np.abs(x - bar_x)
        along = along - 2.0 * weight / size * np.abs(y - bar_y)
    place = np.zeros(shape) if only_density else across + along
    game = _crowd(MOVES_2D, free, horizon, place, start, noise, aversion, congestion, compat)
    if only_density:
        table = None if game.table is None else jnp.zeros_like(game.table)
        game = game.replace(cost=jnp.zeros_like(game.cost), table=table)
    if compat:
        game = game.replace(paid_start=jnp.full_like(game.initial, 1 / size**2))
    return game


def predator_prey(
    size: int = 5,
    horizon: int | None = None,
    num_populations: int = 3,
    *,
    noise: Any = 0.8,
    aversion: Any = 1.0,
    interaction: Any = None,
    torus: bool = False,
    start: Any = None,
    compat: bool = False,
) -> MeanFieldGame:
    """Populations in a circle, each of which hunts one and flees from another.

    ``r_i = -aversion log(mu_i(x)) + sum_j interaction[i, j] mu_j(x)``. Actions: stay, x + 1, y + 1,
    y - 1, x - 1; at the border of the square agents stay. With probability `noise` one of the four
    moves, all equally likely, is made once more.

    Args:
        size: cells a side, at least 2.
        horizon: steps, at least 1; None for the peer's, 10 with three populations and 20 with four.
        num_populations: ``P``, 3 or 4 unless `interaction` and `start` are given.
        noise: in [0, 1].
        aversion: not negative.
        interaction: ``f[P, P]``, or None for `hunting`.
        torus: wrap around instead of stopping at the border.
        start: ``f[P, size, size]``, or None for a corner each.
        compat: the peer's faults. Mirror descent follows the order of its search (see
            `flockax.envs.swarm.mean_field_compat`), and at time 0 it reads the initial densities in
            another order of axes than it stores them.

    Raises:
        ValueError: for a number out of its range or an array of another shape.
    """
    horizon = (10 if num_populations == 3 else 20) if horizon is None else horizon
    _require(
        "predator_prey", size=(size, 2), horizon=(horizon, 1), num_populations=(num_populations, 1)
    )
    shape = (num_populations, size, size)
    start = corners(num_populations, size) if start is None else np.asarray(start, np.float64)
    if start.shape != shape or not np.allclose(start.sum((1, 2)), 1) or (start < 0).any():
        raise ValueError(f"predator_prey: start is not a density of shape {shape}")
    matrix = jnp.asarray(
        hunting(num_populations) if interaction is None else interaction, float_dtype()
    )
    if matrix.shape != (num_populations, num_populations):
        raise ValueError(f"predator_prey: interaction has shape {matrix.shape}")
    moves = np.array(MOVES_PREY)
    there = np.indices((size, size)) + moves[:, :, None, None]
    stays = ((there < 0) | (there >= size)).any(axis=1) & (not torus)
    stays[0] = True
    paid, early = start, None
    if compat:
        is_open = np.ones(stays.shape, bool)
        found = [depth_first(MOVES_PREY, is_open, stays, one, horizon)[1] for one in start]
        early = jnp.asarray(np.stack(found, axis=1))
        flat = start.transpose(0, 2, 1).reshape(-1)
        paid = flat.reshape(size, size, num_populations).transpose(2, 0, 1)
    noise = jnp.asarray(noise, float_dtype())
    chances = jnp.concatenate([1 - noise[None], jnp.full(4, noise / 4)])
    floats = {
        "initial": start,
        "paid_start": paid,
        "place": np.zeros((size, size)),
        "cost": np.zeros(5),
    }
    return MeanFieldGame(
        **{name: jnp.asarray(value, float_dtype()) for name, value in floats.items()},
        is_open=jnp.ones(stays.shape, bool),
        stays=jnp.asarray(stays),
        noise=jnp.broadcast_to(chances[:, None, None], stays.shape),
        table=None,
        early=early,
        aversion=jnp.asarray(aversion, float_dtype()),
        interaction=matrix,
        epsilon=jnp.asarray(EPSILON, float_dtype()),
        moves=MOVES_PREY,
        horizon=horizon,
        congestion=False,
    )


def hunting(num_populations: int) -> np.ndarray:
    """``f[P, P]``: who gains from whose density, as the peer has it for three and four populations.

    Of four, each is drawn to the next and avoids the one before. Of three it is the other way
    round: the peer's comment says the same as of four, its numbers do not, and they are what it
    computes.

    Raises:
        ValueError: for another number.
    """
    if num_populations not in (3, 4):
        raise ValueError(f"predator_prey: num_populations={num_populations!r} has no interaction")
    cycle = np.roll(np.eye(num_populations), 1, axis=1)
    return (cycle - cycle.T) * (1 if num_populations == 4 else -1)


def corners(num_populations: int, size: int) -> np.ndarray:
    """``f[P, size, size]`` by (x, y): the corner in which the peer starts each population.

    Raises:
        ValueError: for a number other than three and four.
    """
    if num_populations not in (3, 4):
        raise ValueError(f"predator_prey: num_populations={num_populations!r} has no start")
    far = size - 1
    where = {3: [(0, 0), (far, 0), (0, far)], 4: [(0, 0), (0, far), (far, far), (far, 0)]}
    start = np.zeros((num_populations, size, size))
    start[(np.arange(num_populations), *np.transpose(where[num_populations]))] = 1
    return start


def four_rooms(size: int = 13) -> np.ndarray:
    """``bool[size, size]``: walls around and across, with a door between neighbouring rooms.

    Args:
        size: cells a side, at least 7; with 13 these are the forbidden cells of the peer's setting.

    Raises:
        ValueError: for a smaller size.
    """
    _require("four_rooms", size=(size, 7))
    middle = size // 2
    walls = np.zeros((size, size), bool)
    walls[[0, middle, size - 1]] = walls[:, [0, middle, size - 1]] = True
    for door in (middle // 2, middle + (size - middle) // 2):
        walls[middle, door] = walls[door, middle] = False
    return walls


def _crowd(
    moves: tuple[Move, ...],
    free: np.ndarray,
    horizon: int,
    place: np.ndarray,
    start: np.ndarray,
    noise: Any,
    aversion: Any,
    congestion: bool,
    compat: bool,
) -> MeanFieldGame:
    """A game of one population on a torus with forbidden cells."""
    stay = moves.index((0, 0))
    there = np.stack([np.roll(free, (-x, -y), (0, 1)) for x, y in moves])
    is_open = there & free
    # A forbidden cell keeps whatever is in it, so that values there are finite.
    is_open[stay] = True
    lengths = np.abs(moves).sum(axis=1)
    stays = ~is_open | (lengths == 0)[:, None, None]
    table = early = None
    if compat:
        came, early = depth_first(moves, is_open, stays, start, horizon)
        table = jnp.asarray(-came / len(free), float_dtype())
        early = jnp.asarray(early[:, None])
    noise = jnp.asarray(noise, float_dtype())
    spread = jnp.asarray(is_open / is_open.sum(axis=0), float_dtype()) * noise
    floats = {
        "initial": start[None],
        "paid_start": start[None],
        "place": place,
        "cost": -lengths / len(free),
        "aversion": aversion,
        "interaction": np.zeros((1, 1)),
        "epsilon": EPSILON_SINGLE,
    }
    return MeanFieldGame(
        **{name: jnp.asarray(value, float_dtype()) for name, value in floats.items()},
        is_open=jnp.asarray(is_open),
        stays=jnp.asarray(stays),
        noise=spread.at[stay].set(1 - noise + spread[stay]),
        table=table,
        early=early,
        moves=moves,
        horizon=horizon,
        congestion=congestion,
    )


def _require(owner: str, **ranges: tuple[int, int]) -> None:
    """Checks integers, given with the least that each may be."""
    for name, (value, low) in ranges.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
            raise ValueError(f"{owner}: {name}={value!r} is not an integer >= {low}")
