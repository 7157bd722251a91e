"""What a replay shows of `crowd`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs.spec import Group, float_dtype
from flockax.envs.viewer.scene import Layer, LayerFrame, Palette, Scene

_RADIUS = 0.06
_REACH = 0.42  # how far from the middle of its cell an agent is drawn


def make_scene(
    title: str,
    groups: tuple[Group, ...],
    shape: tuple[int, int],
    walls: np.ndarray | None,
    has_bar: bool,
) -> Scene:
    """The scene of a world.

    Args:
        title: the task.
        groups: of the agents; each is a layer of discs.
        shape: ``(X, Y)``, the cells.
        walls: ``bool[X, Y]``, or None.
        has_bar: draw a cross in the middle.
    """
    width, height = shape
    layers = [
        Layer(group.name, "disc", group.size, _RADIUS, Palette.CYCLE[i])
        for i, group in enumerate(groups)
    ]
    if has_bar:
        layers.insert(0, Layer("bar", "cross", 1, 0.4, Palette.LANDMARK))
    return Scene(
        bounds=(0, width, 0, height),
        title=title.replace("_", " "),
        groups=tuple(group.name for group in groups),
        readouts=("reward", "occupied"),
        cells=None if walls is None else walls.T[::-1],
        layers=tuple(layers),
    )


def make_frame(
    groups: tuple[Group, ...], shape: tuple[int, int], has_bar: bool, position: jax.Array
) -> dict[str, Any]:
    """Where everything is drawn, by layer.

    Args:
        groups: of the agents.
        shape: ``(X, Y)``, the cells.
        has_bar: as for `make_scene`.
        position: ``int[A, 2]``, the cell (x, y) of each agent.
    """
    slot = np.arange(len(position))[:, None]
    # A sunflower: slots of one cell stay apart however many there are.
    turn = np.pi * (3 - np.sqrt(5)) * slot
    away = _REACH * np.sqrt((slot + 0.5) / len(position))
    apart = 0.5 + away * np.concatenate([np.cos(turn), np.sin(turn)], axis=1)
    place = position + jnp.asarray(apart, float_dtype())
    frames = {group.name: LayerFrame(place[group.start : group.stop]) for group in groups}
    if has_bar:
        middle = [[size // 2 + 0.5 for size in shape]]
        frames["bar"] = LayerFrame(jnp.asarray(middle, float_dtype()))
    return frames
