"""Starts have the law of mpe2's `reset_world`; the random bits are others."""

import jax
import numpy as np
import pytest
from particle_peer import make_peer, snapshot
from scipy import stats

from flockax.envs import make

COUNT = 3000
CASES = {
    "tag": {"num_predators": 2, "num_prey": 1, "num_obstacles": 2},
    "spread": {"num_agents": 2},
    "world_comm": {
        "num_predators": 2,
        "num_prey": 1,
        "num_obstacles": 1,
        "num_food": 1,
        "num_forests": 1,
    },
}


def peer_starts(id, fields):
    peer = make_peer(id, "discrete", **fields)
    rng = np.random.default_rng(0)
    starts = []
    for _ in range(COUNT):
        peer.scenario.reset_world(peer.world, rng)
        starts.append(snapshot(peer.world))
    return {key: np.array([start[key] for start in starts]) for key in starts[0]}


@pytest.mark.parametrize("id", CASES)
def test_starts_have_the_law_of_mpe2(id):
    env, peer = make(id, **CASES[id]), peer_starts(id, CASES[id])
    draw = jax.jit(jax.vmap(lambda key: env.initial_state(key, env.default_params)))
    state = draw(jax.random.split(jax.random.key(0), COUNT))
    assert not np.any(state.velocity) and not np.any(peer["velocity"])
    assert not np.any(getattr(state, "message", 0)) and not np.any(peer["message"])
    assert not np.any(state.time)

    coordinates = {}
    for name in ("position", "landmark"):
        ours, theirs = np.asarray(getattr(state, name)), peer[name]
        assert ours.shape == theirs.shape
        ours, theirs = ours.reshape(COUNT, -1), theirs.reshape(COUNT, -1)
        for k in range(ours.shape[1]):
            p = stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue
            assert p > 1e-3, (name, k, p)
            np.testing.assert_allclose(ours[:, k].mean(), theirs[:, k].mean(), atol=0.06)
            np.testing.assert_allclose(ours[:, k].var(), theirs[:, k].var(), rtol=0.08)
        # The ends of a uniform law are seen far more sharply than its shape.
        np.testing.assert_allclose(ours.max(), theirs.max(), atol=2e-3)
        np.testing.assert_allclose(ours.min(), theirs.min(), atol=2e-3)
        coordinates[name] = ours

    everything = np.concatenate(list(coordinates.values()), axis=1)
    for values in (everything, everything**2):
        correlation = np.corrcoef(values, rowvar=False) - np.eye(values.shape[1])
        assert np.abs(correlation).max() < 5 / np.sqrt(COUNT)
