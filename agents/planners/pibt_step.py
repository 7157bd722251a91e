"""The rules of PIBT: agents move one step at a time and hand their priority on to those in their way.

Okumura, Machida, Défago and Tamura, "Priority Inheritance with Backtracking for Iterative Multi-agent
Path Finding" (2019/2022). In a graph in which every two adjacent cells lie on a cycle, every agent
reaches its goal at some time; not all at the same time.

The recursion of the paper becomes a loop with at most one visit of each candidate cell and one failure
of each agent. No stack is needed: the agent that pushed another is the one that wants its cell.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flockax.envs.batching import merge_batches
from flockax.envs.space.grid import MOVES

Array = jax.Array

CLOSED = -1  # the cost of a move that there is not
NUM_SHUFFLES = 120  # permutations of the five moves

# A word holds what an agent may still try, best first, in 3 bits each: the number of the move plus 1, 0
# for none; above that in the same way the move that it has taken, 0 while it is undecided.
_BITS, _MASK = 3, 7
_TAKEN = 5 * _BITS
_DECIDED = 1 << _TAKEN
_STAY = _DECIDED


def pibt_step(
    position: Array,
    cost: Array,
    priority: Array,
    shuffle: Array,
    alive: Array,
    shape: tuple[int, int],
) -> Array:
    """One step of PIBT in each of ``E`` environments.

    Args:
        position: ``int[E, A, 2]``, (row, column), a cell of its own for each living agent.
        cost: ``int[5, E, A]``, at least 0: how far from the goal each of `MOVES` leads; `CLOSED`
            where an obstacle or the border is. Staying is never closed.
        priority: ``int[E, A]``; the highest goes first, of equal ones the lower index.
        shuffle: ``int[E, A]`` below `NUM_SHUFFLES`: which permutation of the moves, in lexicographic
            order, decides between equal costs: the move whose element is smaller is tried first.
        alive: ``bool[E, A]``; the others are in nobody's way and stay.
        shape: ``(H, W)``.

    Returns:
        ``int32[E, A]``: the chosen moves. No two living agents enter one cell or swap cells.
    """
    (rows, columns), size = shape, position.shape[0]
    word = jnp.where(alive, _candidates(cost, shuffle), _STAY)
    cell = (position[..., 0] * columns + position[..., 1]).astype(jnp.int32)
    order = jnp.argsort(-priority, axis=1, stable=True).astype(jnp.int32)
    # Dead agents stand on a spare cell behind the map.
    cell = jnp.where(alive, cell, rows * columns)
    board = jnp.full((size, rows * columns + 1), -1, jnp.int32)
    agents = jnp.broadcast_to(jnp.arange(cell.shape[1], dtype=jnp.int32), cell.shape)
    board = board.at[jnp.arange(size)[:, None], cell].set(agents, mode="promise_in_bounds")
    return _resolve(columns)(word, cell, order, board.at[:, -1].set(-1))


def _candidates(cost: Array, shuffle: Array) -> Array:
    """``int32[E, A]``: words of undecided agents with their moves in the order of preference."""
    table = np.array(list(itertools.permutations(range(len(MOVES)))))
    ranks = jnp.asarray(table @ (8 ** np.arange(len(MOVES))), jnp.int32)[shuffle]
    keys = []
    for move, value in enumerate(cost):
        rank = (ranks >> (_BITS * move)) & _MASK
        key = (value.astype(jnp.int32) * 8 + rank) * 8 + move + 1
        keys.append(jnp.where(value < 0, jnp.iinfo(jnp.int32).max & ~_MASK, key))
    # A sorting network for five.
    for i, j in ((0, 3), (1, 4), (0, 2), (1, 3), (0, 1), (2, 4), (1, 2), (3, 4), (2, 3)):
        keys[i], keys[j] = jnp.minimum(keys[i], keys[j]), jnp.maximum(keys[i], keys[j])
    return sum(((key & _MASK) << (_BITS * i) for i, key in enumerate(keys)), jnp.int32(0))


def _resolve(columns: int) -> Any:
    @merge_batches
    def resolve(word: Array, cell: Array, order: Array, board: Array) -> Array:
        """Decides all agents.

        Args:
            word: ``int32[E, A]``.
            cell: ``int32[E, A]`` of ``0 .. V - 1``.
            order: ``int32[E, A]``, agents by falling priority.
            board: ``int32[E, V]``, the agent in a cell, or -1.

        Returns:
            ``int32[E, A]``: moves.
        """
        # All environments together are one problem on one large board that falls into parts. The last
        # agent, on the last cell, ends it.
        (envs, agents), cells = word.shape, board.shape[1]
        index = jnp.arange(envs, dtype=jnp.int32)[:, None]
        flat_word = _flat(word, 0)
        flat_cell = _flat(cell + index * cells, envs * cells)
        flat_board = _flat(jnp.where(board < 0, -1, board + index * agents), -1)
        order = order + index * agents

        def in_turn(word: Array, cell: Array, board: Array, order: Array) -> Array:
            sequence = _flat(order, envs * agents)
            return _decide(word, cell, board, sequence, jnp.int32(0), columns)

        def side_by_side(word: Array, cell: Array, board: Array, order: Array) -> Array:
            end = jnp.full((envs, 1), envs * agents, jnp.int32)
            sequences = jnp.concatenate([order, end], axis=1).reshape(-1)
            return _decide(word, cell, board, sequences, index[:, 0] * (agents + 1), columns)

        decided = lax.platform_dependent(
            flat_word, flat_cell, flat_board, order, cpu=in_turn, default=side_by_side
        )
        return (decided[:-1].reshape(envs, agents) >> _TAKEN) - 1

    return resolve


def _decide(
    word: Array, cell: Array, occupant: Array, order: Array, turn: Array, columns: int
) -> Array:
    """Runs the loop.

    Args:
        word: ``int32[N + 1]``.
        cell: ``int32[N + 1]``.
        occupant: ``int32[V + 1]``, the agent in each cell or -1.
        order: ``int32[...]``, sequences of agents, each ended by N.
        turn: ``int32[]`` or ``int32[L]``, where in `order` the sequences begin. They are worked off side
            by side and must not touch the same agents or cells. On a CPU a single one is fastest by
            far: the loop becomes one scalar kernel, 30 ns a turn.
        columns: the difference between the cells of adjacent rows.

    Returns:
        ``int32[N + 1]``: words with all decided.
    """
    last = word.size - 1
    # Who wants a cell; the ended sequences rest on the last cell.
    wanted_by = jnp.full(occupant.shape, -1, jnp.int32).at[-1].set(last)

    # As in `flockax.envs.pathfinding.distances`, an iteration first writes what the one before has
    # decided to and then reads for the next, so that no array is copied.
    def look(agent: Array, turn: Array, word: Array, wanted_by: Array) -> Any:
        fetched = agent < 0
        agent = jnp.where(fetched, _get(order, turn), agent)
        own = _get(word, agent)
        here = _get(cell, agent)
        move = own & _MASK
        there = here + (move == 3) * columns - (move == 2) * columns + (move == 5) - (move == 4)
        other = _get(occupant, there)
        waits = _get(word, jnp.maximum(other, 0)) < _DECIDED
        owner, pusher = _get(wanted_by, there), _get(wanted_by, here)
        skip = fetched & (own >= _DECIDED) & (agent < last)
        return agent, turn + fetched, own, there, other, waits, owner, pusher, skip

    def body(state: Any) -> Any:
        word, wanted_by, seen = state
        agent, turn, own, there, other, waits, owner, pusher, skip = seen
        move = own & _MASK
        fails = (move == 0) & ~skip
        # Who wants the own cell has pushed this agent; to take that one's cell would be a swap.
        refused = ~fails & (skip | (owner >= 0) | ((other >= 0) & (other == pusher)))
        pushes = ~fails & ~refused & (other >= 0) & (other != agent) & waits
        left = (own & (_DECIDED - 1)) >> _BITS
        tried = jnp.where(refused, (own >> _TAKEN) << _TAKEN, move << _TAKEN) | left
        word = _put(word, agent, jnp.where(skip, own, jnp.where(fails, _STAY, tried)))
        # A failing agent keeps its cell, which its pusher wanted and now has to do without.
        wanted_by = _put(wanted_by, there, jnp.where(refused, owner, agent))
        # Success of one is success of all that pushed: then it is the turn of the next in order (-1).
        agent = jnp.select(
            [skip, fails, refused, pushes], [jnp.full_like(agent, -1), pusher, agent, other], -1
        )
        return word, wanted_by, look(agent, turn, word, wanted_by)

    state = (word, wanted_by, look(jnp.full_like(turn, -1), turn, word, wanted_by))
    return lax.while_loop(lambda state: jnp.any(state[2][0] < last), body, state)[0]


def _flat(x: Array, last: int) -> Array:
    return jnp.concatenate([x.reshape(-1), jnp.full(1, last, jnp.int32)])


def _get(x: Array, index: Array) -> Array:
    if index.ndim:
        return x.at[index].get(mode="promise_in_bounds")
    return lax.dynamic_slice(x, (index,), (1,), allow_negative_indices=False)[0]


def _put(x: Array, index: Array, value: Array) -> Array:
    if index.ndim:
        return x.at[index].set(value, mode="promise_in_bounds")
    return lax.dynamic_update_slice(x, value[None], (index,), allow_negative_indices=False)
