"""What the swarm environments in a box with walls have in common: bodies, walls and sight."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.parameters import parameter, require_choice, require_int
from flockax.envs.space import particle
from flockax.envs.space.particle_world import ParticleWorld
from flockax.envs.space.semi_implicit import advance
from flockax.envs.spec import Group
from flockax.envs.swarm import sight

Array = jax.Array

VIEWS = ("nearest", "moments")


@struct.dataclass
class BoxParams(particle.PhysicsParams):
    """Numbers of a world in a box; see `PhysicsParams` for those of the physics.

    Attributes:
        half_width: the box is ``[-half_width, half_width]^2``.
        agent_size: radius.
        agent_accel: force of a full push.
        view_range: how far agents see, in world lengths.
    """

    horizon: int = parameter(100, 1, 2**30)
    half_width: float = parameter(1.0, 1e-3, 1e3)
    agent_size: float = parameter(0.05, 1e-6, 1e3)
    agent_accel: float = parameter(1.0, 0, 1e6)
    view_range: float = parameter(0.35, 0, 1e4)


class BoxWorld(ParticleWorld):
    """Agents that push themselves within walls, in the physics of VMAS 1.5.2.

    A subclass is a frozen dataclass with the fields below; it gives what `ParticleWorld` asks for.

    Attributes:
        num_agents: at least 1.
        seen_agents: how many of the nearest other agents an agent sees ("nearest"); with "moments" 0
            hides the others, more shows their moments.
        view: "nearest" or "moments".
        actions: "discrete" or "continuous".
        substeps: into how many parts the physics cuts a step.
    """

    batched_last: ClassVar[bool] = False
    substeps: ClassVar[int] = 1

    seen_agents: int
    view: str

    def check_sizes(self) -> None:
        """Checks the fields that all these environments have.

        Raises:
            ValueError: naming the field, its value and what is allowed.
        """
        require_int(self, "num_agents", 1)
        require_int(self, "seen_agents", 0)
        require_choice(self, "view", VIEWS)
        require_choice(self, "actions", ("discrete", "continuous"))

    def one_group(self, things_size: int) -> tuple[Group, ...]:
        """One group of all agents.

        Args:
            things_size: how many numbers an agent sees of what is not an agent.
        """
        agents = 4 * self.seen_agents
        if self.view == "moments":
            agents = sight.NUM_MOMENTS if self.seen_agents else 0
        size = 4 + things_size + agents
        return (Group("agents", 0, self.num_agents, size, particle.NUM_MOVES),)

    def moved(
        self,
        state: Any,
        action: Array,
        params: Any,
        solid: bool,
        half_width: Any,
        obstacle: Array | None = None,
        obstacle_size: Array | None = None,
    ) -> Any:
        """The state after the agents pushed themselves, met what is solid, and moved.

        Args:
            state: with `position` and `velocity`.
            action: ``int[A]`` or ``f[A, 5]``.
            params: `BoxParams`.
            solid: whether agents push each other.
            half_width: ``f[]``, where their centres are stopped.
            obstacle: ``f[M, 2]``, what else pushes them away, or None.
            obstacle_size: ``f[M]``, radii; what is far below 0 pushes nobody.
        """
        push = params.agent_accel * particle.thrust(action)
        radius = jnp.broadcast_to(params.agent_size, (self.num_agents,))

        def force(position: Array) -> Array:
            total = push
            if solid:
                total = total + particle.contact_force(
                    position, radius, position, radius, params, beyond=False
                )
            if obstacle is not None and obstacle_size is not None:
                total = total + particle.contact_force(
                    position, radius, obstacle, obstacle_size, params, beyond=False
                )
            return total

        position, velocity = advance(
            state.position,
            state.velocity,
            force,
            params,
            substeps=self.substeps,
            half_width=half_width,
        )
        return state.replace(position=position, velocity=velocity)

    def own_features(self, state: Any) -> Array:
        """``f[A, 4]``: own position and velocity."""
        return jnp.concatenate([state.position, state.velocity], axis=1)

    def agent_features(self, state: Any, params: Any) -> Array:
        """What each agent sees of the others.

        Returns:
            "nearest": ``f[A, 4 seen_agents]``, relative position and relative velocity of each,
            nearest first, 0 where there is none; "moments": ``f[A, 6]`` (`sight.moments`).
        """
        agents, position = self.num_agents, state.position
        everyone = jnp.ones(agents, bool)
        if not self.seen_agents:
            return jnp.zeros((agents, 0), position.dtype)
        if self.view == "moments":
            return sight.moments(position, position, everyone, params.view_range, itself=True)
        near = sight.nearest(
            self.seen_agents, position, position, everyone, params.view_range, itself=True
        )
        own = jnp.where(near.mask[:, :, None], state.velocity[:, None], 0)
        rows = jnp.concatenate([near.offset, near.take(state.velocity) - own], axis=-1)
        return rows.reshape((agents, 4 * self.seen_agents))

    def thing_features(self, k: int, state: Any, present: Array, params: Any) -> Array:
        """What each agent sees of the landmarks.

        Args:
            k: how many of the nearest it sees ("nearest").
            state: with `position` and `landmark`.
            present: ``bool[L]``; the others are seen by nobody.
            params: `BoxParams`.

        Returns:
            "nearest": ``f[A, 3 k]``, relative position and 1, nearest first, 0 where there is none;
            "moments": ``f[A, 6]``.
        """
        things, range_ = state.landmark, params.view_range
        if self.view == "moments":
            return sight.moments(state.position, things, present, range_, itself=False)
        near = sight.nearest(k, state.position, things, present, range_, itself=False)
        there = near.mask[:, :, None].astype(state.position.dtype)
        rows = jnp.concatenate([near.offset, there], axis=-1)
        return rows.reshape((self.num_agents, 3 * k))

    def things_size(self, k: int) -> int:
        """The width of `thing_features`."""
        return sight.NUM_MOMENTS if self.view == "moments" else 3 * k
