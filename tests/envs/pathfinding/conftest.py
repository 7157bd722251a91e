"""Where the public maps and instances are that some tests compare with."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def data() -> Path:
    """``FLOCKAX_DATA``, or ``shared/data`` beside the repository; without it the test is skipped.

    The folder has ``movingai/`` and ``pogema_benchmark/``.
    """
    folder = Path(os.environ.get("FLOCKAX_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no public data in {folder}: set FLOCKAX_DATA to the folder that has them")
    return folder
