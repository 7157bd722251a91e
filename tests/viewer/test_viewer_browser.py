"""The page in a real headless Chromium: it opens, plays, scrubs, and draws what was recorded."""

import base64
import dataclasses
import io
import os
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from flockax.envs import make
from flockax.envs.viewer import Layer, LayerFrame, Palette, Recording, Scene, record, to_html
from flockax.envs.viewer.raster import number
from flockax.envs.viewer.timeline import episode_of, jump_distance, moment

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)
# The margin around the extent on the stage, in CSS pixels.
PAD = 20


def _missing(what):
    """Continuous integration must run these tests; elsewhere they need an installed browser."""
    message = (
        f"{what} is not installed: apt-get install chromium chromium-driver; pip install selenium"
    )
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    chromedriver = shutil.which("chromedriver")
    if browser is None or chromedriver is None:
        _missing("chromium")
    try:
        from selenium import webdriver
    except ModuleNotFoundError:
        _missing("selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield driver
    driver.quit()


class Page:
    """A replay that is open in the browser."""

    def __init__(self, driver, path):
        self.driver = driver
        driver.get(path.as_uri())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, name):
        return self.driver.find_element("id", name)

    def text(self, name):
        return self.find(name).text

    def values(self, name):
        return [cell.text for cell in self.find(name).find_elements("class name", "value")]

    @property
    def playhead(self):
        return float(self.find("scrub").get_property("value"))

    def settle(self):
        """Waits until two pictures have been drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()));"
        )

    def seek(self, when):
        self.run(
            "const scrub = document.getElementById('scrub'); scrub.value = arguments[0];"
            "scrub.dispatchEvent(new Event('input'));",
            when,
        )
        self.settle()

    def choose(self, name, value):
        from selenium.webdriver.support.ui import Select

        Select(self.find(name)).select_by_value(value)
        self.settle()

    def keys(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()
        self.settle()

    def wait_for(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the page did not get there in time"
            time.sleep(0.02)

    def picture(self):
        """What is on the stage: ``int[height, width, 3]``."""
        # Of a copy: reading the stage itself would make the browser draw it in another way.
        url = self.run(
            """
            const stage = document.getElementById("stage");
            const copy = Object.assign(document.createElement("canvas"), {
              width: stage.width, height: stage.height,
            });
            copy.getContext("2d", { willReadFrequently: true }).drawImage(stage, 0, 0);
            return copy.toDataURL();
            """
        )
        with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as image:
            return np.asarray(image.convert("RGB")).astype(int)

    def where(self, color, tolerance=10):
        """Rows and columns of the stage's pixels that have nearly a colour: ``int[n, 2]``."""
        channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        return np.argwhere(np.abs(self.picture() - channels).max(axis=-1) <= tolerance)

    def errors(self):
        return self.driver.get_log("browser")


def differ(one, other):
    """Whether more than a few pixels differ by more than smoothing could explain."""
    return int((np.abs(one - other).max(axis=-1) > 40).sum()) > 10


def chase(key, carry, observation, state, params, reset):
    """Three predators steer at one prey, which dithers."""
    way = state.position[3] - state.position[:3]
    across = jnp.where(way[:, 0] > 0, 2, 1)
    along = jnp.where(way[:, 1] > 0, 4, 3)
    steer = jnp.where(jnp.abs(way[:, 0]) > jnp.abs(way[:, 1]), across, along)
    return jnp.concatenate([steer, jax.random.randint(key, (1,), 0, 5)]), carry


@pytest.fixture(scope="module")
def tag_recording():
    env = make("tag", num_predators=3, num_prey=1, num_obstacles=2)
    recording = record(env, chase, 0, 3, env.make_params(horizon=40))
    colors = {"predators": Palette.PREDATOR, "prey": Palette.PREY, "obstacles": Palette.OBSTACLE}
    layers = [
        dataclasses.replace(layer, color=colors[layer.name], opacity=1.0)
        for layer in recording.scene.layers
    ]
    return dataclasses.replace(recording, scene=dataclasses.replace(recording.scene, layers=layers))


