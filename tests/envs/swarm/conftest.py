import jax
import pytest


@pytest.fixture(scope="module")
def float64():
    """Double precision for the tests of one module, whatever it was before and after."""
    with jax.enable_x64(True):
        yield
