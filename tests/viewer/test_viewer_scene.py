"""Descriptions of scenes: what is allowed, and that the palette stays apart for every eye."""

import dataclasses
import itertools

import numpy as np
import pytest

from flockax.envs.viewer import Layer, Palette, Scene
from flockax.envs.viewer.scene import KINDS
from flockax.envs.viewer.theme import THEMES

GOOD_LAYER = {"name": "prey", "kind": "disc", "count": 2, "size": 0.1, "color": "#fff"}
GOOD_SCENE = {"bounds": (-1, 1, -2, 2), "layers": (Layer(**GOOD_LAYER),)}


@pytest.mark.parametrize("kind", KINDS)
def test_layer_normalises_its_values(kind):
    layer = Layer("prey", kind, np.int64(2), [1, 2], "#AbC", outline="#0000FF")
    assert (layer.count, layer.size, layer.color) == (2, (1.0, 2.0), "#aabbcc")
    assert layer.outline == "#0000ff"
    assert layer.sizes.tolist() == [1.0, 2.0]
    assert isinstance(hash(layer), int)


def test_one_size_serves_all_items():
    assert Layer(**{**GOOD_LAYER, "count": 3}).sizes.tolist() == [0.1, 0.1, 0.1]
    assert Layer(**{**GOOD_LAYER, "count": 0}).sizes.shape == (0,)


@pytest.mark.parametrize(("label", "text"), [(None, "big prey"), ("Prey!", "Prey!"), ("", "")])
def test_legend(label, text):
    assert Layer(**{**GOOD_LAYER, "name": "big_prey", "label": label}).legend == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", 3),
        ("kind", "blob"),
        ("count", -1),
        ("count", 1.0),
        ("count", True),
        ("trail", -2),
        ("size", 0),
        ("size", float("nan")),
        ("size", (0.1, 0.2, 0.3)),
        ("size", "big"),
        ("color", "red"),
        ("color", "#ff00"),
        ("color", "#ff00ff00"),
        ("outline", "url(x)"),
        ("opacity", 0),
        ("opacity", 1.5),
    ],
)
def test_layer_refuses(field, value):
    with pytest.raises(ValueError, match=field):
        Layer(**{**GOOD_LAYER, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bounds", (0, 1, 2)),
        ("bounds", (1, 1, 0, 2)),
        ("bounds", (0, 1, 2, 0)),
        ("bounds", (0, float("inf"), 0, 1)),
        ("layers", (Layer(**GOOD_LAYER), Layer(**GOOD_LAYER))),
        ("groups", ("a", "a")),
        ("readouts", ("m", "m")),
        ("cells", np.zeros((0, 2), int)),
        ("cells", np.zeros(3, int)),
        ("cells", np.zeros((2, 2))),
    ],
)
def test_scene_refuses(field, value):
    with pytest.raises(ValueError, match=field):
        Scene(**{**GOOD_SCENE, field: value})


def test_scene_survives_a_dict():
    layer = Layer("a", "arrow", 2, (0.1, 0.2), "#123456", 0.5, 3, "A", "#fff")
    cells = np.array([[0, 2], [1, 0]])
    scene = Scene((0, 1, 0, 2), [layer], ["g"], cells, "T", ["m"])
    again = Scene.from_dict(scene.to_dict(), scene.cells)
    assert again.to_dict() == scene.to_dict()
    assert again.layers == (layer,)
    assert again.cells.tolist() == [[0, 1], [1, 0]]


def test_cells_cannot_be_changed_behind_the_scene():
    cells = np.zeros((2, 2), np.uint8)
    scene = Scene(**GOOD_SCENE, cells=cells)
    cells[0, 0] = 1
    assert scene.cells.sum() == 0
    with pytest.raises(ValueError, match="read-only"):
        scene.cells[0, 0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        scene.title = "new"


# Simulation of full colour blindness in linear RGB (Machado, Oliveira and Fernandes 2009).
SIGHT = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(color, sight):
    """CIELAB (D65) of ``#rrggbb`` as seen."""
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = to_xyz @ np.clip(np.array(sight) @ linear, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_palette_stays_apart(sight):
    roles = ("PREDATOR", "LEADER", "PREY", "LANDMARK", "GOAL", "FOOD", "FOREST", "OBSTACLE")
    colors = {role: getattr(Palette, role) for role in roles}
    colors |= {f"{name} ground": theme["arena"] for name, theme in THEMES.items()}
    for one, other in itertools.combinations(colors, 2):
        distance = np.linalg.norm(lab(colors[one], SIGHT[sight]) - lab(colors[other], SIGHT[sight]))
        assert distance >= 20, (one, other, distance)
