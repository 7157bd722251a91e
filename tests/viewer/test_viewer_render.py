"""Pictures, animations and films."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from flockax.envs.viewer import (
    Layer,
    LayerFrame,
    Palette,
    Scene,
    save_replay,
    to_gif,
    to_html,
    to_mp4,
    to_png,
)
from flockax.envs.viewer.raster import Painter, chart_range, number
from flockax.envs.viewer.scene import KINDS
from flockax.envs.viewer.shapes import View, mix, rgba
from flockax.envs.viewer.theme import THEMES

SMALL = (480, 320)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def near(picture, color, tolerance=12):
    """How many pixels have nearly this colour."""
    return int((np.abs(picture - rgba(color)[:3]).max(axis=-1) <= tolerance).sum())


def stage_of(picture):
    """The part left of the panel."""
    return picture[:, : picture.shape[1] - 290]


def still(kind, position=(0.0, 0.0), steps=2, **layer):
    """A recording of one item that stays where it is."""
    from flockax.envs.viewer import Recording

    values = {"size": 0.4, "color": "#ff0000", "heading": None} | layer
    heading = values.pop("heading")
    scene_values = {key: values.pop(key) for key in ("cells", "title") if key in values}
    frame = LayerFrame(
        np.tile(np.asarray(position, float), (steps + 1, 1, 1)),
        None if heading is None else np.full((steps + 1, 1), heading),
    )
    return Recording(
        env_id="still",
        fields={},
        params={},
        seed=0,
        versions={},
        groups=(("agents", 0, 1),),
        scene=Scene((-1, 1, -1, 1), (Layer("item", kind, 1, label="", **values),), **scene_values),
        lengths=np.array([steps], np.int32),
        terminated=np.array([False]),
        actions=np.zeros((steps, 1), int),
        rewards=np.zeros((steps, 1)),
        metrics={},
        frames={"item": frame},
    )


def test_png_shows_items_where_they_are(drift_recording, tmp_path):
    """The pixel in the middle of each visible item has the colour of its layer."""
    to_png(drift_recording, tmp_path / "a.png", frame=1, episode=1)
    picture = pixels(tmp_path / "a.png")
    assert picture.shape == (672, 960, 3)
    painter = Painter(drift_recording, 1)
    for layer, color in (("predators", Palette.PREDATOR), ("prey", Palette.PREY)):
        tracks = painter.episode.tracks[layer].position[1]
        for x, y in painter._view.pixels(tracks) / 2:
            np.testing.assert_allclose(picture[int(y), int(x)], rgba(color)[:3], atol=40)


def test_frames_count_from_both_ends(drift_recording, tmp_path):
    names = {}
    for frame in (None, 6, -1, 0, -7):
        to_png(drift_recording, tmp_path / f"{frame}.png", frame=frame, size=SMALL)
        names[frame] = pixels(tmp_path / f"{frame}.png")
    assert np.array_equal(names[None], names[6])
    assert np.array_equal(names[-1], names[6])
    assert np.array_equal(names[-7], names[0])
    assert not np.array_equal(names[0], names[6])


@pytest.mark.parametrize("frame", [7, -8])
def test_no_such_frame(drift_recording, tmp_path, frame):
    with pytest.raises(ValueError, match=f"frame={frame} is not one of the 7"):
        to_png(drift_recording, tmp_path / "a.png", frame=frame)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (100, 100)}, "size"),
        ({"size": (961, 672)}, "size"),
        ({"theme": "pink"}, "theme='pink' is not one of dark, light"),
        ({"episode": 9}, "episode=9"),
    ],
)
def test_png_refuses(drift_recording, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        to_png(drift_recording, tmp_path / "a.png", **arguments)


@pytest.mark.parametrize("theme", THEMES)
def test_themes(drift_recording, tmp_path, theme):
    to_png(drift_recording, tmp_path / "a.png", theme=theme)
    picture = pixels(tmp_path / "a.png")
    assert near(picture, THEMES[theme]["arena"], 0) > 50_000
    assert near(picture, THEMES[theme]["page"], 0) > 50_000
    assert near(picture, Palette.PREDATOR) > 200


def test_every_kind_looks_different():
    pictures = [Painter(still(kind), 0, SMALL).draw(0) for kind in KINDS]
    arrays = [stage_of(np.asarray(picture)) for picture in pictures]
    for i, one in enumerate(arrays):
        assert near(one.astype(int), "#ff0000") > 30, KINDS[i]
        assert not any(np.array_equal(one, other) for other in arrays[:i]), KINDS[i]


@pytest.mark.parametrize("kind", ["disc", "square", "arrow", "line", "cross"])
def test_headings_turn_items(kind):
    """A heading of a quarter turn is the picture without it turned to the left."""
    heading = 0.3 if kind in ("square", "cross") else 0.0
    east, north = (
        stage_of(np.asarray(Painter(still(kind, heading=h), 0, SMALL).draw(0)))
        for h in (heading, np.pi / 2 + (0.0 if heading == 0 else np.pi / 4))
    )
    assert not np.array_equal(east, north)


def test_an_arrow_points_along_its_heading():
    painter = Painter(still("arrow", heading=np.pi / 2), 0, SMALL)
    red = np.asarray(painter.draw(0)).astype(int)
    rows, columns = np.nonzero(np.abs(stage_of(red) - [255, 0, 0]).max(axis=-1) < 20)
    (x, y) = painter._view.pixels(np.zeros(2)) / 2
    assert y - rows.min() > rows.max() - y
    assert abs(columns.mean() - x) < 1.5


def test_sizes_are_world_units():
    """A disc of radius 0.4 in an area of 2 x 2 fills pi 0.4^2 of 4."""
    painter = Painter(still("disc", outline="#ff0000"), 0, SMALL)
    area = (painter._view.scale / 2) ** 2
    red = near(stage_of(np.asarray(painter.draw(0)).astype(int)), "#ff0000", 60)
    assert red == pytest.approx(np.pi * 0.16 * area, rel=0.05)


def test_opacity_and_outline():
    solid, faint, rimmed = (
        stage_of(np.asarray(Painter(still("disc", **look), 0, SMALL).draw(0)).astype(int))
        for look in ({}, {"opacity": 0.5}, {"outline": "#00ff00"})
    )
    assert near(solid, "#ff0000") > 1000
    assert near(faint, "#ff0000") == 0
    assert near(faint, mix("#ff0000", THEMES["dark"]["arena"], 0.5)) > 1000
    assert near(rimmed, "#00ff00", 60) > 20
    assert near(solid, "#00ff00", 60) == 0


def test_map_is_drawn_the_right_way_up():
    cells = np.zeros((2, 2), int)
    cells[0, 1] = 1
    painter = Painter(still("disc", (-0.5, -0.5), size=0.1, cells=cells), 0, SMALL)
    picture = np.asarray(painter.draw(0)).astype(int)
    for x, y in ((-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)):
        column, row = (painter._view.pixels(np.array([x, y])) / 2).astype(int)
        is_wall = near(picture[row - 20 : row - 15, column : column + 5], THEMES["dark"]["wall"], 2)
        assert bool(is_wall) == ((x, y) == (0.5, 0.5))


def test_view_keeps_proportions():
    view = View.fit((0, 4, 0, 1), (0, 0, 100, 100))
    assert view.scale == 25
    np.testing.assert_allclose(view.pixels(np.array([[0, 0], [4, 1]])), [[0, 62.5], [100, 37.5]])


def test_trails_fade(make_recording):
    """A trail adds pixels of the layer's hue, and only after the first step."""
    with_trail = make_recording()
    layers = [dataclasses.replace(layer, trail=0) for layer in with_trail.scene.layers]
    scene = dataclasses.replace(with_trail.scene, layers=layers)
    without = dataclasses.replace(with_trail, scene=scene)

    def changed(time):
        one, other = (np.asarray(Painter(r, 0, SMALL).draw(time)) for r in (with_trail, without))
        return int((one != other).any(axis=-1).sum())

    assert changed(0) == 0
    assert 0 < changed(1) < changed(4)
    assert changed(1.5) > 0


