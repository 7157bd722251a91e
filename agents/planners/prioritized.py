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
from flockax.agents.planners.neighbourhood import Crowd, improve
from flockax.agents.planners.pibt import Pibt, PibtCarry, PibtPolicy, longer, priorities
from flockax.agents.planners.pibt_step import NUM_SHUFFLES, pibt_step
from flockax.agents.planners.space_time import Board
from flockax.envs.environment import Environment
from flockax.envs.space.grid import MOVES
from flockax.envs.spec import Observation, int_dtype

Array = jax.Array

MAX_WINDOW = 64


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

    Paths have no conflicts under the collision rule "soft" and are then followed exactly. Under the
    other rules an agent may be stopped behind another; all in its environment then plan anew.

    Attributes:
        pibt: the planner of first paths, with the maps and distances.
        walls: ``int8[M, V]``, `WALL` in the obstacles of boards with a margin of `window`.
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
    def board(self) -> Board:
        """The maps with a margin."""
        return Board(self.pibt.shape, self.window)

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
        search, field = self.pibt.recall(carry.search, env_state, reset)
        cell = self.board.cell(env_state.position.astype(jnp.int32))
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
        steps = MOVES @ np.array([self.board.columns, 1])
        move = jnp.argmax((there - here)[..., None] == steps, axis=-1)
        action = jnp.where(env_state.alive, move, 0).astype(int_dtype())
        return action, PrioritizedCarry(search, plan, done + 1)

    def _plan(self, key: Array, field: Any, search: PibtCarry, env_state: Any) -> Array:
        """``int32[E, w + 1, A]``: paths without conflicts from where the agents are."""
        first_key, key = jax.random.split(key)
        plan = self._first_paths(first_key, field, search, env_state)
        rows, row = field
        # Without weights two in each other's way could wait for ever.
        crowd = Crowd(
            distance=rows,
            row=row.T,
            goal=self.board.cell(search.goal).T,
            weight=10 + jnp.minimum(search.waited, 50).T,
            board=self.board,
            on_target=self.on_target,
        )
        walls = self.walls[env_state.map].T
        plan = improve(key, crowd, walls, plan, self.rounds, self.group, self.orders)
        return jnp.moveaxis(plan, -1, 0)

    def _first_paths(self, key: Array, field: Any, search: PibtCarry, env_state: Any) -> Array:
        """``int32[w + 1, A, E]``: what PIBT would do in the steps of the window."""
        moves = jnp.asarray(MOVES, jnp.int32)

        def seen(position: Array, alive: Array) -> Array:
            return jnp.where(alive, self.board.cell(position), self.board.size).T

        def step(state: Any, key: Array) -> Any:
            position, alive, carry = state
            cost = self.pibt.costs(field, env_state.map, position)
            shuffle = jax.random.randint(key, alive.shape, 0, NUM_SHUFFLES, jnp.int32)
            action = pibt_step(position, cost, priorities(carry), shuffle, alive, self.board.shape)
            position += moves[action]
            arrived = jnp.all(position == search.goal, axis=-1)
            cells = seen(position, alive)
            if self.on_target == "finish":
                alive = alive & ~arrived
            waited = jnp.where(arrived, 0, longer(carry.waited))
            return (position, alive, carry.replace(waited=waited)), cells

        # Without the distances, which are in the field.
        carry = search.replace(distance=None)
        state = (env_state.position.astype(jnp.int32), env_state.alive, carry)
        cells = lax.scan(step, state, jax.random.split(key, self.window))[1]
        return jnp.concatenate([seen(*state[:2])[None], cells])


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
        rounds: how many groups plan again for each plan; by default so many that every agent does
            three times.

    Returns:
        The policy; other parameters given to its `act` change nothing.

    Raises:
        ValueError: for a number out of its range.
    """
    agents = env.num_agents
    group = min(group, agents)
    rounds = -(-3 * agents // max(group, 1)) if rounds is None else rounds
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
    pibt = Pibt(env, params)
    walls = np.asarray(env.obstacles(params), bool)
    return PrioritizedPolicy(
        pibt=pibt,
        walls=jnp.asarray(Board(pibt.shape, window).margined(walls)),
        window=window,
        replan=replan,
        orders=orders,
        group=group,
        rounds=rounds,
        on_target=env.on_target,
    )
