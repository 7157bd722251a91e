"""`navigation`: each agent finds the way to its own goal among obstacles and other agents."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.space import particle
from flockax.envs.space.particle_world import ParticleWorld
from flockax.envs.space.semi_implicit import advance
from flockax.envs.space.starts import place_apart
from flockax.envs.spec import ArraySpec, EntitySet, Group, float_dtype, int_dtype
from flockax.envs.swarm import sight

Array = jax.Array

ROW = 9  # numbers of a thing seen: relative position, velocity and goal, and three types
INNER = 0.8  # share of the square in which goals and obstacles start

# An agent slower than this, in world lengths per second, has no heading: its velocity is what drag
# leaves of an earlier one, and directions of rounding errors must not turn its frame.
REST_SPEED = 1e-6


@struct.dataclass
class NavigationParams(particle.PhysicsParams):
    """Numbers of `Navigation`; see `PhysicsParams` for those of the physics.

    Attributes:
        half_width: agents start in ``[-half_width, half_width]^2``; there are no walls.
        agent_size: radius.
        obstacle_size: radius.
        goal_size: radius; goals start so that they neither touch each other nor obstacles.
        agent_accel: force of a full push.
        max_speed: of an agent.
        view_range: how far agents see.
        goal_distance: nearer than this an agent is at its goal.
        goal_reward: for each step at the goal.
        distance_weight: of the distance to the goal elsewhere.
        collision_penalty: for each other agent that one touches.
        obstacle_penalty: for a step in which one touches an obstacle.
    """

    half_width: float = parameter(1.0, 1e-3, 1e3)
    agent_size: float = parameter(0.05, 1e-6, 1e3)
    obstacle_size: float = parameter(0.05, 1e-6, 1e3)
    goal_size: float = parameter(0.05, 1e-6, 1e3)
    agent_accel: float = parameter(5.0, 0, 1e6)
    max_speed: float = parameter(2.0, 0, 1e6)
    view_range: float = parameter(1.0, 0, 1e6)
    goal_distance: float = parameter(0.05, 0, 1e3)
    goal_reward: float = parameter(5.0, -1e6, 1e6)
    distance_weight: float = parameter(1.0, -1e6, 1e6)
    collision_penalty: float = parameter(5.0, 0, 1e6)
    obstacle_penalty: float = parameter(5.0, 0, 1e6)


@struct.dataclass
class NavigationState:
    """A world of `Navigation`.

    Attributes:
        position: ``f[A, 2]``, of the agents.
        velocity: ``f[A, 2]``.
        goal: ``f[A, 2]``, where each agent has to go.
        landmark: ``f[O, 2]``, of the obstacles.
        arrival: ``int[A]``, after how many steps the agent was at its goal for the first time; 0 while
            it never was.
        time: ``int[]``, steps since the start.
    """

    position: Array
    velocity: Array
    goal: Array
    landmark: Array
    arrival: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class Navigation(ParticleWorld):
    """Each agent goes to its own goal, stays there, and touches neither agents nor obstacles.

    Agents see only what is near, so that a policy may be used with any number of them.

    **Agents and groups.** One group, ``agents``; none ever dies. Agents and obstacles are solid.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up. "continuous": five components in
    [0, 1]; the first does nothing, the others push left, right, down and up. With ``axes="own"``
    right and up are the axes of the agent's own frame.

    **Observation.** With ``observation="graph"`` an `EntitySet`, in world lengths and world lengths
    per second, unbounded. `own` ``f[A, 6]`` with ``axes="world"``:

    * 2: own velocity,
    * 2: own position,
    * 2: position of the own goal relative to the agent;

    or ``f[A, 3]`` with ``axes="own"``:

    * 1: own speed,
    * 2: position of the own goal relative to the agent.

    `entities` ``f[A, num_seen, 9]``: a row for each of the nearest agents, goals and obstacles
    within `view_range`, nearest first, 0 where there is none:

    * 2: its position relative to the agent,
    * 2: its velocity relative to the agent's; goals and obstacles stand still,
    * 2: the position of its goal relative to the agent; of a goal or an obstacle its own position,
    * 3: 1 for an agent, 1 for a goal, 1 for an obstacle, else 0.

    With ``observation="vector"`` the same numbers side by side: ``f[A, F + 9 num_seen]``.

    ``axes="own"`` turns all vectors into the agent's own frame: x along its velocity (at rest
    toward its goal, on its goal along the world's x), y to the side on which the mean of the things
    in its rows lies (where there is none, its goal). What an agent sees is then the same in a world
    that is moved, turned or mirrored, and so is what follows from an action.

    **Reward.** After the move, with d_i the distance to the goal, ``r_i = goal_reward`` if ``d_i <
    goal_distance`` else ``-distance_weight d_i``; minus ``collision_penalty C_i``, C_i the number
    of agents whose distance is below the sum of radii; minus `obstacle_penalty` if an obstacle is
    touched. With `shared_reward` everybody earns the sum over all agents.

    **End of episode.** Never terminates; truncated after `horizon` steps (25).

    **Parameters.** `NavigationParams`.

    **Source.** The `navigation_graph` scenario of InforMARL (Nayak et al. 2023, arXiv 2211.02127;
    public code at commit cfe8884): physics and reward equal step by step, numbers those of its
    training configuration. Different: actions 1 and 3 push left and down, there right and up;
    continuous actions are five pushes, there two forces; an agent sees the nearest things only,
    there the whole graph; a thing at exactly the agent's place is seen, there not; crowded starts
    may touch (`place_apart`), there they are drawn for ever; coincident agents push each other with
    force 0 instead of NaN; no scripted agents and no end at the goals, which are options there. The
    own frame is that of LEGO (arXiv 2509.14431), which at rest takes the world's x axis and turns y
    toward the centre of all.

    Attributes:
        num_agents: at least 1.
        num_obstacles: 0 or more.
        num_seen: how many things an agent sees at most.
        observation: "vector" or "graph".
        axes: "world" or "own".
        shared_reward: whether everybody earns the sum.
        actions: "discrete" or "continuous".
    """

    num_agents: int = 3
    num_obstacles: int = 3
    num_seen: int = 6
    observation: str = "vector"
    axes: str = "world"
    shared_reward: bool = True
    actions: str = "discrete"

    batched_last: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the fields."""
        require_int(self, "num_agents", 1)
        require_int(self, "num_obstacles", 0)
        require_int(self, "num_seen", 0)
        require_choice(self, "observation", ("vector", "graph"))
        require_choice(self, "axes", ("world", "own"))
        require_choice(self, "shared_reward", (False, True))
        require_choice(self, "actions", ("discrete", "continuous"))

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        size = self._own_size + ROW * self.num_seen if self.observation == "vector" else 0
        return (Group("agents", 0, self.num_agents, size, particle.NUM_MOVES),)

    @property
    def default_params(self) -> NavigationParams:
        """The numbers of InforMARL's training configuration."""
        return as_arrays(NavigationParams())

    @property
    def num_landmarks_total(self) -> int:
        """The obstacles."""
        return self.num_obstacles

    @property
    def feature_spec(self) -> Any:
        """``f[A, F]``, or an `EntitySet`."""
        if self.observation == "vector":
            return super().feature_spec
        agents, seen, name = self.num_agents, self.num_seen, float_dtype().name
        return EntitySet(
            own=ArraySpec((agents, self._own_size), name),
            entities=ArraySpec((agents, seen, ROW), name),
            mask=ArraySpec((agents, seen), "bool", 0, 1),
        )

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[6 A + 2 O]``: positions, velocities, goals, obstacles."""
        size = 6 * self.num_agents + 2 * self.num_obstacles
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: NavigationParams) -> NavigationState:
        """Obstacles anywhere; agents, at rest, and goals apart from them and from their own kind."""
        obstacle_key, agent_key, goal_key = jax.random.split(key, 3)
        inner = INNER * params.half_width
        flat = jax.random.uniform(obstacle_key, (2 * self.num_obstacles,), float_dtype(), -1, 1)
        obstacle = inner * flat.reshape((self.num_obstacles, 2))

        def place(key: Array, half_width: Any, size: Any) -> Array:
            apart = size + params.obstacle_size
            return place_apart(key, self.num_agents, half_width, 2 * size, obstacle, apart)

        position = place(agent_key, params.half_width, params.agent_size)
        return NavigationState(
            position=position,
            velocity=jnp.zeros_like(position),
            goal=place(goal_key, inner, params.goal_size),
            landmark=obstacle,
            arrival=jnp.zeros(self.num_agents, int_dtype()),
            time=jnp.zeros((), int_dtype()),
        )

    def transition(
        self, key: Array, state: Any, action: Array, params: NavigationParams
    ) -> Transition:
        """Push, contacts, move; then distances and touches are rewarded."""
        push = params.agent_accel * self._thrust(state, action, params)
        radius = jnp.broadcast_to(params.agent_size, (self.num_agents,))
        obstacle_radius = jnp.broadcast_to(params.obstacle_size, (self.num_obstacles,))

        def force(position: Array) -> Array:
            agents = particle.contact_force(position, radius, position, radius, params)
            fixed = state.landmark, obstacle_radius
            return push + agents + particle.contact_force(position, radius, *fixed, params)

        position, velocity = advance(
            state.position, state.velocity, force, params, max_speed=params.max_speed
        )
        state = state.replace(position=position, velocity=velocity)
        delta = state.goal - position
        left = particle.length(delta[:, 0], delta[:, 1])
        here = left < params.goal_distance
        touches, hit = self._touches(state, params)
        reward = jnp.where(here, params.goal_reward, -params.distance_weight * left)
        reward -= params.collision_penalty * touches + params.obstacle_penalty * hit
        if self.shared_reward:
            reward = jnp.broadcast_to(jnp.sum(reward), reward.shape)
        now = state.time + 1
        arrival = jnp.where(here & (state.arrival == 0), now, state.arrival)
        arrived, dtype = arrival > 0, float_dtype()
        return Transition(
            state=state.replace(arrival=arrival),
            reward=reward,
            terminated=jnp.zeros(state.time.shape, bool),
            metrics={
                "at_goal": jnp.mean(here, dtype=dtype),
                "success": jnp.mean(arrived, dtype=dtype),
                "time_to_goal": jnp.mean(jnp.where(arrived, arrival, now), dtype=dtype),
                "collisions": jnp.sum(touches) / 2 + jnp.sum(hit),
            },
        )

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """What InforMARL reports of an episode, and one number for it.

        ``success``, the share of agents that were at their goals; ``all_arrived``, whether all were
        (S% there); ``time_to_goal`` as a share of the episode, 1 for who never was (T there);
        ``collisions`` (#col there); and ``score = 1 - time_to_goal``, 0 where nobody arrives and
        near 1 where all are there at once.
        """
        success, share = final["success"], final["time_to_goal"] / length
        # Not == 1: the share is rounded.
        everybody = success > 1 - 0.5 / self.num_agents
        return {
            "score": 1 - share,
            "success": success,
            "all_arrived": everybody.astype(success.dtype),
            "time_to_goal": share,
            "collisions": total["collisions"],
        }

    def features(self, state: NavigationState, params: NavigationParams) -> Any:
        """The vector, or the `EntitySet`, in the docstring of the class."""
        near, things = self._near(state, params)
        goal = state.goal - state.position
        if self.axes == "own":
            axes = self.own_axes(state, params)
            turn = lambda x: jnp.einsum("aij,a...j->a...i", axes, x)  # noqa: E731
            speed = particle.length(state.velocity[:, 0], state.velocity[:, 1])
            own = jnp.concatenate([speed[:, None], turn(goal)], axis=1)
        else:
            turn = lambda x: x  # noqa: E731
            own = jnp.concatenate([state.velocity, state.position, goal], axis=1)
        there = near.mask[:, :, None]
        relative = lambda x, origin: jnp.where(there, x - origin[:, None], 0)  # noqa: E731
        agents, dtype = self.num_agents, state.position.dtype
        still = jnp.zeros((agents + self.num_obstacles, 2), dtype)
        velocity = near.take(jnp.concatenate([state.velocity, still]))
        target = near.take(jnp.concatenate([state.goal, things[agents:]]))
        kind = np.repeat(np.eye(3), [agents, agents, self.num_obstacles], axis=0)
        rows = jnp.concatenate(
            [
                turn(near.offset),
                turn(relative(velocity, state.velocity)),
                turn(relative(target, state.position)),
                near.take(jnp.asarray(kind, dtype)),
            ],
            axis=-1,
        )
        if self.observation == "graph":
            return EntitySet(own=own, entities=rows, mask=near.mask)
        return jnp.concatenate([own, rows.reshape((agents, ROW * self.num_seen))], axis=1)

    def global_state(self, state: NavigationState, params: Any = None) -> Array:
        """Positions and velocities of all agents, their goals, and the obstacles."""
        parts = (state.position, state.velocity, state.goal, state.landmark)
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def own_axes(self, state: NavigationState, params: NavigationParams) -> Array:
        """``f[A, 2, 2]``: the unit vectors of each agent's own frame, the x axis first."""
        goal = state.goal - state.position
        speed = particle.length(state.velocity[:, 0], state.velocity[:, 1])
        far = particle.length(goal[:, 0], goal[:, 1])
        ahead = jnp.where((speed > REST_SPEED)[:, None], state.velocity, goal)
        size = jnp.where(speed > REST_SPEED, speed, far)[:, None]
        world_x = jnp.asarray([1, 0], ahead.dtype)
        x = jnp.where(size > 0, ahead / jnp.where(size > 0, size, 1), world_x)
        left = jnp.stack([-x[:, 1], x[:, 0]], axis=1)
        near, _ = self._near(state, params)
        side = jnp.sum(left * jnp.sum(near.offset, axis=1), axis=1)
        side = jnp.where(side != 0, side, jnp.sum(left * goal, axis=1))
        y = jnp.where((side < 0)[:, None], -left, left)
        return jnp.stack([x, y], axis=1)

    def scene(self, params: Any = None) -> Any:
        """Rings for goals, discs for obstacles and agents; who touches something is highlighted."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        edge = 1.2 * float(params.half_width)
        agents = float(params.agent_size), Palette.AGENT
        goals = max(float(params.goal_distance), 1e-3), Palette.GOAL
        obstacles = float(params.obstacle_size), Palette.OBSTACLE
        return Scene(
            bounds=(-edge, edge, -edge, edge),
            title="navigation",
            groups=("agents",),
            readouts=("at_goal", "success", "collisions"),
            layers=(
                Layer("obstacles", "disc", self.num_obstacles, *obstacles),
                Layer("goals", "ring", self.num_agents, *goals),
                Layer("agents", "disc", self.num_agents, *agents, trail=8),
            ),
        )

    def frame(self, state: NavigationState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        touches, hit = self._touches(state, params)
        return {
            "obstacles": LayerFrame(state.landmark),
            "goals": LayerFrame(state.goal),
            "agents": LayerFrame(state.position, highlight=touches + hit > 0),
        }

    @property
    def _own_size(self) -> int:
        return 6 if self.axes == "world" else 3

    def _thrust(self, state: NavigationState, action: Array, params: NavigationParams) -> Array:
        """``f[A, 2]``: where each agent pushes itself, in the world's frame."""
        thrust = particle.thrust(action)
        if self.axes == "world":
            return thrust
        return jnp.einsum("aij,ai->aj", self.own_axes(state, params), thrust)

    def _near(
        self, state: NavigationState, params: NavigationParams
    ) -> tuple[sight.Nearest, Array]:
        """The nearest of all agents, goals and obstacles, and the places of these."""
        things = jnp.concatenate([state.position, state.goal, state.landmark])
        present = jnp.ones(things.shape[0], bool)
        seen = self.num_seen, state.position, things, present, params.view_range
        return sight.nearest(*seen, itself=True), things

    def _touches(self, state: NavigationState, params: NavigationParams) -> tuple[Array, Array]:
        """``(f[A], f[A])``: how many agents each touches, and 1 for who touches an obstacle."""
        position = state.position
        apart = particle.distance(particle.relative(position, position))
        touching = (apart < 2 * params.agent_size) & ~jnp.eye(self.num_agents, dtype=bool)
        reach = params.agent_size + params.obstacle_size
        to_obstacle = particle.distance(particle.relative(position, state.landmark))
        hit = jnp.any(to_obstacle < reach, axis=1)
        return jnp.sum(touching, axis=1, dtype=float_dtype()), hit.astype(float_dtype())
