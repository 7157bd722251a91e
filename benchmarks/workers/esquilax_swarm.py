"""Swarm worker: the interaction by `esquilax.transforms.spatial`, as its documentation uses it."""

from __future__ import annotations

from functools import partial

import esquilax
import jax
import jax.numpy as jnp
from protocol import machine, serve
from swarm_loop import Interaction, swarm_handlers


def make_interaction(num_agents: int, side: float) -> Interaction:
    """Sums over the agents within 1, one cell wide."""

    def heading(params, own, other):
        return other

    add = esquilax.reductions.Reduction(fn=(jnp.add, jnp.add), id=(0.0, 0.0))
    spatial = esquilax.transforms.spatial(
        heading, reduction=add, include_self=True, i_range=1.0, n_bins=int(side), dims=side
    )

    def sums(x: jax.Array, y: jax.Array, ux: jax.Array, uy: jax.Array) -> tuple:
        return spatial(None, None, (ux, uy), pos=jnp.stack([x, y], axis=1))

    return sums


if __name__ == "__main__":
    serve(swarm_handlers(make_interaction, partial(machine, "esquilax")))
