"""`discovery`: agents cover targets two at a time."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.space import particle
from flockax.envs.space.starts import place_apart
from flockax.envs.spec import ArraySpec, Group, float_dtype, int_dtype
from flockax.envs.swarm.box_world import BoxParams, BoxWorld

Array = jax.Array

_NO_BODY = -1e4  # a radius with which nothing is ever touched


@struct.dataclass
class DiscoveryParams(BoxParams):
    """Numbers of `Discovery`; see `BoxParams` for those of the world.

    Attributes:
        target_size: radius of a target.
        agents_per_target: how many agents must be within range to cover a target.
        covering_range: how near an agent must be, centre to centre.
        min_distance: between any two things when an episode starts or a target appears.
        covering_reward: for each covered target within range.
        touch_distance: two agents collide whose surfaces are nearer than this.
        collision_penalty: for each agent that one collides with.
        time_penalty: for each step.
    """

    contact_force: float = parameter(500.0, 0, 1e6)
    target_size: float = parameter(0.05, 1e-6, 1e3)
    agents_per_target: int = parameter(2, 1, 2**30)
    covering_range: float = parameter(0.25, 0, 1e4)
    min_distance: float = parameter(0.2, 0, 1e4)
    covering_reward: float = parameter(1.0, -1e6, 1e6)
    touch_distance: float = parameter(0.005, 0, 1e3)
    collision_penalty: float = parameter(0.0, 0, 1e6)
    time_penalty: float = parameter(0.0, 0, 1e6)


@struct.dataclass
class DiscoveryState:
    """A world of `Discovery`.

    Attributes:
        position: ``f[A, 2]``, of the agents.
        velocity: ``f[A, 2]``.
        landmark: ``f[L, 2]``, of the targets.
        present: ``bool[L]``, which targets are still to be covered.
        time: ``int[]``, steps since the start.
    """

    position: Array
    velocity: Array
    landmark: Array
    present: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class Discovery(BoxWorld):
    """Agents find targets and cover each with at least two of them at once.

    A covered target pays those who cover it and appears somewhere else, so that pairs must form,
    meet at a target, and go on.

    **Agents and groups.** One group, ``agents``; none ever dies. Agents and targets are solid.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up. "continuous": five components in
    [0, 1]; the first does nothing, the others push left, right, down and up.

    **Observation.** A vector ``f[A, F]``, in world lengths and world lengths per second, unbounded:

    * 2: own position,
    * 2: own velocity,
    * with ``view="nearest"`` 3 `seen_targets`: for each of the nearest targets within `view_range`
      its position relative to the agent, and 1; 0 where there is none;
    * and 4 `seen_agents`: position and velocity of each of the nearest agents within `view_range`,
      relative to the agent; 0 where there is none;
    * with ``view="moments"`` 6: the number of targets within `view_range`, and of their relative
      positions the means of x, y, x x, x y and y y;
    * and 6 the same of the other agents, unless `seen_agents` is 0.

    **Reward.** After the move ``r_i = covering_reward K_i - collision_penalty C_i - time_penalty``
    with K_i the number of targets within `covering_range` of the agent that at least
    `agents_per_target` agents have in range, and C_i the number of agents whose surface is nearer
    than `touch_distance`. With `shared_reward` the first term is that of all agents together,
    halved, for everybody.

    **End of episode.** With ``on_cover="respawn"`` it never terminates; with "vanish" it terminates
    when the last target is covered. Truncated after `horizon` steps (100).

    **Parameters.** `DiscoveryParams`.

    **Source.** `discovery` of VMAS 1.5.2: physics and rewards equal step by step. Different: five
    moves or five pushes where VMAS has forces in [-1, 1]^2; the nearest targets and agents (or
    moments) where it has 15 lidar rays for targets and none (or 12) for agents; a target that
    appears keeps its distance from agents, waiting targets and other new ones, there also from
    where covered targets were; after 24 failed draws the last one stands, where VMAS draws for
    ever; a vanished target is gone, there it is moved far away; penalties are positive numbers; an
    episode lasts 100 steps, there any number.

    Attributes:
        num_agents: at least 1.
        num_targets: at least 1.
        seen_targets: how many targets an agent sees at most ("nearest").
        seen_agents: how many other agents; 0 hides them.
        view: "nearest" or "moments".
        on_cover: "respawn" or "vanish".
        shared_reward: whether all earn what any of them does.
        actions: "discrete" or "continuous".
    """

    num_agents: int = 5
    num_targets: int = 7
    seen_targets: int = 3
    seen_agents: int = 2
    view: str = "nearest"
    on_cover: str = "respawn"
    shared_reward: bool = False
    actions: str = "discrete"

    substeps: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Checks the fields."""
        self.check_sizes()
        require_int(self, "num_targets", 1)
        require_int(self, "seen_targets", 0)
        require_choice(self, "on_cover", ("respawn", "vanish"))
        require_choice(self, "shared_reward", (False, True))

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        return self.one_group(self.things_size(self.seen_targets))

    @property
    def default_params(self) -> DiscoveryParams:
        """The numbers of VMAS."""
        return as_arrays(DiscoveryParams())

    @property
    def num_landmarks_total(self) -> int:
        """The targets."""
        return self.num_targets

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[4 A + 3 L]``: positions, velocities, targets, and 1 for each that is present."""
        size = 4 * self.num_agents + 3 * self.num_targets
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: DiscoveryParams) -> DiscoveryState:
        """Agents at rest and targets, uniform in the box and `min_distance` apart."""
        count, gap = self.num_targets + self.num_agents, params.min_distance
        nothing = jnp.zeros((0, 2), float_dtype())
        place = place_apart(key, count, params.half_width, gap, nothing, gap)
        position = place[self.num_targets :]
        return DiscoveryState(
            position=position,
            velocity=jnp.zeros_like(position),
            landmark=place[: self.num_targets],
            present=jnp.ones(self.num_targets, bool),
            time=jnp.zeros((), int_dtype()),
        )

    def transition(
        self, key: Array, state: DiscoveryState, action: Array, params: DiscoveryParams
    ) -> Transition:
        """Push, contacts, move; then targets are covered and appear elsewhere."""
        size = jnp.where(state.present, params.target_size, _NO_BODY)
        state = self.moved(state, action, params, True, params.half_width, state.landmark, size)
        apart = particle.distance(particle.relative(state.position, state.landmark))
        near = apart < params.covering_range
        covered = jnp.sum(near, axis=0) >= params.agents_per_target
        covered &= state.present
        earned = params.covering_reward * jnp.sum(near & covered[None], axis=1, dtype=float_dtype())
        if self.shared_reward:
            earned = jnp.broadcast_to(jnp.sum(earned) / 2, earned.shape)
        touches = self._touches(state.position, params)
        reward = earned - params.collision_penalty * touches - params.time_penalty
        state = self._after_covering(key, state, covered, params)
        return Transition(
            state=state,
            reward=reward,
            terminated=~jnp.any(state.present),
            metrics={
                "covered": jnp.sum(covered, dtype=float_dtype()),
                "collisions": jnp.sum(touches) / 2,
            },
        )

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """``score``: targets covered in an episode per target of the world.

        With "vanish" that is the share that was found, at most 1; with "respawn" it has no upper
        limit.
        """
        return {"score": total["covered"] / self.num_targets}

    def features(self, state: DiscoveryState, params: DiscoveryParams) -> Array:
        """The vector in the docstring of the class."""
        targets = self.thing_features(self.seen_targets, state, state.present, params)
        others = self.agent_features(state, params)
        return jnp.concatenate([self.own_features(state), targets, others], axis=1)

    def global_state(self, state: DiscoveryState, params: Any = None) -> Array:
        """Positions and velocities of all agents, the targets, and which of them are present."""
        present = state.present.astype(state.position.dtype)
        target = jnp.where(state.present[:, None], state.landmark, 0)
        parts = (state.position, state.velocity, target)
        return jnp.concatenate([*(part.reshape(-1) for part in parts), present])

    def scene(self, params: Any = None) -> Any:
        """Rings for the range of targets, discs for agents; who touches another is highlighted."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        edge = 1.05 * float(params.half_width)
        targets = self.num_targets
        return Scene(
            bounds=(-edge, edge, -edge, edge),
            title="discovery",
            groups=("agents",),
            readouts=("covered", "collisions"),
            layers=(
                Layer(
                    "range",
                    "ring",
                    targets,
                    max(float(params.covering_range), 1e-3),
                    Palette.GOAL,
                    opacity=0.5,
                    label="",
                ),
                Layer("targets", "disc", targets, float(params.target_size), Palette.GOAL),
                Layer(
                    "agents",
                    "disc",
                    self.num_agents,
                    float(params.agent_size),
                    Palette.AGENT,
                    trail=8,
                ),
            ),
        )

    def frame(self, state: DiscoveryState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        target = LayerFrame(state.landmark, visible=state.present)
        touched = self._touches(state.position, params) > 0
        return {
            "range": target,
            "targets": target,
            "agents": LayerFrame(state.position, highlight=touched),
        }

    def _touches(self, position: Array, params: DiscoveryParams) -> Array:
        """``f[A]``: how many others each agent collides with."""
        gap = particle.distance(particle.relative(position, position)) - 2 * params.agent_size
        touching = (gap < params.touch_distance) & ~jnp.eye(self.num_agents, dtype=bool)
        return jnp.sum(touching, axis=1, dtype=float_dtype())

    def _after_covering(
        self, key: Array, state: Any, covered: Array, params: DiscoveryParams
    ) -> DiscoveryState:
        """Covered targets leave, or are drawn anew."""
        if self.on_cover == "vanish":
            return state.replace(present=state.present & ~covered)
        gap = params.min_distance
        taken = jnp.concatenate([state.position, state.landmark])
        waiting = jnp.concatenate([jnp.ones(self.num_agents, bool), ~covered])
        place = place_apart(
            key,
            self.num_targets,
            params.half_width,
            gap,
            taken,
            jnp.where(waiting, gap, -1),
            wanted=covered,
        )
        return state.replace(landmark=jnp.where(covered[:, None], place, state.landmark))
