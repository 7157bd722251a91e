"""`sampling`: agents collect a field that is spread over a grid, each cell once."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.environment import Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.spec import ArraySpec, Group, float_dtype, int_dtype
from flockax.envs.swarm.box_world import BoxParams, BoxWorld

Array = jax.Array

# Where the field is seen around an agent, in cells, in the order of VMAS.
PROBES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [-1, -1], [1, -1], [-1, 1], [1, 1]])


@struct.dataclass
class SamplingParams(BoxParams):
    """Numbers of `Sampling`; see `BoxParams` for those of the world.

    Attributes:
        variance: of each Gaussian along each axis, in world lengths squared.
        sample_reward: for what is collected, 1 at the peak of the field.
    """

    agent_size: float = parameter(0.025, 1e-6, 1e3)
    view_range: float = parameter(0.2, 0, 1e4)
    variance: float = parameter(0.05, 1e-4, 1e6)
    sample_reward: float = parameter(1.0, -1e6, 1e6)


@struct.dataclass
class SamplingState:
    """A world of `Sampling`.

    Attributes:
        position: ``f[A, 2]``, of the agents.
        velocity: ``f[A, 2]``.
        landmark: ``f[G, 2]``, the means of the Gaussians.
        sampled: ``bool[cells, cells]``, which cells are collected, by column (x) and row (y).
        peak: ``f[]``, largest value of the sum of Gaussians at the corners of cells.
        total: ``f[]``, sum of the normalised field over the middles of all cells.
        time: ``int[]``, steps since the start.
    """

    position: Array
    velocity: Array
    landmark: Array
    sampled: Array
    peak: Array
    total: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class Sampling(BoxWorld):
    """Agents move over a field of some Gaussian bumps and collect its value in each cell once.

    The team does well when agents climb to the bumps, sweep them, and don't go where others were.

    **Agents and groups.** One group, ``agents``; none ever dies. Agents are solid.

    **Actions.** "discrete": 0 stay, 1 left, 2 right, 3 down, 4 up. "continuous": five components in
    [0, 1]; the first does nothing, the others push left, right, down and up.

    **Observation.** A vector ``f[A, F]``, in world lengths and world lengths per second, unbounded:

    * 2: own position,
    * 2: own velocity,
    * 8: the field, 0 where it is collected or out of the box, one cell away from the agent: right,
      left, up, down, left down, right down, left up, right up; about 1 at most,
    * with ``view="nearest"`` 4 `seen_agents`: position and velocity of each of the nearest agents
      within `view_range`, relative to the agent; 0 where there is none;
    * with ``view="moments"`` 6: the number of agents within `view_range`, and of their relative
      positions the means of x, y, x x, x y and y y; nothing if `seen_agents` is 0.

    **Reward.** The field is ``v(x) = sum_g exp(-|x - m_g|^2 / (2 variance)) / peak``. After the
    move an agent in a cell that is not yet collected takes ``v(x_i) / n``, n the number of agents
    in that cell, and the cell is collected. ``r_i = sample_reward`` times that; with
    `shared_reward` times the sum over all agents.

    **End of episode.** Never terminates; truncated after `horizon` steps (100).

    **Parameters.** `SamplingParams`.

    **Source.** `sampling` of VMAS 1.5.2: physics, field and rewards equal step by step. Different:
    agents that enter a cell in the same step share it, there the lowest index takes it; five moves
    or five pushes where VMAS has forces in [-1, 1]^2; the nearest agents (or moments) where it has
    12 lidar rays; the number of cells is given, there their width (.05); all Gaussians have one
    variance; agents always are solid and start apart only by chance, as there by default; an
    episode lasts 100 steps, there any number.

    Attributes:
        num_agents: at least 1.
        num_gaussians: at least 1.
        cells: along each axis, at least 2.
        seen_agents: how many other agents; 0 hides them.
        view: "nearest" or "moments".
        shared_reward: whether all earn what any of them does.
        actions: "discrete" or "continuous".
    """

    num_agents: int = 3
    num_gaussians: int = 3
    cells: int = 40
    seen_agents: int = 2
    view: str = "nearest"
    shared_reward: bool = True
    actions: str = "discrete"

    def __post_init__(self) -> None:
        """Checks the fields."""
        self.check_sizes()
        require_int(self, "num_gaussians", 1)
        require_int(self, "cells", 2)
        require_choice(self, "shared_reward", (False, True))

    @property
    def groups(self) -> tuple[Group, ...]:
        """One group of all agents."""
        return self.one_group(len(PROBES))

    @property
    def default_params(self) -> SamplingParams:
        """The numbers of VMAS."""
        return as_arrays(SamplingParams())

    @property
    def num_landmarks_total(self) -> int:
        """The Gaussians."""
        return self.num_gaussians

    @property
    def global_state_spec(self) -> ArraySpec:
        """``f[4 A + 2 G + 2 cells]``: see `global_state`."""
        size = 4 * self.num_agents + 2 * self.num_gaussians + 2 * self.cells
        return ArraySpec((size,), float_dtype().name)

    def initial_state(self, key: Array, params: SamplingParams) -> SamplingState:
        """Agents at rest and Gaussians, uniform in the box; nothing is collected."""
        agents, count = self.num_agents, self.num_agents + self.num_gaussians
        place = jax.random.uniform(key, (2 * count,), float_dtype(), -1, 1).reshape((count, 2))
        place = params.half_width * place
        stop = self._stop(params)
        mean = place[agents:]
        # VMAS looks for the peak at the lower corners of cells.
        corner = jnp.clip(self._along(params, 0.0), -stop, stop)
        peak = jnp.max(self._bumps(corner, mean, params))
        middle = self._bumps(self._along(params, 0.5), mean, params)
        position = jnp.clip(place[:agents], -stop, stop)
        return SamplingState(
            position=position,
            velocity=jnp.zeros_like(position),
            landmark=mean,
            sampled=jnp.zeros((self.cells, self.cells), bool),
            peak=peak,
            total=jnp.sum(middle) / _divisor(peak),
            time=jnp.zeros((), int_dtype()),
        )

    def transition(
        self, key: Array, state: Any, action: Array, params: SamplingParams
    ) -> Transition:
        """Push, contacts, move; then cells are collected."""
        state = self.moved(state, action, params, True, self._stop(params))
        cell = self._cell(state.position, params)
        inside = jnp.zeros(state.sampled.size, int_dtype()).at[cell].add(1)
        fresh = ~state.sampled.reshape(-1)[cell]
        taken = jnp.where(fresh, self._value(state.position, state, params) / inside[cell], 0)
        whole = jnp.sum(taken)
        earned = jnp.broadcast_to(whole, taken.shape) if self.shared_reward else taken
        sampled = state.sampled | (inside > 0).reshape(state.sampled.shape)
        return Transition(
            state=state.replace(sampled=sampled),
            reward=params.sample_reward * earned,
            terminated=jnp.zeros(state.time.shape, bool),
            metrics={
                "collected": whole / _divisor(state.total),
                "cells": jnp.mean(sampled, dtype=float_dtype()),
            },
        )

    def scores(
        self, total: dict[str, Array], final: dict[str, Array], length: Array
    ) -> dict[str, Array]:
        """``score``: what was collected per sum of the field over all cells, about 1 at most."""
        return {"score": total["collected"]}

    def features(self, state: SamplingState, params: SamplingParams) -> Array:
        """The vector in the docstring of the class."""
        width = 2 * params.half_width / self.cells
        probe = state.position[:, None] + width * jnp.asarray(PROBES, float_dtype())
        probe = probe.reshape((-1, 2))
        inside = jnp.all(jnp.abs(probe) <= params.half_width, axis=1)
        stop = self._stop(params)
        probe = jnp.clip(probe, -stop, stop)
        fresh = inside & ~state.sampled.reshape(-1)[self._cell(probe, params)]
        field = jnp.where(fresh, self._value(probe, state, params), 0)
        field = field.reshape((self.num_agents, len(PROBES)))
        others = self.agent_features(state, params)
        return jnp.concatenate([self.own_features(state), field, others], axis=1)

    def remaining(self, state: SamplingState, params: SamplingParams) -> Array:
        """``f[cells, cells]``: the field in the middle of each cell, 0 where it is collected."""
        middle = self._bumps(self._along(params, 0.5), state.landmark, params)
        return jnp.where(state.sampled, 0, middle / _divisor(state.peak))

    def global_state(self, state: SamplingState, params: Any = None) -> Array:
        """Positions and velocities, the means, and what is left in each column and each row of cells.

        The last are sums over the middles of the cells, divided by `cells`.
        """
        params = self.default_params if params is None else params
        left = self.remaining(state, params) / self.cells
        parts = (state.position, state.velocity, state.landmark)
        sums = jnp.sum(left, axis=1), jnp.sum(left, axis=0)
        return jnp.concatenate([*(part.reshape(-1) for part in parts), *sums])

    def scene(self, params: Any = None) -> Any:
        """Crosses for the means, squares for collected cells, discs for agents."""
        from flockax.envs.viewer.scene import Layer, Palette, Scene

        params = self.default_params if params is None else params
        width = float(params.half_width)
        edge = 1.05 * width
        square = width / self.cells, Palette.FOREST
        agents = float(params.agent_size), Palette.AGENT
        return Scene(
            bounds=(-edge, edge, -edge, edge),
            title="sampling",
            groups=("agents",),
            readouts=("collected", "cells"),
            layers=(
                Layer("collected", "square", self.cells**2, *square, opacity=0.5),
                Layer("bumps", "cross", self.num_gaussians, 0.04 * width, Palette.LANDMARK),
                Layer("agents", "disc", self.num_agents, *agents, trail=8),
            ),
        )

    def frame(self, state: SamplingState, params: Any = None) -> dict[str, Any]:
        """Positions by layer."""
        from flockax.envs.viewer.scene import LayerFrame

        params = self.default_params if params is None else params
        return {
            "collected": LayerFrame(self.middles(params), visible=state.sampled.reshape(-1)),
            "bumps": LayerFrame(state.landmark),
            "agents": LayerFrame(state.position),
        }

    def middles(self, params: SamplingParams) -> Array:
        """``f[cells * cells, 2]``: the middles of the cells, column by column."""
        along = self._along(params, 0.5)
        x, y = jnp.meshgrid(along, along, indexing="ij")
        return jnp.stack([x.reshape(-1), y.reshape(-1)], axis=1)

    def _stop(self, params: SamplingParams) -> Array:
        """``f[]``: where the centres of agents are stopped, so that no disc leaves the box."""
        return jnp.maximum(params.half_width - params.agent_size, 0)

    def _along(self, params: SamplingParams, part: float) -> Array:
        """``f[cells]``: a place in each cell along an axis, 0 for its lower end and 1 for its upper."""
        steps = jnp.arange(self.cells, dtype=float_dtype()) + part
        return params.half_width * (2 * steps / self.cells - 1)

    def _cell(self, place: Array, params: SamplingParams) -> Array:
        """``int[N]``: the cells of places, numbered column by column."""
        width = 2 * params.half_width / self.cells
        cell = jnp.floor(place / width + self.cells / 2)
        cell = jnp.clip(cell, 0, self.cells - 1).astype(int_dtype())
        return cell[:, 0] * self.cells + cell[:, 1]

    def _bumps(self, along: Array, mean: Array, params: SamplingParams) -> Array:
        """``f[N, N]``: the sum of Gaussians, 1 at the top of each, where columns and rows cross."""
        # Gaussians are products of one over x and one over y: 2 N exponentials instead of N^2.
        bump = jnp.exp(-((along[:, None, None] - mean) ** 2) / (2 * params.variance))
        return jnp.sum(bump[:, None, :, 0] * bump[None, :, :, 1], axis=-1)

    def _value(self, place: Array, state: SamplingState, params: SamplingParams) -> Array:
        """``f[N]``: the normalised field, collected or not."""
        square = jnp.sum((place[:, None] - state.landmark) ** 2, axis=-1)
        bumps = jnp.sum(jnp.exp(-square / (2 * params.variance)), axis=-1)
        return bumps / _divisor(state.peak)


def _divisor(x: Array) -> Array:
    """What to divide by: 1 where narrow bumps have no value at any corner."""
    return jnp.where(x > 0, x, 1)