@pytest.fixture
def show(driver, tmp_path):
    """Opens a recording; afterwards the console must be empty and nothing loaded."""
    pages = []

    def open_page(recording):
        to_html(recording, tmp_path / "replay.html")
        pages.append(Page(driver, tmp_path / "replay.html"))
        pages[-1].settle()
        return pages[-1]

    yield open_page
    for page in pages[-1:]:
        assert page.errors() == []
        assert page.run("return performance.getEntriesByType('resource').length") == 0


@pytest.fixture
def page(show, tag_recording):
    return show(tag_recording)


def on_stage(page, recording, number, positions):
    """Pixels ``(row, column)`` at which the page should draw world positions."""
    size = page.run(
        "const s = document.getElementById('stage'); return [s.clientWidth, s.clientHeight]"
    )
    x_min, x_max, y_min, y_max = episode_of(recording, number).extent
    scale = min((size[0] - 2 * PAD) / (x_max - x_min), (size[1] - 2 * PAD) / (y_max - y_min))
    columns = size[0] / 2 + (positions[:, 0] - (x_min + x_max) / 2) * scale
    rows = size[1] / 2 - (positions[:, 1] - (y_min + y_max) / 2) * scale
    return np.stack([rows, columns], axis=1), scale


def single(positions, size=0.1, heading=None, visible=None, **scene):
    """A recording of one layer with these positions ``[frames, count, 2]``."""
    steps, count = len(positions) - 1, positions.shape[1]
    layer = Layer("items", "disc", count, size, Palette.PREDATOR, trail=scene.pop("trail", 0))
    return Recording(
        env_id="single",
        fields={},
        params={},
        seed=0,
        versions={},
        groups=(("items", 0, 1),),
        scene=Scene((-1, 1, -1, 1), (layer,), **scene),
        lengths=np.array([steps], np.int32),
        terminated=np.array([True]),
        actions=np.zeros((steps, 1), int),
        rewards=np.ones((steps, 1)),
        metrics={},
        frames={"items": LayerFrame(positions, heading, visible)},
    )


def test_opens(page, tag_recording):
    assert page.driver.title == tag_recording.scene.title
    assert page.text("title") == tag_recording.scene.title
    assert page.text("time") == "0 / 40"
    assert page.values("returns") == ["0", "0"]
    assert page.values("legend") == ["2", "3", "1"]
    assert page.values("readouts") == ["–"]
    assert page.text("episode") == "1 of 3\n2 of 3\n3 of 3"


def test_plays_and_pauses(page):
    before = page.picture()
    # Slow enough that a busy machine does not reach the end between two looks.
    page.choose("speed", "0.5")
    page.find("play").click()
    page.wait_for(lambda: page.playhead > 3)
    assert page.find("play").get_attribute("aria-label") == "Pause"
    page.find("play").click()
    page.settle()
    stopped, picture = page.playhead, page.picture()
    assert 3 < stopped < 40
    assert differ(picture, before)
    assert page.text("time") == f"{int(stopped)} / 40"
    time.sleep(0.4)
    assert page.playhead == stopped
    assert not differ(page.picture(), picture)


def test_stops_at_the_end_and_starts_again(page):
    page.seek(39)
    page.find("play").click()
    page.wait_for(lambda: page.find("play").get_attribute("aria-label") == "Play")
    assert page.text("time") == "40 / 40 · time limit"
    page.find("play").click()
    page.wait_for(lambda: 0 < page.playhead < 30)


def test_scrubs(page):
    from selenium.webdriver.common.action_chains import ActionChains

    scrub = page.find("scrub")
    for part in (0.25, 0.75):
        offset = int((part - 0.5) * scrub.size["width"])
        ActionChains(page.driver).move_to_element_with_offset(scrub, offset, 0).click().perform()
        page.settle()
        assert page.playhead == pytest.approx(40 * part, abs=1)
        assert page.text("time") == f"{int(page.playhead)} / 40"


def test_speed_changes_the_rate(page):
    """Steps for each second of the page's own clock."""

    def rate(speed):
        page.choose("speed", speed)
        page.seek(0)
        page.run("document.getElementById('play').click()")
        steps, seconds = page.driver.execute_async_script(
            """
            const done = arguments[0], scrub = document.getElementById("scrub");
            const sample = () => [Number(scrub.value), performance.now() / 1000];
            requestAnimationFrame(() => setTimeout(() => {
              const from = sample();
              setTimeout(() => { const to = sample(); done([to[0] - from[0], to[1] - from[1]]); }, 500);
            }, 200));
            """
        )
        page.run("document.getElementById('play').click()")
        return steps / seconds

    # Each bound leaves room for a browser that starves on a busy machine.
    slow, normal, fast = rate("0.25"), rate("1"), rate("4")
    assert 1.0 < slow < 4.0
    assert 5.0 < normal < 15.0
    assert 20.0 < fast < 60.0


