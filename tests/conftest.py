"""Shared by all tests: quick compilation, and a persistent cache of compiled programs."""

import os
from pathlib import Path

import jax
import pytest

CACHE = Path(os.environ.get("FLOCKAX_TEST_CACHE", Path(__file__).parent.parent / ".jax_cache"))


def pytest_configure(config):
    jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    if "not slow" in config.option.markexpr:
        # Halves the time of the quick tests, which is nearly all compilation. The slow ones compute
        # much and run programs compiled as users do.
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


@pytest.fixture(scope="session")
def data() -> Path:
    """``FLOCKAX_DATA``, or ``shared/data`` beside the repository; without it the test is skipped.

    The folder has ``movingai/`` and ``pogema_benchmark/``.
    """
    folder = Path(os.environ.get("FLOCKAX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no public data in {folder}: set FLOCKAX_DATA to the folder that has them")
    return folder
