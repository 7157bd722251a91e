"""The contract for the test environment, where agents die, hatch, and episodes end early."""

from colony import ENTRIES
from contract_harness import cases_of
from contract_suite import *  # noqa: F403

CASES = cases_of(ENTRIES)
