"""Policies by name, and trained runs as policies."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from flockax.agents.core.policy import GroupedPolicy, Policy, RandomPolicy, group_slots
from flockax.agents.core.trainer import Trainer, make_init, seed_keys
from flockax.envs import Environment, make
from flockax.envs.registry import entry

LEARNERS = {
    "ippo": "Independent PPO, feed-forward or recurrent (de Witt et al. 2020).",
    "imitation": "Behaviour cloning of a planner, with DAgger (Ross et al. 2011).",
}


def _random(env: Environment, params: Any) -> Policy:
    return RandomPolicy(env)


def _planner(module: str, name: str, *ids: str) -> Callable[[Environment, Any], Policy]:
    """A planner by module, imported when it is first wanted, and the environments that it plays."""

    def build(env: Environment, params: Any) -> Policy:
        if not isinstance(env, tuple(entry(id).cls for id in ids)):
            raise ValueError(f"policy {module!r} plays {' and '.join(ids)} only (--env)")
        policy: Policy = getattr(
            importlib.import_module(f"flockax.agents.planners.{module}"), name
        )(env, params)
        return policy

    return build


POLICIES: dict[str, tuple[str, Callable[[Environment, Any], Policy]]] = {
    "random": ("Open actions uniformly at random.", _random),
    "pibt": (
        "Priority inheritance with backtracking, on grids (Okumura et al. 2022).",
        _planner("pibt", "Pibt", "grid_pathfinding"),
    ),
    "prioritized": (
        "Windowed prioritized planning, on grids (Silver 2005; Li et al. 2021).",
        _planner("prioritized", "Prioritized", "grid_pathfinding"),
    ),
    "lacam": (
        "Complete search for given grid instances, on the host (Okumura 2023).",
        _planner("lacam", "Lacam", "grid_pathfinding"),
    ),
    "boids": (
        "Alignment, cohesion and separation, in flock (Reynolds 1987).",
        _planner("boids", "Boids", "flock"),
    ),
    "vicsek": (
        "The mean heading of the neighbours, in flock (Vicsek et al. 1995).",
        _planner("vicsek", "Vicsek", "flock"),
    ),
    "seek_goal": (
        "Straight to the goal, aside from what is near (Khatib 1986).",
        _planner("seek_goal", "SeekGoal", "navigation"),
    ),
    "pair_up": (
        "To the target that a partner reaches as soon.",
        _planner("pair_up", "PairUp", "discovery"),
    ),
    "share_food": (
        "To the food by greedy assignment.",
        _planner("share_food", "ShareFood", "dispersion"),
    ),
    "climb_field": (
        "Up the field to where it is not collected.",
        _planner("climb_field", "ClimbField", "sampling"),
    ),
    "mean_field": (
        "The equilibrium of infinitely many agents, by mirror descent (Perolat et al. 2021).",
        _planner("mean_field", "MeanField", "crowd"),
    ),
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

    def position(self, seed: int) -> int:
        """Where a trained seed is along the seed axis.

        Raises:
            ValueError: for a seed that was not trained.
        """
        if seed not in self.seeds:
            seeds = ", ".join(map(str, self.seeds)) or "none"
            raise ValueError(f"--seed {seed} was not trained; there are {seeds}")
        return self.seeds.index(seed)

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
    opponents = load_opponents(config["run"]["opponent"], env)
    return module.make_train(_settings(module, config), env, params, opponents)


def _settings(module: Any, config: dict[str, Any]) -> Any:
    """The settings of a learner that ``config.json`` holds."""
    values = {name: tuple(x) if isinstance(x, list) else x for name, x in config["config"].items()}
    return module.Config(**values)


def env_of(run: str | Path) -> dict[str, Any]:
    """The environment of a run: its ``id``, ``fields`` and ``params``.

    Raises:
        RunError: `run` is not the folder of a run.
    """
    from flockax.agents.core.runlog import RunFolder

    with _described(run):
        env = RunFolder(run).read_config()["env"]
        return {"id": str(env["id"]), "fields": dict(env["fields"]), "params": dict(env["params"])}


def view_of(run: str | Path) -> dict[str, Any]:
    """The fields of a run's environment that decide what agents see: another must agree in them.

    Raises:
        RunError: `run` is not the folder of a run.
    """
    fields = env_of(run)["fields"]
    names = ("obs_radius", "guide", "mask_obstacles")
    return {name: fields[name] for name in names if name in fields}


def load(run: str | Path) -> Player:
    """Reads a trained run from its folder: the newest intact checkpoint.

    Raises:
        RunError: `run` is not the folder of a run.
        CheckpointError: it has no intact checkpoint.
    """
    return _player(*_restore(run))


def transfer(run: str | Path, env: Environment, params: Any) -> Player:
    """A trained run as a policy of another environment, say with other maps or more agents.

    Args:
        run: the folder of the run.
        env: where it shall play; agents see and do the same as where the run was trained.
        params: its parameters.

    Raises:
        RunError, CheckpointError: as `load`.
        ValueError: agents see or do something else here.
    """
    config, trainer, state = _restore(run)
    home = trainer.env
    _require_same_view(run, home, env)
    if config["config"].get("share") == "none" and home.groups != env.groups:
        raise ValueError(
            f"the run {run} has parameters for each of {home.num_agents} agents (share='none'), "
            f"not for {env.num_agents}"
        )
    module = learner_module(config["learner"])
    return _player(config, module.make_train(_settings(module, config), env, params), state)


def _require_same_view(run: str | Path, home: Environment, env: Environment) -> None:
    """Refuses an environment in which agents see or do something else than where a run was trained."""
    for what in ("feature_spec", "action_spec"):
        there, here = getattr(home, what), getattr(env, what)
        if type(there) is not type(here) or _per_agent(there) != _per_agent(here):
            raise ValueError(f"the run {run} was trained with {what} {there}, not {here}")


def _per_agent(spec: Any) -> Any:
    """A specification without the number of agents."""
    if hasattr(spec, "num_agents"):
        return dataclasses.replace(spec, num_agents=1)
    return jax.tree.map(lambda x: (x.shape[1:], x.dtype, x.low, x.high, x.flags), spec)


def _player(config: dict[str, Any], trainer: Trainer, state: Any) -> Player:
    """What the trained seeds of a run play, in the environment of the trainer."""
    first, count = config["run"]["seed"], config["run"]["seeds"]
    return Player(
        policy=jax.vmap(trainer.policy)(state),
        env=trainer.env,
        params=trainer.params,
        env_id=config["env"]["id"],
        stacked=True,
        seeds=tuple(range(first, first + count)),
    )


@contextlib.contextmanager
def _described(run: str | Path) -> Iterator[None]:
    """Turns what a damaged ``config.json`` leads to into a `RunError` that names it."""
    from flockax.agents.core.files import RunError

    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError(f"{run}/config.json describes no run of this version: {why}") from error


def _restore(run: str | Path) -> tuple[dict[str, Any], Trainer, Any]:
    """The configuration of a run, its trainer, and the states of its seeds in the newest checkpoint."""
    from flockax.agents.core.checkpoint import Checkpoints
    from flockax.agents.core.runlog import RunFolder

    folder = RunFolder(run)
    config = folder.read_config()
    with _described(run):
        trainer = make_trainer(config)
        keys = seed_keys(config["run"]["seed"], config["run"]["seeds"])
        example = jax.eval_shape(make_init(trainer, config["run"]["seed_loop"]), keys)
    state, _ = Checkpoints(folder.checkpoints, read_only=True).restore(None, example)
    return config, trainer, state


def weights_from(
    run: str | Path, trainer: Trainer, settings: dict[str, Any], seeds: int
) -> dict[str, Any]:
    """The networks of a trained run, for a run that starts with them.

    Args:
        run: the folder of the trained run.
        trainer: of the run that starts; its learner, environment and parameters may be others.
        settings: of that learner.
        seeds: how many seeds start: the first with the first trained seed and so on, again from the
            first where fewer were trained.

    Returns:
        Parameters by role ("actor", "critic"), those that both runs have, with a leading axis of seeds.

    Raises:
        RunError, CheckpointError: as `load`.
        ValueError: the networks, or what agents see or do, are others.
    """
    config, home, state = _restore(run)
    _require_same_view(run, home.env, trainer.env)
    wanted = jax.eval_shape(trainer.init, jax.random.key(0)).params
    index = np.arange(seeds) % config["run"]["seeds"]
    found = {}
    for role in wanted.keys() & state.params.keys():
        found[role] = jax.tree.map(lambda x: x[index], state.params[role])
        here, there = (
            {jax.tree_util.keystr(path): x.shape[skip:] for path, x in leaves}
            for skip, leaves in (
                (0, jax.tree.leaves_with_path(wanted[role])),
                (1, jax.tree.leaves_with_path(found[role])),
            )
        )
        names = ("hidden", "recurrent", "share", "activation")
        old = {name: config["config"].get(name) for name in names}
        if here != there or old["activation"] != settings.get("activation"):
            raise ValueError(
                f"start_from={str(run)!r}: its {role} is another network; hidden, recurrent, share and "
                "activation must be those of that run: "
                + ", ".join(f"{name}={value!r}" for name, value in old.items())
            )
    return found


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
        return Player(POLICIES[target][1](env, params), env, params, env_id, stacked=False)
    require_target(target)
    return load(target)


def require_target(target: str) -> None:
    """Refuses what is neither the name of a policy nor a folder.

    Raises:
        ValueError: with the known policies.
    """
    if target not in POLICIES and not Path(target).exists():
        known = ", ".join(POLICIES)
        raise ValueError(f"{target!r} is neither the folder of a run nor a policy ({known})")


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
