"""Windowed prioritized planning: agents plan one after another around those that went before.

Silver, "Cooperative Pathfinding" (2005): each agent takes its best path through space and time around
the reserved paths of agents that planned earlier, within a window. An agent planning late may find no
path at all, the more so the denser the crowd. So every window begins with paths that never fail, those
of `pibt_step` (Okumura et al. 2022). Then small groups of agents near one that is late give up their
paths and plan again in random order, and keep what they find where it is better: large neighbourhood
search, as in MAPF-LNS (Li et al. 2021) and in the windowed form of Jiang et al., "Scaling Lifelong
Multi-Agent Path Finding to More Realistic Settings" (2024).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from flockax.agents.core.policy import Policy
from flockax.agents.planners import space_time
from flockax.agents.planners.pibt import Pibt, PibtCarry, PibtPolicy
from flockax.agents.planners.pibt_step import NUM_SHUFFLES, pibt_step
from flockax.envs.environment import Environment
from flockax.envs.pathfinding.distances import UNREACHABLE
from flockax.envs.space.grid import MOVES
from flockax.envs.spec import Observation, int_dtype

Array = jax.Array

MAX_WINDOW = 64
_LONGEST_WAIT = 2**15 - 1


@struct.dataclass
class PrioritizedCarry:
    """What the planner remembers.

    Attributes:
        search: waiting times, goals and distances, see `PibtCarry`.
        plan: ``int32[E, w + 1, A]``, cells of the board, see `flockax.agents.planners.space_time`.
        done: ``int32[E]``, how many steps of the plan are done.
    """

    search: PibtCarry
    plan: Any
    done: Any


@struct.dataclass
class PrioritizedPolicy(Policy):
    """Plans paths for a window and follows them; made by `Prioritized`.

    Paths have no conflicts under the collision rule "soft" and are then followed exactly. Under the other
    rules an agent may be stopped behind another; the environment then plans anew at once.

    Attributes:
        pibt: the planner of first paths, with the maps and distances.
        walls: ``int8[M, V]``, `space_time.WALL` in the obstacles of boards with a margin of `window`.
        window: ``w``, steps that are planned.
        replan: steps that are followed before the next plan.
        orders: orders tried side by side for each group; the best is kept.
        group: agents that plan again together.
        rounds: groups that plan again, one after another, for each plan.
        on_target: as in `GridPathfinding`.
    """

    pibt: PibtPolicy
    walls: Any
    window: int = struct.field(pytree_node=False)
    replan: int = struct.field(pytree_node=False)
    orders: int = struct.field(pytree_node=False)
    group: int = struct.field(pytree_node=False)
    rounds: int = struct.field(pytree_node=False)
    on_target: str = struct.field(pytree_node=False)

    @property
    def columns(self) -> int:
        """``C``, the width of a board with its margins."""
        return self.pibt.shape[1] + 2 * self.window

    def init(self, num_envs: int) -> PrioritizedCarry:
        """No plan yet: every environment makes one in its first step."""
        return PrioritizedCarry(
            search=self.pibt.init(num_envs),
            plan=jnp.zeros((num_envs, self.window + 1, self.pibt.num_agents), jnp.int32),
            done=jnp.full(num_envs, self.replan, jnp.int32),
        )

    def act(
        self,
        key: Array,
        carry: PrioritizedCarry,
        observation: Observation,
        env_state: Any,
        params: Any,
        reset: Array,
        greedy: bool,
    ) -> tuple[Array, PrioritizedCarry]:
        """See `Policy.act`; reads `map`, `position`, `goal` and `alive` of the state."""
        search, field = self._search(carry.search, env_state, reset)
        cell = self._cell(env_state.position.astype(jnp.int32))
        expected = jnp.take_along_axis(carry.plan, carry.done[:, None, None], axis=1)[:, 0]
        lost = jnp.any(env_state.alive & (cell != expected), axis=1)
        due = lost | reset | (carry.done >= self.replan)

        def plan_anew() -> Array:
            plan = self._plan(key, field, search, env_state)
            return jnp.where(due[:, None, None], plan, carry.plan)

        plan = lax.cond(jnp.any(due), plan_anew, lambda: carry.plan)
        done = jnp.where(due, 0, carry.done)
        here, there = (
            jnp.take_along_axis(plan, (done + i)[:, None, None], axis=1)[:, 0] for i in (0, 1)
        )
        steps = MOVES @ np.array([self.columns, 1])
        move = jnp.argmax((there - here)[..., None] == steps, axis=-1)
        action = jnp.where(env_state.alive, move, 0).astype(int_dtype())
        return action, PrioritizedCarry(search, plan, done + 1)

    def _search(self, carry: PibtCarry, env_state: Any, reset: Array) -> tuple[PibtCarry, Any]:
        """Waiting times and distances as of now; with rows of distances and the agents' numbers."""
        position = env_state.position.astype(jnp.int32)
        goal = env_state.goal.astype(jnp.int32)
        fresh = reset[:, None]
        changed = fresh | jnp.any(goal != carry.goal, axis=-1)
        rows, row, distance = self.pibt._goal_rows(carry, env_state.map, goal, changed)
        here = rows[row, position[..., 0] * self.pibt.shape[1] + position[..., 1]]
        arrived = jnp.all(position == carry.goal, axis=-1)
        waited = jnp.minimum(carry.waited + 1, _LONGEST_WAIT)
        waited = jnp.where(fresh | arrived, 0, waited)
        first = jnp.where(fresh, here.astype(jnp.int32), carry.first_distance)
        return PibtCarry(waited, first, goal, distance), (rows, row)

    def _cell(self, position: Array) -> Array:
        """The number on the board of ``int32[..., 2]``."""
        row, column = position[..., 0] + self.window, position[..., 1] + self.window
        return row * self.columns + column

    def _distance(self, rows: Array, row: Array, cell: Array) -> Array:
        """``int32[...]``: distances to goals; in the margin those from the nearest cell."""
        height, width = self.pibt.shape
        down = jnp.clip(cell // self.columns - self.window, 0, height - 1)
        right = jnp.clip(cell % self.columns - self.window, 0, width - 1)
        return rows[row, down * width + right].astype(jnp.int32)

    def _plan(self, key: Array, field: Any, search: PibtCarry, env_state: Any) -> Array:
        """``int32[E, w + 1, A]``: paths without conflicts from where the agents are."""
        first_key, key = jax.random.split(key)
        first = self._first_paths(first_key, field, search, env_state)
        walls = self.walls[env_state.map].T
        plan = jnp.moveaxis(first, 0, -1)
        goal = jnp.where(env_state.alive, self._cell(search.goal), walls.shape[0]).T
        rows, row = field
        rows_of = (rows, row.T)
        late = self._delay(rows_of, plan, goal)
        table = jnp.broadcast_to(walls, (self.window, *walls.shape))
        table = space_time.reserve(table, plan, 1, self.columns)
        weight = 10 + jnp.minimum(search.waited, 50).T
        state = (plan, late, table)

        def body(state: Any, key: Array) -> Any:
            return self._again(key, state, goal, weight, rows_of), None

        plan, _, _ = lax.scan(body, state, jax.random.split(key, self.rounds))[0]
        return jnp.moveaxis(plan, -1, 0)

    def _delay(self, rows_of: Any, plan: Array, goal: Array) -> Array:
        """``int32[..., B]``: delays of paths, 0 for agents that are gone."""
        at_start, at_end = (self._distance(*rows_of, plan[i]) for i in (0, -1))
        late = space_time.delay(plan, goal, at_start, at_end, self.on_target)
        return jnp.where(plan[0] == self.walls.shape[1], 0, late)

    def _first_paths(self, key: Array, field: Any, search: PibtCarry, env_state: Any) -> Array:
        """``int32[E, w + 1, A]``: what PIBT would do in the steps of the window."""
        gone = self.walls.shape[1]
        moves = jnp.asarray(MOVES, jnp.int32)

        def step(state: Any, key: Array) -> Any:
            position, alive, waited = state
            cost = self.pibt._costs(*field, env_state.map, position)
            priority = waited * (UNREACHABLE + 1) + search.first_distance
            shuffle = jax.random.randint(key, waited.shape, 0, NUM_SHUFFLES, jnp.int32)
            action = pibt_step(position, cost, priority, shuffle, alive, self.pibt.shape)
            position += moves[action]
            arrived = jnp.all(position == search.goal, axis=-1)
            seen = jnp.where(alive, self._cell(position), gone)
            if self.on_target == "finish":
                alive = alive & ~arrived
            waited = jnp.where(arrived, 0, jnp.minimum(waited + 1, _LONGEST_WAIT))
            return (position, alive, waited), seen

        position = env_state.position.astype(jnp.int32)
        state = (position, env_state.alive, search.waited)
        cells = lax.scan(step, state, jax.random.split(key, self.window))[1]
        start = jnp.where(env_state.alive, self._cell(position), gone)
        return jnp.moveaxis(jnp.concatenate([start[None], cells]), 0, 1)

    def _again(self, key: Array, state: Any, goal: Array, weight: Array, rows_of: Any) -> Any:
        """One group plans again.

        Args:
            key: a typed key.
            state: ``plan int32[w + 1, A, E]``, ``late int32[A, E]``, and their reservations.
            goal: ``int32[A, E]``.
            weight: ``int32[A, E]``, what a step of delay of each agent counts.
            rows_of: distances, and which of them are whose ``int32[A, E]``.

        Returns:
            The state after it.
        """
        plan, late, table = state
        envs, batch, orders = goal.shape[1], jnp.arange(goal.shape[1]), self.orders
        group_key, order_key, path_key = jax.random.split(key, 3)
        group = self._group(group_key, plan[0], late)
        old = plan[:, group, batch]
        empty = space_time.reserve(table, old, -1, self.columns)

        # Each order is an environment of its own.
        wide = jnp.repeat(batch, orders)
        turn = jax.random.uniform(order_key, (self.group, envs * orders))
        turn = jnp.argsort(turn, axis=0).astype(jnp.int32)
        one = (jnp.repeat(empty, orders, axis=-1), jnp.ones(envs * orders, bool))

        def body(state: Any, x: Any) -> Any:
            table, found = state
            agent, key = x
            start, rows, row = plan[0][agent, wide], rows_of[0], rows_of[1][agent, wide]
            cells, ok = self._path(key, table, start, goal[agent, wide], rows, row)
            table = space_time.reserve(table, cells, 1, self.columns)
            return (table, found & ok), cells

        agents = group[turn, wide]
        keys = jax.random.split(path_key, self.group)
        (tables, found), new = lax.scan(body, one, (agents, keys))
        new = jnp.moveaxis(new, 0, 1)
        rows_of_new = (rows_of[0], rows_of[1][agents, wide])
        late_new = self._delay(rows_of_new, new, goal[agents, wide])
        gain = jnp.sum((late[agents, wide] - late_new) * weight[agents, wide], axis=0)
        gain = jnp.where(found, gain, -1).reshape(envs, orders)
        best = jnp.argmax(gain, axis=1) + batch * orders
        better = jnp.max(gain, axis=1) >= 0
        agents = agents[:, best]
        plan = plan.at[:, agents, batch].set(
            jnp.where(better, new[:, :, best], plan[:, agents, batch])
        )
        late = late.at[agents, batch].set(
            jnp.where(better, late_new[:, best], late[agents, batch])
        )
        return plan, late, jnp.where(better, tables[..., best], table)

    def _group(self, key: Array, cell: Array, late: Array) -> Array:
        """``int32[G, E]``: an agent drawn by its delay ``late[A, E]``, and those nearest to it."""
        draw_key, near_key = jax.random.split(key)
        noise = jax.random.gumbel(draw_key, late.shape)
        present = cell < self.walls.shape[1]
        score = jnp.where(present, jnp.log(late + 0.1) + noise, -jnp.inf)
        drawn = jnp.argmax(score, axis=0)
        at = cell[drawn, jnp.arange(cell.shape[1])]
        near = jnp.abs(cell // self.columns - at // self.columns)
        near += jnp.abs(cell % self.columns - at % self.columns)
        near = near + 2 * jax.random.uniform(near_key, near.shape)
        near = jnp.where(present, near, jnp.inf)
        near = jnp.where(jnp.arange(len(cell))[:, None] == drawn, -1, near)
        return lax.top_k(-near.T, self.group)[1].T

    def _path(
        self, key: Array, table: Array, start: Array, goal: Array, rows: Array, row: Array
    ) -> tuple[Array, Array]:
        """``(int32[w + 1, B], bool[B])``: the best path of one agent in each environment."""
        gone = table.shape[1]
        square = start + space_time.square_offsets(self.window, self.columns)[:, None]
        ahead = self._distance(rows, row, square) - self._distance(rows, row, start)
        order = jax.random.randint(key, start.shape, 0, space_time.NUM_ORDERS, jnp.int32)
        cells, found = space_time.best_path(
            table, start, goal, ahead, order, self.columns, self.on_target
        )
        stays = (start == gone) | ~found
        return jnp.where(stays, start, cells), found | (start == gone)


def Prioritized(
    env: Environment,
    params: Any,
    window: int = 5,
    replan: int = 1,
    orders: int = 1,
    group: int = 4,
    rounds: int | None = None,
) -> PrioritizedPolicy:
    """Windowed prioritized planning for the maps of an environment.

    Args:
        env: a `GridPathfinding`.
        params: its parameters, with the maps.
        window: steps that are planned, 1 to `MAX_WINDOW`.
        replan: steps that are followed before the next plan, 1 to `window`.
        orders: orders tried side by side for each group, at least 1.
        group: agents that plan again together, at least 1.
        rounds: how many groups plan again for each plan; by default so many that every agent does one
            and a half times.

    Returns:
        The policy; other parameters given to its `act` change nothing.

    Raises:
        ValueError: for a number out of its range.
    """
    agents = env.num_agents
    group = min(group, agents)
    rounds = -(-3 * agents // (2 * max(group, 1))) if rounds is None else rounds
    ranges = {
        "window": (window, 1, MAX_WINDOW),
        "replan": (replan, 1, window),
        "orders": (orders, 1, 1024),
        "group": (group, 1, agents),
        "rounds": (rounds, 0, 10**6),
    }
    for name, (value, low, high) in ranges.items():
        if not low <= value <= high:
            raise ValueError(f"Prioritized: {name}={value!r} is not in {low} .. {high}")
    walls = np.asarray(env.obstacles(params), bool)
    margin = (window, window)
    board = np.pad(walls, ((0, 0), margin, margin), constant_values=True)
    return PrioritizedPolicy(
        pibt=Pibt(env, params),
        walls=jnp.asarray(board.reshape(len(board), -1) * np.int8(space_time.WALL)),
        window=window,
        replan=replan,
        orders=orders,
        group=group,
        rounds=rounds,
        on_target=env.on_target,
    )