def test_highlights_glow(drift_recording):
    """White appears on the stage in the one frame with a highlight."""
    painter = Painter(drift_recording, 0)
    stages = [stage_of(np.asarray(painter.draw(time)).astype(int)) for time in (2, 3, 4)]
    white = [near(stage, "#ffffff", 60) for stage in stages]
    assert white[0] == white[2] == 0
    assert white[1] > 30
    bright = [near(stage, mix(Palette.PREDATOR, "#ffffff", 0.35)) for stage in stages]
    assert bright[0] == bright[2] == 0
    assert bright[1] > 100


@pytest.mark.parametrize(
    "changes",
    [
        {"fault": "dead"},
        {"fault": "nan"},
        {"fault": "far"},
        {"num_obstacles": 0},
        {"num_predators": 1, "num_prey": 0},
        {"horizon": 1, "episodes": 1},
        {"num_predators": 1, "num_prey": 17},
    ],
)
def test_every_writer_takes_odd_recordings(make_recording, tmp_path, changes):
    recording = make_recording(**{"horizon": 3, "episodes": 1, **changes})
    for suffix in (".png", ".gif", ".html"):
        save_replay(recording, tmp_path / f"a{suffix}")
    assert len(os.listdir(tmp_path)) == 3


def test_a_dead_agent_is_not_drawn(make_recording):
    painter = Painter(make_recording(fault="dead"), 0)
    seen = [
        near(stage_of(np.asarray(painter.draw(time)).astype(int)), Palette.PREY)
        for time in range(7)
    ]
    assert seen[0] > 0
    assert seen[1] > 0
    assert seen[2:] == [0, 0, 0, 0, 0]


