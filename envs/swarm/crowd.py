"""`crowd`: finitely many agents play a mean-field game on a grid."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.environment import Environment, Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.spec import ArraySpec, DiscreteActions, Group, float_dtype, int_dtype
from flockax.envs.swarm import crowd_density
from flockax.envs.swarm import mean_field as mf
from flockax.envs.swarm import mean_field_games as games

Array = jax.Array

TASKS = ("crowd", "beach", "predator_prey")


@struct.dataclass
class CrowdParams:
    """Numbers of `Crowd`.

    Attributes:
        horizon: steps of an episode.
        noise: probability that a move is followed by a random one.
        aversion: weight of the logarithm of an agent's own density.
        place_weight: weight of the way to the bar and of the cost of moves; 0 for the density only.
        interaction: ``f[P, P]``, reward of row's population for the density of column's.
    """

    horizon: int = parameter(10, 1, 2**30)
    noise: float = parameter(1.0, 0, 1)
    aversion: float = parameter(1.0, 0.01, 100)
    place_weight: float = parameter(1.0, 0, 100)
    interaction: Any = parameter(((0.0,),), -100, 100)


@struct.dataclass
class CrowdState:
    """What changes.

    Attributes:
        position: ``int[A, 2]``, the cell (x, y).
        came: ``int[A]``, the action by which each agent came there; 0 at the start.
        time: ``int[]``.
    """

    position: Array
    came: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class Crowd(Environment):
    """Agents on a grid share out its cells, near a bar or near the populations that they hunt.

    Each is paid for where it stands and loses by how crowded it is there, so that what is best
    depends on where all others go; with ever more agents it becomes a mean-field game, whose
    equilibrium can be computed (`flockax.envs.swarm.mean_field`).

    **Agents and groups.** "crowd" (a torus) and "beach" (a ring): one group, ``agents``.
    "predator_prey" (a square): ``population_0`` and so on, as equal in size as can be. None ever
    dies, and any number may be in a cell.

    **Actions.** Discrete. "crowd": 0 stay, 1 y - 1, 2 x - 1, 3 x + 1, 4 y + 1; moves into walls are
    closed. "beach": 0 stay, 1 x - 1, 2 x + 1. "predator_prey": 0 stay, 1 x + 1, 2 y + 1, 3 y - 1,
    4 x - 1; at the border agents stay. After the action noise may move an agent once more: on torus
    and ring, with probability `noise`, by one of all open moves, staying included; on the square,
    with probability `noise`, by one of the four that don't stay.

    **Observation.** A vector ``f[A, F]``. Densities are shares of a population divided by the share
    of a cell if all were spread evenly: 0 for an empty cell, 1 for an even one, the number of cells
    where all are in one. In this order:

    * X: one-hot of the agent's x,
    * Y: one-hot of its y; not in "beach",
    * P: one-hot of its population; only with several,
    * 1: the share of the horizon that has passed, in [0, 1],
    * 1: whether it came here by a move (1) or stayed (0),
    * "histogram": P X Y, the density of each population in each cell, x by x. For grids of few
      cells.
    * "local": (P + 1) W, the density of each population in the cells within `obs_radius` of the
      agent's, W = (2 obs_radius + 1)^2, or 2 obs_radius + 1 in "beach", x by x from the lowest;
      then whether each of these is a wall or beyond the border. Torus and ring wrap around.

    The global state is ``f[P X Y + 1]``: all densities, then the share of the horizon.

    **Reward.** Of an agent of population p in cell c, before it moves, with the share ``mu_q`` of
    each population q there::

        r = place_weight (f - |a| / size) - aversion log(mu_p) + sum_q interaction[p, q] mu_q

    where a is the move of the last step, if any. In "crowd" ``f = 2 - (2 / size) (|x - b| + |y -
    b|)``, in "beach" ``f = 1 - |x - b| / b``, with the bar at ``b = size // 2``; in "predator_prey"
    place_weight counts for nothing. What an action leads to is paid in the next step, as in the
    peer, and the last action of an episode leads to nothing.

    **End of episode.** Never terminates; truncated after `horizon` steps: 10; 20 with four
    populations; 40 in four rooms.

    **Parameters.** `CrowdParams`.

    **Source.** ``mfg_crowd_modelling_2d``, ``mfg_crowd_modelling`` and ``python_mfg_predator_prey``
    of OpenSpiel 2.0.2, the density of infinitely many agents replaced by that of those that there
    are: the same starts, moves, noise and rewards. Different: staying is action 0, and what
    `compat` in `flockax.envs.swarm.mean_field_games` repeats of the peer is not repeated here.
    "four_rooms" is its setting of that name: walls, all agents in one corner, only the density
    counts, 40 steps. The literature has no score of finitely many agents; `scores` gives
    "efficiency" in (0, 1], ``exp((mean reward - bound) / aversion)``, the reward averaged over
    populations and steps, and ``bound = aversion log(sum_c exp(place_weight f(c) / aversion))`` the
    most that agents spread at will can have. It holds where interactions cancel, as by default.

    Attributes:
        num_agents: at least 1, and at least one for each population.
        task: "crowd", "beach" or "predator_prey".
        size: cells a side, at least 2; None for the peer's: 10, 5 in "predator_prey", 13 in four
            rooms.
        num_populations: of "predator_prey", 3 or 4.
        layout: of "crowd", "open" or "four_rooms" (size at least 7).
        observation: "histogram" or "local".
        obs_radius: of "local", at least 0.
    """

    num_agents: int = 100
    task: str = "crowd"
    size: int | None = None
    num_populations: int = 3
    layout: str = "open"
    observation: str = "histogram"
    obs_radius: int = 2

    def __post_init__(self) -> None:
        """Checks the fields."""
        require_choice(self, "task", TASKS)
        require_choice(self, "layout", ("open", "four_rooms"))
        if self._rooms and self.task != "crowd":
            raise ValueError(f"Crowd: layout='four_rooms' is not possible in task={self.task!r}")
        if self.size is None:
            size = 13 if self._rooms else 5 if self.task == "predator_prey" else 10
            object.__setattr__(self, "size", size)
        require_int(self, "size", 7 if self._rooms else 2)
        require_int(self, "num_populations", 3, 4)
        require_int(self, "num_agents", self._populations)
        require_choice(self, "observation", ("histogram", "local"))
        require_int(self, "obs_radius", 0)

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents, or one for each population."""
        width = self.feature_spec.shape[1]
        actions = len(self._order)
        if self._populations == 1:
            return (Group("agents", 0, self.num_agents, width, actions),)
        ends = np.cumsum(self._group_sizes).tolist()
        return tuple(
            Group(f"population_{i}", start, stop, width, actions)
            for i, (start, stop) in enumerate(zip([0, *ends], ends, strict=False))
        )

    @property
    def action_spec(self) -> DiscreteActions:
        """Staying and the moves."""
        return DiscreteActions(self.num_agents, len(self._order))

    @property
    def default_params(self) -> CrowdParams:
        """The numbers of the peer."""
        if self.task == "predator_prey":
            matrix = tuple(map(tuple, games.hunting(self.num_populations).tolist()))
            horizon = 10 if self.num_populations == 3 else 20
            return as_arrays(CrowdParams(horizon=horizon, noise=0.8, interaction=matrix))
        if self._rooms:
            return as_arrays(CrowdParams(horizon=40, place_weight=0.0))
        return as_arrays(CrowdParams())

    @property
    def feature_spec(self) -> ArraySpec:
        """The vector in the docstring of the class."""
        width, height = self.shape
        own = width + (height if height > 1 else 0) + 2
        own += self._populations if self._populations > 1 else 0
        seen = self._populations * width * height
        if self.observation == "local":
            seen = (self._populations + 1) * len(crowd_density.offsets(self.obs_radius, self.shape))
        return ArraySpec((self.num_agents, own + seen), float_dtype().name, 0, width * height)

    @property
    def global_state_spec(self) -> ArraySpec:
        """Densities and time."""
        cells = self.shape[0] * self.shape[1]
        size = self._populations * cells + 1
        return ArraySpec((size,), float_dtype().name, 0, cells)

    @property
    def shape(self) -> tuple[int, int]:
        """``(X, Y)``, the cells; Y = 1 in "beach"."""
        size = int(self.size or 0)
        return size, 1 if self.task == "beach" else size

    @property
    def population(self) -> np.ndarray:
        """``int[A]``, the population of each agent."""
        return np.repeat(np.arange(self._populations), self._group_sizes)

    @property
    def action_order(self) -> np.ndarray:
        """``int[n]``: which action of the mean-field game each action here is."""
        return np.array(self._order)

    def game(self, params: CrowdParams, horizon: int = 1) -> mf.MeanFieldGame:
        """The game of infinitely many agents.

        Args:
            params: parameters; all but `horizon` may be traced.
            horizon: steps, instead of that of `params`.
        """
        size, numbers = self.shape[0], {"noise": params.noise, "aversion": params.aversion}
        if self.task == "predator_prey":
            return games.predator_prey(
                size, horizon, self.num_populations, interaction=params.interaction, **numbers
            )
        if self.task == "beach":
            game = games.crowd_modelling(size, horizon, **numbers)
        else:
            game = games.crowd_modelling_2d(
                size, horizon, forbidden=self._walls, start=self._initial[0], **numbers
            )
        weight = params.place_weight
        return game.replace(place=weight * game.place, cost=weight * game.cost)

    def initial_state(self, key: Array, params: CrowdParams) -> CrowdState:
        """Everybody where the initial density of its population says."""
        initial = self._initial.reshape(self._populations, -1)
        cells = jnp.asarray(np.cumsum(initial, axis=1), float_dtype())[self.population]
        drawn = jax.random.uniform(key, (self.num_agents, 1), float_dtype()) * cells[:, -1:]
        cell = jnp.sum(drawn >= cells[:, :-1], axis=1, dtype=int_dtype())
        return CrowdState(
            position=jnp.stack([cell // self.shape[1], cell % self.shape[1]], axis=1),
            came=jnp.zeros(self.num_agents, int_dtype()),
            time=jnp.zeros((), int_dtype()),
        )

    def transition(
        self, key: Array, state: CrowdState, action: Array, params: CrowdParams
    ) -> Transition:
        """All are paid for where they are; then they move, and noise moves them once more."""
        game, order = self.game(params), jnp.asarray(self.action_order)
        density = self._density(state)
        x, y = state.position.T
        reward = mf.cell_reward(game, density)[self.population, x, y]
        reward = reward + game.cost[order[state.came]]
        chosen = order[action]
        chosen = jnp.where(game.is_open[chosen, x, y], chosen, game.stay)
        position = self._moved(game, state.position, chosen)
        chances = jnp.cumsum(game.noise[:, position[:, 0], position[:, 1]], axis=0)
        drawn = jax.random.uniform(key, (self.num_agents,), float_dtype()) * chances[-1]
        noise = jnp.sum(drawn >= chances[:-1], axis=0)
        came = jnp.argmax(chosen[:, None] == order, axis=1).astype(int_dtype())
        return Transition(
            state=CrowdState(self._moved(game, position, noise), came, state.time),
            reward=reward,
            terminated=jnp.zeros((), bool),
            metrics=self._metrics(game, density, reward, params),
        )

    def available(self, state: CrowdState, params: CrowdParams) -> Array | None:
        """Moves into walls are closed."""
        if not self._rooms:
            return None
        x, y = state.position.T
        return self.game(params).is_open[self.action_order][:, x, y].T

    def features(self, state: CrowdState, params: CrowdParams) -> Array:
        """The vector in the docstring of the class."""
        dtype, agents = float_dtype(), self.num_agents
        places = [
            jax.nn.one_hot(state.position[:, axis], length, dtype=dtype)
            for axis, length in enumerate(self.shape)
            if length > 1
        ]
        if self._populations > 1:
            places.append(jax.nn.one_hot(self.population, self._populations, dtype=dtype))
        passed = jnp.full((agents, 1), self._passed(state, params))
        own = [*places, passed, (state.came != 0).astype(dtype)[:, None]]
        density = self._relative_density(state)
        if self.observation == "histogram":
            return jnp.concatenate(
                [*own, jnp.broadcast_to(density.ravel(), (agents, density.size))], 1
            )
        window = crowd_density.offsets(self.obs_radius, self.shape)
        wraps = self.task != "predator_prey"
        seen = crowd_density.seen(density, state.position, window, self._walls, wraps)
        return jnp.concatenate([*own, seen], axis=1)

    def global_state(self, state: CrowdState, params: CrowdParams | None = None) -> Array:
        """Densities and time."""
        params = self.default_params if params is None else params
        passed = self._passed(state, params)[None]
        return jnp.concatenate([self._relative_density(state).ravel(), passed])

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """``efficiency``, in the docstring of the class."""
        return {"efficiency": jnp.exp(-total["shortfall"] / length)}

    def scene(self, params: Any = None) -> Any:
        """Walls, the bar as a cross, discs for agents, spread within their cell by slot."""
        from flockax.envs.swarm.crowd_picture import make_scene

        return make_scene(self.task, self.groups, self.shape, self._walls, self._has_bar)

    def frame(self, state: CrowdState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.swarm.crowd_picture import make_frame

        return make_frame(self.groups, self.shape, self._has_bar, state.position)

    @property
    def _rooms(self) -> bool:
        return self.layout == "four_rooms"

    @property
    def _has_bar(self) -> bool:
        return self.task != "predator_prey" and not self._rooms

    @property
    def _walls(self) -> np.ndarray | None:
        """``bool[X, Y]``, or None where there are none."""
        return games.four_rooms(self.shape[0]) if self._rooms else None

    @property
    def _initial(self) -> np.ndarray:
        """``f[P, X, Y]``, the initial densities."""
        if self.task == "predator_prey":
            return games.corners(self.num_populations, self.shape[0])
        start = np.full((1, *self.shape), 1 / np.prod(self.shape))
        if self._rooms:
            start[...] = 0
            start[0, 1, 1] = 1
        return start

    @property
    def _populations(self) -> int:
        return self.num_populations if self.task == "predator_prey" else 1

    @property
    def _group_sizes(self) -> np.ndarray:
        """``int[P]``, which differ by one at most, the larger first."""
        least, more = divmod(self.num_agents, self._populations)
        return least + (np.arange(self._populations) < more)

    @property
    def _order(self) -> tuple[int, ...]:
        """The actions of the game, staying first."""
        if self.task == "predator_prey":
            return 0, 1, 2, 3, 4
        return (1, 0, 2) if self.task == "beach" else (2, 0, 1, 3, 4)

    def _density(self, state: CrowdState) -> Array:
        """``f[P, X, Y]``, the share of each population in each cell."""
        return crowd_density.shares(state.position, self.population, self._group_sizes, self.shape)

    def _relative_density(self, state: CrowdState) -> Array:
        """``f[P, X, Y]``, 1 where there are as many as if all were spread evenly."""
        return self._density(state) * (self.shape[0] * self.shape[1])

    def _passed(self, state: CrowdState, params: CrowdParams) -> Array:
        return jnp.minimum(state.time.astype(float_dtype()) / params.horizon, 1)

    def _moved(self, game: mf.MeanFieldGame, position: Array, action: Array) -> Array:
        """``int[A, 2]``: where agents are after an action of the game, ``int[A]``."""
        moves = jnp.asarray(game.moves, position.dtype)[action]
        stays = game.stays[action, position[:, 0], position[:, 1]]
        moved = (position + moves) % jnp.asarray(self.shape, position.dtype)
        return jnp.where(stays[:, None], position, moved)

    def _metrics(
        self, game: mf.MeanFieldGame, density: Array, reward: Array, params: CrowdParams
    ) -> dict[str, Array]:
        """Means over populations: the reward, the cells in use, and what `scores` is made of."""
        weight = 1 / (self._populations * self._group_sizes[self.population])
        mean = jnp.sum(reward * weight)
        free = jnp.ones(self.shape, bool) if self._walls is None else jnp.asarray(~self._walls)
        exponent = jnp.where(free, game.place / params.aversion, -jnp.inf)
        bound = jax.scipy.special.logsumexp(exponent)
        used = jnp.sum(density > 0, axis=(1, 2), dtype=float_dtype())
        most = jnp.minimum(jnp.sum(free), self._group_sizes)
        return {
            "reward": mean,
            "occupied": jnp.mean(used / most),
            "shortfall": bound - mean / params.aversion,
        }
