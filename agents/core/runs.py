"""Policies by name, and trained runs as policies."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from flockax.agents.core.policy import GroupedPolicy, Policy, RandomPolicy, group_slots
from flockax.agents.core.trainer import Trainer, make_init, seed_keys
from flockax.envs import Environment, make

LEARNERS = {
    "ippo": "Independent PPO, feed-forward or recurrent (de Witt et al. 2020).",
}

POLICIES: dict[str, tuple[str, Callable[[Environment], Policy]]] = {
    "random": ("Open actions uniformly at random.", RandomPolicy),
}


def learner_module(name: str) -> Any:
    """Imports a learner, which is late because learners load much.

    Raises:
        ValueError: for an unknown name, with the known ones.
    """
    if name not in LEARNERS:
        raise ValueError(f"there is no learner {name!r}; there are {', '.join(LEARNERS)}")
    return importlib.import_module(f"flockax.agents.{name}")


@dataclasses.dataclass(frozen=True)
class Player:
    """A policy with the world it plays in.

    Attributes:
        policy: the policy; with a leading axis of seeds on every array if `stacked`.
        env: the environment.
        params: its parameters.
        env_id: its name.
        stacked: whether there is a seed axis.
        seeds: the seeds, where there are any.
    """

    policy: Policy
    env: Environment
    params: Any
    env_id: str
    stacked: bool
    seeds: tuple[int, ...] = ()

    def one(self, index: int = 0) -> Policy:
        """The policy of one seed, by position."""
        return jax.tree.map(lambda x: x[index], self.policy) if self.stacked else self.policy


def make_trainer(config: dict[str, Any]) -> Trainer:
    """The trainer that a run's ``config.json`` describes.

    Raises:
        ValueError: for something in it that is unknown or makes no sense.
    """
    module = learner_module(config["learner"])
    env = make(config["env"]["id"], **config["env"]["fields"])
    params = env.make_params(**config["env"]["params"])
    settings = {
        name: tuple(x) if isinstance(x, list) else x for name, x in config["config"].items()
    }
    opponents = load_opponents(config["run"]["opponent"], env)
    return module.make_train(module.Config(**settings), env, params, opponents)


def load(run: str | Path) -> Player:
    """Reads a trained run from its folder: the newest intact checkpoint.

    Raises:
        RunError: `run` is not the folder of a run.
        CheckpointError: it has no intact checkpoint.
    """
    from flockax.agents.core.checkpoint import Checkpoints
    from flockax.agents.core.files import RunError
    from flockax.agents.core.runlog import RunFolder

    folder = RunFolder(run)
    config = folder.read_config()
    try:
        trainer = make_trainer(config)
        first, count = config["run"]["seed"], config["run"]["seeds"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError(
            f"{folder.path}/config.json describes no run of this version: {why}"
        ) from error
    example = jax.eval_shape(
        make_init(trainer, config["run"]["seed_loop"]), seed_keys(first, count)
    )
    state, _ = Checkpoints(folder.checkpoints, read_only=True).restore(None, example)
    return Player(
        policy=jax.vmap(trainer.policy)(state),
        env=trainer.env,
        params=trainer.params,
        env_id=config["env"]["id"],
        stacked=True,
        seeds=tuple(range(first, first + count)),
    )


def find(
    target: str, env: Environment | None = None, env_id: str = "", params: Any = None
) -> Player:
    """A player by the name of a policy or the folder of a run.

    Args:
        target: such as "random" or "runs/ippo-tag-1".
        env: where a policy by name plays; a run brings its own.
        env_id: the name of `env`.
        params: the parameters of `env`, or None for the defaults.

    Raises:
        ValueError: `target` is neither.
        RunError, CheckpointError: the run cannot be read.
    """
    if target in POLICIES:
        if env is None:
            raise ValueError(f"policy {target!r} needs an environment: --env ID")
        params = env.default_params if params is None else params
        return Player(POLICIES[target][1](env), env, params, env_id, stacked=False)
    if not Path(target).exists():
        known = ", ".join(POLICIES)
        raise ValueError(f"{target!r} is neither the folder of a run nor a policy ({known})")
    return load(target)


def load_opponents(specs: tuple[str, ...] | list[str], env: Environment) -> dict[str, Policy]:
    """Policies that play whole groups.

    Args:
        specs: ``GROUP=POLICY`` or ``GROUP=RUN``; of a run the first seed plays.
        env: the environment in which they play.

    Raises:
        ValueError: for a malformed entry, an unknown group, or a run of another environment.
    """
    opponents: dict[str, Policy] = {}
    for spec in specs:
        group, separator, target = spec.partition("=")
        if not separator or not target:
            raise ValueError(f"opponent {spec!r} is not GROUP=random, GROUP=POLICY or GROUP=RUN")
        group_slots(env, group)
        if group in opponents:
            raise ValueError(f"opponent {spec!r}: group {group!r} has an opponent already")
        player = find(target, env)
        if player.env != env:
            raise ValueError(f"opponent {spec!r} was trained in {player.env}, this is {env}")
        opponents[group] = player.one()
    return opponents


def against(player: Player, opponents: dict[str, Policy]) -> Player:
    """The player, with some groups played by others."""
    if not opponents:
        return player
    count = len(player.seeds)
    if player.stacked:
        opponents = jax.tree.map(lambda x: jax.numpy.broadcast_to(x, (count, *x.shape)), opponents)
    policy = GroupedPolicy(player.policy, opponents, player.env)
    return dataclasses.replace(player, policy=policy)