def test_gif(drift_recording, tmp_path):
    to_gif(drift_recording, tmp_path / "a.gif", [1], steps_per_second=10, substeps=2, size=SMALL)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size == SMALL
        assert image.info["loop"] == 0
        durations = []
        for frame in range(image.n_frames):
            image.seek(frame)
            durations.append(image.info["duration"])
            if frame == 6:
                middle = np.asarray(image.convert("RGB")).astype(int)
    # 6 steps of 2 pictures and the start, and a rest of 4 steps on the last one.
    assert sum(durations) == 50 * (13 + 8)
    assert len(durations) >= 13
    drawn = np.asarray(Painter(drift_recording, 1, SMALL).draw(3)).astype(int)
    assert np.abs(middle - drawn).mean() < 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps_per_second": 0}, "steps_per_second=0"),
        ({"substeps": 0}, "substeps=0"),
        ({"substeps": 1.5}, "substeps=1.5"),
        ({"episodes": []}, "names no episode"),
        ({"episodes": [0, 7]}, "episode=7"),
        ({"size": (2, 2)}, "size"),
    ],
)
@pytest.mark.parametrize("write", [to_gif, to_mp4])
def test_animations_refuse(drift_recording, tmp_path, write, arguments, message):
    with pytest.raises(ValueError, match=message):
        write(drift_recording, tmp_path / "a", **arguments)
    assert os.listdir(tmp_path) == []