def test_chooses_episodes(page, tag_recording):
    picture = page.picture()
    for number_ in ("2", "1"):
        page.choose("episode", number_)
        assert page.text("time") == "0 / 40"
        assert differ(page.picture(), picture)
        _check_returns(page, tag_recording, int(number_))


def _check_returns(page, recording, number_):
    episode = episode_of(recording, number_)
    for when in (0, 13, 40):
        page.seek(when)
        expected = [
            number(float(np.float32(value))).replace("-", "−") for value in episode.returns[when]
        ]
        assert page.values("returns") == expected
        if when:
            assert page.values("readouts") == [number(float(np.float32(episode.readouts[when, 0])))]


def test_returns_accumulate(page, tag_recording):
    _check_returns(page, tag_recording, 0)
    chart = "return document.getElementById('chart').toDataURL()"
    end = page.run(chart)
    page.seek(5)
    assert page.run(chart) != end


def test_draws_what_was_recorded(page, tag_recording):
    """Predators and prey have their colours where they were, at frames and half way between."""
    jump = jump_distance(tag_recording.scene)
    episode = episode_of(tag_recording, 1)
    page.choose("episode", "1")
    for when in (0, 7.5, 20, 40):
        page.seek(when)
        seen = {name: page.where(getattr(Palette, name)) for name in ("PREDATOR", "PREY")}
        for name, layer in (("PREDATOR", "predators"), ("PREY", "prey")):
            items = moment(episode.tracks[layer], when, jump)
            flashing = items.highlight if items.highlight is not None else np.zeros(9, bool)
            centers, _ = on_stage(page, tag_recording, 1, items.position)
            for center, flash in zip(centers, flashing, strict=False):
                distance = np.linalg.norm(seen[name] - center, axis=1)
                assert flash or distance.min() < 2, (when, name)


def test_one_disc_is_drawn_to_scale(show):
    positions = np.array([[[-0.5, 0.25]], [[-0.1, 0.05]], [[5.0, -3.0]]])
    recording = single(positions)
    page = show(recording)
    for when, place in ((0, [-0.5, 0.25]), (0.5, [-0.3, 0.15]), (1.5, [-0.1, 0.05]), (2, [5, -3])):
        page.seek(when)
        found = page.where(Palette.PREDATOR)
        (center,), scale = on_stage(page, recording, 0, np.array([place]))
        np.testing.assert_allclose(found.mean(axis=0), center - 0.5, atol=1)
        # The rim takes the outer three quarters of a pixel.
        assert len(found) == pytest.approx(np.pi * (0.1 * scale - 0.75) ** 2, rel=0.15)


def test_hidden_items_are_not_drawn(show):
    """An item stays where it is until the step in which it vanishes is over."""
    positions = np.full((4, 1, 2), 0.85)
    positions[2] = np.nan
    recording = single(positions, visible=np.array([[True], [False], [True], [True]]))
    page = show(recording)
    (center,), _ = on_stage(page, recording, 0, positions[0])
    for when, shown in ((0, True), (0.5, True), (1, False), (2, False), (2.5, False), (3, True)):
        page.seek(when)
        found = page.where(Palette.PREDATOR)
        assert bool(len(found)) == shown
        if shown:
            np.testing.assert_allclose(found.mean(axis=0), center - 0.5, atol=1)
        assert page.values("legend") == ["1" if shown else "0 of 1"]
    assert page.text("time") == "3 / 3 · ended"


