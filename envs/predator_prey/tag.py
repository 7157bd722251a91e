"""`tag`: predators chase faster prey among obstacles."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.space import particle
from flockax.envs.space.particle_world import ParticleWorld
from flockax.envs.spec import Group, float_dtype

Array = jax.Array


@struct.dataclass
class TagParams(particle.PhysicsParams):
    """Numbers of `Tag`; see `PhysicsParams` for those of the physics.

    Attributes:
        predator_size: radius.
        prey_size: radius.
        obstacle_size: radius.
        predator_accel: force of a full push.
        prey_accel: force of a full push.
        predator_max_speed: world lengths per second.
        prey_max_speed: world lengths per second.
        catch_reward: of every predator, per touching pair of a predator and a prey.
        caught_penalty: of a prey, per predator that touches it.
        boundary_weight: of the prey's penalty for leaving the square.
    """

    predator_size: float = parameter(0.075, 0, 1e3)
    prey_size: float = parameter(0.05, 0, 1e3)
    obstacle_size: float = parameter(0.2, 0, 1e3)
    predator_accel: float = parameter(3.0, 0, 1e6)
    prey_accel: float = parameter(4.0, 0, 1e6)
    predator_max_speed: float = parameter(1.0, 0, 1e6)
    prey_max_speed: float = parameter(1.3, 0, 1e6)
    catch_reward: float = parameter(10.0, -1e6, 1e6)
    caught_penalty: float = parameter(10.0, -1e6, 1e6)
    boundary_weight: float = parameter(1.0, -1e6, 1e6)


def chase(
    state: Any, direction: Array, num_predators: int, num_obstacles: int, params: TagParams
) -> Any:
    """Moves predators, in the first slots, and prey, in the others, among obstacles.

    Args:
        state: a `particle.ParticleState`, with the obstacles as its first landmarks.
        direction: ``f[A, 2]`` in [-1, 1], where each agent pushes itself.
        num_predators: how many slots are predators.
        num_obstacles: how many landmarks are obstacles.
        params: sizes, forces and speeds.

    Returns:
        The state with new positions and velocities.
    """
    num_prey = state.position.shape[0] - num_predators

    def by_role(predator: Array | float, prey: Array | float) -> Array:
        return particle.per_agent((predator, num_predators), (prey, num_prey))

    accel = by_role(params.predator_accel, params.prey_accel)
    return particle.advance(
        state,
        direction * particle.spread_over(accel, direction),
        by_role(params.predator_size, params.prey_size),
        params,
        by_role(params.predator_max_speed, params.prey_max_speed),
        num_obstacles,
        params.obstacle_size,
    )


def touching(position: Array, num_predators: int, params: TagParams) -> Array:
    """``bool[P, Q]``: which of the first `num_predators` agents touches which of the others."""
    predators, prey = position[:num_predators], position[num_predators:]
    apart = particle.distance(particle.relative(predators, prey))
    return apart < params.predator_size + params.prey_size


def chase_reward(position: Array, num_predators: int, params: TagParams) -> tuple[Array, Array]:
    """The reward of `Tag` for agents at `position`.

    Returns:
        ``(reward f[A], catches f[])``, the latter the number of touching pairs.
    """
    touches = touching(position, num_predators, params)
    catches = jnp.sum(touches, axis=(0, 1)).astype(float_dtype())
    caught = jnp.sum(touches, axis=0).astype(float_dtype())
    outside = particle.boundary_penalty(position[num_predators:])
    prey_reward = -params.caught_penalty * caught - params.boundary_weight * outside
    team_reward = jnp.broadcast_to(params.catch_reward * catches, (num_predators, *catches.shape))
    return jnp.concatenate([team_reward, prey_reward]), catches


@dataclasses.dataclass(frozen=True)
class Tag(ParticleWorld):
    """Predators chase faster prey among round obstacles.

    Every predator is rewarded for every touch of any predator with any prey; prey are punished for
    being touched and for leaving the square.

    **Agents and groups.** ``predators`` come first, then ``prey``; no agent ever dies.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up. "continuous": five components in
    [0, 1]; the first does nothing, the others push left, right, down and up.

    **Observation.** A vector ``f[A, F]``, F = 4 + 2 L + 2 (A - 1) + 2 Q for L obstacles and Q prey, in
    world lengths and world lengths per second, unbounded:

    * 2: own velocity,
    * 2: own position,
    * 2 L: position of each obstacle relative to the agent,
    * 2 (A - 1): position of each other agent relative to the agent, in slot order,
    * 2 Q for predators, 2 (Q - 1) for prey: velocity of each (other) prey; zero-padded for prey.

    **Reward.** Predator: ``catch_reward * T`` with T the number of touching (predator, prey) pairs,
    the same for all predators. Prey i: ``-caught_penalty * T_i - boundary_weight * (b(|x|) + b(|y|))``
    with T_i the number of predators touching it and b as in `particle.boundary_penalty`. Touching means
    that the distance is below the sum of radii, after the move.

    **End of episode.** Never terminates; truncated after `horizon` steps (25).

    **Parameters.** `TagParams`.

    **Source.** `simple_tag_v3` of mpe2 1.1.1, equal step by step. Different: agents at exactly the same
    place push each other with force 0 instead of NaN; smaller observations are zero-padded; agents
    start uniform in [-1, 1]^2 and obstacles in [-.9, .9]^2 as there, from other random bits; no
    curriculum, no end on success and no limit to what is seen, which are options there.

    Attributes:
        num_predators: at least 1.
        num_prey: at least 1.
        num_obstacles: at least 0.
        actions: "discrete" or "continuous".
    """

    num_predators: int = 3
    num_prey: int = 1
    num_obstacles: int = 2
    actions: str = "discrete"

    def __post_init__(self) -> None:
        """Checks the fields."""
        require_int(self, "num_predators", 1)
        require_int(self, "num_prey", 1)
        require_int(self, "num_obstacles", 0)
        require_choice(self, "actions", ("discrete", "continuous"))

    @property
    def groups(self) -> tuple[Group, ...]:
        """Predators, then prey."""
        predators, agents = self.num_predators, self.num_predators + self.num_prey
        common = 4 + 2 * self.num_obstacles + 2 * (agents - 1)
        moves = particle.NUM_MOVES
        return (
            Group("predators", 0, predators, common + 2 * self.num_prey, moves),
            Group("prey", predators, agents, common + 2 * (self.num_prey - 1), moves),
        )

    @property
    def default_params(self) -> TagParams:
        """The numbers of mpe2."""
        return as_arrays(TagParams())

    @property
    def num_landmarks_total(self) -> int:
        """The obstacles."""
        return self.num_obstacles

    def transition(
        self, key: Array, state: particle.ParticleState, action: Array, params: TagParams
    ) -> Transition:
        """Push, contacts, move; then touches are counted."""
        state = chase(
            state, particle.thrust(action), self.num_predators, self.num_obstacles, params
        )
        reward, catches = chase_reward(state.position, self.num_predators, params)
        return Transition(
            state=state,
            reward=reward,
            terminated=jnp.zeros(state.time.shape, bool),
            metrics={"catches": catches},
        )

    def features(self, state: particle.ParticleState, params: TagParams) -> Array:
        """The vector in the docstring of the class."""
        predators, prey, agents = self.num_predators, self.num_prey, self.num_agents
        batch = state.time.shape
        position, velocity = state.position, state.velocity
        obstacles = particle.relative(position, state.landmark)
        other_agents = particle.others(particle.relative(position, position))
        prey_velocity = velocity[predators:]
        seen_by_predators = jnp.broadcast_to(prey_velocity, (predators, prey, 2, *batch))
        seen_by_prey = particle.others(jnp.broadcast_to(prey_velocity, (prey, prey, 2, *batch)))
        padding = jnp.zeros((prey, 1, 2, *batch), velocity.dtype)
        velocities = jnp.concatenate(
            [seen_by_predators, jnp.concatenate([seen_by_prey, padding], axis=1)]
        )
        seen = jnp.concatenate([obstacles, other_agents, velocities], axis=1)
        entities = self.num_obstacles + agents - 1 + prey
        seen = seen.reshape((agents, 2 * entities, *batch))
        return jnp.concatenate([velocity, position, seen], axis=1)

    def scene(self, params: Any = None) -> Any:
        """Discs for obstacles, predators and prey; a touched prey is highlighted."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        obstacle = float(params.obstacle_size), Palette.OBSTACLE
        predator = float(params.predator_size), Palette.PREDATOR
        prey = float(params.prey_size), Palette.PREY
        return Scene(
            bounds=(-1.2, 1.2, -1.2, 1.2),
            title="tag",
            groups=("predators", "prey"),
            readouts=("catches",),
            layers=(
                Layer("obstacles", "disc", self.num_obstacles, *obstacle),
                Layer("predators", "disc", self.num_predators, *predator, trail=8),
                Layer("prey", "disc", self.num_prey, *prey, trail=8),
            ),
        )

    def frame(self, state: particle.ParticleState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        predators = self.num_predators
        caught = jnp.any(touching(state.position, predators, params), axis=0)
        return {
            "obstacles": LayerFrame(state.landmark),
            "predators": LayerFrame(state.position[:predators]),
            "prey": LayerFrame(state.position[predators:], highlight=caught),
        }
