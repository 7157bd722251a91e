"""Vicsek's rule as a policy of `flock`: Vicsek et al. (1995), Phys. Rev. Lett. 75, 1226."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct

from flockax.agents.core.policy import Policy
from flockax.agents.planners.turning import steer
from flockax.envs.environment import Environment
from flockax.envs.spec import Observation
from flockax.envs.swarm.flock import Flock
from flockax.envs.swarm.flock_state import own_frame

Array = jax.Array


@struct.dataclass
class VicsekPolicy(Policy):
    """Each agent turns to the mean heading of its neighbours and itself.

    Attributes:
        env: the environment; its noise makes the model complete (``dynamics="vicsek"``).
    """

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
        view = env_state.view
        wanted = own_frame(env_state, view.ux + env_state.ux, view.uy + env_state.uy)
        return steer(self.env, env_state, params, *wanted), carry


def Vicsek(env: Environment, params: Any) -> Policy:
    """Vicsek's rule for an environment."""
    assert isinstance(env, Flock)
    return VicsekPolicy(env)
