"""The order-disorder transition of flocks: order against noise, at several sizes.

    python benchmarks/vicsek.py --out docs/vicsek.png

Policy `vicsek` plays `flock` with ``dynamics="vicsek"`` as in Vicsek et al. (1995), figure 2: four
agents in a square whose side is the radius, speed 0.03. After `settle` steps the order, the length of
the mean heading, is averaged over `steps` steps and `runs` runs. Without noise it is 1; where headings
are uniform it is ``sqrt(pi / (4 N))``, that of N random ones.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from turns import finish, require_at_least, say

from flockax.agents.core.runs import POLICIES
from flockax.envs import make


@dataclasses.dataclass(frozen=True)
class Config:
    """What is swept."""

    sizes: tuple[int, ...] = (100, 400, 1600)
    """Numbers of agents."""
    points: int = 13
    """Widths of the noise, evenly spread from 0 to 2 pi."""
    settle: int = 1000
    """Steps before the order is measured."""
    steps: int = 1000
    """Steps over which it is averaged."""
    runs: int = 2
    """Runs of each width, from other starts."""
    out: Path | None = None
    """Draw the curves: .png, .svg or .pdf."""
    json: bool = False
    """Print one JSON object instead of a table."""


def sweep(size: int, noise: np.ndarray, settle: int, steps: int, runs: int) -> np.ndarray:
    """``f[points]``: the mean order for each width of the noise."""
    env = make("flock", num_agents=size, dynamics="vicsek", actions="continuous")
    policy = POLICIES["vicsek"][1](env, env.default_params)

    def run(noise: jax.Array, key: jax.Array) -> jax.Array:
        params = env.default_params.replace(noise=noise, max_speed=jnp.asarray(0.03, noise.dtype))
        state = env.initial_state(key, params)

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            batch = jax.tree.map(lambda x: x[None], state)
            action, _ = policy.act(key, (), None, batch, params, None, True)
            result = env.transition(key, state, action[0], params)
            return result.state, result.metrics["order"]

        order = jax.lax.scan(step, state, jax.random.split(key, settle + steps))[1]
        return jnp.mean(order[settle:])

    keys = jax.random.split(jax.random.key(0), runs)
    grid = jax.vmap(jax.vmap(run, (None, 0)), (0, None))
    return np.asarray(jnp.mean(jax.jit(grid)(jnp.asarray(noise, float), keys), axis=1))


def measure(config: Config) -> dict[str, Any]:
    """Sweeps all sizes.

    Raises:
        ValueError: for settings that make no sense.

    Returns:
        The object that ``--json`` prints: ``noise`` and, under ``order``, a list for each size.
    """
    require_at_least(2, points=config.points)
    require_at_least(1, steps=config.steps, runs=config.runs, sizes=min(config.sizes, default=0))
    require_at_least(0, settle=config.settle)
    noise = np.linspace(0, 2 * math.pi, config.points)
    order = {}
    for size in config.sizes:
        say(f"{size} agents")
        found = sweep(size, noise, config.settle, config.steps, config.runs)
        order[str(size)] = [round(float(x), 4) for x in found]
    result = {"benchmark": "vicsek", "noise": [round(float(x), 4) for x in noise], "order": order}
    if config.out is not None:
        draw(result, config.out)
        say(f"{config.out}")
    return {**result, "steps": config.steps, "runs": config.runs, "warnings": []}


def draw(result: dict[str, Any], path: Path) -> None:
    """Draws order against noise, a curve for each size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for (size, order), marker in zip(result["order"].items(), "os^vD<>ph*" * 10, strict=False):
        axes.plot(result["noise"], order, marker=marker, markersize=4, label=f"{size} agents")
    axes.set_xlabel("width of the noise on the heading (radians)")
    axes.set_ylabel("order parameter")
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def print_table(result: dict[str, Any]) -> None:
    """Prints a result for people."""
    table = Table(title="order parameter")
    table.add_column("noise", justify="right")
    for size in result["order"]:
        table.add_column(f"{size} agents", justify="right")
    for i, noise in enumerate(result["noise"]):
        table.add_row(f"{noise:.2f}", *(f"{order[i]:.3f}" for order in result["order"].values()))
    Console().print(table)


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    config = tyro.cli(Config, args=args, description=__doc__)
    return finish(lambda: measure(config), print_table, config.json)


if __name__ == "__main__":
    sys.exit(main())
