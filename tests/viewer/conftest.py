"""A small world with every kind of thing to draw, for tests that must not depend on a real one."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from flockax.envs import DiscreteActions, Environment, Group, Transition
from flockax.envs.parameters import as_arrays, parameter
from flockax.envs.spec import ArraySpec, float_dtype
from flockax.envs.viewer import Layer, LayerFrame, Palette, Scene, record


@struct.dataclass
class DriftParams:
    horizon: Any = parameter(6)
    speed: Any = parameter(0.2)
    goal: Any = parameter(9.0)
    weights: Any = parameter((0.5, 0.25))


@struct.dataclass
class DriftState:
    time: Any
    position: Any
    heading: Any
    obstacle: Any
    key: Any


@dataclasses.dataclass(frozen=True)
class Drift(Environment):
    """Agents that drift at random.

    Predators earn 1 a step, prey lose 2; the first step counts double. The episode terminates when
    the first agent is to the right of `goal`. `fault` is what happens to the last agent from step 2
    on: "dead" hides it, "nan" makes its position NaN, "far" lets it leave the area.
    """

    num_predators: int = 2
    num_prey: int = 1
    num_obstacles: int = 2
    fault: str = "none"
    sizes: tuple[float, ...] = (0.1, 0.2)

    @property
    def groups(self):
        split = self.num_predators
        groups = (Group("predators", 0, split, 2, 5), Group("prey", split, self.agents, 2, 5))
        return tuple(group for group in groups if group.size)

    @property
    def agents(self):
        return self.num_predators + self.num_prey

    @property
    def action_spec(self):
        return DiscreteActions(self.agents, 5)

    @property
    def default_params(self):
        return as_arrays(DriftParams(weights=jnp.asarray([0.5, 0.25])))

    @property
    def feature_spec(self):
        return ArraySpec((self.agents, 2), str(np.dtype(float_dtype())))

    @property
    def global_state_spec(self):
        return ArraySpec((2 * self.agents,), str(np.dtype(float_dtype())))

    def initial_state(self, key, params):
        first, second, third = jax.random.split(key, 3)
        return DriftState(
            time=jnp.zeros((), int),
            position=jax.random.uniform(first, (self.agents, 2), minval=-0.9, maxval=0.9),
            heading=jnp.zeros(self.agents),
            obstacle=jax.random.uniform(second, (self.num_obstacles, 2), minval=-0.9, maxval=0.9),
            key=third,
        )

    def transition(self, key, state, action, params):
        angle = 2 * jnp.pi * jax.random.uniform(key, (self.agents,)) + action
        move = params.speed * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        position = state.position + move
        if self.fault == "far":
            position = position.at[-1, 0].add(jnp.where(state.time >= 1, 7.0, 0.0))
        gain = jnp.where(jnp.arange(self.agents) < self.num_predators, 1.0, -2.0)
        reward = jnp.where(state.time == 0, 2 * gain, gain)
        state = state.replace(position=position, heading=angle)
        metrics = {"spread": jnp.std(position), "count": state.time}
        return Transition(state, reward, position[0, 0] > params.goal, metrics)

    def features(self, state, params):
        return state.position

    def global_state(self, state, params=None):
        return state.position.reshape(-1)

    def scene(self, params=None):
        return Scene(
            bounds=(-1, 1, -1, 1),
            title="Drift <b>&amp;",
            groups=tuple(group.name for group in self.groups),
            readouts=("spread",),
            layers=(
                Layer(
                    "obstacles",
                    "square",
                    self.num_obstacles,
                    self.sizes if len(self.sizes) == self.num_obstacles else 0.1,
                    Palette.OBSTACLE,
                    opacity=0.6,
                ),
                Layer("predators", "disc", self.num_predators, 0.08, Palette.PREDATOR, trail=4),
                Layer("prey", "arrow", self.num_prey, 0.06, Palette.PREY, label="the prey"),
            ),
        )

    def frame(self, state, params=None):
        split = self.num_predators
        late = (jnp.arange(self.agents) == self.agents - 1) & (state.time >= 2)
        visible = ~late if self.fault == "dead" else jnp.ones(self.agents, bool)
        position = state.position
        if self.fault == "nan":
            position = jnp.where(late[:, None], jnp.nan, position)
        return {
            "obstacles": LayerFrame(state.obstacle),
            "predators": LayerFrame(
                position[:split],
                visible=visible[:split],
                highlight=(jnp.arange(split) == 0) & (state.time == 3),
            ),
            "prey": LayerFrame(position[split:], state.heading[split:], visible[split:]),
        }


def act_randomly(key, carry, observation, state, params, reset):
    """Random actions; the carry counts the steps since the start of the episode."""
    carry = jnp.where(reset, 0, carry) + 1
    return jax.random.randint(key, observation.alive.shape, 0, 5), carry


@pytest.fixture(scope="session")
def drift():
    """The class of the small world."""
    return Drift


@pytest.fixture(scope="session")
def random_act():
    return act_randomly


@pytest.fixture(scope="session")
def make_recording():
    """Records the small world: ``make_recording(episodes=2, seed=0, horizon=6, goal=9.0, **fields)``."""

    def make(episodes=2, seed=0, horizon=6, goal=9.0, **fields):
        env = Drift(**fields)
        params = env.make_params(horizon=horizon, goal=goal)
        return record(env, act_randomly, seed, episodes, params, carry=jnp.zeros((), int))

    return make


@pytest.fixture(scope="session")
def drift_recording(make_recording):
    """Two episodes of six steps."""
    return make_recording()
