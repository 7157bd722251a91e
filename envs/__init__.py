"""Multi-agent environments as pure JAX functions.

    from flockax.envs import VectorEnv, make

    env = make("tag", num_predators=3)
    observation, state = env.reset(jax.random.key(0))

Importing this package loads jax, flax and numpy and nothing heavier.
"""

from flockax.envs.batching import cond_any
from flockax.envs.environment import Environment, Transition
from flockax.envs.registry import Entry, make, registered
from flockax.envs.spec import (
    ArraySpec,
    ContinuousActions,
    DiscreteActions,
    EntitySet,
    Group,
    Observation,
)
from flockax.envs.vector import VectorEnv, VectorState

__all__ = [
    "ArraySpec",
    "ContinuousActions",
    "DiscreteActions",
    "EntitySet",
    "Entry",
    "Environment",
    "Group",
    "Observation",
    "Transition",
    "VectorEnv",
    "VectorState",
    "cond_any",
    "make",
    "registered",
]
