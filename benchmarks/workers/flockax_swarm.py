"""Swarm worker: our interaction, and steps of our environment."""

from __future__ import annotations

import resource
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from protocol import machine, serve
from swarm_loop import Interaction, swarm_handlers

from flockax.envs import ContinuousActions, make
from flockax.envs.space.neighbours import Neighbours


def make_interaction(num_agents: int, side: float) -> Interaction:
    """Sums over the agents within 1 by `Neighbours`."""
    search = Neighbours(num_agents, side, side, 1.0)

    def sums(x: jax.Array, y: jax.Array, ux: jax.Array, uy: jax.Array) -> Any:
        found = search.sums(lambda dx, dy, own, other: other, x, y, (), (ux, uy))
        return found.value[0] + ux, found.value[1] + uy

    return sums


def env_handlers() -> dict[str, Any]:
    """``prepare_env`` and ``repeat_env``: an environment whose agents do nothing but move on."""
    program: list[Any] = []

    def prepare_env(env: str, fields: dict[str, Any], steps: int) -> dict[str, Any]:
        environment = make(env, **fields)
        params, spec = environment.default_params, environment.action_spec
        dtype = float if isinstance(spec, ContinuousActions) else int
        action = jnp.zeros(spec.shape, dtype)

        def play(state: Any, key: jax.Array) -> Any:
            def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
                state, totals = carry
                seen, state, reward, _, _, info = environment.step(key, state, action, params)
                folded = [jnp.sum(x, dtype=float) for x in jax.tree.leaves((seen, reward))]
                counts = jnp.stack([sum(folded), info["overflow"].astype(float)])
                return (state, totals + counts), None

            keys = jax.random.split(key, steps)
            return jax.lax.scan(step, (state, jnp.zeros(2)), keys)[0]

        began = time.perf_counter()
        start = jax.jit(environment.initial_state)(jax.random.key(0), params)
        arguments = start, jax.random.key(1)
        run = jax.jit(play).lower(*arguments).compile()
        jax.block_until_ready(run(*arguments))
        program[:] = [run, arguments, steps]
        return {"compile_seconds": time.perf_counter() - began, **machine("flockax", "flax")}

    def repeat_env(seconds: float) -> dict[str, Any]:
        run, arguments, steps = program
        calls, elapsed, began = 0, 0.0, time.perf_counter()
        while calls == 0 or elapsed < seconds:
            _, totals = jax.block_until_ready(run(*arguments))
            calls, elapsed = calls + 1, time.perf_counter() - began
        return {
            "steps": calls * steps,
            "seconds": elapsed,
            "checksum": float(totals[0]),
            "dropped": int(totals[1]),
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    return {"prepare_env": prepare_env, "repeat_env": repeat_env}


if __name__ == "__main__":
    interaction = swarm_handlers(make_interaction, partial(machine, "flockax", "flax"))
    serve({**interaction, **env_handlers()})
