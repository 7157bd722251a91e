"""What the pathfinding literature reports of whole episodes, by the definitions of POGEMA 1.4.0.

All functions are pure, take NumPy or JAX arrays and may be jitted and vmapped. Leading axes ``...``
(episodes, seeds, policies) are kept: every result has one number for each episode. ``T`` is the number
of steps that the arrays hold, ``A`` the number of agents. Step ``t`` counts from 0, and a value "of
step t" is the one after all have moved. An episode that ended sooner has a ``length`` below ``T``;
whatever the arrays hold beyond it is ignored.

Which function belongs to which task ("on_target" of `GridPathfinding`):

* "nothing": `one_shot`, classic multi-agent pathfinding;
* "finish": `vanishing`, where agents leave at their goals;
* "restart": `lifelong`;
* any: `collisions`.

Costs count steps: an agent that is at its goal after the first step has cost 1. So does one that never
had to move, unlike in the literature on planners, where it costs 0; that is the reference's number.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from flockax.envs.spec import float_dtype, int_dtype

Array = jax.Array


def one_shot(on_goal: Any, length: Any) -> dict[str, Array]:
    """Episodes in which all agents should stand on their goals at the same time.

    The cost of an agent is 1 + the last step before the final one after which it was not on its goal,
    counted from 1; in other words it pays until its last arrival. As in POGEMA the final step itself
    is not looked at: who steps off the goal in it keeps the cost of the stay before.

    Args:
        on_goal: ``bool[..., T, A]``, who stands on its goal after each step.
        length: ``int[...]`` in 1 .. T, the number of steps of each episode.

    Returns:
        * ``csr`` ``f[...]``: 1 where all agents are on their goals at the end, else 0
          (cooperative success rate);
        * ``isr`` ``f[...]``: share of agents on their goals at the end (individual success rate);
        * ``soc`` ``int[...]``: sum of the agents' costs;
        * ``makespan`` ``int[...]``: largest cost of an agent;
        * ``ep_length`` ``int[...]``: `length`.

    Raises:
        ValueError: for shapes that don't fit together.
    """
    on_goal, length = jnp.asarray(on_goal, bool), _lengths("on_goal", on_goal, length, 2)
    step = jnp.arange(on_goal.shape[-2], dtype=int_dtype())[:, None]
    last = length[..., None, None] - 1
    final = jnp.any(on_goal & (step == last), axis=-2)
    cost = 1 + jnp.max(jnp.where(~on_goal & (step < last), step + 1, 0), axis=-2)
    return {**_success(final), **_costs(cost), "ep_length": length}


def arrival_steps(arrived: Any) -> Array:
    """The first step of each agent with an arrival.

    Args:
        arrived: ``bool[..., T, A]``.

    Returns:
        ``int[..., A]`` in 0 .. T; T for agents without arrival.
    """
    arrived = jnp.asarray(arrived, bool)
    never = arrived.shape[-2]
    first = jnp.argmax(arrived, axis=-2).astype(int_dtype())
    return jnp.where(jnp.any(arrived, axis=-2), first, never)


def vanishing(arrival: Any, length: Any) -> dict[str, Array]:
    """Episodes in which agents are done once they have reached their goals.

    The cost of an agent is 1 + the step of its arrival, or `length` if it did not arrive.

    Args:
        arrival: ``int[..., A]``, the step of each arrival (see `arrival_steps`); anything not in
            0 .. length - 1 means none.
        length: ``int[...]``, at least 1, the number of steps of each episode.

    Returns:
        * ``csr`` ``f[...]``: 1 where all agents arrived, else 0;
        * ``isr`` ``f[...]``: share of agents that arrived;
        * ``ep_length`` ``f[...]``: mean cost. That is what POGEMA calls so in this task;
        * ``soc`` ``int[...]``, ``makespan`` ``int[...]``: sum of the costs and largest cost, which
          POGEMA does not report here.

    Raises:
        ValueError: for shapes that don't fit together.
    """
    arrival, length = jnp.asarray(arrival), _lengths("arrival", arrival, length, 1)
    arrived = (arrival >= 0) & (arrival < length[..., None])
    cost = jnp.where(arrived, arrival + 1, length[..., None]).astype(int_dtype())
    mean = jnp.mean(cost, axis=-1, dtype=float_dtype())
    return {**_success(arrived), **_costs(cost), "ep_length": mean}


def lifelong(arrivals: Any, horizon: Any) -> dict[str, Array]:
    """Episodes in which an agent gets a new goal whenever it arrives.

    Args:
        arrivals: ``bool[..., T, A]`` (or numbers), goals reached in each step.
        horizon: ``int[...]``, at least 1: the time limit, also if fewer steps were played.

    Returns:
        ``throughput`` ``f[...]``: goals reached by all agents together within the horizon, over the
        horizon. POGEMA's ``avg_throughput``.

    Raises:
        ValueError: for shapes that don't fit together.
    """
    arrivals, horizon = jnp.asarray(arrivals), _lengths("arrivals", arrivals, horizon, 2)
    step = jnp.arange(arrivals.shape[-2], dtype=int_dtype())[:, None]
    counted = jnp.where(step < horizon[..., None, None], arrivals, 0)
    total = jnp.sum(counted, axis=(-2, -1), dtype=int_dtype())
    return {"throughput": total.astype(float_dtype()) / horizon}


def collisions(
    obstacles: Any, position: Any, action: Any, alive: Any, length: Any
) -> dict[str, Array]:
    """Collisions that were attempted: moves that the rules refused.

    Each move of an agent that is refused counts once: as an obstacle collision if it leads into an
    obstacle or off the map, else as an agent collision, whichever agent and rule stood in its way. The
    public benchmark counts attempts by this split too, but its counter has not been published.

    Args:
        obstacles: ``bool[..., H, W]``.
        position: ``int[..., T + 1, A, 2]``, before the first step and after each.
        action: ``int[..., T, A]``, 0 stay, 1 up, 2 down, 3 left, 4 right.
        alive: ``bool[..., T, A]``, who takes part in each step.
        length: ``int[...]`` in 1 .. T, the number of steps of each episode.

    Returns:
        ``agent_collisions`` ``int[...]`` and ``obstacle_collisions`` ``int[...]``: totals over agents
        and steps.

    Raises:
        ValueError: for shapes that don't fit together.
    """
    obstacles, position = jnp.asarray(obstacles, bool), jnp.asarray(position)
    action, length = jnp.asarray(action), _lengths("action", action, length, 2)
    alive = jnp.asarray(alive, bool)
    batch, (steps, agents) = action.shape[:-2], action.shape[-2:]
    expected = {"position": (*batch, steps + 1, agents, 2), "alive": action.shape}
    for name, value in {"position": position, "alive": alive}.items():
        if value.shape != expected[name]:
            raise ValueError(f"{name} has shape {value.shape}, not {expected[name]}")
    if obstacles.shape[:-2] != batch:
        raise ValueError(f"obstacles has leading axes {obstacles.shape[:-2]}, not {batch}")
    step = jnp.arange(steps, dtype=int_dtype())[:, None]
    stayed = jnp.all(position[..., 1:, :, :] == position[..., :-1, :, :], axis=-1)
    refused = (action != 0) & stayed & alive & (step < length[..., None, None])
    # A ring of obstacles stands for everything off the map.
    margin = [(0, 0)] * len(batch) + [(1, 1)] * 2
    walls = jnp.pad(obstacles, margin, constant_values=True)
    down = (action == 2).astype(int_dtype()) - (action == 1)
    right = (action == 4).astype(int_dtype()) - (action == 3)
    row, column = position[..., :-1, :, 0] + down + 1, position[..., :-1, :, 1] + right + 1
    cell = (row * walls.shape[-1] + column).reshape(*batch, -1)
    flat = walls.reshape(*batch, -1)
    wall = jnp.take_along_axis(flat, cell, axis=-1).reshape(action.shape)
    return {
        "agent_collisions": jnp.sum(refused & ~wall, axis=(-2, -1), dtype=int_dtype()),
        "obstacle_collisions": jnp.sum(refused & wall, axis=(-2, -1), dtype=int_dtype()),
    }


def _success(done: Array) -> dict[str, Array]:
    """The success rates from who of ``bool[..., A]`` succeeded."""
    real = float_dtype()
    return {"csr": jnp.all(done, axis=-1).astype(real), "isr": jnp.mean(done, axis=-1, dtype=real)}


def _costs(cost: Array) -> dict[str, Array]:
    """Sum and maximum over agents of ``int[..., A]``."""
    return {
        "soc": jnp.sum(cost, axis=-1, dtype=int_dtype()),
        "makespan": jnp.max(cost, axis=-1),
    }


def _lengths(name: str, values: Any, length: Any, trailing: int) -> Array:
    """Lengths as ``int[...]``, checked against the leading axes of an array.

    Raises:
        ValueError: they differ, or the array lacks its `trailing` axes.
    """
    shape = jnp.shape(values)
    if len(shape) < trailing:
        raise ValueError(f"{name} has shape {shape}: at least {trailing} axes are needed")
    batch = shape[: len(shape) - trailing]
    length = jnp.asarray(length, int_dtype())
    if length.ndim == 0:
        return jnp.broadcast_to(length, batch)
    if length.shape != batch:
        raise ValueError(f"{name} has leading axes {batch}, the lengths {length.shape}")
    return length
