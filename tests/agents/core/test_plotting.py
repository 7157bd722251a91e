import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from flockax.agents.core import files, plotting
from flockax.agents.core.plotting import (
    bootstrap_interval,
    iqm,
    learning_curve,
    plot_runs,
    read_curve,
)
from flockax.agents.core.runlog import RunError


def write_run(folder, rows, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def rows(values, every=100):
    return [
        {"update": n, "env_steps": n * every, "return_mean": value}
        for n, value in enumerate(values, 1)
    ]


@pytest.fixture
def drawn(monkeypatch):
    """The axes of every figure, as they were when it was saved."""
    axes = []
    real = Figure.savefig

    def savefig(figure, *args, **kwargs):
        axes.extend(figure.axes)
        return real(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return axes


# Statistics.


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 7, 8, 9, 16])
def test_iqm_against_scipy(seeds):
    x = np.random.default_rng(seeds).standard_normal((seeds, 3, 2)) ** 3
    np.testing.assert_allclose(iqm(x), stats.trim_mean(x, 0.25, axis=0), rtol=1e-12)
    other = np.moveaxis(x, 0, 1)
    np.testing.assert_allclose(iqm(other, axis=1), stats.trim_mean(x, 0.25, axis=0), rtol=1e-12)
    np.testing.assert_allclose(iqm(other, axis=-2), stats.trim_mean(x, 0.25, axis=0), rtol=1e-12)


def test_iqm_by_hand():
    assert iqm(np.array([100.0, 1.0, 3.0, -100.0])) == 2.0
    assert iqm(np.array([8.0, 1.0, 3.0])) == 4.0
    assert math.isnan(iqm(np.array([1.0, 2.0, 3.0, np.nan])))
    assert iqm(np.array([1, 2], np.int32)).dtype == np.float64


def test_interval_against_scipy():
    x = np.random.default_rng(1).standard_normal((9, 4)) * [1.0, 2.0, 5.0, 0.1]
    low, high = bootstrap_interval(x, resamples=8000)
    expected = stats.bootstrap(
        (x,), iqm, n_resamples=8000, axis=0, method="percentile", random_state=5
    ).confidence_interval
    width = expected.high - expected.low
    assert low.shape == high.shape == (4,)
    assert (np.abs(low - expected.low) < 0.05 * width).all()
    assert (np.abs(high - expected.high) < 0.05 * width).all()


def test_interval_covers_the_truth_as_often_as_it_says():
    # 400 experiments of 20 seeds; a percentile interval of so few covers a little less than it says.
    x = np.random.default_rng(2).standard_normal((20, 400))
    covered = {}
    for confidence in (0.95, 0.5):
        low, high = bootstrap_interval(x, confidence=confidence)
        covered[confidence] = np.mean((low <= 0) & (high >= 0))
    assert 0.88 <= covered[0.95] <= 0.97
    assert 0.42 <= covered[0.5] <= 0.56


def test_interval_is_repeatable_and_by_blocks(monkeypatch):
    x = np.random.default_rng(3).standard_normal((4, 5, 3))
    low, high = bootstrap_interval(x, resamples=50)
    assert low.shape == (5, 3)
    assert (low < high).all()
    again = bootstrap_interval(x, resamples=50)
    np.testing.assert_array_equal((low, high), again)
    assert (bootstrap_interval(x, resamples=50, seed=1)[0] != low).any()
    monkeypatch.setattr(plotting, "_BLOCK", 4 * 50 * 4)
    np.testing.assert_array_equal((low, high), bootstrap_interval(x, resamples=50))
    # Whole seeds are drawn: a point does not depend on its neighbours.
    np.testing.assert_array_equal(low[2], bootstrap_interval(x[:, 2], resamples=50)[0])


def test_one_seed_has_no_interval():
    assert bootstrap_interval(np.ones((1, 5))) is None
    low, high = bootstrap_interval(np.ones((2, 5)))
    np.testing.assert_array_equal((low, high), np.ones((2, 5)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 0.0}, "confidence=0.0; allowed is between 0 and 1"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"resamples": 0}, "resamples=0; allowed is 1 or more"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(np.ones((3, 2)), **options)


# Curves.


