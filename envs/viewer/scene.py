"""What a replay draws: an environment describes its scene once and its frames step by step.

`Scene` and `Layer` are plain descriptions made on the host by ``env.scene(params)``; they hold
numbers and names only. `LayerFrame` holds the arrays that ``env.frame(state, params)`` returns for
every layer; it is a pytree, so frames can be computed under `jax.jit`, `jax.vmap` and `jax.lax.scan`.

Lengths are in world units, x points right, y points up, angles are radians counter-clockwise from +x.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flax import struct

KINDS = ("disc", "square", "arrow", "cross", "ring", "line")


class Palette:
    """Colours that stay apart for colour-blind eyes, on dark and on light ground.

    Every pair differs by at least 20 in CIELAB, also as simulated for protanopia, deuteranopia and
    tritanopia (Machado, Oliveira and Fernandes 2009).
    """

    AGENT = "#59c8ff"
    PREDATOR = "#f36d2b"
    LEADER = "#b424b4"
    PREY = "#59c8ff"
    LANDMARK = "#fdc72a"
    GOAL = "#2f9c74"
    FOOD = "#93cc75"
    FOREST = "#14642f"
    OBSTACLE = "#7d87a4"

    CYCLE = (AGENT, PREDATOR, GOAL, LANDMARK, LEADER, FOOD, OBSTACLE)


@struct.dataclass
class LayerFrame:
    """Where the items of one layer are at one moment.

    Attributes:
        position: ``f[count, 2]`` or ``int[count, 2]``, x and y. An item whose position is not finite
            is not drawn.
        heading: ``f[count]`` in radians, or None where the items point nowhere.
        visible: ``bool[count]``, or None where all are.
        highlight: ``bool[count]``, items to draw flashing (say, a prey being caught), or None.
    """

    position: Any
    heading: Any = None
    visible: Any = None
    highlight: Any = None


@dataclass(frozen=True)
class Layer:
    """A number of items of one look, drawn together.

    Attributes:
        name: the key of its `LayerFrame`. The layer that has the name of a group of agents lends
            that group its colour in the panel of returns.
        kind: "disc" (with a nose where it has a heading), "square" (half side `size`, turned by the
            heading), "arrow" (a dart along the heading), "cross", "ring", or "line" (a stroke of
            half length `size` along the heading).
        count: how many items; 0 is allowed.
        size: radius in world units, one number or one for each item.
        color: ``#rgb`` or ``#rrggbb``.
        opacity: in (0, 1].
        trail: how many past frames are drawn as a fading trail; 0 for none.
        label: text of the legend; None for the name, "" to leave the layer out of the legend.
        outline: colour of the border, or None for none.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    name: str
    kind: str
    count: int
    size: float | Sequence[float]
    color: str
    opacity: float = 1.0
    trail: int = 0
    label: str | None = None
    outline: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"Layer: name={self.name!r} is not a non-empty string")
        if self.kind not in KINDS:
            raise self._error("kind", f"one of {', '.join(KINDS)}")
        for field in ("count", "trail"):
            object.__setattr__(self, field, self._whole(field))
        object.__setattr__(self, "size", self._checked_size())
        object.__setattr__(self, "color", _color(self.name, "color", self.color))
        if self.outline is not None:
            object.__setattr__(self, "outline", _color(self.name, "outline", self.outline))
        opacity = float(self.opacity)
        if not 0 < opacity <= 1:
            raise self._error("opacity", "a number in (0, 1]")
        object.__setattr__(self, "opacity", opacity)

    @property
    def legend(self) -> str:
        """The text of the legend; "" where the layer is left out of it."""
        return self.name.replace("_", " ") if self.label is None else self.label

    @property
    def sizes(self) -> np.ndarray:
        """``float64[count]``, the radius of every item."""
        return np.broadcast_to(np.asarray(self.size, np.float64), (self.count,))

    def _error(self, field: str, allowed: str) -> ValueError:
        return ValueError(f"layer {self.name!r}: {field}={getattr(self, field)!r} is not {allowed}")

    def _whole(self, field: str) -> int:
        value = getattr(self, field)
        is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_int or value < 0:
            raise self._error(field, "an integer >= 0")
        return int(value)

    def _checked_size(self) -> float | tuple[float, ...]:
        allowed = f"a positive number or {self.count} of them"
        try:
            sizes = np.asarray(self.size, np.float64)
        except (TypeError, ValueError):
            raise self._error("size", allowed) from None
        if sizes.shape not in ((), (self.count,)) or not np.all(np.isfinite(sizes) & (sizes > 0)):
            raise self._error("size", allowed)
        return float(sizes) if sizes.ndim == 0 else tuple(sizes.tolist())


