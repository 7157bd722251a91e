"""Learning curves: the interquartile mean over seeds with a bootstrap interval.

The statistics follow Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021): with few seeds the mean follows outliers and a standard error misleads.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flockax.agents.core.files import RunError, reported, write_atomically
from flockax.agents.core.metricslog import read_metrics, read_object

_FORMATS = ("png", "svg", "pdf")
# Okabe and Ito's colours: told apart by the colour-blind too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Resampled numbers held at once; 2**21 float64 are 16 MiB.
_BLOCK = 1 << 21


class Curve(NamedTuple):
    """A metric over training: ``steps[T]`` (env steps a seed) and ``values[S, T]`` over seeds."""

    steps: np.ndarray
    values: np.ndarray


def iqm(x: np.ndarray, axis: int = 0) -> np.ndarray:
    """The interquartile mean: the mean without the lowest and the highest quarter.

    Args:
        x: values, at least one along `axis`; of n the lowest and the highest n // 4 are left out.
        axis: the axis to reduce.

    Returns:
        float64 without `axis`; NaN where a value is NaN.
    """
    x = np.moveaxis(np.sort(np.asarray(x, dtype=np.float64), axis=axis), axis, 0)
    cut = len(x) // 4
    # Sorting puts NaN last, where it would be cut away.
    return x[cut : len(x) - cut].mean(axis=0) + 0 * x[-1]


def bootstrap_interval(
    x: np.ndarray, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray] | None:
    """The percentile bootstrap interval of the interquartile mean over seeds.

    A resample draws whole seeds, so the points of a curve move together.

    Args:
        x: ``[seeds, ...]``.
        confidence: how much of the resamples lies between the bounds, in (0, 1).
        resamples: how many are drawn.
        seed: of the draws, which are the same in every call.

    Returns:
        ``(low[...], high[...])``, or None for a single seed, of which nothing can be said.

    Raises:
        ValueError: `confidence` or `resamples` is out of range.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}; allowed is between 0 and 1")
    if resamples < 1:
        raise ValueError(f"resamples={resamples}; allowed is 1 or more")
    x = np.asarray(x, dtype=np.float64)
    seeds = len(x)
    if seeds < 2:
        return None
    drawn = np.random.default_rng(seed).integers(seeds, size=(seeds, resamples))
    points = x.reshape(seeds, -1)
    block = max(1, _BLOCK // drawn.size)
    tail = (1 - confidence) / 2
    bounds = [
        np.quantile(iqm(points[:, i : i + block][drawn], axis=0), (tail, 1 - tail), axis=0)
        for i in range(0, points.shape[1], block)
    ]
    low, high = np.concatenate(bounds, axis=1).reshape(2, *x.shape[1:])
    return low, high


def read_curve(run: Path, metric: str = "return_mean", points: int = 200) -> Curve:
    """Reads one metric of a run.

    Long runs are thinned by averaging neighbouring lines. A seed without a value somewhere (no
    episode ended) keeps its last one; the curve begins where every seed has one.

    Args:
        run: the folder of the run.
        metric: a field of ``metrics.jsonl``, dotted if nested (``"loss.actor"``).
        points: the largest T.

    Returns:
        The curve; T is 0 if no value is finite.

    Raises:
        RunError: there are no metrics, or none of that name.
    """
    rows = [
        (record["env_steps"], value)
        for record in read_metrics(Path(run) / "metrics.jsonl")
        if "env_steps" in record and (value := _field(record, metric)) is not None
    ]
    if not rows:
        names = sorted({n for r in read_metrics(Path(run) / "metrics.jsonl") for n in _names(r)})
        if metric in names:
            return Curve(np.zeros(0), np.zeros((1, 0)))
        raise RunError(f"{run} has no metric {metric}; it has {', '.join(names) or 'none at all'}")
    steps = np.array([step for step, _ in rows], dtype=np.float64)
    values = np.array([np.atleast_1d(np.array(v, dtype=np.float64)) for _, v in rows]).T
    # Of equal width, but for the first: the noise must not change along the curve.
    width = -(-len(steps) // points)
    windows = np.split(np.arange(len(steps)), range(len(steps) % width or width, len(steps), width))
    steps = np.array([steps[window[-1]] for window in windows])
    values = np.stack([_finite_mean(values[:, window]) for window in windows], axis=1)
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(steps)), -1), axis=1)
    values = np.take_along_axis(values, np.maximum(last, 0), axis=1)
    complete = (last >= 0).all(axis=0)
    return Curve(steps[complete], values[:, complete])


