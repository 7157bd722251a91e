"""Large neighbourhood search: small groups give up their paths and plan again, one after another.

As in MAPF-LNS (Li et al. 2021), within a window of time. Paths stay without conflicts throughout. The
batch of environments, ``E``, is the last axis; see `flockax.agents.planners.space_time`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from flockax.agents.planners.space_time import (
    NUM_ORDERS,
    Board,
    best_path,
    delay,
    reserve,
)

Array = jax.Array


@struct.dataclass
class Crowd:
    """Agents with their goals.

    Attributes:
        distance: ``int16[R, H * W]``, rows of distances from every cell.
        row: ``int32[A, E]``, the row with those to the agent's goal.
        goal: ``int32[A, E]``, cells of the board.
        weight: ``int32[A, E]``, what a step of delay of the agent counts.
        board: the board.
        on_target: as in `GridPathfinding`.
    """

    distance: Array
    row: Array
    goal: Array
    weight: Array
    board: Board = struct.field(pytree_node=False)
    on_target: str = struct.field(pytree_node=False)

    def of(self, agent: Array, env: Array) -> Crowd:
        """Some agents: their numbers ``int[..., B]`` in the environments ``int[B]``."""
        return dataclasses.replace(
            self,
            row=self.row[agent, env],
            goal=self.goal[agent, env],
            weight=self.weight[agent, env],
        )

    def to_goal(self, cell: Array) -> Array:
        """``int32[..., B]``: distances from cells; in the margin those from the nearest cell."""
        return self.distance[self.row, self.board.on_map(cell)].astype(jnp.int32)

    def delay(self, plan: Array) -> Array:
        """``int32[..., B]``: delays of paths ``int32[w + 1, ..., B]``, 0 for who is gone."""
        ends = self.to_goal(plan[0]), self.to_goal(plan[-1])
        late = delay(plan, self.goal, *ends, self.on_target)
        return jnp.where(plan[0] == self.board.size, 0, late)


def improve(
    key: Array, crowd: Crowd, walls: Array, plan: Array, rounds: int, group: int, orders: int
) -> Array:
    """Paths with no larger sum of weighted delays.

    Args:
        key: a typed key.
        crowd: all agents.
        walls: ``int8[V, E]``, `WALL` in obstacles and in the margin.
        plan: ``int32[w + 1, A, E]``, paths without conflicts.
        rounds: how many groups plan again, one after another.
        group: how many agents plan again together, at most ``A``.
        orders: how many orders of the group are tried side by side.

    Returns:
        ``int32[w + 1, A, E]``.
    """
    window = crowd.board.window
    table = reserve(jnp.broadcast_to(walls, (window, *walls.shape)), plan, 1, crowd.board)

    def body(state: Any, key: Array) -> Any:
        table, plan, late = state
        return _plan_again(key, crowd, table, plan, late, group, orders), None

    state = (table, plan, crowd.delay(plan))
    return lax.scan(body, state, jax.random.split(key, rounds))[0][1]


def _plan_again(
    key: Array, crowd: Crowd, table: Array, plan: Array, late: Array, group: int, orders: int
) -> tuple[Array, Array, Array]:
    """One round for a group of its own in each environment.

    Args:
        key: a typed key.
        crowd: all agents.
        table: ``int8[w, V, E]``, the reservations of all.
        plan: ``int32[w + 1, A, E]``.
        late: ``int32[A, E]``, the delays.
        group: ``G``.
        orders: how many orders are tried.

    Returns:
        New ``(table, plan, late)``.
    """
    envs = jnp.arange(late.shape[1])
    group_key, order_key, path_key = jax.random.split(key, 3)
    chosen = _choose(group_key, crowd.board, plan[0], late, group)
    without = reserve(table, plan[:, chosen, envs], -1, crowd.board)

    # Each order is an environment of its own here, E * orders in all.
    env = jnp.repeat(envs, orders)
    draw = jax.random.uniform(order_key, (group, env.size))
    agents = chosen[jnp.argsort(draw, axis=0), env]
    crowd_now = crowd.of(agents, env)

    def one(table: Array, x: Any) -> Any:
        start, row, goal, key = x
        single = dataclasses.replace(crowd, row=row, goal=goal)
        cells, found = _path(key, single, table, start)
        return reserve(table, cells, 1, crowd.board), (cells, found)

    keys = jax.random.split(path_key, group)
    in_turn = (plan[0, agents, env], crowd_now.row, crowd_now.goal, keys)
    tables, (paths, found) = lax.scan(one, jnp.repeat(without, orders, axis=-1), in_turn)
    paths = jnp.moveaxis(paths, 0, 1)

    late_now = crowd_now.delay(paths)
    gain = jnp.sum((late[agents, env] - late_now) * crowd_now.weight, axis=0)
    gain = jnp.where(jnp.all(found, axis=0), gain, -1).reshape(-1, orders)
    accept = jnp.max(gain, axis=1) >= 0
    best = jnp.argmax(gain, axis=1) + envs * orders
    agents = jnp.where(accept, agents[:, best], len(late))
    plan = plan.at[:, agents, envs].set(paths[..., best], mode="drop")
    late = late.at[agents, envs].set(late_now[:, best], mode="drop")
    return jnp.where(accept, tables[..., best], table), plan, late


def _choose(key: Array, board: Board, cell: Array, late: Array, group: int) -> Array:
    """``int32[G, E]``: an agent, the more likely the later it is, and those nearest to it.

    Args:
        key: a typed key.
        board: the board.
        cell: ``int32[A, E]``.
        late: ``int32[A, E]``.
        group: ``G``.
    """
    first_key, near_key = jax.random.split(key)
    present = cell < board.size
    score = jnp.log(late + 0.1) + jax.random.gumbel(first_key, late.shape)
    first = jnp.argmax(jnp.where(present, score, -jnp.inf), axis=0)
    at = cell[first, jnp.arange(cell.shape[1])]
    down = jnp.abs(cell // board.columns - at // board.columns)
    right = jnp.abs(cell % board.columns - at % board.columns)
    far = down + right + 2 * jax.random.uniform(near_key, late.shape)
    far = jnp.where(present, far, jnp.inf)
    far = jnp.where(jnp.arange(len(cell))[:, None] == first, -1, far)
    return lax.top_k(-far.T, group)[1].T


def _path(key: Array, crowd: Crowd, table: Array, start: Array) -> tuple[Array, Array]:
    """The best path of one agent in each environment; whoever is gone remains so.

    Args:
        key: a typed key.
        crowd: one agent in each environment, arrays of shape ``[B]``.
        table: ``int8[w, V, B]``, the reservations of the others.
        start: ``int32[B]``.

    Returns:
        ``(cells int32[w + 1, B], found bool[B])``; where none is found the agent stays.
    """
    board = crowd.board
    ahead = crowd.to_goal(board.square(start)) - crowd.to_goal(start)
    order = jax.random.randint(key, start.shape, 0, NUM_ORDERS, jnp.int32)
    cells, found = best_path(table, start, crowd.goal, ahead, order, board, crowd.on_target)
    gone = start == board.size
    return jnp.where(found & ~gone, cells, start), found | gone
