"""What a replay of `GridPathfinding` looks like: the map, goals as rings, agents as discs.

An agent and its goal have the same colour, one of a few that come again and again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.spec import float_dtype
from flockax.envs.viewer.scene import Layer, LayerFrame, Palette, Scene

Array = jax.Array

COLORS = Palette.CYCLE[:6]
TRAIL = 12


def colored(num_agents: int) -> list[np.ndarray]:
    """The agents of each colour."""
    return [np.arange(i, num_agents, len(COLORS)) for i in range(min(len(COLORS), num_agents))]


def make_scene(obstacles: Any, num_agents: int) -> Scene:
    """The scene.

    Args:
        obstacles: ``bool[M, H, W]``; one map is drawn once, of several the one in play in every frame.
        num_agents: ``A``.
    """
    walls = np.asarray(obstacles)
    maps, height, width = walls.shape
    layers = []
    if maps > 1:
        layers.append(Layer("walls", "square", height * width, 0.5, Palette.OBSTACLE, label=""))
    agents = colored(num_agents)
    for i, members in enumerate(agents):
        layers.append(Layer(f"goals {i}", "ring", len(members), 0.36, COLORS[i], label=""))
    for i, members in enumerate(agents):
        name = "agents" if i == 0 else f"agents {i}"
        layers.append(Layer(name, "disc", len(members), 0.3, COLORS[i], label="", trail=TRAIL))
    return Scene(
        bounds=(0, width, 0, height),
        title=f"{num_agents} discs go to rings of their colour",
        groups=("agents",),
        readouts=("arrivals", "on_goal", "agent_collisions"),
        cells=walls[0] if maps == 1 else None,
        layers=tuple(layers),
    )


def make_frame(
    walls: Array | None, height: int, position: Array, goal: Array, alive: Array
) -> dict[str, LayerFrame]:
    """One frame.

    Args:
        walls: ``bool[H, W]`` of the map in play, or None where the scene has it.
        height: ``H``.
        position: ``int[A, 2]``, (row, column).
        goal: ``int[A, 2]``.
        alive: ``bool[A]``.
    """

    def centre(cell: Array) -> Array:
        x, y = cell[..., 1] + 0.5, height - cell[..., 0] - 0.5
        return jnp.stack([x, y], axis=-1).astype(float_dtype())

    frame = {}
    if walls is not None:
        cells = jnp.stack(jnp.unravel_index(jnp.arange(walls.size), walls.shape), axis=-1)
        frame["walls"] = LayerFrame(centre(cells), visible=walls.reshape(-1))
    reached = jnp.all(position == goal, axis=-1)
    for i, members in enumerate(colored(len(alive))):
        shown = alive[members]
        frame[f"goals {i}"] = LayerFrame(centre(goal[members]), visible=shown)
        name = "agents" if i == 0 else f"agents {i}"
        frame[name] = LayerFrame(
            centre(position[members]), visible=shown, highlight=reached[members] & shown
        )
    return frame
