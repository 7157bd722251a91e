"""`dispersion`: agents that start at one place part to eat all the food."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.space import particle
from flockax.envs.spec import ArraySpec, Group, float_dtype, int_dtype
from flockax.envs.swarm.box_world import BoxParams, BoxWorld

Array = jax.Array


@struct.dataclass
class DispersionParams(BoxParams):
    """Numbers of `Dispersion`; see `BoxParams` for those of the world.

    Attributes:
        food_size: radius of a piece of food.
        food_reward: for a piece, shared by those who eat it.
        idle_penalty: for a step in which an agent earns nothing.
    """

    agent_size: float = parameter(0.035, 1e-6, 1e3)
    view_range: float = parameter(3.0, 0, 1e4)
    food_size: float = parameter(0.05, 1e-6, 1e3)
    food_reward: float = parameter(1.0, -1e6, 1e6)
    idle_penalty: float = parameter(0.0, 0, 1e6)


@struct.dataclass
class DispersionState:
    """A world of `Dispersion`.

    Attributes:
        position: ``f[A, 2]``, of the agents.
        velocity: ``f[A, 2]``.
        landmark: ``f[L, 2]``, of the food.
        present: ``bool[L]``, which pieces are not yet eaten.
        time: ``int[]``, steps since the start.
    """

    position: Array
    velocity: Array
    landmark: Array
    present: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class Dispersion(BoxWorld):
    """Agents start together in the middle and eat food that lies scattered around them.

    A piece pays once, so that the team is the faster the better agents part.

    **Agents and groups.** One group, ``agents``; none ever dies. Nothing is solid.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up. "continuous": five components in
    [0, 1]; the first does nothing, the others push left, right, down and up.

    **Observation.** A vector ``f[A, F]``, in world lengths and world lengths per second, unbounded:

    * 2: own position,
    * 2: own velocity,
    * with ``view="nearest"`` 3 `seen_food`: for each of the nearest uneaten pieces within
      `view_range` (3, all of the box) its position relative to the agent, and 1; 0 where there is
      none;
    * and 4 `seen_agents`: position and velocity of each of the nearest agents within `view_range`,
      relative to the agent; 0 where there is none;
    * with ``view="moments"`` 6: the number of uneaten pieces within `view_range`, and of their
      relative positions the means of x, y, x x, x y and y y;
    * and 6 the same of the other agents, unless `seen_agents` is 0.

    **Reward.** An uneaten piece is eaten by the n agents that are nearer to it than the sum of
    radii after the move. ``r_i = food_reward sum 1 / n`` over the pieces it eats; with
    `shared_reward` ``food_reward`` times the number of pieces that anybody eats, for everybody. An
    agent for which that is 0 earns ``-idle_penalty``.

    **End of episode.** Terminates when all food is eaten; truncated after `horizon` steps (100).

    **Parameters.** `DispersionParams`.

    **Source.** `dispersion` of VMAS 1.5.2: physics and rewards equal step by step. Different: five
    moves or five pushes where VMAS has forces in [-1, 1]^2; the nearest uneaten pieces where it
    lists all, eaten or not, in a fixed order; other agents are seen (there not, which
    ``seen_agents=0`` gives); `idle_penalty` is a number, there the switch `penalise_by_time` with
    .01; an episode lasts 100 steps, there any number.

    Attributes:
        num_agents: at least 1.
        num_food: at least 1, or None for as many as agents.
        seen_food: how many pieces an agent sees at most ("nearest").
        seen_agents: how many other agents; 0 hides them.
        view: "nearest" or "moments".
        shared_reward: whether all earn what any of them does.
        actions: "discrete" or "continuous".
    """

    num_agents: int = 4
    num_food: int | None = None
    seen_food: int = 4
    seen_agents: int = 3
    view: str = "nearest"
    shared_reward: bool = False
    actions: str = "discrete"

    def __post_init__(self) -> None:
        """Checks the fields."""
        self.check_sizes()
        if self.num_food is None:
            object.__setattr__(self, "num_food", self.num_agents)
        require_int(self, "num_food", 1)
        require_int(self, "seen_food", 0)
        require_choice(self, "shared_reward", (False, True))

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        return self.one_group(self.things_size(self.seen_food))

    @property
    def default_params(self) -> DispersionParams:
        """The numbers of VMAS."""
        return as_arrays(DispersionParams())

    @property
    def num_landmarks_total(self) -> int:
        """The pieces of food."""
        return self.num_agents if self.num_food is None else self.num_food

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[4 A + 3 L]``: positions, velocities, food, and 1 for each piece that is not eaten."""
        size = 4 * self.num_agents + 3 * self.num_landmarks_total
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: DispersionParams) -> DispersionState:
        """Agents at rest in the middle, food uniform in the box."""
        count = self.num_landmarks_total
        food = jax.random.uniform(key, (2 * count,), float_dtype(), -1, 1).reshape((count, 2))
        middle = jnp.zeros((self.num_agents, 2), float_dtype())
        return DispersionState(
            position=middle,
            velocity=middle,
            landmark=params.half_width * food,
            present=jnp.ones(count, bool),
            time=jnp.zeros((), int_dtype()),
        )

    def transition(
        self, key: Array, state: Any, action: Array, params: DispersionParams
    ) -> Transition:
        """Push, move, eat."""
        state = self.moved(state, action, params, False, params.half_width)
        apart = particle.distance(particle.relative(state.position, state.landmark))
        eating = (apart < params.agent_size + params.food_size) & state.present[None]
        eaters = jnp.sum(eating, axis=0, dtype=float_dtype())
        eaten = eaters > 0
        if self.shared_reward:
            meals = jnp.broadcast_to(jnp.sum(eaten, dtype=float_dtype()), (self.num_agents,))
        else:
            meals = jnp.sum(jnp.where(eating, 1 / jnp.maximum(eaters, 1), 0), axis=1)
        earned = params.food_reward * meals
        state = state.replace(present=state.present & ~eaten)
        return Transition(
            state=state,
            reward=earned - jnp.where(earned == 0, params.idle_penalty, 0),
            terminated=~jnp.any(state.present),
            metrics={
                "eaten": jnp.sum(eaten, dtype=float_dtype()),
                "left": jnp.mean(state.present, dtype=float_dtype()),
            },
        )

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """``score``, the share of the food that was eaten, and ``cleared``, whether all of it was."""
        left = final["left"]
        return {"score": 1 - left, "cleared": (left == 0).astype(left.dtype)}

    def features(self, state: DispersionState, params: DispersionParams) -> Array:
        """The vector in the docstring of the class."""
        food = self.thing_features(self.seen_food, state, state.present, params)
        others = self.agent_features(state, params)
        return jnp.concatenate([self.own_features(state), food, others], axis=1)

    def global_state(self, state: DispersionState, params: Any = None) -> Array:
        """Positions and velocities of all agents, the food, and which pieces are not eaten."""
        present = state.present.astype(state.position.dtype)
        parts = (state.position, state.velocity, state.landmark)
        return jnp.concatenate([*(part.reshape(-1) for part in parts), present])

    def scene(self, params: Any = None) -> Any:
        """Discs for food that is left and for agents."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        edge = 1.05 * float(params.half_width)
        agents = float(params.agent_size), Palette.AGENT
        food = float(params.food_size), Palette.FOOD
        return Scene(
            bounds=(-edge, edge, -edge, edge),
            title="dispersion",
            groups=("agents",),
            readouts=("eaten", "left"),
            layers=(
                Layer("food", "disc", self.num_landmarks_total, *food),
                Layer("agents", "disc", self.num_agents, *agents, trail=8),
            ),
        )

    def frame(self, state: DispersionState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        return {
            "food": LayerFrame(state.landmark, visible=state.present),
            "agents": LayerFrame(state.position),
        }