def test_mp4(drift_recording, tmp_path):
    from flockax.envs.viewer.film import find_ffmpeg

    path = tmp_path / "a.mp4"
    to_mp4(drift_recording, path, [0], steps_per_second=10, substeps=2, size=SMALL)
    decode = [find_ffmpeg(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    result = subprocess.run(decode, capture_output=True, check=True)
    pictures = np.frombuffer(result.stdout, np.uint8).reshape(-1, SMALL[1], SMALL[0], 3)
    assert len(pictures) == 13 + 8
    assert b"20 fps" in result.stderr
    assert b"h264" in result.stderr
    drawn = np.asarray(Painter(drift_recording, 0, SMALL).draw(3)).astype(int)
    assert np.abs(pictures[6].astype(int) - drawn).mean() < 4


def test_mp4_names_the_extra(drift_recording, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "flockax\[video\]"'):
        to_mp4(drift_recording, tmp_path / "a.mp4")
    assert os.listdir(tmp_path) == []


def test_ffmpeg_failures_are_told(drift_recording, tmp_path, monkeypatch):
    """Also when it stops before it has read everything."""
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: "false")
    with pytest.raises(OSError, match="ffmpeg could not write"):
        to_mp4(drift_recording, tmp_path / "a.mp4", size=SMALL)
    assert os.listdir(tmp_path) == []


def test_suffix_chooses_the_format(make_recording, tmp_path):
    recording = make_recording(episodes=1, horizon=2)
    heads = {".png": b"\x89PNG", ".gif": b"GIF8", ".html": b"<!DOCTYPE html>", ".HTML": b"<!DOC"}
    for suffix, head in heads.items():
        save_replay(recording, tmp_path / f"a{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes().startswith(head)
    save_replay(recording, tmp_path / "a.mp4")
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.npz", "html"])
def test_other_suffixes_are_refused(drift_recording, tmp_path, name):
    with pytest.raises(ValueError, match=r"\.html, \.gif, \.mp4, \.png"):
        save_replay(drift_recording, tmp_path / name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("write", [to_png, to_gif, to_mp4, to_html])
def test_a_failed_write_leaves_the_old_file(drift_recording, tmp_path, monkeypatch, write):
    path = tmp_path / "a.out"
    path.write_bytes(b"old")

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(drift_recording, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.out"]


def test_a_folder_is_no_file(drift_recording, tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(IsADirectoryError, match=r"a\.png"):
        to_png(drift_recording, tmp_path / "a.png")


def test_long_texts_stay_in_the_panel():
    title = "a very long title " * 20 + "\n<b>"
    picture = np.asarray(Painter(still("disc", title=title), 0, SMALL).draw(0)).astype(int)
    page = np.array(rgba(THEMES["dark"]["page"])[:3])
    assert (picture[:, -10:] == page).all()


def test_rows_without_room_are_left_out(drift_recording):
    """Nothing is drawn in the lowest pixels of the panel, however small the picture."""
    page = np.array(rgba(THEMES["dark"]["page"])[:3])
    for height in range(320, 440, 8):
        picture = np.asarray(Painter(drift_recording, 0, (480, height)).draw(0)).astype(int)
        assert (picture[-2:, -250:] == page).all(), height


def test_numbers():
    values = [0.0, 3.0, -0.5, 12.345, 123.45, 1234.5, 1e7, 1e-5, np.nan, np.inf, -np.inf]
    texts = [
        "0",
        "3",
        "-0.50",
        "12.35",
        "123.5",
        "1234",
        "1.00e+07",
        "1.00e-05",
        "-",
        "inf",
        "-inf",
    ]
    assert [number(value) for value in values] == texts


def test_chart_range():
    assert chart_range(np.array([[1.0, np.nan], [3.0, np.inf]])) == (0.0, 3.0)
    assert chart_range(np.zeros((2, 0))) == (-1.0, 1.0)
    assert chart_range(np.array([[-2.0]])) == (-2.0, 0.0)


def test_rewards_that_are_not_finite_are_drawn(drift_recording):
    rewards = drift_recording.rewards.copy()
    rewards[2:] = np.nan
    Painter(dataclasses.replace(drift_recording, rewards=rewards), 0, SMALL).draw(5)


def test_importing_the_viewer_loads_nothing_heavy():
    script = (
        "import sys, flockax.envs.viewer;"
        "heavy = {'PIL', 'imageio', 'matplotlib', 'selenium'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
