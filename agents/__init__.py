"""Learners and policies for multi-agent environments.

    from flockax.agents import load

    player = load("runs/ippo-tag-1")      # player.policy acts, player.env is its world

Learners are modules of this package, each a runnable file; they are imported by name and late.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flockax.agents.core.policy import Policy
    from flockax.agents.core.runs import LEARNERS, POLICIES, Player, find, load

__all__ = ["LEARNERS", "POLICIES", "Player", "Policy", "find", "load"]


def __getattr__(name: str) -> Any:
    # Late, so that the command line can answer `--help` without loading jax.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flockax.agents.core import policy, runs

    return getattr(policy if name == "Policy" else runs, name)
