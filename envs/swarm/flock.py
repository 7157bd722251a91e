"""`flock`: agents on a plane turn and speed up to move as one, from a hundred to a million."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.environment import Environment, Transition
from flockax.envs.parameters import (
    as_arrays,
    require_choice,
    require_int,
    require_number,
)
from flockax.envs.space.neighbours import BACKENDS, Neighbours
from flockax.envs.spec import (
    ActionSpec,
    ArraySpec,
    ContinuousActions,
    DiscreteActions,
    EntitySet,
    Group,
    float_dtype,
    int_dtype,
)
from flockax.envs.swarm.flock_state import (
    FlockParams,
    FlockState,
    FlockView,
    order,
    own_frame,
    pair,
    turned,
)

Array = jax.Array

# (turn, thrust) or (forward, left) of the discrete actions.
MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))


@dataclasses.dataclass(frozen=True)
class Flock(Environment):
    """Agents keep together, head the same way and don't collide.

    Each sees what is within its radius of perception, the unit of length, and steers itself.

    **Agents and groups.** One group, ``agents``; none ever dies. Obstacles stay and predators, which
    nobody controls, chase the agent nearest to them.

    **Actions.** Two components in [-1, 1]. Control "heading": turn to the left (times `max_turn`) and
    thrust (times `max_accel`). Control "acceleration": forward and to the left (both times
    `max_accel`). "discrete": nine actions, each component -1, 0 or 1; 0 is neither.

    **Observation.** All vectors are in the agent's own frame (forward, left), in radii. "moments", a
    vector ``f[A, F]``:

    * 1: own speed over `max_speed`,
    * 1: n / (n + company) for n neighbours,
    * 2: mean offset of the neighbours, 0 without any,
    * 2: mean heading of the neighbours, 0 without any,
    * 2: the vector away from those nearer than `separation` (`FlockView`), unbounded,
    * 2 where there are obstacles: towards the nearest one, of length ``max(0, 1 - gap)`` with the
      distance ``gap`` to its edge,
    * 2 where there are predators: likewise,
    * 2 where there are walls: towards the walls nearer than 1, of length ``1 - gap`` for each.

    "nearest", an `EntitySet` of the `num_nearest` nearest neighbours, the nearest first: offset (2),
    velocity over `max_speed` (2); own features are those of "moments" without the means and the vector
    away.

    **Reward.** ``r_i = u_i . sum_j u_j / max(n_i, company) - collision_cost c_i - hazard_cost h_i`` over
    the neighbours j after the move: 1 at most, for `company` neighbours with the same heading u. c_i
    counts the others nearer than `body`, h_i is 1 in an obstacle or near a predator.

    **End of episode.** Never terminates; truncated after `horizon` steps.

    **Parameters.** `FlockParams`.

    **Source.** The rules of flocks of Reynolds (1987), "Flocks, herds, and schools", as reward and
    observation. Under "vicsek" the dynamics of Vicsek et al. (1995), "Novel type of phase transition in
    a system of self-driven particles": constant speed and noise on the heading; the agents themselves
    turn to the mean heading, as policy `vicsek` does. Different: they move with the new heading, not
    the old one.

    Attributes:
        num_agents: at least 1.
        num_obstacles: at least 0.
        num_predators: at least 0.
        dynamics: "reynolds": speeds between two limits. "vicsek": one speed, and noisy headings.
        control: "heading" or "acceleration".
        actions: "discrete" or "continuous".
        observation: "moments" or "nearest".
        num_nearest: how many neighbours "nearest" shows, at least 1.
        density: agents in a square of side 1; the box has room for that many, and sides of at least 2.
        periodic: whether the box wraps around; else agents bounce off its walls.
        search: back end of the neighbour search, see `flockax.envs.space.neighbours`.
        capacity: of the search, 0 for enough where agents are spread evenly.
    """

    num_agents: int = 100
    num_obstacles: int = 0
    num_predators: int = 0
    dynamics: Literal["reynolds", "vicsek"] = "reynolds"
    control: Literal["heading", "acceleration"] = "heading"
    actions: Literal["discrete", "continuous"] = "discrete"
    observation: Literal["moments", "nearest"] = "moments"
    num_nearest: int = 6
    density: float = 4.0
    periodic: bool = True
    search: Literal["auto", "pairs", "cells", "sorted", "exact"] = "auto"
    capacity: int = 0

    def __post_init__(self) -> None:
        """Checks the fields."""
        require_int(self, "num_agents", 1)
        for name in ("num_obstacles", "num_predators", "capacity"):
            require_int(self, name, 0)
        require_int(self, "num_nearest", 1)
        require_choice(self, "dynamics", ("reynolds", "vicsek"))
        require_choice(self, "control", ("heading", "acceleration"))
        require_choice(self, "actions", ("discrete", "continuous"))
        require_choice(self, "observation", ("moments", "nearest"))
        require_choice(self, "periodic", (True, False))
        require_choice(self, "search", BACKENDS)
        require_number(self, "density", 1e-6, 1e6)

    @property
    def side(self) -> float:
        """Length of the sides of the box."""
        return max(2.0, math.sqrt(self.num_agents / self.density))

    @property
    def neighbours(self) -> Neighbours:
        """The search for what is within the radius of perception."""
        sides = (self.periodic, self.periodic)
        capacity = self.capacity or None
        return Neighbours(self.num_agents, self.side, self.side, 1.0, sides, self.search, capacity)

    def grown(self) -> Flock:
        """The environment with a search of doubled capacity."""
        return dataclasses.replace(self, capacity=self.neighbours.grown().capacity)

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        size = self._own_size + 6 if self.observation == "moments" else 0
        return (Group("agents", 0, self.num_agents, size, self.action_spec_size),)

    @property
    def action_spec_size(self) -> int:
        """Discrete actions, or components."""
        return len(MOVES) if self.actions == "discrete" else 2

    @property
    def action_spec(self) -> ActionSpec:
        """Nine discrete actions or two components."""
        if self.actions == "discrete":
            return DiscreteActions(self.num_agents, len(MOVES))
        return ContinuousActions(self.num_agents, 2, -1.0, 1.0)

    @property
    def default_params(self) -> FlockParams:
        """Numbers for which scripted flocks form within half an episode."""
        params = FlockParams()
        if self.dynamics == "vicsek":
            params = params.replace(max_turn=math.pi)
        return as_arrays(params)

    @property
    def _own_size(self) -> int:
        hazards = (self.num_obstacles > 0) + (self.num_predators > 0) + (not self.periodic)
        return 2 + 2 * hazards

    @property
    def feature_spec(self) -> ArraySpec | EntitySet:
        """``f[A, F]``, or an `EntitySet` of the nearest neighbours."""
        agents, dtype = self.num_agents, float_dtype().name
        if self.observation == "moments":
            return ArraySpec((agents, self._own_size + 6), dtype)
        return EntitySet(
            own=ArraySpec((agents, self._own_size), dtype),
            entities=ArraySpec((agents, self.num_nearest, 4), dtype),
            mask=ArraySpec((agents, self.num_nearest), "bool", 0, 1),
        )

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[5 A + 2 M + 2 P]``."""
        size = 5 * self.num_agents + 2 * (self.num_obstacles + self.num_predators)
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: FlockParams) -> FlockState:
        """Everything uniform in the box, headings uniform, speeds uniform between the limits."""
        agents, hazards = self.num_agents, self.num_obstacles + self.num_predators
        # One flat draw: each further one would be compiled for itself.
        draw = jax.random.uniform(key, (4 * agents + 2 * hazards,), float_dtype())
        x, y, angle, speed = draw[: 4 * agents].reshape(4, agents)
        place = self.side * draw[4 * agents :].reshape(2, hazards)
        angle = 2 * math.pi * angle
        slowest = self._slowest(params)
        return self._seen(
            FlockState(
                x=self.side * x,
                y=self.side * y,
                ux=jnp.cos(angle),
                uy=jnp.sin(angle),
                speed=slowest + speed * (params.max_speed - slowest),
                obstacle_x=place[0, : self.num_obstacles],
                obstacle_y=place[1, : self.num_obstacles],
                predator_x=place[0, self.num_obstacles :],
                predator_y=place[1, self.num_obstacles :],
                view=None,
                time=jnp.zeros((), int_dtype()),
            ),
            params,
        )[0]

    def transition(
        self, key: Array, state: FlockState, action: Array, params: FlockParams
    ) -> Transition:
        """Steer, move, chase; then neighbours are sought and rewarded."""
        ux, uy, speed = self._steer(state, action, params)
        if self.dynamics == "vicsek":
            noise = jax.random.uniform(key, ux.shape, ux.dtype, -0.5, 0.5) * params.noise
            ux, uy = turned(ux, uy, noise)
        x, y = state.x + speed * ux, state.y + speed * uy
        if self.periodic:
            x, y = self.neighbours.box.wrap(x, y)
        else:
            x, ux = self._bounced(x, ux)
            y, uy = self._bounced(y, uy)
        state = state.replace(x=x, y=y, ux=ux, uy=uy, speed=speed)
        state, overflow = self._seen(self._chase(state, params), params)
        view = state.view
        aligned = (ux * view.ux + uy * view.uy) / jnp.maximum(view.count, params.company)
        hit = self._hits(state, params)
        reward = aligned - params.collision_cost * view.touching - params.hazard_cost * hit
        company = jnp.minimum(view.count / params.company, 1)
        return Transition(
            state=state,
            reward=reward,
            terminated=jnp.zeros((), bool),
            metrics={
                "order": order(ux, uy),
                "cohesion": jnp.mean(company),
                "collisions": jnp.sum(view.touching) / 2,
                "hits": jnp.sum(hit),
                "score": jnp.mean(reward),
            },
            overflow=overflow,
        )

    def features(self, state: FlockState, params: FlockParams) -> Array | EntitySet:
        """The observation in the docstring of the class."""
        view, company = state.view, params.company
        own = [state.speed / params.max_speed, view.count / (view.count + company)]
        for hazard in self.hazards(state, params):
            own += own_frame(state, *hazard)
        if self.observation == "moments":
            share = 1 / jnp.maximum(view.count, 1)
            for dx, dy in ((view.dx, view.dy), (view.ux, view.uy)):
                own += own_frame(state, dx * share, dy * share)
            own += own_frame(state, view.away_x, view.away_y)
            return jnp.stack(own, axis=1)
        near = self.neighbours.nearest(self.num_nearest, state.x, state.y).value
        pace = state.speed / params.max_speed
        velocity = [(pace * u)[near.index] for u in (state.ux, state.uy)]
        rows = [*own_frame(state, near.dx, near.dy), *own_frame(state, *velocity)]
        entities = jnp.where(near.mask[:, :, None], jnp.stack(rows, axis=2), 0)
        return EntitySet(jnp.stack(own, axis=1), entities, near.mask)

    def global_state(self, state: FlockState, params: FlockParams | None = None) -> Array:
        """Positions over the side of the box, headings, speeds; obstacles and predators."""
        places = (state.obstacle_x, state.obstacle_y, state.predator_x, state.predator_y)
        scaled = [z / self.side for z in (state.x, state.y, *places)]
        return jnp.concatenate([*scaled, state.ux, state.uy, state.speed])

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """Mean reward of an agent in a step, 1 at best; order and cohesion at the end."""
        return {
            "score": total["score"] / length,
            "order": final["order"],
            "cohesion": final["cohesion"],
            "collisions_per_agent": total["collisions"] / self.num_agents,
        }

    def scene(self, params: FlockParams | None = None) -> Any:
        """Darts for agents, discs for obstacles and predators; agents that collide flash."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        size = 0.5 * max(float(params.body), 0.1)
        trail = 6 if self.num_agents <= 500 else 0
        obstacle, predator = float(params.obstacle_size), float(params.predator_size)
        return Scene(
            bounds=(0, self.side, 0, self.side),
            title="flock",
            groups=("agents",),
            readouts=("order", "cohesion", "collisions"),
            layers=(
                Layer("obstacles", "disc", self.num_obstacles, obstacle, Palette.OBSTACLE),
                Layer("agents", "arrow", self.num_agents, size, Palette.AGENT, trail=trail),
                Layer("predators", "disc", self.num_predators, predator, Palette.PREDATOR),
            ),
        )

    def frame(self, state: FlockState, params: FlockParams | None = None) -> dict[str, Any]:
        """Positions and headings by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        position = jnp.stack([state.x, state.y], axis=1)
        heading = jnp.arctan2(state.uy, state.ux)
        obstacles = jnp.stack([state.obstacle_x, state.obstacle_y], axis=1)
        predators = jnp.stack([state.predator_x, state.predator_y], axis=1)
        return {
            "obstacles": LayerFrame(obstacles),
            "agents": LayerFrame(position, heading, highlight=state.view.touching > 0),
            "predators": LayerFrame(predators),
        }

    def hazards(self, state: FlockState, params: FlockParams) -> list[tuple[Array, Array]]:
        """For each kind of hazard the vector towards it, longer the nearer it is."""
        hazards = []
        for x, y, size in self._bodies(state, params):
            dx, dy = self._apart(state.x, state.y, x, y)
            nearest = jnp.argmin(dx * dx + dy * dy, axis=1, keepdims=True)
            dx, dy = (jnp.take_along_axis(d, nearest, axis=1)[:, 0] for d in (dx, dy))
            apart = jnp.sqrt(dx * dx + dy * dy)
            length = jnp.clip(1 - (apart - size), 0, 1) / jnp.where(apart > 0, apart, 1)
            hazards.append((length * dx, length * dy))
        if not self.periodic:
            push = [
                jnp.clip(1 - (self.side - z), 0, 1) - jnp.clip(1 - z, 0, 1)
                for z in (state.x, state.y)
            ]
            hazards.append((push[0], push[1]))
        return hazards

    def _slowest(self, params: FlockParams) -> Array:
        if self.dynamics == "vicsek":
            return params.max_speed
        return jnp.minimum(params.min_speed, params.max_speed)

    def _steer(
        self, state: FlockState, action: Array, params: FlockParams
    ) -> tuple[Array, Array, Array]:
        """``(ux, uy, speed)`` after the agents' own doing."""
        if self.actions == "discrete":
            action = jnp.asarray(np.array(MOVES).T, float_dtype())[:, action]
        else:
            action = action.T
        limits = self._slowest(params), params.max_speed
        if self.control == "heading":
            ux, uy = turned(state.ux, state.uy, params.max_turn * action[0])
            return ux, uy, jnp.clip(state.speed + params.max_accel * action[1], *limits)
        forward = state.speed + params.max_accel * action[0]
        left = params.max_accel * action[1]
        vx = forward * state.ux - left * state.uy
        vy = forward * state.uy + left * state.ux
        speed = jnp.sqrt(vx * vx + vy * vy)
        still = speed <= 0
        scale = 1 / jnp.where(still, 1, speed)
        ux, uy = jnp.where(still, state.ux, vx * scale), jnp.where(still, state.uy, vy * scale)
        return ux, uy, jnp.clip(speed, *limits)

    def _bounced(self, x: Array, u: Array) -> tuple[Array, Array]:
        """Positions mirrored at the walls they are beyond, with their headings."""
        outside = (x < 0) | (x > self.side)
        mirrored = jnp.where(x < 0, -x, jnp.where(x > self.side, 2 * self.side - x, x))
        return jnp.clip(mirrored, 0, self.side), jnp.where(outside, -u, u)

    def _chase(self, state: FlockState, params: FlockParams) -> FlockState:
        """Moves each predator towards the agent nearest to it."""
        if not self.num_predators:
            return state
        dx, dy = self._apart(state.predator_x, state.predator_y, state.x, state.y)
        square = dx * dx + dy * dy
        nearest = jnp.argmin(square, axis=1, keepdims=True)
        dx, dy = (jnp.take_along_axis(d, nearest, axis=1)[:, 0] for d in (dx, dy))
        apart = jnp.sqrt(dx * dx + dy * dy)
        step = jnp.minimum(params.predator_speed, apart) / jnp.where(apart > 0, apart, 1)
        x, y = state.predator_x + step * dx, state.predator_y + step * dy
        x, y = self.neighbours.box.wrap(x, y)
        return state.replace(predator_x=x, predator_y=y)

    def _apart(self, x: Array, y: Array, to_x: Array, to_y: Array) -> tuple[Array, Array]:
        """``f[N, M]`` twice: the shortest ways from N places to M others."""
        return self.neighbours.box.shortest(to_x[None] - x[:, None], to_y[None] - y[:, None])

    def _hits(self, state: FlockState, params: FlockParams) -> Array:
        """``f[A]``: 1 in an obstacle or near a predator."""
        hit = jnp.zeros(state.x.shape, bool)
        for x, y, size in self._bodies(state, params):
            dx, dy = self._apart(state.x, state.y, x, y)
            hit |= jnp.any(dx * dx + dy * dy < size * size, axis=1)
        return hit.astype(float_dtype())

    def _bodies(self, state: FlockState, params: FlockParams) -> list[tuple[Array, Array, Array]]:
        """Places and radius of the obstacles and of the predators, where there are any."""
        bodies = []
        if self.num_obstacles:
            bodies.append((state.obstacle_x, state.obstacle_y, params.obstacle_size))
        if self.num_predators:
            bodies.append((state.predator_x, state.predator_y, params.predator_size))
        return bodies

    def _seen(self, state: FlockState, params: FlockParams) -> tuple[FlockState, Array]:
        """The state with its view, and how many agents were too many for the search."""
        limits = [1 / params.separation, params.body * params.body]
        own = tuple(jnp.broadcast_to(limit, state.x.shape) for limit in limits)
        found = self.neighbours.sums(pair, state.x, state.y, own, (state.ux, state.uy))
        view = FlockView(*found.value)
        return state.replace(view=view), found.overflow
