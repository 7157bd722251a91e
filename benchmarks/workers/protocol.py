"""How a benchmark talks to its workers: one JSON object a line, each way.

A worker runs in a process of its own, so that a peer can have other packages than ours. It waits for a
request on standard input, does it, answers, and waits again: while one worker computes, the others
sleep. Answers go to a pipe whose descriptor is the first argument of the worker, since packages print
to standard output. This module and `rollout` are used on both sides and import nothing of ours.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def serve(handlers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answers requests until standard input ends.

    A request is ``{"do": NAME, ...}``; the rest are the arguments of ``handlers[NAME]``, and what it
    returns is the answer. An exception is answered as ``{"error": MESSAGE}``.
    """
    # The parent is interrupted too, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    if has_jax():
        import jax

        # A compile time read from a cache would be no compile time.
        jax.config.update("jax_enable_compilation_cache", False)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request.pop("do")](**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            answers.write(json.dumps(answer) + "\n")
        except BrokenPipeError:
            return  # the parent is gone


def has_jax() -> bool:
    """Whether this side computes with jax; some peers don't."""
    return importlib.util.find_spec("jax") is not None


def machine(*packages: str) -> dict[str, Any]:
    """What a worker computes with: ``device``, ``cpu``, ``cores`` and ``versions``."""
    device = "cpu"
    if has_jax():
        import jax

        first = jax.devices()[0]
        device, packages = f"{first.platform}: {first.device_kind}", ("jax", "jaxlib", *packages)
    return {
        "device": device,
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {
            "python": sys.version.split()[0],
            **{name: importlib.metadata.version(name) for name in packages},
        },
    }


def cpu_name() -> str:
    """The model of the processor, or "unknown"."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next(
        (x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "unknown"
    )
