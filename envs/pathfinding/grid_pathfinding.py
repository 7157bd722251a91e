"""`grid_pathfinding`: agents on a grid go to their goals without collisions, once or for ever."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from flockax.envs.environment import Environment, Transition
from flockax.envs.pathfinding import fields, map_sets, windows
from flockax.envs.pathfinding.grid_data import DISTANCES, GridParams, GridState, make_params
from flockax.envs.pathfinding.instance_tables import read_instances
from flockax.envs.pathfinding.map_tables import draw_pairs
from flockax.envs.space import grid
from flockax.envs.spec import (
    ActionSpec,
    ArraySpec,
    DiscreteActions,
    EntitySet,
    Group,
    float_dtype,
    int_dtype,
)

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class GridPathfinding(Environment):
    """Agents on a grid with obstacles walk to their goals; two never share or swap cells.

    Each reaches one goal and leaves ("finish"), all must stand on their goals at the same time
    ("nothing"), or each gets a new goal whenever it arrives ("restart", the lifelong task).

    **Agents and groups.** One group, ``agents``. In "finish" an agent that arrives is gone: it is not
    alive, seen by nobody and in nobody's way.

    **Actions.** 0 stay, 1 up, 2 down, 3 left, 4 right. All are open; a move into an obstacle does
    nothing. With `mask_obstacles` moves into obstacles are closed.

    **Observation.** A window ``int8[A, 1, 2r+1, 2r+1]`` around each agent, rows from top to bottom. Each
    cell is a sum of

    * 1: an obstacle; a line of them is around the map and nothing beyond that line,
    * 2: an agent; in the middle is the agent itself,
    * 4: its goal, pulled to the nearest cell of the window where it is outside,
    * 8 d, with ``guide="distance"``: steps to its goal from that cell less those from its own cell,
      limited to -15 .. 14; d = 15 where there is no way to the goal.

    With ``guide="waypoints"``, ``int16``, it is instead a sum of the first three and

    * 8, 16, 32, 64: an agent is there whose shortest ways to its own goal go up, down, left, right,
    * 128: an agent is there that has not stood on its goal for longer than this one has (of two as long
      the one whose first goal was farther, then the lower index),
    * 256 d, likewise.

    Networks take it apart; `flockax.envs.spec.unpack` does it for anybody.

    **Reward.** To each agent ``arrival_reward`` on the step of an arrival ("finish", "restart"), or
    ``arrival_reward`` to all when all stand on their goals ("nothing"); and the optional terms of
    `GridParams`, 0 by default.

    **End of episode.** Terminates when all have arrived ("finish") or all stand on their goals
    ("nothing"); "restart" never terminates. Truncated after `horizon` steps.

    **Parameters.** `GridParams`.

    **Source.** POGEMA 1.4.0: collision rules, rewards, ends, observations (its "default" type, as
    integers) and goal queues are equal step by step. Different: a dead agent sees nothing and both
    terminated and truncated are never True; `terminated` is of the episode; new goals are drawn from
    other random bits, and never the cell where the agent stands where only some cells may be goals;
    under "soft" an agent that follows another is seen (there it may vanish for a step:
    `compat_visibility` repeats that).

    The rules use the order of agents ("priority" and "soft": the lower index gets a contested cell).

    Attributes:
        num_agents: at least 1.
        size: rows of generated maps, or None for 16 (21 for "benchmark", whose maps have 17 to 21);
            files and given maps have their own.
        width: columns of generated maps, or None for as many as rows.
        maps: "random", "maze", "warehouse", "room" or "bottleneck" for generated maps; "benchmark" for
            maps in the manner of the public benchmark's Random and Mazes sets in turn (whose own maps
            have the seeds 0 to 127: train on others); the path of a file or folder of maps (MovingAI
            .map, POGEMA .yaml), read once in a process; "given" for those of `from_maps` and
            `from_instances`.
        num_maps: how many maps; each episode draws one. Of a file all are taken.
        density: share of obstacles in "random" maps.
        map_seed: seed of the first generated map; the next ones follow.
        instances: the path of a file of instances (MovingAI .scen, benchmark .json) on the maps of a
            file: each episode plays one of them, with its first `num_agents` agents. None to draw
            starts and goals.
        num_instances: how many instances; follows from what is given.
        queue_length: length of the longest given queue of goals; likewise.
        collision: who gets a contested cell: the lowest index, and one may follow a lower one only
            ("priority"); the lowest index, and one may follow anybody ("soft"); nobody, and nobody
            follows ("block_both"). See `flockax.envs.space.grid.resolve_moves`.
        on_target: what happens at a goal: the agent leaves ("finish"), it stays until all are on their
            goals ("nothing"), or it gets a new one ("restart", the lifelong task).
        obs_radius: ``r``, how far an agent sees.
        guide: "distance" to see how much nearer to the goal each cell of the window is; "waypoints" to
            see, besides, where the agents in the window would go next if they were alone, and who has
            waited longer.
        mask_obstacles: close moves into obstacles in the action mask.
        compat_visibility: repeat the fault of POGEMA 1.4.0 under "soft".
    """

    num_agents: int = 8
    size: int | None = None
    width: int | None = None
    maps: str = "random"
    num_maps: int = 64
    density: float = 0.3
    map_seed: int = 0
    instances: str | None = None
    num_instances: int = 0
    queue_length: int = 1
    collision: Literal["priority", "block_both", "soft"] = "priority"
    on_target: Literal["finish", "nothing", "restart"] = "finish"
    obs_radius: int = 5
    guide: Literal["none", "distance", "waypoints"] = "none"
    mask_obstacles: bool = False
    compat_visibility: bool = False

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            ValueError: naming the field, its value and what is allowed.
        """
        for name, value in fields.derived(self).items():
            object.__setattr__(self, name, value)
        fields.check(self)

    @property
    def map_source(self) -> map_sets.MapSource:
        """What the generated maps depend on."""
        return map_sets.MapSource(
            self.maps,
            self.rows,
            self.columns,
            self.num_maps,
            float(self.density),
            self.map_seed,
            self.obs_radius,
            self.guide != "none",
        )

    @property
    def rows(self) -> int:
        """``H``."""
        return fields.DEFAULT_SIZE if self.size is None else self.size

    @property
    def columns(self) -> int:
        """``W``."""
        return self.rows if self.width is None else self.width

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        return (Group("agents", 0, self.num_agents, 0, grid.NUM_MOVES),)

    @property
    def action_spec(self) -> ActionSpec:
        """Five moves."""
        return DiscreteActions(self.num_agents, grid.NUM_MOVES)

    @property
    def feature_spec(self) -> ArraySpec:
        """Windows of small integers."""
        return windows.spec(self.num_agents, self.obs_radius, self.guide)

    @property
    def global_state_spec(self) -> EntitySet:
        """Time and obstacles; then for each agent where it is and where it goes."""
        dtype, agents = float_dtype().name, self.num_agents
        return EntitySet(
            ArraySpec((1 + self.rows * self.columns,), dtype, 0, 1),
            ArraySpec((agents, 4), dtype, 0, 1),
            ArraySpec((agents,), "bool", 0, 1),
        )

    @property
    def default_params(self) -> GridParams:
        """Generated maps and the rewards of POGEMA.

        Raises:
            ValueError: for given maps, whose parameters come with the environment.
        """
        if self.maps == "given":
            raise ValueError(
                "GridPathfinding: maps='given' has no default parameters; "
                "pass those that from_maps or from_instances returned"
            )
        found = map_sets.generated(self.map_source)
        given = None
        if self.instances is not None:
            given = read_instances(self.instances, self.maps, self.num_agents, self.on_target)
        return make_params(found, self.num_agents, given)

    def obstacles(self, params: GridParams) -> Array:
        """``bool[M, H, W]``: the maps, True where blocked; beyond a smaller map is no way out of it."""
        r = self.obs_radius
        return params.tables.board[:, r : r + self.rows, r : r + self.columns] != 0

    def initial_state(self, key: Array, params: GridParams) -> GridState:
        """A given instance, or a map with starts and goals, drawn uniformly."""
        if self.num_instances:
            return self.instance_state(params, jax.random.randint(key, (), 0, self.num_instances))
        map_key, place_key = jax.random.split(key)
        index = jax.random.randint(map_key, (), 0, self.num_maps, int_dtype())
        start, goal = draw_pairs(place_key, params.tables, index, self.num_agents)
        instance = jnp.zeros((), int_dtype())
        return self._start(params, index, instance, self._pair(start), self._pair(goal))

    def instance_state(self, params: GridParams, instance: Array) -> GridState:
        """The start of a given instance.

        Args:
            params: parameters with instances.
            instance: ``int[]`` in 0 .. I - 1.
        """
        instance = jnp.asarray(instance, int_dtype())
        start, goal = params.starts[instance], params.goals[instance, :, 0]
        return self._start(params, params.instance_map[instance], instance, start, goal)

    def _start(
        self, params: GridParams, index: Array, instance: Array, start: Array, goal: Array
    ) -> GridState:
        state = GridState(
            time=jnp.zeros((), int_dtype()),
            map=index,
            instance=instance,
            position=start,
            goal=goal,
            alive=jnp.ones(self.num_agents, bool),
            queue=jnp.zeros(self.num_agents, int_dtype()),
            visible=jnp.ones(self.num_agents, bool),
            urgency=jnp.zeros(self.num_agents, int_dtype()),
        )
        if self.guide != "waypoints":
            return state
        steps = windows.steps_to_goal(params, state, start, self.obs_radius)
        return dataclasses.replace(state, urgency=steps)

    def alive(self, state: GridState) -> Array:
        """Who has not arrived, in "finish"; else all."""
        return state.alive

    def available(self, state: GridState, params: GridParams) -> Array | None:
        """Closes moves into obstacles with `mask_obstacles`."""
        if not self.mask_obstacles:
            return None
        board = params.tables.board[state.map].reshape(-1)
        offsets = jnp.asarray(grid.move_offsets(self._stride), int_dtype())
        return board[self._cell(state.position)[:, None] + offsets] == 0

    def transition(
        self, key: Array, state: GridState, action: Array, params: GridParams
    ) -> Transition:
        """All move by the collision rule; arrivals are rewarded, and leave or get new goals."""
        before = state.position
        board = params.tables.board[state.map]
        cell = self._cell(before)
        moved, wall, met = grid.resolve_moves(self.collision, board, cell, action, state.alive)
        moves = jnp.asarray(grid.MOVES, int_dtype())[action]
        position = jnp.where(moved[:, None], before + moves, before)
        state = dataclasses.replace(state, position=position)
        if self.compat_visibility:
            state = dataclasses.replace(state, visible=self._seen(before, position, state.alive))
        on_goal = jnp.all(position == state.goal, axis=-1) & state.alive
        rewards = self._shaping(params, state, before, on_goal, wall | met)
        if self.guide == "waypoints":
            steps = state.urgency % DISTANCES
            longest = (DISTANCES - 1) * DISTANCES + steps
            longer = jnp.minimum(state.urgency, longest - DISTANCES) + DISTANCES
            state = dataclasses.replace(state, urgency=jnp.where(on_goal, steps, longer))
        everybody = jnp.all(on_goal | ~state.alive)
        if self.on_target == "nothing":
            rewards += params.arrival_reward * everybody
            arrivals, terminated = everybody * self.num_agents, everybody
        else:
            rewards += params.arrival_reward * on_goal
            arrivals, terminated = jnp.sum(on_goal), jnp.asarray(False)
        if self.on_target == "finish":
            state = dataclasses.replace(state, alive=state.alive & ~on_goal)
            terminated = ~jnp.any(state.alive)
        elif self.on_target == "restart":
            queue = state.queue + on_goal
            goal = jnp.where(
                on_goal[:, None], self._next_goal(key, state, queue, params), state.goal
            )
            state = dataclasses.replace(state, goal=goal, queue=queue)
        real = float_dtype()
        metrics = {
            "arrivals": arrivals.astype(real),
            "on_goal": jnp.mean(on_goal | ~state.alive, dtype=real),
            "agent_collisions": jnp.sum(met, dtype=real),
            "obstacle_collisions": jnp.sum(wall, dtype=real),
        }
        return Transition(state=state, reward=rewards, terminated=terminated, metrics=metrics)

    def _shaping(
        self,
        params: GridParams,
        state: GridState,
        before: Array,
        on_goal: Array,
        stopped: Array,
    ) -> Array:
        reward = jnp.where(on_goal, params.goal_reward, params.step_reward)
        reward += params.collision_reward * stopped
        if self.guide != "none":
            far, near = (
                windows.steps_to_goal(params, state, position, self.obs_radius)
                for position in (before, state.position)
            )
            reward += params.progress_reward * (far - near)
        return reward

    def _next_goal(self, key: Array, state: GridState, queue: Array, params: GridParams) -> Array:
        agents = jnp.arange(self.num_agents)
        if self.num_instances:
            length = params.queue_length[state.instance]
            return params.goals[state.instance, agents, queue % length]
        tables = params.tables
        cell = self._cell(state.position)
        first, count, rank = (
            table[state.map, cell]
            for table in (tables.goal_first, tables.goal_count, tables.goal_rank)
        )
        # One of the component's goals, the own cell left out; where there is no other it stays.
        others = count - (rank < count)
        most = jnp.maximum(others, 1)
        drawn = jax.random.randint(key, (self.num_agents,), 0, most, int_dtype())
        drawn += drawn >= rank
        new = jnp.where(others > 0, tables.goal_cells[state.map, first + drawn], cell)
        return self._pair(new)

    def features(self, state: GridState, params: GridParams) -> Array:
        """Windows around the agents."""
        return windows.draw(params, state, self.obs_radius, self.guide)

    def global_state(self, state: GridState, params: GridParams | None = None) -> EntitySet:
        """Time over horizon and obstacles; position and goal of each agent, in parts of the map."""
        params = self.default_params if params is None else params
        real = float_dtype()
        scale = jnp.asarray([self.rows, self.columns], real)
        where = jnp.concatenate([state.position / scale, state.goal / scale], axis=1)
        time = (state.time / params.horizon).astype(real)
        walls = self.obstacles(params)[state.map].reshape(-1)
        return EntitySet(
            own=jnp.concatenate([time[None], walls.astype(real)]),
            entities=jnp.where(state.alive[:, None], where, 0).astype(real),
            mask=state.alive,
        )

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """``throughput`` of lifelong episodes, else ``csr`` and ``isr``.

        As `flockax.envs.pathfinding.metrics` defines them.
        """
        if self.on_target == "restart":
            return {"throughput": total["arrivals"] / length}
        share = final["on_goal"]
        # Not == 1: the share is rounded.
        return {"csr": (share > 1 - 0.5 / self.num_agents).astype(share.dtype), "isr": share}

    def scene(self, params: GridParams | None = None) -> Any:
        """The map, rings for goals, discs for agents; who stands on its goal is highlighted."""
        from flockax.envs.pathfinding.picture import make_scene

        params = self.default_params if params is None else params
        return make_scene(self._drawn_walls(params), self.num_agents)

    def frame(self, state: GridState, params: GridParams | None = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.pathfinding.picture import make_frame

        params = self.default_params if params is None else params
        walls = None if self.num_maps == 1 else self._drawn_walls(params)[state.map]
        return make_frame(walls, self.rows, state.position, state.goal, state.alive)

    def _drawn_walls(self, params: GridParams) -> Array:
        """``bool[M, H, W]``: obstacles, and what lies beyond a map that is smaller than others."""
        r = self.obs_radius
        goals = params.tables.goal_count.reshape(params.tables.board.shape)
        return self.obstacles(params) | (goals[:, r : r + self.rows, r : r + self.columns] == 0)

    def _seen(self, before: Array, position: Array, alive: Array) -> Array:
        # POGEMA 1.4.0 clears and sets its board agent by agent: whoever moves to a cell that a higher
        # index leaves is wiped out again.
        size = (self.rows + 2 * self.obs_radius) * self._stride
        ids = jnp.arange(self.num_agents, dtype=int_dtype())
        owner = grid.place(self._cell(before), alive, ids, size, -1)
        return owner[self._cell(position)] <= ids

    @property
    def _stride(self) -> int:
        return self.columns + 2 * self.obs_radius

    def _cell(self, position: Array) -> Array:
        """The number on the board of ``int[..., 2]`` positions."""
        return windows.board_cell(position, self.obs_radius, self._stride)

    def _pair(self, cell: Array) -> Array:
        """``int[..., 2]``: the position of a cell of the board."""
        r = self.obs_radius
        return jnp.stack([cell // self._stride - r, cell % self._stride - r], axis=-1)
