"""Plans made on the host as policies, among them those of `flockax.agents.planners.lacam_search`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from flockax.agents.core.policy import Policy
from flockax.agents.planners.lacam_search import Search, solve
from flockax.agents.planners.plan_search import improve_plan
from flockax.envs.environment import Environment
from flockax.envs.space.grid import MOVES, NUM_MOVES
from flockax.envs.spec import Observation, int_dtype

__all__ = ["Lacam", "Plans", "PlansPolicy", "Search", "actions_of", "solve", "validate_plan"]

Array = jax.Array


@struct.dataclass
class PlansPolicy(Policy):
    """Plays a table of actions; made by `Plans` and `Lacam`.

    Attributes:
        actions: ``int8[I, T + 1, A]``, the plan of each instance; all stay after its last step.
        solved: ``bool[I]``, where there is a plan; elsewhere all stay.
    """

    actions: Any
    solved: Any

    def act(
        self,
        key: Array,
        carry: Any,
        observation: Observation,
        env_state: Any,
        params: Any,
        reset: Array,
        greedy: bool,
    ) -> tuple[Array, Any]:
        """See `Policy.act`; reads `instance` and `time` of the state."""
        time = jnp.minimum(env_state.time, self.actions.shape[1] - 1)
        return self.actions[env_state.instance, time].astype(int_dtype()), carry


def Plans(env: Environment, params: Any, plans: Any) -> PlansPolicy:
    """The policy that plays plans.

    Args:
        env: a `GridPathfinding` with given instances.
        params: its parameters.
        plans: ``int[I, T, A]``, the actions of each step in each instance.

    Raises:
        ValueError: for an environment without instances or plans of another shape or range.
    """
    instances = _instances(env, "Plans")
    plans = np.asarray(plans)
    expected = (instances, env.num_agents)
    if plans.ndim != 3 or (plans.shape[0], plans.shape[2]) != expected:
        raise ValueError(
            f"Plans: plans has shape {plans.shape}, not ({instances}, T, {env.num_agents})"
        )
    if plans.size and (plans.min() < 0 or plans.max() >= NUM_MOVES):
        raise ValueError(
            f"Plans: plans has actions {plans.min()} .. {plans.max()}, not 0 .. {NUM_MOVES - 1}"
        )
    actions = np.pad(plans.astype(np.int8), ((0, 0), (0, 1), (0, 0)))
    return PlansPolicy(actions=jnp.asarray(actions), solved=jnp.ones(instances, bool))


def Lacam(
    env: Environment,
    params: Any,
    time_limit: float = 10.0,
    seed: int = 0,
    rounds: int | None = None,
) -> PlansPolicy:
    """Plans by LaCAM for all instances of an environment, made cheaper by `improve_plan`; made now.

    Args:
        env: a `GridPathfinding` with given instances and the collision rule "soft", in which agents may
            follow each other, and one goal for each agent.
        params: its parameters.
        time_limit: seconds for each instance. Where that is too little all stay (see
            `PlansPolicy.solved`).
        seed: of the search.
        rounds: groups of agents that plan again, one after another: by default twice as many as agents;
            0 for the plans that LaCAM finds.

    Raises:
        ValueError: for an environment of another kind.
    """
    instances = _instances(env, "Lacam")
    for field, allowed in (("collision", ("soft",)), ("on_target", ("nothing", "finish"))):
        value = getattr(env, field)
        if value not in allowed:
            names = " or ".join(repr(name) for name in allowed)
            raise ValueError(f"Lacam: {field}={value!r}; plans hold only with {field}={names}")
    walls = np.asarray(env.obstacles(params), bool)
    maps, starts, goals = (
        np.asarray(x) for x in (params.instance_map, params.starts, params.goals[:, :, 0])
    )
    rounds = 2 * env.num_agents if rounds is None else rounds
    paths = [solve(walls[maps[i]], starts[i], goals[i], time_limit, seed) for i in range(instances)]
    paths = [
        None if path is None else improve_plan(walls[maps[i]], path, rounds, seed)
        for i, path in enumerate(paths)
    ]
    longest = max((len(path) - 1 for path in paths if path is not None), default=0)
    plans = np.zeros((instances, longest, env.num_agents), np.int8)
    for plan, path in zip(plans, paths, strict=True):
        if path is not None:
            plan[: len(path) - 1] = actions_of(path)
    solved = jnp.asarray([path is not None for path in paths])
    return Plans(env, params, plans).replace(solved=solved)


def actions_of(paths: Any) -> np.ndarray:
    """``int[T, A]``: the actions that lead along paths ``int[T + 1, A, 2]``."""
    steps = np.diff(np.asarray(paths), axis=0)
    return np.argmax(np.all(steps[..., None, :] == MOVES, axis=-1), axis=-1)


def _instances(env: Environment, name: str) -> int:
    instances = getattr(env, "num_instances", 0)
    if not instances:
        raise ValueError(
            f"{name}: the environment draws its starts (num_instances=0); "
            "give it instances that can be solved beforehand: --env.instances FILE, or from_instances"
        )
    return int(instances)


def validate_plan(obstacles: Any, paths: Any, starts: Any = None, goals: Any = None) -> None:
    """Checks paths.

    Args:
        obstacles: ``bool[H, W]``.
        paths: ``int[T + 1, A, 2]``.
        starts: ``int[A, 2]``, or None for any.
        goals: ``int[A, 2]``, or None for any.

    Raises:
        ValueError: naming step and agents, for a cell that is blocked or outside, a step longer than one
            cell, two agents in one cell or changing places, or wrong ends.
    """
    walls, paths = np.asarray(obstacles, bool), np.asarray(paths)
    inside = np.all((paths >= 0) & (paths < walls.shape), axis=-1)
    cell = np.where(inside, paths[..., 0] * walls.shape[1] + paths[..., 1], 0)
    _refuse(~inside | walls.reshape(-1)[cell], "is in an obstacle or outside")
    _refuse(np.abs(np.diff(paths, axis=0)).sum(-1) > 1, "moves farther than one cell from")
    for step, cells in enumerate(cell):
        if len(set(cells)) < len(cells):
            raise ValueError(f"step {step}: two agents are in one cell")
    for step, (before, after) in enumerate(pairwise(cell)):
        moves = {(a, b) for a, b in zip(before, after, strict=True) if a != b}
        if any((b, a) in moves for a, b in moves):
            raise ValueError(f"step {step}: two agents change places")
    for name, row, ends in (("start", 0, starts), ("goal", -1, goals)):
        if ends is not None:
            _refuse(np.any(paths[row] != np.asarray(ends), axis=-1)[None], f"is not at its {name}")


def _refuse(wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        step, agent = (int(x[0]) for x in np.nonzero(wrong))
        raise ValueError(f"agent {agent} {what} at step {step}")
