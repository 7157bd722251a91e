"""Action distributions against scipy, quadrature and enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from flockax.agents.core import distributions
from flockax.envs import ContinuousActions, DiscreteActions

DISCRETE = DiscreteActions(2, 5)
CONTINUOUS = ContinuousActions(2, 3, -0.5, 2.0)
MASK = np.array([[True, True, False, True, True], [False, True, False, False, False]])


@pytest.fixture
def categorical():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5)) * 3)
    return logits, distributions.action_distribution(DISCRETE, logits, jnp.asarray(MASK))


def test_masked_categorical_is_the_softmax_over_open_actions(categorical):
    logits, distribution = categorical
    log_prob = np.stack([distribution.log_prob(jnp.full(2, a)) for a in range(5)], axis=1)
    expected = np.where(MASK, np.asarray(logits), -np.inf)
    expected = expected - scipy.special.logsumexp(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(log_prob[MASK], expected[MASK], rtol=1e-5, atol=1e-6)
    assert (log_prob[~MASK] < -1e30).all()
    entropy = [scipy.stats.entropy(np.exp(row[m])) for row, m in zip(expected, MASK, strict=True)]
    np.testing.assert_allclose(distribution.entropy(None), entropy, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(distribution.mode(), np.argmax(expected, axis=1))


def test_closed_actions_are_never_drawn_and_carry_no_gradient(categorical):
    logits, _ = categorical
    mask = jnp.asarray(MASK)
    wide = distributions.MaskedCategorical(
        jnp.broadcast_to(jnp.where(mask, logits, jnp.finfo(logits.dtype).min / 2), (4000, 2, 5))
    )
    noise = distributions.action_noise(DISCRETE, jax.random.key(1), (4000, 2))
    drawn = np.asarray(wide.sample(noise))
    counts = np.stack([np.bincount(drawn[:, i], minlength=5) for i in range(2)])
    assert (counts[~MASK] == 0).all()
    open_probability = np.exp(np.where(MASK, np.asarray(logits), -np.inf))
    open_probability /= open_probability.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(counts / 4000, open_probability, atol=0.03)

    def objective(logits):
        distribution = distributions.action_distribution(DISCRETE, logits, mask)
        raw = jnp.asarray([3, 1])
        return jnp.sum(distribution.log_prob(raw) + distribution.entropy(raw))

    gradient = np.asarray(jax.grad(objective)(logits))
    assert np.isfinite(gradient).all()
    assert (gradient[~MASK] == 0).all()


def squashed(mean, log_std, mask):
    output = jnp.concatenate([jnp.asarray(mean), jnp.asarray(log_std)], axis=-1)
    return distributions.action_distribution(CONTINUOUS, output, jnp.asarray(mask))


def test_squashed_normal_density_integrates_to_one_and_matches_the_change_of_variables():
    mean, log_std = np.zeros((2, 3)), np.full((2, 3), -0.3)
    mean[0, 0] = 0.7
    distribution = squashed(mean, log_std, np.tile([True, False, False], (2, 1)))

    width = CONTINUOUS.high - CONTINUOUS.low
    u = np.linspace(0.01, 0.99, 99)
    raw = np.zeros((99, 2, 3))
    raw[:, 0, 0] = scipy.special.logit(u)
    density = np.exp(np.asarray(jax.vmap(distribution.log_prob)(jnp.asarray(raw)))[:, 0])
    normal = scipy.stats.norm(0.7, np.exp(-0.3)).pdf(scipy.special.logit(u))
    np.testing.assert_allclose(density, normal / (u * (1 - u) * width), rtol=1e-4)
    total = np.trapezoid(density, CONTINUOUS.low + width * u)
    assert abs(total - 1) < 2e-3
    action = np.asarray(jax.vmap(distribution.action)(jnp.asarray(raw)))[:, 0, 0]
    np.testing.assert_allclose(action, CONTINUOUS.low + width * u, rtol=1e-5, atol=1e-5)


def test_squashed_normal_stays_within_bounds_and_finite_far_out():
    distribution = squashed(np.full((2, 3), 500.0), np.full((2, 3), 9.0), np.ones((2, 3), bool))
    raw = distribution.sample(distributions.action_noise(CONTINUOUS, jax.random.key(0), (2,)))
    action = np.asarray(distribution.action(raw))
    assert (action >= CONTINUOUS.low).all() and (action <= CONTINUOUS.high).all()
    assert np.isfinite(np.asarray(distribution.log_prob(raw))).all()
    assert np.isfinite(np.asarray(distribution.entropy(raw))).all()


def test_padded_components_count_for_nothing():
    rng = np.random.default_rng(1)
    mean, log_std = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)) * 0.1
    mask = np.array([[True, True, False], [True, False, False]])
    raw = jnp.asarray(rng.normal(size=(2, 3)))
    first = squashed(mean, log_std, mask)
    other = squashed(np.where(mask, mean, 7.0), np.where(mask, log_std, 1.0), mask)
    moved = jnp.where(jnp.asarray(mask), raw, -4.0)
    np.testing.assert_array_equal(first.log_prob(raw), other.log_prob(moved))
    np.testing.assert_array_equal(first.entropy(raw), other.entropy(moved))
    np.testing.assert_array_equal(first.action(raw), other.action(moved))


def test_entropy_estimate_is_right_on_average_with_its_gradient():
    mean, log_std = np.full((2, 3), 0.4), np.full((2, 3), -0.5)
    mask = np.tile([True, False, False], (2, 1))

    def true_entropy(mu, log_sigma):
        z = np.linspace(-8, 8, 20_001)
        x = mu + np.exp(log_sigma) * z
        volume = (
            np.log(CONTINUOUS.high - CONTINUOUS.low)
            + np.log(scipy.special.expit(x))
            + np.log(scipy.special.expit(-x))
        )
        return scipy.stats.norm.entropy(scale=np.exp(log_sigma)) + np.trapezoid(
            scipy.stats.norm.pdf(z) * volume, z
        )

    def estimate(mean, log_std, key):
        distribution = squashed(mean, log_std, mask)
        noise = distributions.action_noise(CONTINUOUS, key, (2,))
        return distribution.entropy(jax.lax.stop_gradient(distribution.sample(noise)))[0]

    keys = jax.random.split(jax.random.key(3), 20_000)
    values, gradients = jax.vmap(jax.value_and_grad(estimate, (0, 1)), (None, None, 0))(
        jnp.asarray(mean), jnp.asarray(log_std), keys
    )
    assert abs(float(values.mean()) - true_entropy(0.4, -0.5)) < 0.02
    h = 1e-4
    by_mean = (true_entropy(0.4 + h, -0.5) - true_entropy(0.4 - h, -0.5)) / (2 * h)
    by_std = (true_entropy(0.4, -0.5 + h) - true_entropy(0.4, -0.5 - h)) / (2 * h)
    assert abs(float(gradients[0][:, 0, 0].mean()) - by_mean) < 0.02
    assert abs(float(gradients[1][:, 0, 0].mean()) - by_std) < 0.02