def test_curve_with_gaps(tmp_path):
    values = [None, [None, 5.0], [1.0, None], [2.0, 6.0], None, [None, None], [3.0, 7.0]]
    run = write_run(tmp_path / "run", [*rows(values), {"update": 8}, {"return_mean": [9.0, 9.0]}])
    steps, curve = read_curve(run)
    np.testing.assert_array_equal(steps, [300, 400, 600, 700])
    np.testing.assert_array_equal(curve, [[1, 2, 2, 3], [5, 6, 6, 7]])


def test_curve_is_thinned_by_equal_windows(tmp_path):
    run = write_run(tmp_path / "run", rows([[float(n), -float(n)] for n in range(10)]))
    steps, curve = read_curve(run, points=4)
    np.testing.assert_array_equal(steps, [100, 400, 700, 1000])
    np.testing.assert_array_equal(curve, [[0, 2, 5, 8], [0, -2, -5, -8]])
    for points in (1, 2, 3, 5, 9, 10, 11):
        steps, curve = read_curve(run, points=points)
        assert len(steps) <= points
        assert steps[-1] == 1000
    assert len(read_curve(run, points=10).steps) == 10
    gaps = write_run(tmp_path / "gaps", rows([[1.0], [None], [None], [None], [5.0], [7.0]]))
    np.testing.assert_array_equal(read_curve(gaps, points=3).values, [[1, 1, 6]])


def test_nested_and_plain_metrics(tmp_path):
    row = {"env_steps": 5, "loss": {"actor": [1.0, 2.0], "of": {"x": [3.0]}}, "rate": 7.0}
    run = write_run(tmp_path / "run", [row])
    np.testing.assert_array_equal(read_curve(run, "loss.actor").values, [[1.0], [2.0]])
    np.testing.assert_array_equal(read_curve(run, "loss.of.x").values, [[3.0]])
    np.testing.assert_array_equal(read_curve(run, "rate").values, [[7.0]])
    for unknown in ("loss.critic", "rate.x", "retrun"):
        with pytest.raises(RunError, match=f"no metric {unknown}; it has env_steps, loss.actor, l"):
            read_curve(run, unknown)


def test_no_metrics(tmp_path):
    run = write_run(tmp_path / "run", [])
    with pytest.raises(RunError, match="no metric return_mean; it has none at all"):
        read_curve(run)
    with pytest.raises(RunError, match="cannot read"):
        plot_runs([tmp_path / "nowhere"], tmp_path / "x.png")


# Figures.


def test_learning_curve(tmp_path, drawn):
    values = np.random.default_rng(0).standard_normal((30, 5)).cumsum(axis=0)
    run = write_run(tmp_path / "run", rows(values.tolist()), convention="sum over 3 agents")
    assert learning_curve(run) == run / "learning_curve.png"
    with Image.open(run / "learning_curve.png") as image:
        assert image.format == "PNG"
        assert image.width > 800 and image.height > 500
        # Something is drawn: the line's blue is there.
        assert (
            (np.abs(np.asarray(image.convert("RGB")).astype(int) - [0, 114, 178]) < 3).all(-1).any()
        )
    (axes,) = drawn
    *seeds, line = axes.get_lines()
    np.testing.assert_allclose(np.stack([s.get_ydata() for s in seeds]), values.T)
    np.testing.assert_allclose(line.get_ydata(), iqm(values, axis=1))
    np.testing.assert_allclose(line.get_xdata(), 100 * np.arange(1, 31))
    assert all(s.get_linewidth() < line.get_linewidth() for s in seeds)
    (band,) = axes.collections
    low, high = bootstrap_interval(values.T)
    vertices = band.get_paths()[0].vertices
    for bound in (low, high):
        assert all(np.isclose(vertices[:, 1], b).any() for b in bound)
    assert "steps" in axes.get_xlabel()
    assert axes.get_ylabel() == "return mean"
    title = axes.get_title(loc="left")
    assert "sum over 3 agents" in title and "interquartile" in title and "95 %" in title
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["run (5 seeds)"]


