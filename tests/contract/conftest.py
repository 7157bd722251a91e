"""Gives every test with an argument `case` the cases of its module, one compiled at a time."""

import sys
from pathlib import Path

import pytest

# The test environment lives beside the tests of VectorEnv, which use it too.
sys.path.insert(0, str(Path(__file__).parents[1] / "envs"))
pytest.register_assert_rewrite("contract_harness", "contract_suite")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", metafunc.module.CASES, ids=repr, indirect=True, scope="module")


@pytest.fixture(scope="module")
def case(request):
    yield request.param
    request.param.forget()