@pytest.mark.parametrize("count", [1, 1600])
def test_arrows_point_along_their_heading(show, count):
    """The tip is farthest from the middle: up, then half way to the left, then left."""
    heading = np.array([[np.pi / 2], [np.pi]]) * np.ones(count)
    recording = single(np.zeros((2, count, 2)), size=0.3, heading=heading)
    layer = dataclasses.replace(recording.scene.layers[0], kind="arrow")
    scene = dataclasses.replace(recording.scene, layers=(layer,))
    page = show(dataclasses.replace(recording, scene=scene))
    (center,), _ = on_stage(page, recording, 0, np.zeros((1, 2)))

    for when, angle in ((0, 0.5), (0.5, 0.75), (1, 1.0)):
        page.seek(when)
        found = page.where(Palette.PREDATOR) + 0.5 - center
        down, right = found[np.argmax(np.linalg.norm(found, axis=1))]
        assert np.arctan2(-down, right) % (2 * np.pi) == pytest.approx(angle * np.pi, abs=0.06)


def test_highlights_flash(page, tag_recording):
    track = episode_of(tag_recording, 0).tracks["prey"]
    caught = np.flatnonzero(track.highlight[:, 0])
    free = np.flatnonzero(~track.highlight[:, 0])
    assert len(caught) > 0
    flash = "#ffffff"
    page.run("if (document.documentElement.dataset.theme !== 'dark') theme.click()")
    page.seek(int(free[0]))
    assert len(page.where(flash)) == 0
    page.seek(int(caught[0]))
    assert len(page.where(flash, 40)) > 5


def test_keys(page):
    from selenium.webdriver.common.keys import Keys

    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.playhead == 2
    page.keys(Keys.ARROW_LEFT)
    assert page.playhead == 1
    page.keys(Keys.END)
    assert page.playhead == 40
    page.keys(Keys.HOME)
    assert page.playhead == 0
    page.keys(Keys.SPACE)
    page.wait_for(lambda: page.playhead > 1)
    page.keys(Keys.SPACE)
    stopped = page.playhead
    time.sleep(0.3)
    assert page.playhead == stopped


def test_space_after_a_click_plays(page):
    """A click leaves no button in the way of the keys."""
    from selenium.webdriver.common.keys import Keys

    page.find("forward").click()
    page.keys(Keys.SPACE)
    page.wait_for(lambda: page.playhead > 2)
    page.find("back").click()
    assert page.find("play").get_attribute("aria-label") == "Play"


def test_loop_goes_on_with_the_next_episode(page):
    page.find("loop").click()
    page.choose("episode", "2")
    page.seek(39.5)
    page.find("play").click()
    page.wait_for(lambda: page.find("episode").get_property("value") == "0")
    page.wait_for(lambda: page.playhead > 1)


def test_zoom_and_fit(page):
    before = page.picture()
    assert not page.find("fit").is_displayed()
    page.run(
        "document.getElementById('stage').dispatchEvent("
        "new WheelEvent('wheel', { deltaY: -400, cancelable: true }))"
    )
    page.settle()
    assert differ(page.picture(), before)
    page.find("fit").click()
    page.settle()
    assert not differ(page.picture(), before)


def test_drag_moves_the_picture(page):
    from selenium.webdriver.common.action_chains import ActionChains

    before = page.where(Palette.PREDATOR).mean(axis=0)
    stage = page.find("stage")
    drag = ActionChains(page.driver).click_and_hold(stage).move_by_offset(60, 30).release()
    drag.perform()
    page.settle()
    np.testing.assert_allclose(page.where(Palette.PREDATOR).mean(axis=0) - before, [30, 60], atol=2)


def test_click_on_the_chart_seeks(page):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page.driver).move_to_element(page.find("chart")).click().perform()
    page.settle()
    assert page.playhead == pytest.approx(20, abs=1)


def test_themes(page):
    def ground():
        return page.run("return getComputedStyle(document.body).backgroundColor")

    first = ground()
    page.find("theme").click()
    page.settle()
    assert ground() != first
    assert len(page.where(Palette.PREDATOR)) > 50
    page.find("theme").click()
    assert ground() == first


def test_trails_are_drawn(show):
    positions = np.linspace([-0.8, 0], [0.8, 0], 9)[:, None]
    counts = []
    for trail in (0, 6):
        page = show(single(positions, trail=trail))
        page.seek(8)
        arena = page.run("return getComputedStyle(document.body).getPropertyValue('--arena')")
        counts.append(len(page.where(arena, 0)))
    # Six steps of 0.2 in an area 2 units wide.
    assert counts[0] - counts[1] > 100