def test_several_runs_in_one_figure(tmp_path, drawn):
    runs = [
        write_run(tmp_path / "a" / "tag-1", rows([[1.0], [2.0]])),
        write_run(tmp_path / "b" / "tag-1", rows([[3.0, 4.0], [4.0, 5.0], [5.0, 6.0]])),
        write_run(tmp_path / "b" / "spread-1", rows([[0.0]])),
    ]
    plot_runs(runs, tmp_path / "x.png")
    (axes,) = drawn
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [f"{runs[0]} (1 seed)", f"{runs[1]} (2 seeds)", "spread-1 (1 seed)"]
    assert len(axes.collections) == 1
    lines = axes.get_lines()
    assert len({line.get_color() for line in lines}) == 3
    assert [len(line.get_xdata()) for line in lines] == [2, 3, 3, 3, 1]
    # A single point would be invisible as a line.
    assert lines[-1].get_marker() == "o"


def test_conventions_that_differ_are_all_told(tmp_path, drawn):
    runs = [
        write_run(tmp_path / "a", rows([[1.0]]), convention="one"),
        write_run(tmp_path / "b", rows([[1.0]]), convention="two"),
        write_run(tmp_path / "c", rows([[1.0]]), convention="one"),
        write_run(tmp_path / "d", rows([[1.0]]), convention=3),
    ]
    # That of the evaluation at the end is not that of the curve.
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"convention": "of the end"}))
    plot_runs(runs, tmp_path / "x.png")
    assert drawn[0].get_title(loc="left") == "one\ntwo"


def test_run_without_values_yet(tmp_path, drawn):
    for number, values in enumerate(([None, None], [[None, None]], [[1.0, None]])):
        run = write_run(tmp_path / str(number), rows(values))
        assert learning_curve(run).exists()
        assert [text.get_text() for text in drawn[number].texts] == ["no values yet"]


@pytest.mark.parametrize(
    ("name", "start"),
    [("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.pdf", b"%PDF"), ("x.PNG", b"\x89PNG")],
)
def test_formats(tmp_path, name, start):
    run = write_run(tmp_path / "run", rows([[1.0, 2.0], [2.0, 3.0]]))
    plot_runs([run], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert sorted(os.listdir(tmp_path)) == sorted(["run", name])


@pytest.mark.parametrize("name", ["x.jpg", "x", "png", "x.png.txt"])
def test_other_formats_are_refused(tmp_path, name):
    run = write_run(tmp_path / "run", rows([[1.0]]))
    with pytest.raises(RunError, match=r"allowed endings are \.png, \.svg, \.pdf"):
        plot_runs([run], tmp_path / name)
    assert os.listdir(tmp_path) == ["run"]


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(RunError, match="runs is empty"):
        plot_runs([], tmp_path / "x.png")


def test_a_failed_write_keeps_the_old_picture(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", rows([[1.0]]))
    (tmp_path / "x.png").write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(RunError, match=r"cannot write .*x\.png: disk full"):
        plot_runs([run], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes() == b"old"
    monkeypatch.undo()
    with pytest.raises(RunError, match=r"cannot write .*nowhere.x\.png: No such file"):
        plot_runs([run], tmp_path / "nowhere" / "x.png")


def test_plotting_leaves_matplotlib_as_it_is(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot_runs([write_run(tmp_path / "run", rows([[1.0]]))], tmp_path / "x.png")
    assert dict(matplotlib.rcParams) == before


def test_step_labels():
    values = [0, 500, 1000, 2500, 500_000, 2e6, 1.5e6, 3e9, -2000]
    labels = [plotting._thousands(value, None) for value in values]
    assert labels == ["0", "500", "1k", "2.5k", "500k", "2M", "1.5M", "3G", "-2k"]


def test_importing_leaves_matplotlib_out():
    script = """
import sys, flockax.agents.core.plotting
sys.exit(bool({"matplotlib", "scipy", "orbax"} & set(sys.modules)))
"""
    environment = {**os.environ, "MPLBACKEND": "no such backend"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environment)


def test_no_screen_is_needed(tmp_path):
    run = write_run(tmp_path / "run", rows([[1.0, 2.0], [2.0, 3.0]]))
    script = (
        f"from flockax.agents.core.plotting import learning_curve; learning_curve({str(run)!r})"
    )
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"} | {"MPLBACKEND": "TkAgg"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environment)
    assert (run / "learning_curve.png").exists()
