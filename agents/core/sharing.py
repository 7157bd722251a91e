"""Which agents share parameters: all of them, those of a group, or none."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flockax.agents.core.networks import Mlp, as_vectors, draw_params
from flockax.envs.environment import Environment

Array = jax.Array

SHARE = ("all", "group", "none")


@dataclasses.dataclass(frozen=True)
class Sharing:
    """Applies one network architecture to all agents, with parameters shared as wanted.

    Parameters are a dict by set name; in "none" every group is a set whose parameters are stacked over
    its agents. Features get a one-hot of the group appended where groups share parameters.

    Attributes:
        env: the environment.
        share: "all", "group" or "none".
    """

    env: Environment
    share: str

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.share not in SHARE:
            raise ValueError(f"share={self.share!r} is not one of {', '.join(SHARE)}")

    @property
    def sets(self) -> tuple[tuple[str, int, int], ...]:
        """``(name, start, stop)`` of the slots of each entry of the parameters."""
        if self.share == "all":
            return (("all", 0, self.env.num_agents),)
        return tuple((group.name, group.start, group.stop) for group in self.env.groups)

    @property
    def membership(self) -> np.ndarray:
        """``f[A, S]``: one-hot of the learner each agent belongs to; in "none" each is its own."""
        agents = self.env.num_agents
        if self.share == "none":
            return np.eye(agents)
        index = np.concatenate([np.full(b - a, i) for i, (_, a, b) in enumerate(self.sets)])
        return np.eye(len(self.sets))[index]

    def inputs(self, features: Array) -> Array:
        """``f[..., A, F']``: the features as vectors, with the one-hot of the group if it is needed."""
        x = as_vectors(features, self.env.feature_spec)
        if self.share != "all" or len(self.env.groups) == 1:
            return x
        index = np.concatenate([np.full(g.size, i) for i, g in enumerate(self.env.groups)])
        one_hot = jnp.asarray(np.eye(len(self.env.groups))[index], x.dtype)
        return jnp.concatenate(
            [x, jnp.broadcast_to(one_hot, (*x.shape[:-1], one_hot.shape[1]))], -1
        )

    def init(self, network: Mlp, key: Array, size: int) -> dict[str, Any]:
        """Draws parameters.

        Args:
            network: called as ``network(carry, x, reset)`` with a leading time axis on x and reset.
            key: a typed key.
            size: ``F'``.
        """
        stacked = draw_params(network, key, size, self.membership.shape[1])
        if self.share == "none":
            return {
                name: jax.tree.map(lambda p, a=start, b=stop: p[a:b], stacked)
                for name, start, stop in self.sets
            }
        return {
            name: jax.tree.map(lambda p, i=i: p[i], stacked)
            for i, (name, _, _) in enumerate(self.sets)
        }

    def apply(
        self, network: Mlp, params: dict[str, Any], carry: Array, x: Array, reset: Array
    ) -> tuple[Array, Array]:
        """Runs the network of each agent over time.

        Args:
            network: as in `init`.
            params: as from `init`.
            carry: ``f[E, A, H]``.
            x: ``f[T, E, A, F']``.
            reset: ``bool[T, E, A]``.

        Returns:
            ``(carry f[E, A, H], outputs f[T, E, A, out])``.
        """
        carries, outputs = [], []
        for name, start, stop in self.sets:
            inputs = carry[:, start:stop], x[:, :, start:stop], reset[:, :, start:stop]
            run: Any = network.apply
            if self.share == "none":
                run = jax.vmap(network.apply, in_axes=(0, 1, 2, 2), out_axes=(1, 2))
            new_carry, output = run(params[name], *inputs)
            carries.append(new_carry)
            outputs.append(output)
        if len(outputs) == 1:
            return carries[0], outputs[0]
        return jnp.concatenate(carries, axis=1), jnp.concatenate(outputs, axis=2)