def plot_runs(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    metric: str = "return_mean",
) -> None:
    """Draws the learning curves of runs into one figure.

    A line is the interquartile mean over the seeds of a run, its band the 95 % bootstrap interval,
    thin lines are the seeds. The convention of the returns stands above, if the runs have a text
    ``"convention"`` in their ``config.json``.

    Args:
        runs: the folders of the runs.
        out: a ``.png``, ``.svg`` or ``.pdf`` file, replaced if it is there.
        metric: a field of ``metrics.jsonl``, dotted if nested (``"loss.actor"``).

    Raises:
        RunError: no run is given, one has no such metric, `out` has another ending or cannot be
            written.
    """
    # Imported here: the command line must answer --help without it.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    out = Path(out)
    form = out.suffix.lower().removeprefix(".")
    if form not in _FORMATS:
        raise RunError(f"out={out}; allowed endings are .{', .'.join(_FORMATS)}")
    folders = [Path(run) for run in runs]
    if not folders:
        raise RunError("runs is empty; allowed is one run or more")
    curves = [read_curve(folder, metric) for folder in folders]
    content = io.BytesIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.0, 4.3), layout="constrained")
        axes = figure.add_subplot()
        for number, (curve, name) in enumerate(zip(curves, _labels(folders), strict=True)):
            _draw(axes, curve, name, _COLOURS[number % len(_COLOURS)])
        if not any(curve.steps.size for curve in curves):
            axes.text(0.5, 0.5, "no values yet", ha="center", transform=axes.transAxes)
        axes.xaxis.set_major_formatter(_thousands)
        axes.set_xlabel("environment steps (per seed)")
        axes.set_ylabel(metric.replace("_", " ").replace(".", ", "))
        axes.set_title(_explanation(folders, curves), loc="left", fontsize="small", color="0.35")
        axes.legend(loc="best")
        figure.savefig(content, format=form, dpi=160)
    with reported("write", out):
        write_atomically(out, content.getvalue())


def learning_curve(run: str | os.PathLike[str]) -> Path:
    """Draws the mean return of one run into its ``learning_curve.png``; see `plot_runs`.

    Returns:
        The file.
    """
    out = Path(run) / "learning_curve.png"
    plot_runs([run], out)
    return out


_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.4",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "xtick.color": "0.25",
    "ytick.color": "0.25",
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def _draw(axes: Any, curve: Curve, name: str, colour: str) -> None:
    """One run: seeds, band and line. A run of one seed is a single line without a band."""
    steps, values = curve
    seeds = len(values)
    marker = "o" if len(steps) == 1 else None
    interval = bootstrap_interval(values) if steps.size else None
    if interval is not None:
        axes.plot(steps, values.T, color=colour, alpha=0.3, linewidth=0.7)
        axes.fill_between(steps, *interval, color=colour, alpha=0.2, linewidth=0)
    label = f"{name} ({seeds} seed{'s' if seeds > 1 else ''})"
    line = iqm(values) if steps.size else steps
    axes.plot(steps, line, color=colour, linewidth=2, marker=marker, label=label)


def _explanation(folders: Sequence[Path], curves: Sequence[Curve]) -> str:
    """What the returns mean, as far as the runs say so, and how the seeds are drawn."""
    lines = list(dict.fromkeys(_convention(folder) for folder in folders))
    if any(len(curve.values) > 1 for curve in curves):
        lines.append("interquartile mean over seeds, 95 % bootstrap interval; thin lines: seeds")
    return "\n".join(textwrap.fill(line, 95) for line in lines if line)


def _thousands(value: float, _: object) -> str:
    """A number of steps as people write it: 500k, 2M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _labels(folders: Sequence[Path]) -> list[str]:
    """The names of the folders, or their paths where names are equal."""
    names = [folder.resolve().name for folder in folders]
    return [
        str(folder) if names.count(name) > 1 else name
        for folder, name in zip(folders, names, strict=True)
    ]


def _convention(run: Path) -> str:
    """What the returns of a run mean, if it says so."""
    if not (run / "config.json").is_file():
        return ""
    convention = read_object(run / "config.json").get("convention")
    return convention if isinstance(convention, str) else ""


def _finite_mean(x: np.ndarray) -> np.ndarray:
    """The mean over the last axis of what is finite, NaN where nothing is."""
    finite = np.isfinite(x)
    count = finite.sum(axis=-1)
    total = np.where(finite, x, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _field(record: Mapping[str, Any], metric: str) -> Any:
    value: Any = record
    for name in metric.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _names(record: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, value in record.items():
        nested = isinstance(value, Mapping)
        names += _names(value, f"{prefix}{name}.") if nested else [prefix + name]
    return names
