"""The contract for the test environment, where agents die, hatch, and episodes end early."""

from colony import ENTRIES
from contract_harness import cases_of
from contract_suite import *  # noqa: F403

CASES = cases_of(ENTRIES)


def test_everything_happens_in_it(case):
    """Else the tests above would pass without having looked at anything."""
    if case.entry.id != "colony" or case.number:
        return  # other sizes see less
    record = case.play(0, params=case.env.make_params(horizon=10), steps=96)
    alive = record.observation.alive
    assert record.terminated.sum() >= 10 and record.truncated.sum() >= 3
    assert record.info["metrics"]["deaths"].sum() >= 50
    assert record.info["metrics"]["births"].sum() >= 5
    assert (record.info["overflow"] > 0).sum() >= 10
    assert (~alive).sum() >= 100 and (~alive[record.state.time == 0]).sum() >= 10
    closed = ~record.observation.action_mask[..., 1]
    assert (closed & alive).sum() >= 50
