"""The contract for every second registered environment; two files, so that two workers share them."""

from contract_harness import cases_of
from contract_suite import *  # noqa: F403

from flockax.envs import registered

CASES = cases_of(registered()[0::2])
