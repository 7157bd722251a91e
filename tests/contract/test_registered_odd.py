"""The contract for the other half of the registered environments."""

from contract_harness import cases_of
from contract_suite import *  # noqa: F403

from flockax.envs import registered

CASES = cases_of(registered()[1::2])
