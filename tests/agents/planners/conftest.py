"""Where the public maps are that some tests run on."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with ``movingai/``; without it the test is skipped."""
    beside = Path(__file__).parents[3].parent / "shared" / "data"
    folder = Path(os.environ.get("FLOCKAX_DATA", beside))
    if not folder.is_dir():
        pytest.skip("no public data: set FLOCKAX_DATA to the folder that has them")
    return folder
