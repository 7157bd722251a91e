"""Advantages against the definition of the lambda-return, written as a double sum in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockax.agents.core import returns


def lambda_return_advantage(reward, value, next_value, bootstrap, done, gamma, lam):
    """(1 - lambda) sum_n lambda^(n-1) G^(n), the rest of the weight on the longest, minus V."""
    steps, envs, agents = reward.shape
    advantage = np.zeros(reward.shape)
    for e in range(envs):
        for i in range(agents):
            for t in range(steps):
                last = t
                while last < steps - 1 and bootstrap[last, e, i] and not done[last, e]:
                    last += 1
                n_step, total = [], 0.0
                for k in range(t, last + 1):
                    total += gamma ** (k - t) * reward[k, e, i]
                    tail = gamma ** (k - t + 1) * next_value[k, e, i] * bootstrap[k, e, i]
                    n_step.append(total + tail)
                weights = [(1 - lam) * lam**n for n in range(len(n_step) - 1)]
                weights.append(lam ** (len(n_step) - 1))
                advantage[t, e, i] = np.dot(weights, n_step) - value[t, e, i]
    return advantage


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    st.sampled_from([0.0, 0.9, 1.0]),
)
def test_gae_is_the_lambda_return_under_random_ends(seed, gamma, lam):
    rng = np.random.default_rng(seed)
    shape = (11, 3, 2)
    reward, value, last, final = (rng.normal(size=s) for s in (shape, shape, shape[1:], shape))
    terminated = rng.random(shape[:2]) < 0.15
    truncated = (rng.random(shape[:2]) < 0.15) & ~terminated
    alive_next = rng.random(shape) < 0.85
    done, bootstrap = terminated | truncated, ~terminated[:, :, None] & alive_next
    next_value = np.array(returns.following_values(*map(jnp.asarray, (value, last, final, done))))
    expected_next = np.where(done[:, :, None], final, np.concatenate([value[1:], last[None]]))
    np.testing.assert_allclose(next_value, expected_next, rtol=1e-6)
    args = (reward, value, expected_next, bootstrap, done)
    ours = returns.gae(*map(jnp.asarray, args), gamma, lam)
    np.testing.assert_allclose(
        ours, lambda_return_advantage(*args, gamma, lam), rtol=2e-4, atol=2e-5
    )


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_constant_reward_is_worth_r_over_one_minus_gamma_under_truncation(gamma):
    """With the exact values given, no advantage is left, also where episodes are cut by time."""
    steps, r = 40, 3.0
    worth = r / (1 - gamma)
    full = jnp.full((steps, 2, 1), worth)
    done = jnp.asarray(np.arange(steps)[:, None] % np.array([7, 5]) == 0)
    advantage = returns.gae(
        jnp.full((steps, 2, 1), r), full, full, jnp.ones((steps, 2, 1), bool), done, gamma, 0.95
    )
    np.testing.assert_allclose(advantage, 0, atol=1e-4 * worth)
    # The same ends as terminations are worth less: what a time limit must not be taken for.
    ended = returns.gae(
        jnp.full((steps, 2, 1), r),
        full,
        full,
        ~jnp.broadcast_to(done[..., None], full.shape),
        done,
        gamma,
        0.95,
    )
    assert float(jnp.min(ended)) < -0.4 * worth


def test_normalise_keeps_sets_and_dead_entries_apart():
    rng = np.random.default_rng(0)
    advantage = rng.normal(size=(50, 8, 3)) * [1.0, 1.0, 1000.0] + [5.0, -5.0, 70.0]
    weight = (rng.random((50, 8, 3)) < 0.7).astype(float)
    membership = np.array([[1.0, 0], [1, 0], [0, 1]])
    out = np.asarray(returns.normalise(*map(jnp.asarray, (advantage, weight, membership))))
    for agents in ([0, 1], [2]):
        counted = out[:, :, agents][weight[:, :, agents] > 0]
        assert abs(counted.mean()) < 1e-4
        assert abs(counted.std() - 1) < 1e-3
    # A set without any entry gives no NaN.
    nothing = returns.normalise(jnp.ones((2, 2, 1)), jnp.zeros((2, 2, 1)), jnp.ones((1, 1)))
    assert np.isfinite(np.asarray(nothing)).all()
