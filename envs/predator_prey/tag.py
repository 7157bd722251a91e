"""`tag`: predators chase faster prey among obstacles."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.environment import (
    ActionSpec,
    ArraySpec,
    Environment,
    Group,
    Transition,
    as_arrays,
    float_dtype,
    int_dtype,
    parameter,
    require_choice,
    require_int,
)
from flockax.envs.space import particle

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


@dataclasses.dataclass(frozen=True)
class Tag(Environment):
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
    the same for all predators. Prey i: ``-caught_penalty * T_i - boundary_weight * b(|x|) - ... b(|y|)``
    with T_i the predators touching it and b as in `particle.boundary_penalty`. Touching means that the
    distance is below the sum of radii, after the move.

    **End of episode.** Never terminates; truncated after `horizon` steps (25).

    **Parameters.** `TagParams`.

    **Source.** `simple_tag_v3` of mpe2 1.1.1, equal step by step. Different: agents at exactly the same
    place push each other with force 0 instead of NaN; smaller observations are zero-padded; agents
    start uniform in [-1, 1]^2 and obstacles in [-.9, .9]^2 as there, from other random bits.

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

    batched_last: ClassVar[bool] = True

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
    def action_spec(self) -> ActionSpec:
        """Five discrete moves, or five pushes in [0, 1]."""
        return particle.move_spec(self.actions, self.num_agents)

    @property
    def default_params(self) -> TagParams:
        """The numbers of mpe2."""
        return as_arrays(TagParams())

    @property
    def feature_spec(self) -> ArraySpec:
        """``f[A, F]``."""
        shape = (self.num_agents, self.groups[0].observation_size)
        return ArraySpec(shape, float_dtype().name)

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[4 A + 2 L]``: positions, velocities, obstacles."""
        size = 4 * self.num_agents + 2 * self.num_obstacles
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: TagParams) -> particle.ParticleState:
        """Agents uniform in [-1, 1]^2 and at rest, obstacles uniform in [-.9, .9]^2."""
        agent_key, obstacle_key = jax.random.split(key)
        dtype = float_dtype()
        position = jax.random.uniform(agent_key, (self.num_agents, 2), dtype, -1, 1)
        landmark = jax.random.uniform(obstacle_key, (self.num_obstacles, 2), dtype, -0.9, 0.9)
        time = jnp.zeros((), int_dtype())
        return particle.ParticleState(position, jnp.zeros_like(position), landmark, time)

    def transition(
        self, key: Array, state: particle.ParticleState, action: Array, params: TagParams
    ) -> Transition:
        """Push, contacts, move; then touches are counted."""
        radius = self._per_agent(params.predator_size, params.prey_size)
        accel = self._per_agent(params.predator_accel, params.prey_accel)
        max_speed = self._per_agent(params.predator_max_speed, params.prey_max_speed)
        push = particle.thrust(action)
        obstacle_radius = jnp.broadcast_to(params.obstacle_size, (self.num_obstacles,))
        force = (
            push * particle.spread_over(accel, push)
            + particle.contact_force(state.position, radius, state.position, radius, params)
            + particle.contact_force(
                state.position, radius, state.landmark, obstacle_radius, params
            )
        )
        position, velocity = particle.integrate(
            state.position, state.velocity, force, params, max_speed
        )
        touching = self._touching(position, params)
        catches = jnp.sum(touching, axis=(0, 1)).astype(float_dtype())
        caught = jnp.sum(touching, axis=0).astype(float_dtype())
        predators = self.num_predators
        outside = particle.boundary_penalty(position[predators:])
        prey_reward = -params.caught_penalty * caught - params.boundary_weight * outside
        team_reward = jnp.broadcast_to(
            params.catch_reward * catches, (predators, *state.time.shape)
        )
        return Transition(
            state=state.replace(position=position, velocity=velocity),
            reward=jnp.concatenate([team_reward, prey_reward]),
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

    def global_state(self, state: particle.ParticleState, params: Any = None) -> Array:
        """Positions and velocities of all agents, positions of the obstacles."""
        parts = (state.position, state.velocity, state.landmark)
        return jnp.concatenate([particle.flatten(part, 2, 0) for part in parts])

    def scene(self, params: Any = None) -> Any:
        """Discs for obstacles, predators and prey; a touched prey is highlighted."""
        from flockax.envs.viewer.scene import Layer, Scene

        params = self.default_params if params is None else params
        return Scene(
            bounds=(-1.2, 1.2, -1.2, 1.2),
            title="tag",
            groups=("predators", "prey"),
            readouts=("catches",),
            layers=(
                Layer(
                    "obstacles", "disc", self.num_obstacles, float(params.obstacle_size), "#8a94a6"
                ),
                Layer(
                    "predators",
                    "disc",
                    self.num_predators,
                    float(params.predator_size),
                    "#d1495b",
                    trail=8,
                ),
                Layer("prey", "disc", self.num_prey, float(params.prey_size), "#2e9e6b", trail=8),
            ),
        )

    def frame(self, state: particle.ParticleState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        predators = self.num_predators
        caught = jnp.any(self._touching(state.position, params), axis=0)
        return {
            "obstacles": LayerFrame(state.landmark),
            "predators": LayerFrame(state.position[:predators]),
            "prey": LayerFrame(state.position[predators:], highlight=caught),
        }

    def _per_agent(self, predator: Array, prey: Array) -> Array:
        return particle.per_agent((predator, self.num_predators), (prey, self.num_prey))

    def _touching(self, position: Array, params: TagParams) -> Array:
        """``bool[P, Q]``: which predator touches which prey."""
        predators = self.num_predators
        apart = particle.distance(particle.relative(position[:predators], position[predators:]))
        return apart < params.predator_size + params.prey_size
