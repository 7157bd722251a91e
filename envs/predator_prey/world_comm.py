"""`world_comm`: a speaking leader guides predators after prey that feed and hide in forests."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.predator_prey import tag
from flockax.envs.space import particle
from flockax.envs.space.particle_world import ParticleWorld
from flockax.envs.spec import ArraySpec, Group, float_dtype

Array = jax.Array

NUM_SYMBOLS = 4


@struct.dataclass
class WorldCommParams(tag.TagParams):
    """Numbers of `WorldComm`; see `TagParams` for those of the chase.

    Attributes:
        food_size: radius.
        forest_size: radius.
        food_reward: of a prey, per piece of food that it touches.
        food_distance_weight: of the distance from a prey to the nearest food, as a penalty.
        prey_distance_weight: of the distance from a predator to the nearest prey, as a penalty.
    """

    prey_size: float = parameter(0.045, 0, 1e3)
    catch_reward: float = parameter(5.0, -1e6, 1e6)
    caught_penalty: float = parameter(5.0, -1e6, 1e6)
    boundary_weight: float = parameter(2.0, -1e6, 1e6)
    food_size: float = parameter(0.03, 0, 1e3)
    forest_size: float = parameter(0.3, 0, 1e3)
    food_reward: float = parameter(2.0, -1e6, 1e6)
    food_distance_weight: float = parameter(0.05, -1e6, 1e6)
    prey_distance_weight: float = parameter(0.1, -1e6, 1e6)


@struct.dataclass
class WorldCommState(particle.ParticleState):
    """A particle world with speech; landmarks are obstacles, then food, then forests.

    Attributes:
        message: ``f[4]``, what the leader said in the last step; zero at the start.
    """

    message: Array


@dataclasses.dataclass(frozen=True)
class WorldComm(ParticleWorld):
    """Predators chase prey, which eat and hide in forests; their leader sees all and speaks to them.

    Every predator is rewarded for every touch of any predator with any prey and for being near prey;
    prey are rewarded for food and punished for being touched and for leaving the square.

    **Agents and groups.** ``leader`` (slot 0, a predator in all but name), ``predators`` (the other
    ``num_predators - 1``; there is no such group if that is 0), ``prey``; no agent ever dies.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up; the leader has 20,
    ``move + 5 symbol`` with a symbol in 0 .. 3, of which all beyond 5 are closed to the others.
    "continuous": components in [0, 1]; the first does nothing, the next four push left, right, down
    and up; the leader has four more, its message; they are padding for the others.

    **Observation.** A vector ``f[A, F]`` for L landmarks (O obstacles, M pieces of food, W forests) and
    Q prey, F = 4 + 2 L + 2 (A - 1) + 2 Q + W + 4, in world lengths and world lengths per second,
    unbounded:

    * 2: own velocity,
    * 2: own position,
    * 2 L: position relative to the agent of each obstacle, piece of food, forest,
    * 2 (A - 1): position of each other agent relative to the agent, in slot order; 0 if hidden,
    * for the leader and predators: 2 Q, the velocity of each prey, 0 if hidden; W, for each forest 1 if
      the agent touches it, else -1; 4, the leader's last message (the leader sees its own),
    * for prey: W, for each forest 1 if the agent touches it, else -1; 2 (Q - 1), the velocity of each
      other prey, 0 if hidden; zero-padding.

    Agent j is hidden from i unless both touch one forest, or neither touches any, or i is the leader.
    Forests and food do not block the way.

    **Reward.** Predator i, the leader included: ``catch_reward * T - prey_distance_weight * D_i`` with T
    the number of touching (predator, prey) pairs and D_i the distance to the nearest prey. Prey i:
    ``-caught_penalty * T_i - boundary_weight * (b(|x|) + b(|y|)) + food_reward * M_i -
    food_distance_weight * E_i`` with T_i the number of predators and M_i of pieces of food that touch
    it, E_i the distance to the nearest food and b as in `particle.boundary_penalty`; without food the
    last two terms are 0. Touching means that the distance is below the sum of radii; all distances are
    taken after the move.

    **End of episode.** Never terminates; truncated after `horizon` steps (25).

    **Parameters.** `WorldCommParams`.

    **Source.** `simple_world_comm_v3` of mpe2 1.1.1, equal step by step. Different: agents at exactly
    the same place push each other with force 0 instead of NaN; smaller observations are zero-padded;
    without food the rewards for it are 0, where mpe2 raises an error; agents start uniform in
    [-1, 1]^2 and landmarks in [-.9, .9]^2 as there, from other random bits.

    Attributes:
        num_predators: at least 1, the leader included.
        num_prey: at least 1.
        num_obstacles: at least 0.
        num_food: at least 0.
        num_forests: at least 0.
        actions: "discrete" or "continuous".
    """

    num_predators: int = 4
    num_prey: int = 2
    num_obstacles: int = 1
    num_food: int = 2
    num_forests: int = 2
    actions: str = "discrete"

    symbols: ClassVar[int] = NUM_SYMBOLS

    def __post_init__(self) -> None:
        """Checks the fields."""
        require_int(self, "num_predators", 1)
        require_int(self, "num_prey", 1)
        for name in ("num_obstacles", "num_food", "num_forests"):
            require_int(self, name, 0)
        require_choice(self, "actions", ("discrete", "continuous"))

    @property
    def groups(self) -> tuple[Group, ...]:
        """The leader, the other predators if there are any, the prey."""
        predators, prey = self.num_predators, self.num_prey
        agents = predators + prey
        common = 4 + 2 * self.num_landmarks_total + 2 * (agents - 1) + self.num_forests
        hunter = common + 2 * prey + NUM_SYMBOLS
        moves = particle.NUM_MOVES
        discrete = self.actions == "discrete"
        leader_actions = moves * NUM_SYMBOLS if discrete else moves + NUM_SYMBOLS
        groups = (
            Group("leader", 0, 1, hunter, leader_actions),
            Group("predators", 1, predators, hunter, moves),
            Group("prey", predators, agents, common + 2 * (prey - 1), moves),
        )
        return tuple(group for group in groups if group.size)

    @property
    def default_params(self) -> WorldCommParams:
        """The numbers of mpe2."""
        return as_arrays(WorldCommParams())

    @property
    def num_landmarks_total(self) -> int:
        """Obstacles, food and forests."""
        return self.num_obstacles + self.num_food + self.num_forests

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[4 A + 2 L + 4]``: positions, velocities, landmarks, the leader's message."""
        base = super().global_state_spec
        return dataclasses.replace(base, shape=(base.shape[0] + NUM_SYMBOLS,))

    def initial_state(self, key: Array, params: WorldCommParams) -> WorldCommState:
        """Agents uniform in [-1, 1]^2, at rest and silent, landmarks uniform in [-.9, .9]^2."""
        bodies = super().initial_state(key, params)
        silence = jnp.zeros(NUM_SYMBOLS, float_dtype())
        return WorldCommState(
            bodies.position, bodies.velocity, bodies.landmark, bodies.time, message=silence
        )

    def transition(
        self, key: Array, state: WorldCommState, action: Array, params: WorldCommParams
    ) -> Transition:
        """Push, contacts, move, speech; then touches and distances are rewarded."""
        move, message = self._decode(action)
        predators = self.num_predators
        state = tag.chase(state, particle.thrust(move), predators, self.num_obstacles, params)
        state = state.replace(message=message)
        position = state.position
        reward, catches = tag.chase_reward(position, predators, params)
        hunters, prey = position[:predators], position[predators:]
        to_prey = jnp.min(particle.distance(particle.relative(hunters, prey)), axis=1)
        near_prey = -params.prey_distance_weight * to_prey
        near_food, eaten = self._food_reward(prey, state.landmark, params)
        return Transition(
            state=state,
            reward=reward + jnp.concatenate([near_prey, near_food]),
            terminated=jnp.zeros(state.time.shape, bool),
            metrics={"catches": catches, "food_eaten": eaten},
        )

    def features(self, state: WorldCommState, params: WorldCommParams) -> Array:
        """The vector in the docstring of the class."""
        predators, prey, agents = self.num_predators, self.num_prey, self.num_agents
        batch = state.time.shape
        position, velocity = state.position, state.velocity
        inside = self._inside(state, params)
        visible = self._visible(inside)
        other_agents = jnp.where(visible[:, :, None], particle.relative(position, position), 0)
        seen = jnp.concatenate(
            [particle.relative(position, state.landmark), particle.others(other_agents)], axis=1
        )
        seen = seen.reshape((agents, 2 * (self.num_landmarks_total + agents - 1), *batch))
        own = jnp.concatenate([velocity, position, seen], axis=1)
        prey_velocity = jnp.where(visible[:, predators:, None], velocity[None, predators:], 0)
        in_forest = jnp.where(inside, 1, -1).astype(velocity.dtype)

        hunters_see = particle.flatten(prey_velocity[:predators], 3, 1)
        heard = jnp.broadcast_to(state.message, (predators, NUM_SYMBOLS, *batch))
        prey_see = particle.flatten(particle.others(prey_velocity[predators:]), 3, 1)
        padding = jnp.zeros((prey, 2 + NUM_SYMBOLS, *batch), velocity.dtype)
        rows = (
            [own[:predators], hunters_see, in_forest[:predators], heard],
            [own[predators:], in_forest[predators:], prey_see, padding],
        )
        return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])

    def global_state(self, state: WorldCommState, params: Any = None) -> Array:
        """Positions and velocities of all agents, positions of the landmarks, the message."""
        return jnp.concatenate([super().global_state(state), state.message])

    def scene(self, params: Any = None) -> Any:
        """Discs; forests are translucent. Touched prey and touched food are highlighted."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        predator_size, others = float(params.predator_size), self.num_predators - 1
        forest = float(params.forest_size), Palette.FOREST
        obstacle = float(params.obstacle_size), Palette.OBSTACLE
        food = float(params.food_size), Palette.FOOD
        prey = float(params.prey_size), Palette.PREY
        return Scene(
            bounds=(-1.2, 1.2, -1.2, 1.2),
            title="world_comm",
            groups=tuple(group.name for group in self.groups),
            readouts=("catches", "food_eaten"),
            layers=(
                Layer("forests", "disc", self.num_forests, *forest, opacity=0.5),
                Layer("obstacles", "disc", self.num_obstacles, *obstacle),
                Layer("food", "disc", self.num_food, *food),
                Layer("predators", "disc", others, predator_size, Palette.PREDATOR, trail=8),
                Layer("leader", "disc", 1, predator_size, Palette.LEADER, trail=8),
                Layer("prey", "disc", self.num_prey, *prey, trail=8),
            ),
        )

    def frame(self, state: WorldCommState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        predators = self.num_predators
        obstacles, food, forests = self._landmarks(state.landmark)
        prey = state.position[predators:]
        caught = jnp.any(tag.touching(state.position, predators, params), axis=0)
        to_food = particle.distance(particle.relative(prey, food))
        eaten = jnp.any(to_food < params.prey_size + params.food_size, axis=0)
        return {
            "forests": LayerFrame(forests),
            "obstacles": LayerFrame(obstacles),
            "food": LayerFrame(food, highlight=eaten),
            "predators": LayerFrame(state.position[1:predators]),
            "leader": LayerFrame(state.position[:1]),
            "prey": LayerFrame(prey, highlight=caught),
        }

    def _landmarks(self, landmark: Array) -> tuple[Array, Array, Array]:
        """Obstacles, food and forests, ``f[., 2]`` each."""
        first_food, first_forest = self.num_obstacles, self.num_obstacles + self.num_food
        return landmark[:first_food], landmark[first_food:first_forest], landmark[first_forest:]

    def _decode(self, action: Array) -> tuple[Array, Array]:
        """Splits actions into moves, as `particle.thrust` takes them, and the message ``f[4]``."""
        if self.actions == "continuous":
            return action, action[0, particle.NUM_MOVES :]
        symbol = particle.spread_over(jnp.arange(NUM_SYMBOLS), action)
        said = action[:1] // particle.NUM_MOVES
        return action % particle.NUM_MOVES, (said == symbol).astype(float_dtype())

    def _food_reward(
        self, prey: Array, landmark: Array, params: WorldCommParams
    ) -> tuple[Array, Array]:
        """What each prey ``f[Q]`` earns by food, and how often food is touched ``f[]``."""
        if not self.num_food:
            nothing = jnp.zeros_like(prey[:, 0])
            return nothing, nothing[0]
        apart = particle.distance(particle.relative(prey, self._landmarks(landmark)[1]))
        touches = jnp.sum(apart < params.prey_size + params.food_size, axis=1)
        touches = touches.astype(float_dtype())
        nearest = jnp.min(apart, axis=1)
        reward = params.food_reward * touches - params.food_distance_weight * nearest
        return reward, jnp.sum(touches, axis=0)

    def _inside(self, state: WorldCommState, params: WorldCommParams) -> Array:
        """``bool[A, W]``: which agent touches which forest."""
        sizes = (params.predator_size, self.num_predators), (params.prey_size, self.num_prey)
        reach = particle.per_agent(*sizes)[:, None] + params.forest_size
        forests = self._landmarks(state.landmark)[2]
        apart = particle.distance(particle.relative(state.position, forests))
        return apart < particle.spread_over(reach, apart)

    def _visible(self, inside: Array) -> Array:
        """``bool[A, A]``: whether the row's agent sees the column's, given ``bool[A, W]``."""
        agents, batch = inside.shape[0], inside.shape[2:]
        leads = particle.spread_over(jnp.arange(agents)[:, None] == 0, inside)
        visible = jnp.broadcast_to(leads, (agents, agents, *batch))
        hidden = jnp.zeros((agents, *batch), bool)
        # Forest by forest: a joint reduction over [A, A, W] is slow on CPU (see contact_force).
        for forest in range(self.num_forests):
            here = inside[:, forest]
            visible |= here[:, None] & here[None]
            hidden |= here
        return visible | ~(hidden[:, None] | hidden[None])
