"""Training worker: our IPPO on an environment of ours."""

from __future__ import annotations

import dataclasses
from functools import partial

from protocol import machine, serve
from training_turns import Learner, training_handlers

from flockax.agents import ippo
from flockax.envs import make


def make_learner(env: str, preset: str, total_steps: int | None) -> Learner:
    """IPPO with the settings of a preset of ours, for `total_steps` steps if given."""
    config = ippo.PRESETS[preset]
    if total_steps is not None:
        config = dataclasses.replace(config, total_steps=total_steps)
    trainer = ippo.make_train(config, make(env))

    def update(state):
        state, metrics = trainer.update(state)
        # Where groups compete their sum means nothing: the first group's return counts.
        first = metrics.episodes["returns"][0]
        return state, {"return_sum": first, "episodes": metrics.episodes["count"]}

    num_agents = trainer.env.num_agents
    steps, updates = trainer.steps_per_update, trainer.num_updates
    return Learner(env, num_agents, trainer.init, update, steps, updates)


if __name__ == "__main__":
    serve(training_handlers(make_learner, partial(machine, "flockax", "flax", "optax")))
