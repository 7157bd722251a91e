"""Mean-field games and solvers against what OpenSpiel 2.0.2 computed, in double precision."""

import jax
import jax.numpy as jnp
import mean_field_record as records
import numpy as np
import pytest

from flockax.agents.planners import mean_field as planner
from flockax.envs.swarm import mean_field as mf
from flockax.envs.swarm import mean_field_games as games

pytestmark = pytest.mark.usefixtures("float64")
BY_ROUNDING = ("torus_10", "four_rooms")
every_game = pytest.mark.parametrize("name", records.NAMES)


def close(actual, expected, tolerance=1e-11):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_the_record_has_what_matters():
    """Starts, walls, ties and cells without density: what rules can get wrong occurs."""
    data = {name: records.load(name) for name in records.NAMES}
    assert all(len(x["fictitious_play"]) >= 10 for x in data.values())
    assert all(len(x["mirror_descent"]) >= 10 for x in data.values())
    closed = sum((~x["legal"] & ~x["walls"]).sum() for x in data.values())
    assert closed >= 100
    assert sum((x["flow"] == 0).sum() for x in data.values()) >= 100
    assert sum(np.isfinite(x["reward"]).sum() for x in data.values()) >= 1000


@every_game
def test_actions_and_noise_lead_where_they_do_there(name):
    record, game = records.load(name), records.make(name)
    free = ~record["walls"]
    visited = record["legal"].any(axis=0)
    assert visited.sum() == free.sum()
    np.testing.assert_array_equal(
        np.reshape(game.is_open, record["legal"].shape)[:, free], record["legal"][:, free]
    )
    mass = records.cells(game, np.eye(free.size)[free])  # one agent in each free cell
    for action in range(len(game.moves)):
        chosen = np.zeros((free.sum(), len(game.moves), *game.place.shape))
        chosen[:, action] = mass
        after = mf.push(game, mf.push(game, jnp.asarray(chosen))[:, None] * game.noise)
        legal = record["legal"][action][free]
        actual = np.reshape(after, (free.sum(), -1))[legal]
        close(actual, record["kernel"][action][free][legal], 1e-15)


@every_game
def test_rewards_after_each_action(name):
    record, game = records.load(name), records.make(name, compat=False)
    density = jnp.asarray(records.cells(game, record["density"]))
    price = game.cost[:, None, None, None] * mf.move_weight(game, density)
    paid = np.reshape(mf.cell_reward(game, density) + price, record["reward"].shape)
    known = np.isfinite(record["reward"])
    close(paid[known], record["reward"][known], 1e-12)


@every_game
def test_flows_and_values_of_a_random_policy(name):
    record, game = records.load(name), records.make(name)
    policy = jnp.asarray(records.cells(game, record["policy"]))
    flow = mf.flow(game, policy)
    close(flow, records.cells(game, record["flow"]), 1e-14)
    close(mf.policy_value(game, policy, flow), record["value"], 1e-12)
    close(mf.best_response_value(game, flow), record["best"], 1e-12)
    close(mf.exploitability(game, policy), record["nash_conv"][1])
    close(mf.exploitability(game, mf.uniform_policy(game)), record["nash_conv"][0])


@every_game
def test_best_response_breaks_ties_alike(name):
    """The first of equal values; of mirror images that are equal but for rounding it may be another."""
    record, game = records.load(name), records.make(name)
    flow = mf.flow(game, mf.uniform_policy(game))
    ours = np.asarray(mf.best_response(game, flow))
    theirs = records.cells(game, record["greedy"])
    known = np.isfinite(theirs).any(axis=2)
    theirs = np.nan_to_num(theirs)  # illegal actions
    differ = known & (ours != theirs).any(axis=2)
    assert not differ.any() or name in BY_ROUNDING
    assert differ.sum() <= 0.02 * known.sum()
    values = np.asarray(mf.action_values(game, None, flow))
    gap = np.abs(np.sum((ours - theirs) * values, axis=2))
    assert (gap[differ] < 1e-12).all()


@pytest.mark.parametrize("name", [name for name in records.NAMES if name != "four_rooms"])
def test_fictitious_play_is_as_exploitable(name):
    """Not in four rooms: of two mirror images, which are equally good there, rounding takes one."""
    record, game = records.load(name), records.make(name)
    count, rate = len(record["fictitious_play"]), record["rates"][0]
    solution = planner.fictitious_play(game, count, rate or None)
    close(solution.exploitability[0], record["nash_conv"][0])
    close(solution.exploitability[1:], record["fictitious_play"])


@every_game
def test_mirror_descent_is_as_exploitable(name):
    record, game = records.load(name), records.make(name)
    count, rate = len(record["mirror_descent"]), record["rates"][1]
    solution = planner.online_mirror_descent(game, count, rate or 0.01)
    close(solution.exploitability[1:], record["mirror_descent"])
    theirs = records.cells(game, record["mirror_policy"])
    known = np.isfinite(theirs)
    close(np.asarray(solution.policy)[known], theirs[known])


@pytest.mark.parametrize("name", ["beach_10", "torus_10", "prey_3"])
def test_compat_makes_the_difference(name):
    """Without it prices, starts or mirror descent differ, and so does what is computed."""
    record = records.load(name)
    count = len(record["mirror_descent"])
    right = planner.online_mirror_descent(records.make(name, compat=False), count)
    assert np.abs(right.exploitability[1:] - record["mirror_descent"]).max() > 1e-3


def test_four_rooms_and_defaults_are_the_peers():
    record = records.load("four_rooms")
    np.testing.assert_array_equal(games.four_rooms(), record["walls"].reshape(13, 13))
    for name, ours in (
        ("torus_10", games.crowd_modelling_2d(compat=True)),
        ("beach_10", games.crowd_modelling(compat=True)),
        ("prey_3", games.predator_prey(compat=True)),
    ):
        jax.tree.map(np.testing.assert_array_equal, ours, records.make(name))
        assert jax.tree.structure(ours) == jax.tree.structure(records.make(name))
    for number in (3, 4):
        start = records.load(f"prey_{number}")["start"].reshape(number, 5, 5)
        np.testing.assert_array_equal(games.corners(number, 5), start)
