"""`discovery`, `dispersion` and `sampling` against episodes recorded from VMAS 1.5.2, step by step.

Every recorded step is played alone, in float64, from the recorded float32 state. VMAS computes in
float32, so a step in which some distance is within rounding of a threshold may differ: such steps are
left out, and are few.
"""

import collections
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.envs import make

pytestmark = pytest.mark.usefixtures("float64")

RECORD = Path(__file__).parents[2] / "fixtures" / "vmas.npz"
NEAR = 3e-6  # distances this close to a threshold may fall on either side
TOLERANCE = 3e-5

CASES = {
    "discovery_respawn": (
        "discovery",
        {"num_agents": 6, "num_targets": 4},
        {"half_width": 0.5, "collision_penalty": 0.5, "time_penalty": 0.01},
    ),
    "discovery_vanish": (
        "discovery",
        {"num_agents": 6, "num_targets": 7, "shared_reward": True, "on_cover": "vanish"},
        {"half_width": 0.6},
    ),
    "discovery_three": (
        "discovery",
        {"num_agents": 7, "num_targets": 3},
        {"half_width": 0.6, "agents_per_target": 3},
    ),
    "dispersion_split": (
        "dispersion",
        {"num_agents": 6, "num_food": 20},
        {"half_width": 0.4},
    ),
    "dispersion_shared": (
        "dispersion",
        {"num_agents": 3, "num_food": 8, "shared_reward": True},
        {"half_width": 0.25, "idle_penalty": 0.01},
    ),
    "sampling_shared": ("sampling", {"num_agents": 4, "cells": 16}, {"half_width": 0.4}),
    "sampling_own": (
        "sampling",
        {"num_agents": 3, "cells": 20, "num_gaussians": 2, "shared_reward": False},
        {},
    ),
}


@functools.cache
def recorded(case):
    """The arrays of a case, and its environment and parameters."""
    with np.load(RECORD) as file:
        names = [name for name in file.files if name.startswith(case + "/")]
        arrays = {name.partition("/")[2]: file[name] for name in names}
    id_, fields, changes = CASES[case]
    env = make(id_, actions="continuous", **fields)
    return arrays, env, env.make_params(**changes)


def pushes(action):
    """Five pushes for recorded forces in quarters."""
    x, y = action[..., 0] / 4, action[..., 1] / 4
    parts = [0 * x, np.maximum(-x, 0), np.maximum(x, 0), np.maximum(-y, 0), np.maximum(y, 0)]
    return np.stack(parts, axis=-1)


def extra(case, arrays, env):
    """What the states of a scenario have beside bodies and landmarks, by name, ``[T + 1, E, ...]``."""
    moments = arrays["position"].shape[:2]
    if case.startswith("sampling"):
        shape = (*moments, env.cells, env.cells)
        sampled = np.unpackbits(arrays["sampled"])[: np.prod(shape)].reshape(shape).astype(bool)
        peak = np.broadcast_to(arrays["peak"] * 2 * np.pi * 0.05, moments).astype(float)
        return {"sampled": sampled, "peak": peak, "total": np.ones(moments)}
    gone = arrays.get("gone", arrays.get("eaten"))
    shape = arrays["landmark"].shape[:3]
    return {"present": np.ones(shape, bool) if gone is None else ~gone}


@functools.cache
def played(case):
    """Every recorded step from its recorded state: ``(arrays, extras, results)``, axes [T, E]."""
    arrays, env, params = recorded(case)
    steps = arrays["action"].shape[:2]
    extras = extra(case, arrays, env)
    before = {
        name: arrays[name][:-1].astype(float) for name in ("position", "velocity", "landmark")
    }
    before |= {name: value[:-1] for name, value in extras.items()}
    one = env.initial_state(jax.random.key(0), params)
    state = type(one)(time=np.zeros(steps, int), **before)
    keys = jax.random.split(jax.random.key(1), steps)
    step = jax.vmap(jax.vmap(lambda k, s, a: env.step(k, s, a, params)))
    results = jax.device_get(jax.jit(step)(keys, state, pushes(arrays["action"])))
    return arrays, extras, results


