"""The host loop: chunks of updates, logs, checkpoints, signals, and the results at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from flockax.agents.core.checkpoint import Checkpoints, state_digest
from flockax.agents.core.dashboards import TensorBoardWriter, WandbWriter
from flockax.agents.core.evaluation import convention, evaluate
from flockax.agents.core.files import RunError, reported
from flockax.agents.core.metricslog import MetricsLog
from flockax.agents.core.plotting import learning_curve
from flockax.agents.core.progress import RunProgress
from flockax.agents.core.runlog import CHECKPOINTS, RunFolder, versions
from flockax.agents.core.runs import make_trainer, weights_from
from flockax.agents.core.trainer import (
    SEED_LOOPS,
    ChunkMetrics,
    Trainer,
    make_chunk,
    make_init,
    require,
    seed_keys,
)

MAY_DIFFER = (
    "versions",
    "convention",
    "run.checkpoint_interval",
    "run.log_interval",
    "run.eval_episodes",
)


class TrainingError(RuntimeError):
    """A run cannot go on."""


class Stopped(Exception):
    """A signal ended the run after a checkpoint.

    Attributes:
        signum: the signal.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a learner is run.

    Attributes:
        seed: first seed.
        seeds: how many seeds to train in parallel: seed .. seed + seeds - 1.
        seed_loop: vmap trains all seeds at once; map one after the other, bit-equal for any number.
        out: folder of the run; by default a fresh runs/LEARNER-ENV-N.
        resume: go on in the folder given by out; if it has no checkpoint, start anew.
        log_interval: updates between lines of metrics.jsonl; 0 for a hundredth of the run.
        checkpoint_interval: updates between checkpoints; 0 for a tenth of the run.
        eval_episodes: episodes of each seed in the evaluation at the end.
        start_from: folder of a trained run whose networks this one starts with, of the same shape.
        opponent: GROUP=random, GROUP=POLICY or GROUP=RUN: who plays a group instead of learning it.
        tensorboard: also write TensorBoard event files.
        wandb: also log to Weights & Biases.
    """

    seed: int = 0
    seeds: int = 4
    seed_loop: Literal["vmap", "map"] = "vmap"
    out: Path | None = None
    resume: bool = False
    log_interval: int = 0
    checkpoint_interval: int = 0
    eval_episodes: int = 256
    start_from: Path | None = None
    opponent: tuple[str, ...] = ()
    tensorboard: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        """Refuses options that make no sense.

        Raises:
            ValueError: naming the option, its value and what is allowed.
        """
        require(self, "seeds", lambda x: x >= 1, "at least 1")
        require(self, "seed", lambda x: 0 <= x <= 2**32 - self.seeds, "in 0 .. 2^32 - seeds")
        require(self, "eval_episodes", lambda x: x >= 1, "at least 1")
        require(self, "seed_loop", lambda x: x in SEED_LOOPS, "vmap or map")
        for name in ("log_interval", "checkpoint_interval"):
            require(self, name, lambda x: x >= 0, "at least 0")
        if self.resume and self.out is None:
            raise ValueError("resume=True needs the folder of the run: --out RUN")


def train(
    trainer: Trainer, learner: str, env_id: str, options: RunOptions, config: dict[str, Any]
) -> tuple[Path, dict[str, Any]]:
    """Trains all seeds and leaves a run folder behind.

    Args:
        trainer: the learner on its environment.
        learner: its name.
        env_id: the name of the environment.
        options: how to run it.
        config: what ``config.json`` holds besides versions: all that is needed to repeat the run.

    Returns:
        ``(folder, summary)``.

    Raises:
        RunError: the folder is used, locked, of another configuration, or cannot be written.
        CheckpointError: a checkpoint cannot be written or read.
        TrainingError: a loss is not finite.
        ValueError: the run to start from has other networks.
        Stopped: by SIGINT or SIGTERM, after a checkpoint.
    """
    weights = _first_weights(trainer, options, config["config"])
    with RunFolder.create(options.out, learner, env_id, options.resume) as folder:
        episodes = "the training episodes that ended since the line before"
        meaning = convention(trainer.env, trainer.params, episodes, "sampled")
        full_config = {
            **config,
            "convention": f"{meaning}; {trainer.note}" if trainer.note else meaning,
            "versions": versions(),
        }
        if folder.has_config:
            folder.check_config(full_config, MAY_DIFFER)
        else:
            folder.write_config(full_config)
        with contextlib.ExitStack() as stack:
            loop = _Loop(trainer, options, folder, full_config, weights)
            stack.enter_context(contextlib.closing(loop))
            stack.enter_context(loop.progress)
            writers = _writers(options, folder.path, full_config, loop.env_steps)
            for writer in writers:
                stack.enter_context(contextlib.closing(writer))
            loop.compile()
            # Before this and after the last checkpoint there is nothing to save: a signal ends it all.
            signals = stack.enter_context(_Signals(loop.progress.say))
            loop.run(signals, writers)
        say = loop.progress.say
        say(f"training is complete and saved; evaluating {options.eval_episodes} episodes a seed")
        summary = loop.summary()
        folder.write_summary(summary)
        try:
            learning_curve(folder.path)
        except RunError as error:
            say(f"no learning curve: {error}")
        return folder.path, summary


class _Loop:
    """One run in progress; `done` counts its updates."""

    def __init__(
        self,
        trainer: Trainer,
        options: RunOptions,
        folder: RunFolder,
        config: dict[str, Any],
        weights: dict[str, Any],
    ) -> None:
        self.trainer, self.options, self.folder, self.config = trainer, options, folder, config
        total = trainer.num_updates
        self.log_interval = min(options.log_interval or max(1, total // 100), total)
        self.checkpoint_interval = options.checkpoint_interval or max(1, total // 10)
        self.checkpoints = Checkpoints(folder.checkpoints)
        resumed = self.checkpoints.latest() is not None
        self.set_aside = None if resumed else _set_aside(folder.metrics)
        self.log = MetricsLog(folder.metrics)
        keys = seed_keys(options.seed, options.seeds)
        started = time.perf_counter()
        init = make_init(trainer, options.seed_loop).lower(keys).compile()
        self.compile_seconds = time.perf_counter() - started
        self.state = init(keys)
        self.seconds = 0.0
        self.done = 0
        if resumed:
            self.state, meta = self.checkpoints.restore(None, self.state)
            self.done, self.seconds = meta["step"], meta["seconds"]
        else:
            params = {**self.state.params, **weights}
            self.state = dataclasses.replace(self.state, params=params)
        self.log.truncate_to(self.done, "update")
        self.progress = RunProgress(trainer.num_updates, self.done)

    @property
    def env_steps(self) -> int:
        """Environment steps of each seed so far."""
        return self.done * self.trainer.steps_per_update

    def compile(self) -> None:
        """Compiles a chunk of updates, if any are left."""
        total, options, say = self.trainer.num_updates, self.options, self.progress.say
        say(f"run folder {self.folder.path}")
        if self.set_aside is not None:
            say(f"no checkpoint there: starting anew, the old log is now {self.set_aside.name}")
        say(
            f"{options.seeds} seeds of {total * self.trainer.steps_per_update:,} environment steps each"
        )
        if self.done:
            say(f"resumed at update {self.done} of {total}")
        if self.done == total:
            return
        say("compiling ...")
        self._compile_chunk()
        say(f"compiled in {self.compile_seconds:.1f} s")

    def _compile_chunk(self) -> None:
        started = time.perf_counter()
        chunk = make_chunk(self.trainer, self.options.seed_loop).lower(self.state, jnp.int32(1))
        self.chunk = chunk.compile()
        self.compile_seconds += time.perf_counter() - started

    def run(self, signals: _Signals, writers: list[Any]) -> None:
        """Trains to the end; raises as `train` does."""
        total = self.trainer.num_updates
        while self.done < total and not signals.received:
            n = min(total, (self.done // self.log_interval + 1) * self.log_interval) - self.done
            started = time.perf_counter()
            self.state, metrics = self.chunk(self.state, jnp.int32(n))
            metrics = jax.device_get(metrics)
            elapsed = time.perf_counter() - started
            self.seconds += elapsed
            before, self.done = self.done, self.done + n
            record = self._record(metrics, n, elapsed)
            self.log.append(record)
            for writer in writers:
                writer.log(record["env_steps"], record)
            self.progress.update(self.done, record)
            self._require_finite(metrics)
            interval = self.checkpoint_interval
            if self.done == total or self.done // interval > before // interval:
                self._save()
            if np.any(metrics.episodes["overflow"] > 0) and self.done < total:
                self._grow()
        if self.done < total:
            self._save()
            name = signal.Signals(signals.received).name
            raise Stopped(
                signals.received,
                f"stopped by {name} after update {self.done} of {total}; a checkpoint is saved, "
                f"go on with --out {shlex.quote(str(self.folder.path))} --resume",
            )

    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds."""
        trainer, options = self.trainer, self.options
        policies = jax.vmap(trainer.policy)(self.state)
        result = evaluate(policies, trainer.env, trainer.params, options.eval_episodes, True)
        return {
            **result,
            "seeds": [options.seed + i for i in range(options.seeds)],
            "env_steps_per_seed": self.env_steps,
            "agent_steps_per_seed": self.env_steps * trainer.env.num_agents,
            "env_steps_per_second": self.env_steps * options.seeds / max(self.seconds, 1e-9),
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "state_digest": state_digest(self.state),
        }

    def close(self) -> None:
        """Closes the log."""
        self.log.close()

    def _save(self) -> None:
        self.log.sync()
        self.checkpoints.save(self.done, self.state, {"seconds": self.seconds})

    def _grow(self) -> None:
        """Doubles the capacities of the environment, which something exceeded."""
        try:
            env = self.trainer.env.grown()
        except ValueError:
            return  # nothing to grow: the log has the counts
        old = self.config["env"]["fields"]
        fields = {name: getattr(env, name) for name in old}
        grown = ", ".join(f"{name}={x}" for name, x in fields.items() if x != old[name])
        self.config = {**self.config, "env": {**self.config["env"], "fields": fields}}
        self.trainer = make_trainer(self.config)
        # Saved first: a run that resumes with these capacities goes on from here.
        self._save()
        self.folder.write_config(self.config)
        self.progress.say(f"a capacity was exceeded: now {grown}; compiling ...")
        self._compile_chunk()

    def _record(self, metrics: ChunkMetrics, n: int, elapsed: float) -> dict[str, Any]:
        """A line of ``metrics.jsonl``; lists run over seeds, null where no episode ended."""
        trainer, episodes = self.trainer, metrics.episodes
        count = episodes["count"]
        with np.errstate(invalid="ignore", divide="ignore"):
            by_group = episodes["returns"] / count[:, None]
            length = episodes["length"] / count
        env = trainer.env
        team = by_group[:, 0] if env.competitive else by_group.sum(axis=1)
        return {
            "update": self.done,
            "env_steps": self.env_steps,
            "agent_steps": self.env_steps * env.num_agents,
            "seconds": self.seconds,
            "steps_per_second": n * trainer.steps_per_update * len(count) / elapsed,
            "return_mean": team,
            "return_by_group": {g.name: by_group[:, i] for i, g in enumerate(env.groups)},
            "episodes": count,
            "length_mean": length,
            "loss": metrics.loss,
            "metrics": {k: v / episodes["steps"] for k, v in episodes["metrics"].items()},
            "invalid_action": episodes["invalid_action"],
            "overflow": episodes["overflow"],
        }

    def _require_finite(self, metrics: ChunkMetrics) -> None:
        bad = np.flatnonzero(metrics.first_bad >= 0)
        if not bad.size:
            return
        which = ", ".join(
            f"seed {self.options.seed + i} at update {metrics.first_bad[i] + 1}" for i in bad
        )
        kept = self.checkpoints.latest()
        good = "none was saved yet" if kept is None else f"the last good one is of update {kept}"
        raise TrainingError(f"the loss is not finite: {which}; checkpoints: {good}")


