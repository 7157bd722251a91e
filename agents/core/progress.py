"""Live progress on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_INTERVAL = 10.0  # seconds between plain lines


class RunProgress:
    """Shows how far a run is.

    Args:
        total: updates in all.
        done: updates done before, by a run that is resumed.
        console: where to write; standard error by default.
    """

    def __init__(self, total: int, done: int = 0, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self.total = total
        self._bar: Progress | None = None
        self._last_line = time.monotonic()
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[speed]}"),
                TextColumn("{task.fields[result]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(elapsed_when_finished=False),
                console=self.console,
            )
            self._task = self._bar.add_task(
                "training", total=total, completed=done, speed="", result=""
            )

    def __enter__(self) -> RunProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Writes a line, above the bar if there is one."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, done: int, record: dict[str, Any]) -> None:
        """Shows a record of ``metrics.jsonl``.

        Args:
            done: updates done.
            record: with ``seconds`` so far, ``steps_per_second`` and ``return_mean`` by seed.
        """
        speed = f"{record['steps_per_second']:,.0f} steps/s"
        known = [float(x) for x in record["return_mean"] if math.isfinite(x)]
        result = f"return {sum(known) / len(known):.2f}" if known else "return -"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, speed=speed, result=result)
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_INTERVAL or done == self.total:
            self._last_line = now
            left = record["seconds"] / done * (self.total - done)
            self.say(f"update {done}/{self.total}  {speed}  {result}  {left:.0f} s left")