def distances(a, b):
    return np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], axis=-1)


def between_agents(position):
    """Distances of all pairs ``[..., A (A - 1) / 2]``."""
    upper = np.triu_indices(position.shape[-2], 1)
    return distances(position, position)[..., upper[0], upper[1]]


def certain(values, *thresholds):
    """``bool[T, E]``: no distance is within rounding of a threshold."""
    flat = values.reshape(*values.shape[:2], -1)
    return np.all([np.all(np.abs(flat - x) > NEAR, axis=-1) for x in thresholds], axis=0)


def clear(case):
    """``bool[T, E]``: the steps in which rounding decides nothing."""
    arrays, env, params = recorded(case)
    id_ = CASES[case][0]
    before, after = arrays["position"][:-1], arrays["position"][1:]
    size = 2 * float(params.agent_size)
    ok = np.ones(before.shape[:2], bool)
    if id_ == "discovery":
        ok &= certain(between_agents(before), size)
        ok &= certain(between_agents(after), size + float(params.touch_distance))
        ok &= certain(distances(before, arrays["landmark"][:-1]), size)
        ok &= certain(distances(after, arrays["landmark"][:-1]), float(params.covering_range))
    if id_ == "dispersion":
        reach = float(params.agent_size + params.food_size)
        ok &= certain(distances(after, arrays["landmark"][:-1]), reach)
    if id_ == "sampling":
        ok &= certain(between_agents(before), size)
        width = 2 * float(params.half_width) / env.cells
        ok &= certain(after / width - np.round(after / width), 0)
    return ok


@pytest.mark.parametrize("case", CASES)
def test_few_steps_are_left_out(case):
    assert clear(case).mean() > 0.97


@pytest.mark.parametrize("case", CASES)
def test_bodies_move_as_recorded(case):
    arrays, _, (_, state, *_) = played(case)
    ok = clear(case)
    for name in ("position", "velocity"):
        actual, expected = getattr(state, name)[ok], arrays[name][1:][ok]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("sampling")])
def test_rewards_are_as_recorded(case):
    arrays, _, (_, _, reward, *_) = played(case)
    ok = clear(case)
    np.testing.assert_allclose(reward[ok], arrays["reward"][ok], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", ["discovery_respawn", "discovery_three"])
def test_covered_targets_appear_elsewhere_and_others_stay(case):
    arrays, _, (_, state, _, terminated, _, info) = played(case)
    _, _, params = recorded(case)
    ok, covered = clear(case), arrays["covered"]
    moved = (state.landmark != arrays["landmark"][:-1]).any(-1)
    np.testing.assert_array_equal(moved[ok], covered[ok])
    np.testing.assert_array_equal(info["metrics"]["covered"][ok], covered.sum(-1)[ok])
    assert not terminated.any() and (covered & ok[..., None]).sum() >= 100
    # As there, a new target keeps its distance from agents and targets.
    gap = float(params.min_distance)
    near_agent = distances(state.landmark, state.position).min(-1)
    assert (near_agent[moved] >= gap).all()
    apart = distances(state.landmark, state.landmark) + 9 * np.eye(covered.shape[-1])
    assert (apart.min(-1)[moved] >= gap).all()


def test_covered_targets_vanish_as_recorded():
    arrays, _, (_, state, _, terminated, *_) = played("discovery_vanish")
    ok, gone = clear("discovery_vanish"), arrays["gone"][1:]
    np.testing.assert_array_equal(~state.present[ok], gone[ok])
    np.testing.assert_array_equal(terminated[ok], gone.all(-1)[ok])
    assert (arrays["gone"][1:] & ~arrays["gone"][:-1]).sum() >= 100


@pytest.mark.parametrize("case", ["dispersion_split", "dispersion_shared"])
def test_food_is_eaten_as_recorded(case):
    arrays, _, (_, state, _, terminated, *_) = played(case)
    ok, eaten = clear(case), arrays["eaten"][1:]
    np.testing.assert_array_equal(~state.present[ok], eaten[ok])
    np.testing.assert_array_equal(terminated[ok], arrays["done"][ok])
    assert (eaten & ~arrays["eaten"][:-1]).sum() >= 100


def cells_of(case, position):
    _, env, params = recorded(case)
    width = 2 * float(params.half_width) / env.cells
    cell = np.floor(position / width + env.cells / 2).astype(int)
    return cell[..., 0] * env.cells + cell[..., 1]


@pytest.mark.parametrize("case", ["sampling_shared", "sampling_own"])
def test_samples_are_as_recorded(case):
    """Where agents share a cell, ours is the mean of what they would take, theirs the first one's."""
    arrays, extras, (observation, state, reward, *_) = played(case)
    ok = clear(case)
    np.testing.assert_array_equal(state.sampled[ok], extras["sampled"][1:][ok])
    cell = cells_of(case, arrays["position"][1:])
    same = (cell[..., :, None] == cell[..., None, :]).sum(-1) > 1
    alone = ok & ~same.any(-1)
    assert alone.mean() > 0.5
    np.testing.assert_allclose(reward[alone], arrays["reward"][alone], rtol=0, atol=TOLERANCE)
    probe = certain_probes(case, arrays["position"][1:])
    seen = observation.features[..., 4:12]
    np.testing.assert_allclose(seen[probe], arrays["field"][probe], rtol=0, atol=TOLERANCE)
    assert (arrays["field"] == 0).sum() >= 100 and probe.mean() > 0.95


def certain_probes(case, position):
    """``bool[T, E, A, 8]``: probes not within rounding of a border of cells or of the box."""
    _, env, params = recorded(case)
    half = float(params.half_width)
    width = 2 * half / env.cells
    shift = width * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [-1, -1], [1, -1], [-1, 1], [1, 1]])
    probe = (position[..., None, :] + shift) / width
    near = np.abs(probe - np.round(probe)) < 2e-5
    # A body at a wall of the box is exactly there, and all its probes beyond are clipped to it.
    return ~near.any(-1)


