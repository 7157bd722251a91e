"""What must hold on every step of `grid_pathfinding`, checked on the device under random actions."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from flockax.envs.pathfinding.given import from_instances
from flockax.envs.pathfinding.grid_pathfinding import GridPathfinding
from flockax.envs.pathfinding.maps import GridMap, Instance
from flockax.envs.space.grid import MOVES
from flockax.envs.spec import unpack

RULES = ("priority", "block_both", "soft")
MODES = ("finish", "nothing", "restart")
COMBINATIONS = [(rule, mode) for rule in RULES for mode in MODES]
STEPS = 64


def drawn(rule, mode):
    """Random maps, starts and goals."""
    env = GridPathfinding(
        num_agents=12,
        size=9,
        width=7,
        num_maps=16,
        density=0.25,
        collision=rule,
        on_target=mode,
        obs_radius=3,
    )
    return env, env.default_params


def crowded(rule, mode):
    """20 agents in the 22 free cells of a map of 5 by 5; each with 3 goals."""
    obstacles = np.zeros((5, 5), bool)
    obstacles[[1, 2, 4], [1, 3, 0]] = True
    free, rng = np.argwhere(~obstacles), np.random.default_rng(0)
    instances = []
    for seed in range(32):
        starts = rng.permutation(free)[:20]
        goals = np.stack([rng.permutation(free)[:20] for _ in range(3)], 1)
        instances.append(Instance("crowd", seed, starts, goals))
    maps = {"crowd": GridMap("crowd", obstacles)}
    return from_instances(maps, instances, collision=rule, on_target=mode, obs_radius=2)


def together(position):
    """``bool[A, A]``: which agents stand in the same cell."""
    return jnp.all(position[:, None] == position[None], axis=-1)


def violations(env, params, label, before, action, after, observation, reward):
    """How often each invariant is broken in one step, by name. `label` numbers components of maps."""
    others = ~jnp.eye(env.num_agents, dtype=bool)
    alive, position = after.alive, after.position
    both = before.alive[:, None] & before.alive[None] & others
    step = position - before.position
    moved = jnp.any(step != 0, axis=-1)
    row, column = position[:, 0], position[:, 1]
    inside = (row >= 0) & (row < env.rows) & (column >= 0) & (column < env.columns)
    here = label[after.map, row, column]
    there = label[after.map, after.goal[:, 0], after.goal[:, 1]]
    arrived = before.alive & jnp.all(position == before.goal, axis=-1)
    new_goal = jnp.any(after.goal != before.goal, axis=-1)
    near = jnp.max(jnp.abs(position[:, None] - position[None]), axis=-1) <= env.obs_radius
    crowd = jnp.sum(near & alive[None], axis=1) * alive
    exchanged = jnp.all(position[:, None] == before.position[None], axis=-1) & moved[:, None]
    seen = unpack(observation.features, env.feature_spec)
    broken = {
        # Of those who arrive and leave too: nobody may enter their cell in the same step.
        "two agents in a cell": both & together(position),
        "a swap": both & exchanged & exchanged.T,
        "in a wall or off the map": ~inside | (here == 0),
        "a move that was not chosen": moved & jnp.any(step != jnp.asarray(MOVES)[action], axis=-1),
        "the dead move": moved & ~before.alive,
        "goal out of reach": here != there,
        "agents seen": jnp.sum(seen[:, 1], axis=(1, 2)) != crowd,
        "dead see": jnp.any(seen != 0, axis=(1, 2, 3)) & ~alive,
        "one goal seen": jnp.sum(seen[:, 2], axis=(1, 2)) != alive,
        "the map changes": before.map != after.map,
    }
    if env.on_target == "finish":
        broken["alive"] = alive != (before.alive & ~arrived)
        broken["reward"] = reward != arrived
        broken["a new goal"] = new_goal
    elif env.on_target == "nothing":
        broken["alive"] = ~alive
        broken["reward"] = reward != jnp.all(arrived)
        broken["a new goal"] = new_goal
    else:
        broken["alive"] = ~alive
        broken["reward"] = reward != arrived
        broken["a new goal"] = new_goal != arrived if not env.num_instances else new_goal & ~arrived
        broken["queue"] = after.queue != before.queue + arrived
    happened = {
        "moves": moved,
        "stopped": (action > 0) & before.alive & ~moved,
        "arrivals": arrived,
    }
    count = functools.partial(jnp.sum, dtype=int)
    return jax.tree.map(count, broken), jax.tree.map(count, happened)


def roll(env, params, episodes, seed):
    """Totals over `STEPS` random steps of each of `episodes` episodes."""
    walls = np.asarray(env.obstacles(params))
    label = jnp.asarray(np.stack([ndimage.label(~w)[0] for w in walls]))

    def one(key):
        reset_key, steps_key = jax.random.split(key)
        _, start = env.reset(reset_key, params)

        def step(state, key):
            act_key, step_key = jax.random.split(key)
            # Staying is half as likely as each move: whoever stays makes nothing happen.
            action = (jax.random.randint(act_key, (env.num_agents,), 0, 9) + 1) // 2
            observation, after, reward, *_ = env.step(step_key, state, action, params)
            totals = violations(env, params, label, state, action, after, observation, reward)
            return after, totals

        return jax.lax.scan(step, start, jax.random.split(steps_key, STEPS))[1]

    @jax.jit
    def program(key):
        totals = jax.vmap(one)(jax.random.split(key, episodes))
        return jax.tree.map(jnp.sum, totals)

    return jax.tree.map(int, program(jax.random.key(seed)))


def check(world, rule, mode, episodes):
    env, params = world(rule, mode)
    broken, happened = roll(env, params, episodes, seed=1)
    assert not {name: n for name, n in broken.items() if n}
    agent_steps = episodes * STEPS * env.num_agents
    assert happened["arrivals"] > (0 if mode == "finish" else agent_steps / 1000)
    assert min(happened["moves"], happened["stopped"]) > agent_steps / 100
    return episodes * STEPS


@pytest.mark.parametrize(("rule", "mode"), COMBINATIONS)
def test_invariants(rule, mode):
    world = (drawn, crowded)[COMBINATIONS.index((rule, mode)) % 2]
    check(world, rule, mode, episodes=32)


@pytest.mark.slow
@pytest.mark.parametrize("world", [drawn, crowded])
@pytest.mark.parametrize(("rule", "mode"), COMBINATIONS)
def test_invariants_over_millions_of_steps(rule, mode, world):
    # Eighteen of these are more than two million steps of all agents.
    assert check(world, rule, mode, episodes=2_048) * 18 > 2e6


@pytest.mark.parametrize("rule", RULES)
def test_the_checks_bite(rule):
    env, params = crowded(rule, "nothing")
    label = jnp.asarray(~np.asarray(env.obstacles(params)), int)
    before = env.instance_state(params, 0)
    action = jnp.zeros(env.num_agents, int)
    observation, after, reward, *_ = env.step(jax.random.key(0), before, action, params)

    def broken(state, action=action):
        found, _ = violations(env, params, label, before, action, state, observation, reward)
        return {name for name, n in found.items() if n}

    def put(agents, cells):
        return after.replace(position=after.position.at[jnp.array(agents)].set(jnp.array(cells)))

    assert broken(after) == set()
    first, second = before.position[0], before.position[1]
    assert "two agents in a cell" in broken(put([0], [second]))
    assert "a swap" in broken(put([0, 1], [second, first]))
    assert "a move that was not chosen" in broken(put([0], [first + 1]))
    assert "in a wall or off the map" in broken(put([0], [[1, 1]]))
    assert "in a wall or off the map" in broken(put([0], [[5, 0]]))
    assert "alive" in broken(after.replace(alive=after.alive.at[3].set(False)))
    assert "a new goal" in broken(after.replace(goal=after.goal[::-1]))
    assert "agents seen" in broken(after.replace(alive=after.alive.at[3].set(False)))
    assert math.isfinite(float(reward.sum()))
