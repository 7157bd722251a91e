"""Throughput worker: random play in POGEMA, in its own Python loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pogema import GridConfig, pogema_v0
from protocol import machine, serve

MOST_ENVS = 16  # it plays one after the other, so more change nothing but the time of a call


def throughput_handlers() -> dict[str, Callable[..., dict[str, Any]]]:
    """The requests that a throughput worker answers: ``prepare`` once, then ``repeat``."""
    played: dict[str, Any] = {}

    def prepare(
        env: str, num_envs: int, seeds: int, steps: int, fields: dict[str, Any]
    ) -> dict[str, Any]:
        agents = fields["num_agents"]
        played["worlds"] = [
            pogema_v0(
                GridConfig(
                    num_agents=agents,
                    size=fields["size"],
                    density=fields["density"],
                    obs_radius=fields["obs_radius"],
                    collision_system=fields["collision"],
                    on_target=fields["on_target"],
                    max_episode_steps=fields["horizon"],
                    seed=seed,
                )
            )
            for seed in range(min(num_envs * seeds, MOST_ENVS))
        ]
        played["steps"], played["agents"] = min(steps, fields["horizon"]), agents
        return {
            "environment": env,
            "num_agents": agents,
            "compile_seconds": 0.0,
            **machine("pogema", "numpy"),
        }

    def call() -> tuple[int, dict[str, float]]:
        rng, count = np.random.default_rng(0), 0
        totals = {"observation": 0.0, "reward": 0.0, "episodes": 0.0}
        for world in played["worlds"]:
            seen, _ = world.reset()
            for _ in range(played["steps"]):
                totals["observation"] += float(np.sum(seen))
                actions = rng.integers(0, 5, played["agents"]).tolist()
                seen, reward, terminated, truncated, _ = world.step(actions)
                totals["reward"] += float(sum(reward))
                count += 1
                if all(terminated) or all(truncated):
                    totals["episodes"] += 1
                    seen, _ = world.reset()
        return count, totals

    def repeat(seconds: float) -> dict[str, Any]:
        steps, elapsed, began = 0, 0.0, time.perf_counter()
        while steps == 0 or elapsed < seconds:
            count, totals = call()
            steps, elapsed = steps + count, time.perf_counter() - began
        return {"steps": steps, "seconds": elapsed, "checksum": totals}

    return {"prepare": prepare, "repeat": repeat}


if __name__ == "__main__":
    serve(throughput_handlers())
