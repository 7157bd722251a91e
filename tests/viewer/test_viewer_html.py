"""The self-contained page: what is packed into it, and that nothing comes from elsewhere."""

import base64
import dataclasses
import html.parser
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flockax.envs.viewer import to_html
from flockax.envs.viewer.html import HIDDEN, LEVELS, TURN, dequantise, page, quantise
from flockax.envs.viewer.timeline import episode_of


def contents(text):
    """The data in a page."""
    script = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    return json.loads(script[1])


def unpack(text, dtype, *shape):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


@given(
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-3, 1e6),
    parts=arrays(np.float64, (5, 2), elements=st.floats(0, 1)),
    visible=arrays(bool, (5,)),
)
def test_quantisation_error_is_bounded(low, span, parts, visible):
    """Half a code, and the rounding of the numbers themselves."""
    extent = (low, low + span, -low, -low + 2 * span)
    corner, size = np.array([low, -low]), np.array([extent[1] - low, extent[3] + low])
    position = corner + parts * size
    codes = quantise(position, visible, extent)
    again, seen = dequantise(codes, extent)
    assert codes.dtype == np.uint16
    np.testing.assert_array_equal(seen, visible)
    assert (codes[~visible] == HIDDEN).all()
    bound = size / (2 * 65_534) * (1 + 1e-6) + 1e-9
    assert (np.abs(again - position)[visible] <= bound).all()


def test_the_ends_of_the_extent_are_exact():
    extent = (-3.0, 5.0, 1.0, 2.0)
    corners = np.array([[-3.0, 1.0], [5.0, 2.0]])
    codes = quantise(corners, np.ones(2, bool), extent)
    assert codes.tolist() == [[0, 0], [LEVELS, LEVELS]]
    np.testing.assert_array_equal(dequantise(codes, extent)[0], corners)


def test_page_decodes_with_the_same_constants(drift_recording):
    text = page(drift_recording)
    assert f"LEVELS = {LEVELS}, HIDDEN = {HIDDEN}, TURN = {TURN};" in text


def test_page_holds_the_recording(drift_recording):
    data = contents(page(drift_recording))
    assert [len(data["layers"]), len(data["episodes"])] == [3, 2]
    for number, packed in enumerate(data["episodes"]):
        episode = episode_of(drift_recording, number)
        assert packed["length"] == 6
        assert tuple(packed["extent"]) == episode.extent
        returns = unpack(packed["returns"], "<f4", 7, 2)
        np.testing.assert_allclose(returns, episode.returns, rtol=1e-6)
        readouts = unpack(packed["readouts"], "<f4", 7, 1)
        np.testing.assert_allclose(readouts, episode.readouts, rtol=1e-6)
        for layer, track in zip(data["layers"], packed["tracks"], strict=True):
            original = episode.tracks[{"the prey": "prey"}.get(layer["legend"], layer["legend"])]
            frames = 1 if track["still"] else 7
            codes = unpack(track["position"], "<u2", frames, layer["count"], 2)
            position, visible = dequantise(codes, episode.extent)
            np.testing.assert_allclose(position, original.position[:frames], atol=1e-4)
            np.testing.assert_array_equal(visible, original.visible[:frames])


def test_what_never_moves_is_written_once(drift_recording):
    still = [track["still"] for track in contents(page(drift_recording))["episodes"][0]["tracks"]]
    assert still == [True, False, False]


def test_headings_and_highlights(drift_recording):
    obstacles, predators, prey = contents(page(drift_recording))["episodes"][1]["tracks"]
    assert obstacles["heading"] is obstacles["highlight"] is None
    turns = unpack(prey["heading"], "u1", 7, 1) / 256.0 * 2 * np.pi
    heading = episode_of(drift_recording, 1).tracks["prey"].heading
    error = np.abs((turns - heading + np.pi) % (2 * np.pi) - np.pi)
    assert error.max() <= np.pi / 256 + 1e-9
    flags = unpack(predators["highlight"], "u1", 7, 2)
    assert np.argwhere(flags).tolist() == [[3, 0]]


def test_something_that_only_turns_is_not_still(drift_recording):
    frame = drift_recording.frames["prey"]
    fixed = frame.replace(position=np.zeros_like(frame.position))
    recording = dataclasses.replace(
        drift_recording, frames={**drift_recording.frames, "prey": fixed}
    )
    assert contents(page(recording))["episodes"][0]["tracks"][2]["still"] is False


def test_map(drift_recording):
    assert contents(page(drift_recording))["cells"] is None
    cells = np.array([[0, 1, 0], [1, 1, 0]])
    scene = dataclasses.replace(drift_recording.scene, cells=cells)
    packed = contents(page(dataclasses.replace(drift_recording, scene=scene)))["cells"]
    assert (packed["rows"], packed["columns"]) == (2, 3)
    np.testing.assert_array_equal(unpack(packed["walls"], "u1", 2, 3), cells)


EVIL = "<!--<script></script><script>alert(1)</script><img src=https://evil.example/x>{{DATA}}"


@pytest.fixture(scope="module")
def evil_page(drift_recording):
    layers = [dataclasses.replace(layer, label=EVIL) for layer in drift_recording.scene.layers]
    scene = dataclasses.replace(
        drift_recording.scene, title=EVIL, layers=layers, groups=(EVIL, "prey"), readouts=(EVIL,)
    )
    return page(
        dataclasses.replace(
            drift_recording,
            scene=scene,
            env_id=EVIL,
            groups=((EVIL, 0, 2), ("prey", 2, 3)),
            metrics={EVIL: drift_recording.metrics["spread"]},
            versions={"jax": EVIL},
        )
    )


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "data")]


def test_strings_of_users_are_escaped(drift_recording, evil_page):
    plain, evil = Tags(page(drift_recording)), Tags(evil_page)
    assert evil.tags == plain.tags
    assert contents(evil_page)["title"] == EVIL
    assert contents(evil_page)["layers"][0]["legend"] == EVIL
    assert "<title>&lt;!--&lt;script&gt;" in evil_page
    # "<!--<script>" would swallow the end of the data.
    assert "<" not in re.search(r'application/json">(.*?)</script>', evil_page, re.S)[1]


def test_nothing_comes_from_elsewhere(drift_recording, evil_page):
    """No address at all: every "/" of the data is escaped, and the code has no "//"."""
    for text in (page(drift_recording), evil_page.replace(EVIL.split("=")[0], "")):
        body = re.sub(r"<title>.*?</title>", "", text, flags=re.S)
        assert "//" not in body
        assert not re.search(r"https?:", body.replace("https:\\/\\/evil", ""))
        assert Tags(text).links == ["data:,"]
        assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", body)
        assert "default-src 'none'" in body


def test_file_is_utf8(drift_recording, tmp_path):
    scene = dataclasses.replace(drift_recording.scene, title="Jäger und Gejagte ✓")
    to_html(dataclasses.replace(drift_recording, scene=scene), tmp_path / "a.html")
    text = (tmp_path / "a.html").read_bytes().decode("utf-8")
    assert "<title>Jäger und Gejagte ✓</title>" in text
    assert contents(text)["title"] == "Jäger und Gejagte ✓"


def test_rewards_that_are_not_finite_keep_the_page_valid(drift_recording):
    rewards = drift_recording.rewards.copy()
    rewards[3] = np.nan
    data = contents(page(dataclasses.replace(drift_recording, rewards=rewards)))
    assert np.isnan(unpack(data["episodes"][0]["returns"], "<f4", 7, 2)[4:]).all()
