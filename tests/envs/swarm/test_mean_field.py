"""Mean-field games by brute force on small grids, and what must hold on any."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from crowd_oracle import Rules

from flockax.envs.swarm import mean_field as mf
from flockax.envs.swarm import mean_field_games as games

pytestmark = pytest.mark.usefixtures("float64")

WALLS = np.zeros((3, 3), bool)
WALLS[1, 0] = WALLS[2, 2] = True
MATRIX = np.array([[0.5, -2, 1], [1, 0, -0.25], [3, 1, -1]])
FREE = dict.fromkeys(("beach", "crowd", "predator_prey"))


def small(task):
    """A game with three times, and its rules."""
    if task == "beach":
        return games.crowd_modelling(4, 3, noise=0.7, aversion=0.5), Rules(task, 4, 0.7, 0.5)
    if task == "crowd":
        return (
            games.crowd_modelling_2d(
                3, 3, noise=0.4, aversion=0.8, forbidden=WALLS, congestion=True
            ),
            Rules(task, 3, 0.4, 0.8, walls=WALLS, congestion=True),
        )
    start = np.zeros((3, 2, 2))
    start[:, 0] = [[0.25, 0.75], [1, 0], [0.5, 0.5]]
    game = games.predator_prey(2, 3, noise=0.3, aversion=0.9, interaction=MATRIX, start=start)
    return game, Rules(task, 2, 0.3, 0.9, interaction=MATRIX)


def order_of(game, rules):
    """Which action of the game each action of the rules is."""
    return [game.moves.index(move) for move in rules.moves]


def random_policy(game, seed):
    noise = np.random.default_rng(seed).gamma(0.7, size=mf.uniform_policy(game).shape)
    noise = noise * np.asarray(game.is_open)
    return noise / noise.sum(axis=2, keepdims=True)


def paths(game, rules, policy, population):
    """Every way an agent can go: ``(probability, cells, actions)`` of its three times."""
    order = order_of(game, rules)

    def onwards(time, probability, cells, actions):
        if time == game.horizon - 1:
            yield probability, cells, actions
            return
        for action in rules.legal(cells[-1]):
            chance = float(policy[time, population, order[action]][cells[-1]])
            for there, luck in rules.outcomes(rules.go(cells[-1], action)):
                yield from onwards(
                    time + 1, probability * chance * luck, [*cells, there], [*actions, action]
                )

    for cell in rules.cells:
        if game.initial[population][cell] > 0:
            yield from onwards(0, float(game.initial[population][cell]), [cell], [0])


def flow_of_paths(game, rules, policy):
    flow = np.zeros((game.horizon, *game.initial.shape))
    for population in range(len(game.initial)):
        for probability, cells, _ in paths(game, rules, policy, population):
            for time, cell in enumerate(cells):
                flow[(time, population, *cell)] += probability
    return flow


def value_of_paths(game, rules, policy, flow, population):
    total = 0.0
    for probability, cells, actions in paths(game, rules, policy, population):
        for time, (cell, came) in enumerate(zip(cells, actions, strict=True)):
            total += probability * rules.reward(population, cell, came, flow[time])
    return total


@pytest.mark.parametrize("task", FREE)
def test_flow_and_value_over_all_paths(task):
    game, rules = small(task)
    for policy in (random_policy(game, 1), np.asarray(mf.uniform_policy(game))):
        flow = flow_of_paths(game, rules, policy)
        np.testing.assert_allclose(mf.flow(game, policy), flow, atol=1e-14)
        values = mf.policy_value(game, jnp.asarray(policy), jnp.asarray(flow))
        for population, value in enumerate(np.asarray(values)):
            expected = value_of_paths(game, rules, policy, flow, population)
            np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_best_response_among_all_policies():
    """On a ring of three cells with two choices that matter, there are 729 policies without chance."""
    game, rules = games.crowd_modelling(3, 3), Rules("beach", 3, 1.0)
    flow = np.asarray(mf.flow(game, jnp.asarray(random_policy(game, 2))))
    order, best = order_of(game, rules), -np.inf
    for choice in itertools.product(range(3), repeat=6):
        policy = np.zeros((3, 1, 3, 3, 1))
        policy[2, 0, 1] = 1
        for (time, x), action in zip(itertools.product(range(2), range(3)), choice, strict=True):
            policy[time, 0, order[action], x, 0] = 1
        best = max(best, value_of_paths(game, rules, policy, flow, 0))
    np.testing.assert_allclose(mf.best_response_value(game, jnp.asarray(flow))[0], best, rtol=1e-12)
    response = mf.best_response(game, jnp.asarray(flow))
    np.testing.assert_allclose(
        value_of_paths(game, rules, np.asarray(response), flow, 0), best, rtol=1e-12
    )


@pytest.mark.parametrize("task", FREE)
def test_exploitability_is_what_one_agent_can_gain(task):
    game, rules = small(task)
    policy = jnp.asarray(random_policy(game, 3))
    flow = mf.flow(game, policy)
    response = mf.best_response(game, flow)
    np.testing.assert_allclose(np.asarray(response).sum(axis=2), 1)
    gain = sum(
        value_of_paths(game, rules, np.asarray(response), np.asarray(flow), population)
        - value_of_paths(game, rules, np.asarray(policy), np.asarray(flow), population)
        for population in range(len(game.initial))
    )
    np.testing.assert_allclose(mf.exploitability(game, policy), gain, rtol=1e-11)
    assert gain > 0.1
    for seed in range(10):  # nothing else gains more
        other = jnp.asarray(random_policy(game, seed))
        best = mf.best_response_value(game, flow)
        assert (best >= mf.policy_value(game, other, flow) - 1e-12).all()


@pytest.mark.parametrize("task", FREE)
def test_push_is_the_adjoint_of_pull_and_keeps_mass(task):
    game, _ = small(task)
    rng = np.random.default_rng(0)
    value = jnp.asarray(rng.normal(size=game.place.shape))
    mass = jnp.asarray(rng.random(game.is_open.shape))
    np.testing.assert_allclose(jnp.sum(mf.push(game, mass)), jnp.sum(mass))
    np.testing.assert_allclose(
        jnp.sum(mf.push(game, mass) * value), jnp.sum(mass * mf.pull(game, value))
    )


def test_nothing_enters_a_wall_and_values_there_are_finite():
    game, _ = small("crowd")
    policy = jnp.asarray(random_policy(game, 4))
    flow = np.asarray(mf.flow(game, policy))
    assert not flow[..., WALLS].any()
    np.testing.assert_allclose(flow.sum((2, 3)), 1)
    assert np.isfinite(mf.action_values(game, policy, jnp.asarray(flow))).all()
    assert np.isfinite(mf.action_values(game, None, jnp.asarray(flow))).all()


def test_no_matrix_of_cells_by_cells_is_made():
    game = games.crowd_modelling_2d(40, 2)
    text = str(jax.make_jaxpr(mf.exploitability)(game, mf.uniform_policy(game)))
    assert f"{40**2},{40**2}" not in text and "40,40,40,40" not in text


def test_numbers_may_be_traced():
    def gain(noise, aversion):
        game = games.crowd_modelling_2d(4, 3, noise=noise, aversion=aversion)
        return mf.exploitability(game, mf.uniform_policy(game))

    both = jax.jit(jax.vmap(gain))(jnp.array([0.2, 0.9]), jnp.array([1.0, 0.3]))
    alone = [gain(0.2, 1.0), gain(0.9, 0.3)]
    np.testing.assert_allclose(both, alone, rtol=1e-12)
    assert both[0] != both[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: games.crowd_modelling(1), "size=1 is not an integer >= 2"),
        (lambda: games.crowd_modelling(5, 0), "horizon=0"),
        (lambda: games.crowd_modelling_2d(True), "size=True"),
        (lambda: games.crowd_modelling_2d(5.0), "size=5.0"),
        (lambda: games.crowd_modelling_2d(3, forbidden=np.ones((3, 3))), "leaves no"),
        (lambda: games.crowd_modelling_2d(4, forbidden=WALLS), "forbidden of shape"),
        (lambda: games.crowd_modelling_2d(3, start=np.ones((3, 3))), "start is not a density"),
        (
            lambda: games.crowd_modelling_2d(3, forbidden=WALLS, start=WALLS / 2),
            "mass in forbidden cells",
        ),
        (lambda: games.predator_prey(num_populations=5), "num_populations=5"),
        (lambda: games.predator_prey(interaction=np.zeros((2, 2))), r"interaction has shape"),
        (lambda: games.predator_prey(start=np.zeros((3, 5, 5))), "start is not a density"),
        (lambda: games.hunting(2), "num_populations=2"),
        (lambda: games.four_rooms(6), "size=6"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rooms_of_other_sizes_are_connected():
    for size in (7, 8, 10, 13, 16):
        free = ~games.four_rooms(size)
        reached = np.zeros_like(free)
        reached[1, 1] = True
        for _ in range(size * size):
            grown = reached.copy()
            for step, axis in itertools.product((-1, 1), (0, 1)):
                grown |= np.roll(reached, step, axis)
            reached = grown & free
        assert (reached == free).all()


def test_hunting_is_the_matrix_not_the_comment():
    np.testing.assert_array_equal(games.hunting(3), [[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    four = [[0, 1, 0, -1], [-1, 0, 1, 0], [0, -1, 0, 1], [1, 0, -1, 0]]
    np.testing.assert_array_equal(games.hunting(4), four)