def _first_weights(
    trainer: Trainer, options: RunOptions, settings: dict[str, Any]
) -> dict[str, Any]:
    """The networks that a new run starts with, where it starts from another."""
    if options.start_from is None:
        return {}
    if options.resume and options.out is not None:
        # Then they are in the checkpoint, and the other run may be gone.
        saved = Checkpoints(Path(options.out) / CHECKPOINTS, read_only=True)
        if saved.latest() is not None:
            return {}
    return weights_from(options.start_from, trainer, settings, options.seeds)


class _Signals:
    """Notes SIGINT and SIGTERM for the loop to see; a second one acts at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.received = 0
        self._say = say

    def __enter__(self) -> _Signals:
        self._old: dict[int, Any] = {}
        # Handlers can be set in the main thread only; elsewhere signals act as they did.
        with contextlib.suppress(ValueError):
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.received = number
        self._say("stopping after this chunk of updates; again to stop at once")
        for signum, handler in self._old.items():
            signal.signal(signum, handler)


def _set_aside(metrics: Path) -> Path | None:
    """Renames a log that no checkpoint stands behind; returns its new name, None if there is none."""
    if not metrics.is_file() or metrics.stat().st_size == 0:
        return None
    numbers = itertools.count(1)
    new = next(p for n in numbers if not (p := metrics.with_name(f"metrics-{n}.jsonl")).exists())
    with reported("rename", metrics):
        os.replace(metrics, new)
    return new


def _writers(
    options: RunOptions, path: Path, config: dict[str, Any], first: int
) -> list[TensorBoardWriter | WandbWriter]:
    writers: list[TensorBoardWriter | WandbWriter] = []
    if options.tensorboard:
        writers.append(TensorBoardWriter(path, first))
    if options.wandb:
        writers.append(WandbWriter(path, config))
    return writers
