"""Boids as a policy of `flock`: Reynolds (1987), "Flocks, herds, and schools"."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flockax.agents.core.policy import Policy
from flockax.agents.planners.turning import steer
from flockax.envs.environment import Environment
from flockax.envs.spec import Observation
from flockax.envs.swarm.flock import Flock
from flockax.envs.swarm.flock_state import own_frame

Array = jax.Array


@struct.dataclass
class BoidsPolicy(Policy):
    """Each agent heads where the weighted sum of four vectors points, all in its own frame.

    Attributes:
        alignment: weight of the mean heading of the neighbours and the agent.
        cohesion: weight of the mean offset of the neighbours.
        separation: weight of the vector away from near neighbours (`FlockView`).
        avoidance: weight of the vectors away from obstacles, predators and walls.
        env: the environment.
    """

    alignment: Array
    cohesion: Array
    separation: Array
    avoidance: Array
    env: Flock = struct.field(pytree_node=False)

    def act(
        self,
        key: Array,
        carry: Any,
        observation: Observation,
        env_state: Any,
        params: Any,
        reset: Array,
        greedy: bool,
    ) -> tuple[Array, Any]:
        """See `Policy.act`; the same whether greedy or not."""
        wanted = jax.vmap(self._wanted, (0, None))(env_state, params)
        return steer(self.env, env_state, params, *wanted), carry

    def _wanted(self, state: Any, params: Any) -> tuple[Array, Array]:
        """``f[A]`` twice: where each agent wants to go, forward and to the left."""
        view = state.view
        share = 1 / jnp.maximum(view.count, 1)
        terms = [
            (self.alignment, view.ux * share, view.uy * share),
            (self.cohesion, view.dx * share, view.dy * share),
            (self.separation, view.away_x, view.away_y),
        ]
        terms += [(-self.avoidance, *hazard) for hazard in self.env.hazards(state, params)]
        forward, left = self.alignment * share, jnp.zeros_like(share)
        for weight, dx, dy in terms:
            ahead, aside = own_frame(state, dx, dy)
            forward, left = forward + weight * ahead, left + weight * aside
        return forward, left


def Boids(env: Environment, params: Any) -> Policy:
    """Boids with weights that keep flocks of `flock` together and apart."""
    assert isinstance(env, Flock)
    weights = (jnp.asarray(w, float) for w in (1.0, 0.1, 1.0, 3.0))
    return BoidsPolicy(*weights, env=env)
