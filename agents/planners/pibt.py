"""PIBT as a policy of `grid_pathfinding` (see `flockax.agents.planners.pibt_step`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from flockax.agents.core.policy import Policy
from flockax.agents.planners.pibt_step import CLOSED, NUM_SHUFFLES, pibt_step
from flockax.envs.environment import Environment
from flockax.envs.pathfinding.distances import MAX_GOAL_CELLS, UNREACHABLE, all_goals, from_goals
from flockax.envs.pathfinding.grid_data import DISTANCES
from flockax.envs.space.grid import MOVES
from flockax.envs.spec import Observation, int_dtype

Array = jax.Array

TABLE_BYTES = 2**30

_SEARCHES = 16  # new goals searched at a time
_LONGEST_WAIT = DISTANCES - 1


@struct.dataclass
class PibtCarry:
    """What PIBT remembers.

    Attributes:
        waited: ``int32[E, A]``, steps since the agent stood on its goal.
        first_distance: ``int32[E, A]``, how far it was from its goal when the episode began.
        goal: ``int32[E, A, 2]``, where it went in the last step.
        distance: ``int16[E * A, H * W]``, from each cell to that goal; None with a table.
    """

    waited: Any
    first_distance: Any
    goal: Any
    distance: Any


@struct.dataclass
class PibtPolicy(Policy):
    """PIBT on full information, for the maps that it was made with; made by `Pibt`.

    Priorities are those of pypibt: the distance to the goal at the start of the episode divided by the
    number of cells, plus 1 for each step since the agent last stood on its goal. They are kept as two
    integers, so that they order agents exactly. Equal distances are tried in random order; if greedy in
    the order of the moves, so that what an agent does follows from what there is to see. That solves
    fewer one-shot instances and reaches as many goals in the lifelong task.

    Attributes:
        open_moves: ``uint8[M, H * W]``, bit k is set where move k is open.
        rank: ``int32[M, H * W]``, see `GoalTable`; None without a table.
        distance: ``int16[M * C, H * W]``, rows of a `GoalTable`; None without.
        walls: ``bool[M, H, W]``; None with a table.
        num_agents: ``A``.
        shape: ``(H, W)``.
    """

    open_moves: Any
    rank: Any
    distance: Any
    walls: Any
    num_agents: int = struct.field(pytree_node=False)
    shape: tuple[int, int] = struct.field(pytree_node=False)

    def init(self, num_envs: int) -> PibtCarry:
        """Nothing is known: every goal is new in the first step."""
        agents = (num_envs, self.num_agents)
        cells = self.open_moves.shape[1]
        distance = None
        if self.distance is None:
            distance = jnp.full((agents[0] * agents[1], cells), UNREACHABLE, jnp.int16)
        return PibtCarry(
            waited=jnp.zeros(agents, jnp.int32),
            first_distance=jnp.zeros(agents, jnp.int32),
            goal=jnp.full((*agents, 2), -1, jnp.int32),
            distance=distance,
        )

    def act(
        self,
        key: Array,
        carry: PibtCarry,
        observation: Observation,
        env_state: Any,
        params: Any,
        reset: Array,
        greedy: bool,
    ) -> tuple[Array, PibtCarry]:
        """See `Policy.act`; reads `map`, `position`, `goal` and `alive` of the state."""
        carry, field = self.recall(carry, env_state, reset)
        position = env_state.position.astype(jnp.int32)
        cost = self.costs(field, env_state.map, position)
        shuffle = jnp.zeros(carry.waited.shape, jnp.int32)
        if not greedy:
            bits = jax.random.bits(key, carry.waited.shape, jnp.uint32) >> 7
            shuffle = (bits * NUM_SHUFFLES >> 25).astype(jnp.int32)
        action = pibt_step(position, cost, priorities(carry), shuffle, env_state.alive, self.shape)
        return action.astype(int_dtype()), carry

    def recall(
        self, carry: PibtCarry, env_state: Any, reset: Array
    ) -> tuple[PibtCarry, tuple[Array, Array]]:
        """What is known at the beginning of a step.

        Args:
            carry: what was known at the beginning of the step before.
            env_state: with a leading axis ``E``.
            reset: ``bool[E]``, True where an episode has just begun.

        Returns:
            ``(carry, field)``: waiting times, goals and distances as of now; and the field of distances,
            ``int16[R, H * W]`` with the row of each agent ``int[E, A]``.
        """
        position = env_state.position.astype(jnp.int32)
        goal = env_state.goal.astype(jnp.int32)
        fresh = reset[:, None]
        changed = fresh | jnp.any(goal != carry.goal, axis=-1)
        rows, row, distance = self._goal_rows(carry, env_state.map, goal, changed)
        here = rows[row, position[..., 0] * self.shape[1] + position[..., 1]]
        arrived = jnp.all(position == carry.goal, axis=-1)
        waited = jnp.where(fresh | arrived, 0, longer(carry.waited))
        first = jnp.where(fresh, here.astype(jnp.int32), carry.first_distance)
        return PibtCarry(waited, first, goal, distance), (rows, row)

    def costs(self, field: tuple[Array, Array], map: Array, position: Array) -> Array:
        """``int32[5, E, A]``: the distance after each move, `CLOSED` where there is none.

        Args:
            field: of distances, see `recall`.
            map: ``int[E]``, the map of each environment.
            position: ``int[E, A, 2]``.
        """
        rows, row = field
        columns, last = self.shape[1], self.open_moves.shape[1] - 1
        cell = position[..., 0] * columns + position[..., 1]
        is_open = self.open_moves[map[:, None], cell].astype(jnp.int32)
        costs = []
        for move, step in enumerate(MOVES @ np.array([columns, 1])):
            there = jnp.clip(cell + int(step), 0, last)
            value = rows.at[row, there].get(mode="promise_in_bounds").astype(jnp.int32)
            costs.append(jnp.where((is_open >> move) & 1 == 1, value, CLOSED))
        return jnp.stack(costs)

    def _goal_rows(
        self, carry: PibtCarry, map: Array, goal: Array, changed: Array
    ) -> tuple[Array, Array, Array | None]:
        """Maps of distances, the one of each agent ``[E, A]``, and what to remember of them."""
        if self.distance is not None:
            cells = len(self.distance) // len(self.rank)
            rank = self.rank[map[:, None], goal[..., 0] * self.shape[1] + goal[..., 1]]
            return self.distance, map[:, None] * cells + jnp.maximum(rank, 0), None
        distance = self._searched(carry.distance, map, goal, changed)
        return distance, jnp.arange(changed.size).reshape(changed.shape), distance

    def _searched(self, distance: Array, map: Array, goal: Array, changed: Array) -> Array:
        """``int16[E * A, H * W]``: the distances, with those of changed goals searched anew."""
        agents, count = self.num_agents, changed.size
        goals = goal.reshape(count, 1, 2)

        def body(state: tuple[Array, Array]) -> tuple[Array, Array]:
            changed, distance = state
            (index,) = jnp.nonzero(changed, size=min(_SEARCHES, count), fill_value=count)
            real = index < count
            safe = jnp.where(real, index, 0)
            goals_now = jnp.where(real[:, None, None], goals[safe], -1)
            found = from_goals(self.walls[map[safe // agents]], goals_now)
            distance = distance.at[index].set(found.reshape(len(index), -1), mode="drop")
            return changed.at[index].set(False, mode="drop"), distance

        state = (changed.reshape(-1), distance)
        return lax.while_loop(lambda state: jnp.any(state[0]), body, state)[1]


def longer(waited: Array) -> Array:
    """Waiting times one step later, up to what a priority can hold."""
    return jnp.minimum(waited + 1, _LONGEST_WAIT)


def priorities(carry: PibtCarry) -> Array:
    """``int32[E, A]``: by waiting time, then by the distance when the episode began."""
    return carry.waited * DISTANCES + carry.first_distance


def Pibt(env: Environment, params: Any) -> PibtPolicy:
    """PIBT for the maps of an environment.

    Distances to all goals are computed here where every map has at most `MAX_GOAL_CELLS` free cells
    and the table takes at most `TABLE_BYTES`; else each agent carries those to its goal, ``2 H W``
    bytes, and searches when the goal changes.

    Args:
        env: a `GridPathfinding`.
        params: its parameters, with the maps.

    Returns:
        The policy; other parameters given to its `act` change nothing.
    """
    walls = np.asarray(env.obstacles(params), bool)
    maps, height, width = walls.shape
    free = np.pad(~walls, ((0, 0), (1, 1), (1, 1)))
    open_moves = np.zeros(walls.shape, np.uint8)
    for move, (row, column) in enumerate(MOVES):
        there = free[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]
        open_moves |= there.astype(np.uint8) << move
    open_moves |= 1  # whatever stands on an obstacle stays there
    most = int((~walls).sum(axis=(1, 2)).max())
    rank = distance = None
    if most <= MAX_GOAL_CELLS and 2 * walls.size * most <= TABLE_BYTES:
        table = all_goals(walls)
        rank = table.rank.reshape(maps, -1)
        distance = table.distance.reshape(-1, height * width)
    return PibtPolicy(
        open_moves=jnp.asarray(open_moves.reshape(maps, -1)),
        rank=rank,
        distance=distance,
        walls=jnp.asarray(walls) if distance is None else None,
        num_agents=env.num_agents,
        shape=(height, width),
    )
