"""Shared by all tests: a persistent compilation cache, so that a second run compiles nothing."""

import os
from pathlib import Path

import jax

CACHE = Path(os.environ.get("FLOCKAX_TEST_CACHE", Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
