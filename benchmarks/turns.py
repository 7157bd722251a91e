"""Worker processes that compute in turn, and what is made of their times."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from peers import PeerError, isolated_environ, python_of

WORKERS = Path(__file__).resolve().parent / "workers"


class WorkerError(RuntimeError):
    """A worker failed; the message says which and why, its traceback is on standard error."""


class Worker:
    """A process that does what it is asked to (see `workers/protocol.py`) and sleeps otherwise.

    Args:
        script: the name of a file in ``workers/``.
        peer: the peer in whose virtual environment it runs, or None for the Python of the caller.

    Raises:
        peers.PeerError: if the peer is not set up.
    """

    def __init__(self, script: str, peer: str | None = None) -> None:
        self.name = script.removesuffix(".py")
        python = sys.executable if peer is None else str(python_of(peer))
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            [python, str(WORKERS / script), str(writing)],
            stdin=subprocess.PIPE,
            stdout=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
            pass_fds=[writing],
            text=True,
            env=None if peer is None else isolated_environ(),
        )
        os.close(writing)
        self._answers = os.fdopen(reading)

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Has the worker do something and waits for its answer.

        Raises:
            WorkerError: if it fails or ends.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{self.name} ended with exit status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.name} could not {do}: {answer['error']}")
        return answer

    def __enter__(self) -> Worker:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._answers.close()


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """The median of some rates, their range, and all of them.

    Raises:
        ValueError: if there are none.
    """
    if not samples:
        raise ValueError("there are no samples to summarise")
    return {
        "median": statistics.median(samples),
        "low": min(samples),
        "high": max(samples),
        "samples": list(samples),
    }


def ratio(ours: Sequence[float], peer: Sequence[float]) -> dict[str, float]:
    """How many times as fast we are as a peer whose samples were taken in turn with ours.

    Returns:
        ``ratio``, that of the medians; ``low`` and ``high``, of the single turns.
    """
    turns = [a / b for a, b in zip(ours, peer, strict=True)]
    value = statistics.median(ours) / statistics.median(peer)
    return {"ratio": value, "low": min(turns), "high": max(turns)}


def jax_warnings(sides: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Says where the sides run on different versions of jax."""
    warnings = []
    for package in ("jax", "jaxlib"):
        found = {name: side["versions"].get(package) for name, side in sides.items()}
        versions = {name: version for name, version in found.items() if version is not None}
        if len(set(versions.values())) > 1:
            text = ", ".join(f"{name} {version}" for name, version in versions.items())
            warnings.append(f"the sides run on different {package}: {text}; the ratio is not fair")
    return warnings


def require_at_least(low: float, **values: float) -> None:
    """Refuses numbers that are too small.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """
    for name, value in values.items():
        if not value >= low:
            raise ValueError(f"{name}={value} is not >= {low}")


def finish(
    measure: Callable[[], dict[str, Any]],
    print_table: Callable[[dict[str, Any]], None],
    as_json: bool,
) -> int:
    """Measures and prints: the result to standard output, all else to standard error.

    Args:
        measure: returns the result, with a list of ``warnings``.
        print_table: prints it for people.
        as_json: print it as one JSON object instead.

    Returns:
        The exit status: 0, 1 for a failure, 2 for settings that make no sense, 130 if interrupted.
    """
    try:
        result = measure()
    except ValueError as error:
        say(f"error: {error}")
        return 2
    except (PeerError, WorkerError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    for warning in result["warnings"]:
        say(f"warning: {warning}")
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        print_table(result)
    return 0


def say(line: str) -> None:
    """Progress goes to standard error, results to standard output."""
    print(line, file=sys.stderr, flush=True)
