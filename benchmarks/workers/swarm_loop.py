"""The timed program of the swarm benchmark, the same for us and for every peer.

Agents on a torus turn to the mean heading of those within a distance of 1, themselves included, and move
on: the interaction of Vicsek et al. (1995) without noise. Only the sum over neighbours is a side's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
# (x, y, ux, uy) -> sums of ux and uy over the neighbours and the agent itself.
Interaction = Callable[[Array, Array, Array, Array], tuple[Array, Array]]

SPEED = 0.1


def side_of(num_agents: int, density: float) -> int:
    """The side of the torus: whole, since some peers want whole numbers of cells."""
    return max(3, round((num_agents / density) ** 0.5))


def begin(num_agents: int, side: float) -> tuple[Array, ...]:
    """``(x, y, ux, uy)``: agents and headings spread evenly, the same on every side."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, side, (2, num_agents)).astype(np.float32)
    angle = rng.uniform(0, 2 * np.pi, num_agents)
    ux, uy = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return tuple(jnp.asarray(z) for z in (x, y, ux, uy))


def march(interaction: Interaction, side: float, steps: int, state: tuple[Array, ...]) -> Any:
    """The state after some steps."""

    def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        x, y, ux, uy = state
        sx, sy = interaction(x, y, ux, uy)
        length = jnp.sqrt(sx * sx + sy * sy)
        scale = 1 / jnp.where(length > 0, length, 1)
        ux, uy = jnp.where(length > 0, sx * scale, ux), jnp.where(length > 0, sy * scale, uy)
        return ((x + SPEED * ux) % side, (y + SPEED * uy) % side, ux, uy), None

    return jax.lax.scan(step, state, None, length=steps)[0]


def swarm_handlers(
    make_interaction: Callable[[int, float], Interaction], machine: Callable[[], dict[str, Any]]
) -> dict[str, Callable[..., dict[str, Any]]]:
    """The requests that a swarm worker answers: ``prepare`` once, then ``repeat``."""
    program: list[Any] = []

    def prepare(num_agents: int, density: float, steps: int) -> dict[str, Any]:
        side = float(side_of(num_agents, density))
        interaction, state = make_interaction(num_agents, side), begin(num_agents, side)
        began = time.perf_counter()
        run = jax.jit(lambda state: march(interaction, side, steps, state)).lower(state).compile()
        seconds = time.perf_counter() - began
        jax.block_until_ready(run(state))
        program[:] = [run, state, steps]
        # What a side finds, for the comparison of what both compute.
        sums = jax.jit(interaction)(*state)
        found = [float(jnp.sum(z.astype(jnp.float32) ** 2)) for z in sums]
        return {"compile_seconds": seconds, "squares": found, **machine()}

    def repeat(seconds: float) -> dict[str, Any]:
        run, state, steps = program
        calls, elapsed, began = 0, 0.0, time.perf_counter()
        while calls == 0 or elapsed < seconds:
            final = jax.block_until_ready(run(state))
            calls, elapsed = calls + 1, time.perf_counter() - began
        order = float(jnp.hypot(jnp.mean(final[2]), jnp.mean(final[3])))
        return {"steps": calls * steps, "seconds": elapsed, "order": order}

    return {"prepare": prepare, "repeat": repeat}