@pytest.mark.parametrize("case", ["sampling_shared", "sampling_own"])
def test_the_peak_is_as_recorded(case):
    arrays, env, params = recorded(case)
    for e in range(3):
        mean = arrays["landmark"][0, e].astype(float)
        along = np.arange(env.cells) * 2 * float(params.half_width) / env.cells
        corner = np.clip(along - float(params.half_width), -float(env._stop(params)), None)
        peak = jnp.max(env._bumps(jnp.asarray(corner), jnp.asarray(mean), params))
        np.testing.assert_allclose(peak, arrays["peak"][e] * 2 * np.pi * 0.05, rtol=1e-5)


def test_the_record_has_enough_of_everything():
    """Contacts of agents, with targets, with walls; touches that cost; shared meals and cells."""

    def contacts(case):
        arrays, _, params = recorded(case)
        position = arrays["position"][:-1]
        size = 2 * float(params.agent_size)
        return position, between_agents(position) < size, arrays, params, size

    position, met, arrays, params, size = contacts("discovery_respawn")
    assert met.sum() >= 100
    assert (distances(position, arrays["landmark"][:-1]) < size).sum() >= 100
    after = between_agents(arrays["position"][1:])
    assert (after < size + float(params.touch_distance)).sum() >= 100
    at_wall = collections.Counter()
    for case in CASES:
        position, _, arrays, params, _ = contacts(case)
        edge = float(params.half_width)
        if case.startswith("sampling"):
            edge -= float(params.agent_size)
        at_wall[CASES[case][0]] += (np.abs(np.abs(position) - edge) < 1e-6).sum()
    assert min(at_wall.values()) >= 100, at_wall
    assert contacts("sampling_shared")[1].sum() >= 100
    arrays, _, params = recorded("dispersion_split")
    reach = float(params.agent_size + params.food_size)
    on = distances(arrays["position"][1:], arrays["landmark"][:-1]) < reach
    fresh = ~arrays["eaten"][:-1]
    assert ((on.sum(-2) > 1) & fresh).sum() >= 100
    cell = cells_of("sampling_own", recorded("sampling_own")[0]["position"][1:])
    shared = (cell[..., :, None] == cell[..., None, :]).sum(-1) > 1
    assert shared.any(-1).sum() >= 100
