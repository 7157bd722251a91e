"""The swarm benchmark: what both sides compute, what it reports, what it refuses."""

import json

import flockax_swarm
import jax.numpy as jnp
import numpy as np
import pytest
import swarm
import swarm_loop
from turns import Worker


def test_interaction_sums_headings_of_agents_within_one():
    count = 200
    side = float(swarm_loop.side_of(count, 4.0))
    state = swarm_loop.begin(count, side)
    sums = flockax_swarm.make_interaction(count, side)(*state)
    x, y, ux, uy = (np.asarray(z, np.float64) for z in state)
    d = [np.abs(z[:, None] - z[None]) for z in (x, y)]
    near = np.hypot(*(np.minimum(z, side - z) for z in d)) <= 1
    np.testing.assert_allclose(sums[0], near @ ux, atol=1e-4)
    np.testing.assert_allclose(sums[1], near @ uy, atol=1e-4)


def test_loop_turns_and_moves_and_counts():
    state = (jnp.asarray([0.05, 2.0]), jnp.asarray([1.0, 1.0]), -jnp.ones(2), jnp.zeros(2))
    x, y, ux, uy = swarm_loop.march(lambda x, y, ux, uy: (0 * ux, ux), 3.0, 1, state)
    np.testing.assert_allclose([x[0], y[0], ux[0], uy[0]], [0.05, 0.9, 0, -1], atol=1e-6)
    handlers = swarm_loop.swarm_handlers(flockax_swarm.make_interaction, dict)
    handlers["prepare"](num_agents=50, density=4.0, steps=3)
    done = handlers["repeat"](seconds=0)
    assert done["steps"] == 3 and done["seconds"] > 0 and 0 < done["order"] <= 1


def test_result_has_what_is_promised(capsys):
    words = ["--num-agents", "300", "--steps", "2", "--repeats", "2", "--seconds", "0", "--json"]
    assert swarm.main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["milliseconds_per_step"] > 0 and result["dropped"] == 0
    rate = 1000 * 300 / result["milliseconds_per_step"]
    assert result["agents_per_second"] == pytest.approx(rate)
    assert result["ratio"] is None and result["peak_megabytes"] > 50
    assert result["sides"]["ours"]["versions"]["jax"]


def test_dropped_agents_are_reported():
    with Worker("flockax_swarm.py") as worker:
        fields = {"num_agents": 200, "search": "sorted", "capacity": 1}
        worker.ask("prepare_env", env="flock", fields=fields, steps=2)
        assert worker.ask("repeat_env", seconds=0)["dropped"] > 100


def test_impossible_settings_are_refused(capsys):
    assert swarm.main(["--num-agents", "0"]) == 2
    assert "num_agents=0 is not >= 1" in capsys.readouterr().err
    assert swarm.main(["--density", "-1"]) == 2
    assert "density=-1.0 is not a number" in capsys.readouterr().err
