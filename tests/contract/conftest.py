"""Gives every test with an argument `case` the cases of its module, one compiled at a time."""

import sys
from pathlib import Path

import pytest

from flockax.envs import registered

# The test environment lives beside the tests of VectorEnv, which use it too.
sys.path.insert(0, str(Path(__file__).parents[1] / "envs"))
pytest.register_assert_rewrite("contract_harness", "contract_suite")


# Sizes of a registered environment that the quick tests take; the slow ones take the others.
QUICK_SIZES = 2


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        known = registered()
        slow = [c.entry in known and c.number >= QUICK_SIZES for c in metafunc.module.CASES]
        cases = [
            pytest.param(case, marks=[pytest.mark.slow] * is_slow)
            for case, is_slow in zip(metafunc.module.CASES, slow, strict=True)
        ]
        metafunc.parametrize("case", cases, ids=repr, indirect=True, scope="module")


@pytest.fixture(scope="module")
def case(request):
    yield request.param
    request.param.forget()
