"""A tiny environment for tests: everything the contract allows happens in it.

Agents die of hunger and hatch again, episodes end early, food is random, masks depend on the state,
groups differ in what they see and do, a nest overflows, and observations come in all three forms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.envs.environment import Environment, Transition
from flockax.envs.parameters import as_arrays, parameter, require_choice, require_int
from flockax.envs.registry import Entry
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

Array = jax.Array

REST, EAT, LEFT, RIGHT = range(4)


@struct.dataclass
class ColonyParams:
    """Numbers of `Colony`; `comfort` is of foragers and guards, `harsh` doubles the hunger."""

    horizon: int = parameter(20, 1, 2**30)
    hatch_period: int = parameter(3, 1, 1000)
    food: float = parameter(1.0, 0, 10)
    hunger: float = parameter(0.3, 0, 10)
    speed: float = parameter(0.1, 0, 10)
    plenty: float = parameter(1.4, 0, 1e6)
    comfort: tuple[float, float] = parameter((0.1, 0.2), -10, 10)
    harsh: bool = parameter(False)


@struct.dataclass
class ColonyState:
    """``position f[A, 2]``, ``energy f[A]``, ``living bool[A]``, ``eggs int[]``, ``time int[]``."""

    position: Array
    energy: Array
    living: Array
    eggs: Array
    time: Array


def draw(key: Array, sample: Callable[[Array], Array]) -> Array:
    """`sample` of one key, or of each key of an array of them, with the batch axes last."""
    if key.ndim == 0:
        return sample(key)
    drawn = jax.vmap(sample, out_axes=-1)(key.reshape(-1))
    return drawn.reshape(drawn.shape[:-1] + key.shape)


@dataclasses.dataclass(frozen=True)
class Colony(Environment):
    """Agents eat, starve, lay eggs and hatch; see the head of the file."""

    num_foragers: int = 3
    num_guards: int = 2
    nest_capacity: int = 1
    actions: str = "discrete"
    view: str = "vector"

    def __post_init__(self) -> None:
        require_int(self, "num_foragers", 1)
        require_int(self, "num_guards", 0)
        require_int(self, "nest_capacity", 1)
        require_choice(self, "actions", ("discrete", "continuous"))
        require_choice(self, "view", ("vector", "window", "entities"))

    @property
    def groups(self) -> tuple[Group, ...]:
        foragers, agents = self.num_foragers, self.num_foragers + self.num_guards
        vector, discrete = self.view == "vector", self.actions == "discrete"
        groups = (
            Group("foragers", 0, foragers, 6 if vector else 0, 4 if discrete else 2),
            Group("guards", foragers, agents, 3 if vector else 0, 2 if discrete else 1),
        )
        return groups if self.num_guards else groups[:1]

    @property
    def action_spec(self) -> ActionSpec:
        if self.actions == "discrete":
            return DiscreteActions(self.num_agents, 4)
        return ContinuousActions(self.num_agents, 2, -0.5, 1.0)

    @property
    def default_params(self) -> ColonyParams:
        return as_arrays(ColonyParams())

    @property
    def feature_spec(self) -> Any:
        agents, dtype = self.num_agents, float_dtype().name
        if self.view == "vector":
            return ArraySpec((agents, 6), dtype)
        if self.view == "window":
            return ArraySpec((agents, 2, 3, 3), int_dtype().name, 0, agents + self.nest_capacity)
        return EntitySet(
            ArraySpec((agents, 3), dtype),
            ArraySpec((agents, agents, 3), dtype),
            ArraySpec((agents, agents), "bool", 0, 1),
        )

    @property
    def global_state_spec(self) -> Any:
        agents, dtype = self.num_agents, float_dtype().name
        if self.view == "entities":
            return EntitySet(
                ArraySpec((1,), dtype),
                ArraySpec((agents, 3), dtype),
                ArraySpec((agents,), "bool", 0, 1),
            )
        return ArraySpec((4 * agents + 1,), dtype)

    def initial_state(self, key: Array, params: ColonyParams) -> ColonyState:
        place_key, energy_key, living_key = jax.random.split(key, 3)
        agents, dtype = self.num_agents, float_dtype()
        # The first slot always lives, some others are empty at the start.
        living = jax.random.bernoulli(living_key, 0.8, (agents,)) | (np.arange(agents) == 0)
        return ColonyState(
            position=jax.random.uniform(place_key, (agents, 2), dtype, -1, 1),
            energy=jnp.where(living, jax.random.uniform(energy_key, (agents,), dtype, 0.4, 1), 0),
            living=living,
            eggs=jnp.zeros((), int_dtype()),
            time=jnp.zeros((), int_dtype()),
        )

    def transition(
        self, key: Array, state: ColonyState, action: Array, params: ColonyParams
    ) -> Transition:
        living, dtype, agents = state.living, float_dtype(), self.num_agents
        if self.actions == "discrete":
            eat = (action == EAT).astype(dtype)
            move = (action == RIGHT).astype(dtype) - (action == LEFT).astype(dtype)
        else:
            eat, move = jnp.maximum(action[:, 0], 0), action[:, 1]
        found = draw(key, lambda key: jax.random.uniform(key, (agents,), dtype))
        eaten = jnp.where(living, params.food * found * eat, 0)
        hunger = params.hunger * jnp.where(params.harsh, 2, 1)
        energy = jnp.where(living, state.energy + eaten - hunger, 0)
        dies = living & (energy <= 0)
        lays = living & (energy > 1)
        eggs = state.eggs + jnp.sum(lays, axis=0, dtype=int_dtype())
        overflow = jnp.maximum(eggs - self.nest_capacity, 0)
        eggs = eggs - overflow
        # All empty slots hatch or none, so that their order cannot matter.
        empty = jnp.sum(~living, axis=0, dtype=int_dtype())
        hatches = (eggs >= empty) & (state.time % params.hatch_period == 0)
        born = ~living & hatches
        energy = jnp.where(dies, 0, energy - 0.5 * lays)
        energy = jnp.where(born, 0.6, energy)
        alive = (living & ~dies) | born
        east = state.position[:, 0] + jnp.where(living, params.speed * move, 0)
        position = jnp.stack([east, state.position[:, 1]], axis=1)
        position = jnp.where(born[:, None], 0, position)
        mean_energy = jnp.sum(energy, axis=0) / agents
        deaths = jnp.sum(dies, axis=0).astype(dtype)
        births = jnp.sum(born, axis=0).astype(dtype)
        sizes = [group.size for group in self.groups]
        comfort = jnp.concatenate(
            [jnp.broadcast_to(params.comfort[i], (size,)) for i, size in enumerate(sizes)]
        )
        comfort = comfort.reshape((agents,) + (1,) * state.time.ndim)
        return Transition(
            state=state.replace(
                position=position,
                energy=energy,
                living=alive,
                eggs=eggs - jnp.where(hatches, empty, 0),
            ),
            reward=eaten + comfort - 0.1 * deaths,
            terminated=~jnp.any(alive, axis=0) | (mean_energy > params.plenty),
            metrics={"deaths": deaths, "births": births},
            overflow=overflow,
        )

    def alive(self, state: ColonyState) -> Array:
        return state.living

    def available(self, state: ColonyState, params: ColonyParams) -> Array | None:
        if self.actions == "continuous":
            return None
        batch = (1,) * state.time.ndim
        ids = np.arange(4).reshape((1, 4, *batch))
        exists = ids < self._action_sizes.reshape((-1, 1, *batch))
        full = state.energy > 0.7
        return exists & ~((ids == EAT) & full[:, None])

    def features(self, state: ColonyState, params: ColonyParams) -> Any:
        agents, batch, dtype = self.num_agents, state.time.shape, float_dtype()
        own = jnp.concatenate([state.energy[:, None], state.position], axis=1)
        itself = np.eye(agents, dtype=bool).reshape((agents, agents) + (1,) * len(batch))
        seen = state.living[None] & ~itself
        offset = state.position[None] - state.position[:, None]
        if self.view == "entities":
            energy = jnp.broadcast_to(state.energy[None], (agents, agents, *batch))
            rows = jnp.concatenate([offset, energy[:, :, None]], axis=2)
            return EntitySet(own, jnp.where(seen[:, :, None], rows, 0), seen)
        if self.view == "window":
            column = jnp.floor(jnp.clip(offset + 1.5, 0, 2.9)).astype(int_dtype())
            cells = np.arange(3)
            east = column[:, :, 0, None] == cells.reshape((1, 1, 3) + (1,) * len(batch))
            north = column[:, :, 1, None] == cells.reshape((1, 1, 3) + (1,) * len(batch))
            here = east[:, :, None] & north[:, :, :, None] & seen[:, :, None, None]
            crowd = jnp.sum(here, axis=1, dtype=int_dtype())
            eggs = jnp.broadcast_to(state.eggs, (agents, 3, 3, *batch))
            return jnp.stack([crowd, eggs], axis=1)
        count = jnp.sum(seen, axis=1).astype(dtype)
        crowd = jnp.sum(jnp.where(seen[:, :, None], offset, 0), axis=1)
        wide = jnp.concatenate([own, crowd, count[:, None]], axis=1)
        return wide.at[self.num_foragers :, 3:].set(0)

    def global_state(self, state: ColonyState, params: Any = None) -> Any:
        agents, batch, living = self.num_agents, state.time.shape, state.living
        place = jnp.where(living[:, None], state.position, 0)
        eggs = state.eggs.astype(float_dtype())[None]
        if self.view == "entities":
            rows = jnp.concatenate([state.energy[:, None], place], axis=1)
            return EntitySet(eggs, rows, living)
        flat = place.reshape((2 * agents, *batch))
        return jnp.concatenate([state.energy, flat, living.astype(float_dtype()), eggs])

    def grown(self) -> Colony:
        return dataclasses.replace(self, nest_capacity=2 * self.nest_capacity)


class ColonyLast(Colony):
    """`Colony` with the batch axes last; the same rules."""

    batched_last: ClassVar[bool] = True


SIZES = (
    {},
    {"actions": "continuous"},
    {"num_foragers": 1, "num_guards": 0},
    {"num_foragers": 2, "num_guards": 1, "view": "entities", "actions": "continuous"},
    {"num_foragers": 13, "num_guards": 4, "view": "window", "nest_capacity": 3},
    {"num_foragers": 2, "num_guards": 2, "view": "entities"},
)
ENTRIES = (
    Entry("colony", Colony, "Test environment, batch axis first.", SIZES),
    Entry("colony_last", ColonyLast, "Test environment, batch axes last.", SIZES[1:5]),
)