@dataclass(frozen=True, eq=False)
class Scene:
    """What an environment looks like: one description for a whole recording.

    Attributes:
        bounds: ``(x_min, x_max, y_min, y_max)`` of the nominal area. Items may leave it; a replay
            zooms out so far that they stay in view.
        layers: drawn in this order, the first at the bottom.
        groups: names of the groups of agents in the panel of returns; empty for all of them.
        cells: ``int[rows, columns]`` of a grid map that fills `bounds`, row 0 at the top; 0 is free,
            anything else a wall. None where there is no map. The middle of cell (row, column) is at
            ``x = x_min + (column + 1/2) w``, ``y = y_max - (row + 1/2) h`` for cells of ``w`` by ``h``.
        title: text above the picture.
        readouts: entries of ``info["metrics"]`` that are shown as numbers.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    bounds: tuple[float, float, float, float]
    layers: tuple[Layer, ...]
    groups: tuple[str, ...] = ()
    cells: np.ndarray | None = None
    title: str = ""
    readouts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds = tuple(float(x) for x in self.bounds)
        if len(bounds) != 4 or not all(map(math.isfinite, bounds)):
            raise ValueError(f"Scene: bounds={self.bounds!r} are not four finite numbers")
        if bounds[0] >= bounds[1] or bounds[2] >= bounds[3]:
            raise ValueError(f"Scene: bounds={bounds!r} are not x_min < x_max, y_min < y_max")
        object.__setattr__(self, "bounds", bounds)
        for field in ("layers", "groups", "readouts"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        for field, names in (
            ("layers", [layer.name for layer in self.layers]),
            ("groups", self.groups),
            ("readouts", self.readouts),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"Scene: {field} repeat a name: {', '.join(names)}")
        if self.cells is not None:
            cells = np.asarray(self.cells)
            if cells.ndim != 2 or cells.size == 0 or cells.dtype.kind not in "biu":
                raise ValueError(
                    f"Scene: cells of shape {cells.shape} and dtype {cells.dtype} are not "
                    "a non-empty 2-D array of integers or bools"
                )
            walls = (cells != 0).astype(np.uint8)
            walls.setflags(write=False)
            object.__setattr__(self, "cells", walls)

    def to_dict(self) -> dict[str, Any]:
        """The scene as plain values, without `cells`; `from_dict` turns it back."""
        return {
            "bounds": list(self.bounds),
            "layers": [asdict(layer) for layer in self.layers],
            "groups": list(self.groups),
            "title": self.title,
            "readouts": list(self.readouts),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], cells: np.ndarray | None = None) -> Scene:
        """Makes a scene of what `to_dict` returned.

        Raises:
            TypeError: where a field is unknown or missing.
            ValueError: where a value is not allowed.
        """
        layers = tuple(Layer(**layer) for layer in values["layers"])
        return cls(**{**values, "layers": layers, "cells": cells})


def _color(layer: str, field: str, value: Any) -> str:
    """``#rrggbb`` in lower case."""
    if not isinstance(value, str) or not re.fullmatch(r"#(?:[0-9a-fA-F]{3}){1,2}", value):
        raise ValueError(f"layer {layer!r}: {field}={value!r} is not a colour #rgb or #rrggbb")
    digits = value[1:].lower()
    return "#" + ("".join(2 * digit for digit in digits) if len(digits) == 3 else digits)