def test_map_is_the_right_way_up(show):
    cells = np.zeros((2, 2), int)
    cells[0, 1] = 1
    page = show(single(np.full((2, 1, 2), -0.5), cells=cells))
    wall = page.run("return getComputedStyle(document.body).getPropertyValue('--wall')")
    rows, columns = page.where(wall, 0).T
    (middle,), scale = on_stage(page, single(np.zeros((2, 1, 2))), 0, np.zeros((1, 2)))
    assert len(rows) == pytest.approx(scale**2, rel=0.05)
    assert rows.max() <= middle[0] + 1
    assert columns.min() >= middle[1] - 1


@pytest.mark.parametrize("kind", ["disc", "square", "arrow", "cross", "ring", "line"])
def test_every_kind_is_drawn_alone_and_in_crowds(show, kind):
    """The crowd's stamps cover the same pixels as the item drawn alone."""
    areas = []
    for count in (1, 1600):
        positions = np.zeros((2, count, 2))
        recording = single(positions, size=0.05, heading=np.full((2, count), 0.7))
        layer = dataclasses.replace(
            recording.scene.layers[0], kind=kind, outline=Palette.PREDATOR, size=0.05
        )
        scene = dataclasses.replace(recording.scene, layers=(layer,))
        page = show(dataclasses.replace(recording, scene=scene))
        page.seek(0)
        areas.append(page.where(Palette.PREDATOR, 60))
    assert len(areas[0]) > 30
    # The rim of the single item reaches three quarters of a pixel farther out.
    np.testing.assert_allclose(areas[0].mean(axis=0), areas[1].mean(axis=0), atol=1.5)
    assert 0.6 < len(areas[1]) / len(areas[0]) < 1.2


def test_ten_thousand_agents_play(show):
    rng = np.random.default_rng(0)
    turns = np.cumsum(rng.normal(0, 0.1, (31, 10_000)), axis=0) + rng.uniform(0, 6, 10_000)
    steps = 0.01 * np.stack([np.cos(turns), np.sin(turns)], axis=-1)
    positions = np.cumsum(steps, axis=0) + rng.uniform(-0.9, 0.9, (10_000, 2))
    page = show(single(positions, size=0.005, heading=turns, trail=4))
    assert len(page.where(Palette.PREDATOR)) > 10_000
    page.find("play").click()
    frames, seconds = page.driver.execute_async_script(
        """
        const done = arguments[0], start = performance.now();
        let frames = 0;
        const count = (now) => {
          frames++;
          if (now - start > 1500) done([frames, (now - start) / 1000]);
          else requestAnimationFrame(count);
        };
        requestAnimationFrame(count);
        """
    )
    # Far below what an idle machine does, but more than canvas calls for each item reach.
    assert frames / seconds > 5
    assert page.playhead > 2


def test_texts_of_users_are_shown_as_they_are(show, tag_recording):
    evil = "</script><script>document.title = 'broken'</script><img src=x onerror=alert(1)>"
    layers = [dataclasses.replace(layer, label=evil) for layer in tag_recording.scene.layers]
    scene = dataclasses.replace(tag_recording.scene, title=evil, layers=layers)
    page = show(dataclasses.replace(tag_recording, scene=scene))
    assert page.driver.title == evil
    assert page.text("title") == evil
    assert evil in page.text("legend")


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_fits_any_screen_and_density(page, width):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.settle()
        page.settle()
        wide, client, canvas, css = page.run(
            """
            const root = document.documentElement, stage = document.getElementById("stage");
            return [root.scrollWidth, root.clientWidth, stage.width, stage.clientWidth];
            """
        )
        assert wide <= client
        assert canvas == pytest.approx(2 * css, abs=1)
        assert len(page.where(Palette.PREDATOR)) > 30
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    "changes",
    [
        {"num_predators": 1, "num_prey": 0, "num_obstacles": 0, "horizon": 1, "episodes": 1},
        {"fault": "nan"},
        {"fault": "far"},
    ],
)
def test_odd_recordings_play(show, make_recording, changes):
    page = show(make_recording(**changes))
    page.find("play").click()
    page.wait_for(lambda: page.find("play").get_attribute("aria-label") == "Play")
    assert page.text("time").endswith("time limit")
