"""`spread`: agents cover landmarks without touching each other."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.space import particle
from flockax.envs.space.particle_world import ParticleWorld
from flockax.envs.spec import Group, float_dtype

Array = jax.Array

COMM_SIZE = 2  # silent messages that mpe2 appends to the observation


@struct.dataclass
class SpreadParams(particle.PhysicsParams):
    """Numbers of `Spread`; see `PhysicsParams` for those of the physics.

    Attributes:
        agent_size: radius.
        landmark_size: radius; it is only drawn.
        agent_accel: force of a full push.
        local_ratio: weight of the agent's own collisions against the team's distances.
        cover_distance: how near an agent must be for a landmark to count as covered in the metrics.
    """

    agent_size: float = parameter(0.15, 0, 1e3)
    landmark_size: float = parameter(0.05, 0, 1e3)
    agent_accel: float = parameter(5.0, 0, 1e6)
    local_ratio: float = parameter(0.5, 0, 1)
    cover_distance: float = parameter(0.1, 0, 1e3)


@dataclasses.dataclass(frozen=True)
class Spread(ParticleWorld):
    """Agents share out landmarks so that each has an agent near, without touching each other.

    The team is punished for the distance from each landmark to its nearest agent, and each agent for
    touching others.

    **Agents and groups.** One group, ``agents``; none ever dies.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up. "continuous": five components in
    [0, 1]; the first does nothing, the others push left, right, down and up.

    **Observation.** A vector ``f[A, F]``, F = 4 + 2 L + 4 (A - 1) for L landmarks, in world lengths and
    world lengths per second, unbounded:

    * 2: own velocity,
    * 2: own position,
    * 2 L: position of each landmark relative to the agent,
    * 2 (A - 1): position of each other agent relative to the agent, in slot order,
    * 2 (A - 1): messages of the others, always 0 (nobody speaks in this task).

    **Reward.** ``r_i = -(1 - local_ratio) sum_l min_j |x_j - l| - local_ratio C_i`` with C_i the number
    of other agents whose distance is below the sum of radii, after the move.

    **End of episode.** Never terminates; truncated after `horizon` steps (25).

    **Parameters.** `SpreadParams`.

    **Source.** `simple_spread_v3` of mpe2 1.1.1, equal step by step. Different: agents at exactly the
    same place push each other with force 0 instead of NaN; the number of landmarks may differ from
    that of agents; agents and landmarks start uniform in [-1, 1]^2 as there, from other random bits; no
    curriculum, no end on success and no limit to what is seen, which are options there.

    Attributes:
        num_agents: at least 1.
        num_landmarks: at least 1, or None for as many as agents.
        actions: "discrete" or "continuous".
    """

    num_agents: int = 3
    num_landmarks: int | None = None
    actions: str = "discrete"

    landmark_range: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        """Checks the fields."""
        require_int(self, "num_agents", 1)
        if self.num_landmarks is None:
            object.__setattr__(self, "num_landmarks", self.num_agents)
        require_int(self, "num_landmarks", 1)
        require_choice(self, "actions", ("discrete", "continuous"))

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        size = 4 + 2 * self.num_landmarks_total + (2 + COMM_SIZE) * (self.num_agents - 1)
        return (Group("agents", 0, self.num_agents, size, particle.NUM_MOVES),)

    @property
    def default_params(self) -> SpreadParams:
        """The numbers of mpe2."""
        return as_arrays(SpreadParams())

    @property
    def num_landmarks_total(self) -> int:
        """The landmarks to cover."""
        return self.num_agents if self.num_landmarks is None else self.num_landmarks

    def transition(
        self, key: Array, state: particle.ParticleState, action: Array, params: SpreadParams
    ) -> Transition:
        """Push, contacts, move; then distances and touches are rewarded."""
        radius = jnp.broadcast_to(params.agent_size, (self.num_agents,))
        push = params.agent_accel * particle.thrust(action)
        state = particle.advance(state, push, radius, params)
        to_landmark = particle.distance(particle.relative(state.position, state.landmark))
        nearest = jnp.min(to_landmark, axis=0)
        team_reward = -jnp.sum(nearest, axis=0)
        touching = self._touching(state.position, params)
        touches = jnp.sum(touching, axis=1).astype(float_dtype())
        ratio = params.local_ratio
        return Transition(
            state=state,
            reward=(1 - ratio) * team_reward[None] - ratio * touches,
            terminated=jnp.zeros(state.time.shape, bool),
            metrics={
                "covered": jnp.mean(nearest < params.cover_distance, axis=0, dtype=float_dtype()),
                "collisions": jnp.sum(touches, axis=0) / 2,
            },
        )

    def features(self, state: particle.ParticleState, params: SpreadParams) -> Array:
        """The vector in the docstring of the class."""
        agents, batch = self.num_agents, state.time.shape
        position = state.position
        landmarks = particle.relative(position, state.landmark)
        other_agents = particle.others(particle.relative(position, position))
        seen = jnp.concatenate([landmarks, other_agents], axis=1)
        seen = seen.reshape((agents, 2 * (self.num_landmarks_total + agents - 1), *batch))
        silence = jnp.zeros((agents, COMM_SIZE * (agents - 1), *batch), position.dtype)
        return jnp.concatenate([state.velocity, position, seen, silence], axis=1)

    def scene(self, params: Any = None) -> Any:
        """Rings for landmarks, discs for agents; agents that touch are highlighted."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        agents = float(params.agent_size), Palette.AGENT
        landmarks = float(params.landmark_size), Palette.LANDMARK
        return Scene(
            bounds=(-1.2, 1.2, -1.2, 1.2),
            title="spread",
            groups=("agents",),
            readouts=("covered", "collisions"),
            layers=(
                Layer("agents", "disc", self.num_agents, *agents, trail=8),
                Layer("landmarks", "disc", self.num_landmarks_total, *landmarks),
            ),
        )

    def frame(self, state: particle.ParticleState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        touched = jnp.any(self._touching(state.position, params), axis=1)
        return {
            "agents": LayerFrame(state.position, highlight=touched),
            "landmarks": LayerFrame(state.landmark),
        }

    def _touching(self, position: Array, params: SpreadParams) -> Array:
        """``bool[A, A]``: which agents touch each other; False on the diagonal."""
        apart = particle.distance(particle.relative(position, position))
        itself = particle.spread_over(jnp.eye(self.num_agents, dtype=bool), apart)
        return (apart < 2 * params.agent_size) & ~itself
