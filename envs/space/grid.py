"""Grid worlds: moves, who stands where, what agents see around them, and who may move when they meet.

A board is ``int8[R, C]``, 0 where a cell is free, and has a margin as wide as what agents see beyond
their own cell, so that neither a move nor a window leaves it. Cells are numbered row by row:
``cell = row * C + column`` in the board's own coordinates, margin included.

Everything is written for one world, to be vmapped. The rules are those of POGEMA 1.4.0; each is given
in an order-free form that is equal to its sequential definition.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.spec import int_dtype

Array = jax.Array

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # stay, up, down, left, right
NUM_MOVES = len(MOVES)
RULES = ("priority", "block_both", "soft")


def move_offsets(columns: int) -> np.ndarray:
    """``int[5]``: what each move adds to the number of a cell.

    Args:
        columns: ``C``, the width of the board.
    """
    return MOVES @ np.array([columns, 1])


def place(cell: Array, present: Array, value: Array, size: int, empty: Any) -> Array:
    """A flat board with a value in the cell of each agent.

    Args:
        cell: ``int[A]``, no two agents in one.
        present: ``bool[A]``, the agents to place.
        value: ``[A]``.
        size: number of cells of the board.
        empty: the value of the other cells.

    Returns:
        ``[size]``, of the dtype of `value`.
    """
    board = jnp.full(size, empty, value.dtype)
    return board.at[jnp.where(present, cell, size)].set(value, mode="drop")


def windows(board: Array, row: Array, column: Array, side: int) -> Array:
    """What each agent sees of a board: squares cut out of it.

    Args:
        board: ``[R, C]``.
        row: ``int[A]``, first row of each square.
        column: ``int[A]``, first column of each square.
        side: ``S``.

    Returns:
        ``[A, S, S]``.
    """
    cut = jax.vmap(lambda r, c: jax.lax.dynamic_slice(board, (r, c), (side, side)))
    return cut(row, column)


def resolve_moves(
    rule: str, board: Array, cell: Array, action: Array, alive: Array
) -> tuple[Array, Array, Array]:
    """Who moves when all act at once.

    * "priority": in the order of indices, into every cell that is free at that moment. So of several
      agents that want a cell the lowest index gets it, one may follow an agent of lower index, and
      nobody swaps or goes around in a circle.
    * "block_both": into a cell in which nobody stood and into which nobody else wants; never behind
      somebody who leaves.
    * "soft": of several agents that want a cell only the lowest index may have it, even if it is then
      blocked itself; two never swap; one may follow whoever really leaves, in circles too.

    Args:
        rule: one of `RULES`.
        board: ``int8[R, C]``, 0 where free.
        cell: ``int[A]``, where the agents stand; no two alive ones in one cell.
        action: ``int[A]`` in 0 .. 4, as in `MOVES`.
        alive: ``bool[A]``; the others do nothing and block nobody.

    Returns:
        ``(moved bool[A], wall bool[A], met bool[A])``: who moves, who would have gone into an
        obstacle, and who was stopped by others.
    """
    flat, agents = board.reshape(-1), cell.shape[0]
    offsets = jnp.asarray(move_offsets(board.shape[1]), int_dtype())
    ids = jnp.arange(agents, dtype=int_dtype())
    # One board says who stands in a cell and where that agent wants to go.
    standing = place(cell, alive, ids * NUM_MOVES + action, flat.size, -1)
    target = cell + offsets[action]
    mover = alive & (action != 0)
    free = flat.at[target].get(mode="clip") == 0
    wall = mover & ~free

    owner, owner_action = _who(standing, target)
    # Whoever wants the cell stands beside it: one candidate for each move into it.
    moves = jnp.arange(1, NUM_MOVES, dtype=int_dtype())[:, None]
    rival, rival_action = _who(standing, target - offsets[1:, None])
    wants = (rival >= 0) & (rival_action == moves)
    lower = wants & (rival < ids)
    wishes = mover & free

    if rule == "block_both":
        moved = wishes & (owner < 0) & (jnp.sum(wants, axis=0) == 1)
    elif rule == "soft":
        swap = (owner >= 0) & (offsets[owner_action] == -offsets[action])
        moved = _settle(
            wishes & ~jnp.any(lower, axis=0) & ~swap,
            lambda moves: (owner < 0) | moves.at[owner].get(mode="clip"),
        )
    elif rule == "priority":
        behind_lower = (owner < 0) | (owner < ids)

        def allowed(moves: Array) -> Array:
            taken = jnp.any(lower & moves.at[rival].get(mode="clip"), axis=0)
            left = (owner < 0) | moves.at[owner].get(mode="clip")
            return behind_lower & left & ~taken

        moved = _settle(wishes, allowed)
    else:
        raise ValueError(f"rule={rule!r} is not one of {', '.join(RULES)}")
    return moved, wall, wishes & ~moved


def _who(standing: Array, cell: Array) -> tuple[Array, Array]:
    """``(agent, its action)`` in a cell, the agent -1 where there is none."""
    code = standing.at[cell].get(mode="clip")
    return jnp.where(code < 0, -1, code // NUM_MOVES), jnp.where(code < 0, 0, code % NUM_MOVES)


def _settle(wishes: Array, allowed: Any) -> Array:
    """The moves that stay allowed when those they depend on are: ``moves = wishes & allowed(moves)``.

    It starts with all wishes. What one move depends on is either a chain or circle of agents that
    follow each other ("soft", where the largest solution is wanted) or agents of lower index
    ("priority", where there is one solution): both are reached in at most A rounds.
    """

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        moves, _ = carry
        fewer = wishes & allowed(moves)
        return fewer, jnp.any(fewer != moves)

    start = again((wishes, jnp.asarray(True)))
    return jax.lax.while_loop(lambda carry: carry[1], again, start)[0]
