"""Mean-field games on grids: infinitely many agents, of whom only the density matters.

At each time t = 0 .. H - 1 an agent is paid for where it stands and how crowded it is there,
chooses a move, and noise moves it once more. Nothing is paid at the horizon H. The games themselves
are in `flockax.envs.swarm.mean_field_games`.

Shapes: ``H`` times, ``P`` populations, ``A`` actions, cells ``[X, Y]`` (``Y = 1`` in one
dimension). A flow is the density of each population at each time, ``f[H, P, X, Y]``; a policy is
the probability of each action at each time in each cell, ``f[H, P, A, X, Y]``. Moves are shifts of
whole arrays, so that a step of the density or of the values costs ``O(P A X Y)`` and no matrix of
cells by cells exists.

Definitions are those of OpenSpiel 2.0.2; see Perrin et al., "Fictitious Play for Mean Field Games:
Continuous Time Analysis and Applications" (2020), and Perolat et al., "Scaling up Mean Field Games
with Online Mirror Descent" (2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
Move = tuple[int, int]


@struct.dataclass
class MeanFieldGame:
    """A game; made by the functions of `flockax.envs.swarm.mean_field_games`.

    Attributes:
        initial: ``f[P, X, Y]``, where agents start; sums to 1 over the cells.
        paid_start: ``f[P, X, Y]``, the density that rewards of time 0 depend on.
        is_open: ``bool[A, X, Y]``, the legal actions. Staying always is, also in forbidden cells.
        stays: ``bool[A, X, Y]``, moves that don't lead out of the cell: at a border, into a wall.
        noise: ``f[A, X, Y]``, the probability of each move of the noise.
        place: ``f[X, Y]``, reward for being in a cell.
        cost: ``f[A]``, reward, not positive, for the move by which an agent came.
        table: ``f[H, X, Y]``, what is paid instead of `cost` for being in a cell, or None.
        early: ``bool[H, P, A, X, Y]``, actions whose sums the peer's mirror descent has updated
            before it plays them, or None.
        aversion: ``f[]``, weight of the logarithm of an agent's own density.
        interaction: ``f[P, P]``, reward of row's agents for the density of column's.
        epsilon: ``f[]``, added to densities before logarithms.
        moves: the displacement (x, y) of each action.
        horizon: ``H``.
        congestion: whether the cost of a move is multiplied by the density where it led to.
    """

    initial: Any
    paid_start: Any
    is_open: Any
    stays: Any
    noise: Any
    place: Any
    cost: Any
    table: Any
    early: Any
    aversion: Any
    interaction: Any
    epsilon: Any
    moves: tuple[Move, ...] = struct.field(pytree_node=False)
    horizon: int = struct.field(pytree_node=False)
    congestion: bool = struct.field(pytree_node=False)

    @property
    def stay(self) -> int:
        """The action that does not move."""
        return self.moves.index((0, 0))


def pull(game: MeanFieldGame, value: Array) -> Array:
    """What a function of cells is after each move.

    Args:
        game: the game.
        value: ``f[..., X, Y]``.

    Returns:
        ``f[..., A, X, Y]``.
    """
    shifted = [jnp.roll(value, (-x, -y), (-2, -1)) for x, y in game.moves]
    return jnp.where(game.stays, value[..., None, :, :], jnp.stack(shifted, axis=-3))


def push(game: MeanFieldGame, mass: Array) -> Array:
    """Where mass arrives; the adjoint of `pull`.

    Args:
        game: the game.
        mass: ``f[..., A, X, Y]``, how much makes each move in each cell.

    Returns:
        ``f[..., X, Y]``.
    """
    leaving = jnp.where(game.stays, 0, mass)
    total = jnp.sum(jnp.where(game.stays, mass, 0), axis=-3)
    for action, move in enumerate(game.moves):
        total = total + jnp.roll(leaving[..., action, :, :], move, (-2, -1))
    return total


def expected(game: MeanFieldGame, value: Array) -> Array:
    """``f[..., X, Y]``: the expectation of a function ``f[..., X, Y]`` of cells after the noise."""
    after = pull(game, value)
    # From first to last, as the peer adds: where two actions are equally good, rounding decides.
    total = game.noise[0] * after[..., 0, :, :]
    for move in range(1, len(game.moves)):
        total = total + game.noise[move] * after[..., move, :, :]
    return total


def next_density(game: MeanFieldGame, density: Array, policy: Array) -> Array:
    """The density one step later.

    Args:
        game: the game.
        density: ``f[P, X, Y]``.
        policy: ``f[P, A, X, Y]``, of this time.

    Returns:
        ``f[P, X, Y]``.
    """
    acted = push(game, density[:, None] * policy)
    return push(game, acted[:, None] * game.noise)


def flow(game: MeanFieldGame, policy: Array) -> Array:
    """The densities ``f[H, P, X, Y]`` when all play ``policy f[H, P, A, X, Y]``."""

    def step(density: Array, policy: Array) -> tuple[Array, Array]:
        return next_density(game, density, policy), density

    return jax.lax.scan(step, game.initial, policy)[1]


def cell_reward(game: MeanFieldGame, density: Array) -> Array:
    """What agents are paid for where they are, without what their moves cost.

    ``place - aversion log(density + epsilon) + interaction @ density``, each population for its own
    density in the logarithm.

    Args:
        game: the game.
        density: ``f[P, X, Y]``.

    Returns:
        ``f[P, X, Y]``.
    """
    return game.place + _crowding(game, density)


def move_weight(game: MeanFieldGame, density: Array) -> Array:
    """``f[P, X, Y]``: by what the cost of the move that led to a cell is multiplied."""
    return density if game.congestion else jnp.ones_like(density)


def rewards(game: MeanFieldGame, densities: Array) -> Array:
    """`cell_reward` at all times, with the peer's price of moves where the game has its `table`.

    Args:
        game: the game.
        densities: ``f[H, P, X, Y]``, a flow.

    Returns:
        ``f[H, P, X, Y]``.
    """
    paid = densities.at[0].set(game.paid_start)
    fixed = game.place
    if game.table is not None:
        fixed = fixed + game.table[:, None] * move_weight(game, paid)
    crowding = jax.vmap(_crowding, (None, 0))(game, paid)
    return fixed + crowding


def action_values(
    game: MeanFieldGame,
    policy: Any,
    densities: Array,
    improve: Callable[[Any, Array], Array] | None = None,
) -> Array:
    """What each action is worth to one agent while the densities stay as they are.

    Args:
        game: the game.
        policy: ``f[H, P, A, X, Y]``, what the agent plays after the action, or None for the best.
        densities: ``f[H, P, X, Y]``, a flow.
        improve: makes the policy of one time, ``f[P, A, X, Y]``, of what `policy` has of that time
            and of the values of the actions then; `policy` may be any tree of arrays ``[H, ...]``
            then.

    Returns:
        ``f[H, P, A, X, Y]``, without the reward of the time at which the agent acts, on which the
        action has no influence. Of illegal actions the value is without meaning.
    """
    reward = rewards(game, densities)
    weight = move_weight(game, densities)
    # Nothing is paid at the horizon, so the last move is free.
    last = jnp.zeros_like(reward[:1])
    weight = jnp.concatenate([weight[1:], last])
    charged = jnp.zeros_like(game.cost) if game.table is not None else game.cost

    def back(later: Array, inputs: tuple[Array, Array, Any]) -> tuple[Array, Array]:
        reward, weight, policy = inputs
        price = charged[:, None, None] * pull(game, expected(game, weight))
        value = pull(game, expected(game, later)) + price
        if policy is None:
            return reward + _best(game, value), value
        if improve is not None:
            policy = improve(policy, value)
        return reward + jnp.sum(jnp.where(game.is_open, policy * value, 0), axis=-3), value

    inputs = (reward, weight, policy)
    return jax.lax.scan(back, last[0], inputs, reverse=True)[1]


def policy_value(game: MeanFieldGame, policy: Array, densities: Array) -> Array:
    """``f[P]``: the return of an agent that plays `policy` while the densities are given."""
    value = action_values(game, policy, densities)[0]
    later = jnp.sum(jnp.where(game.is_open, policy[0] * value, 0), axis=-3)
    return _at_start(game, later, densities)


def best_response_value(game: MeanFieldGame, densities: Array) -> Array:
    """``f[P]``: the most that an agent can gain while the densities are given."""
    return _at_start(game, _best(game, action_values(game, None, densities)[0]), densities)


def best_response(game: MeanFieldGame, densities: Array) -> Array:
    """The policy ``f[H, P, A, X, Y]`` of the best actions; of equally good ones the first."""
    value = action_values(game, None, densities)
    # The reward is the same for all actions; with it, rounding makes ties as it does in the peer.
    total = jnp.where(game.is_open, rewards(game, densities)[:, :, None] + value, -jnp.inf)
    return jnp.moveaxis(
        jax.nn.one_hot(jnp.argmax(total, axis=-3), len(game.moves), dtype=value.dtype), -1, -3
    )


def exploitability(game: MeanFieldGame, policy: Array) -> Array:
    """``f[]``, NashConv: what an agent gains by deviating from what all play, over populations."""
    densities = flow(game, policy)
    gain = best_response_value(game, densities) - policy_value(game, policy, densities)
    return jnp.sum(gain)


def uniform_policy(game: MeanFieldGame) -> Array:
    """``f[H, P, A, X, Y]``: all legal actions with the same probability."""
    share = game.is_open / jnp.sum(game.is_open, axis=0, dtype=game.initial.dtype)
    return jnp.broadcast_to(share, (game.horizon, len(game.initial), *share.shape))


def _crowding(game: MeanFieldGame, density: Array) -> Array:
    """``f[P, X, Y]``: the part of the reward that depends on ``density f[P, X, Y]``."""
    own = -game.aversion * jnp.log(density + game.epsilon)
    if len(game.initial) == 1:
        return own
    return own + jnp.tensordot(game.interaction, density, axes=1)


def _best(game: MeanFieldGame, value: Array) -> Array:
    """``f[..., X, Y]``: the highest of ``f[..., A, X, Y]`` among the legal actions."""
    return jnp.max(jnp.where(game.is_open, value, -jnp.inf), axis=-3)


def _at_start(game: MeanFieldGame, later: Array, densities: Array) -> Array:
    """``f[P]``: the mean return over starts, of what is gained after time 0 ``f[P, X, Y]``."""
    return jnp.sum(game.initial * (rewards(game, densities)[0] + later), axis=(1, 2))
