"""Networks and parameter sharing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from flockax.agents.core import networks
from flockax.agents.core.sharing import Sharing
from flockax.envs import make


@pytest.fixture(scope="module")
def gru():
    module = networks.Gru(4)
    x = jax.random.normal(jax.random.key(0), (6, 3, 5))
    carry = jax.random.normal(jax.random.key(1), (3, 4))
    reset = jnp.asarray(np.random.default_rng(0).random((6, 3)) < 0.3)
    params = module.init(jax.random.key(2), carry, x, reset)
    params = jax.tree.map(lambda p: p + 0.5 * jax.random.normal(jax.random.key(9), p.shape), params)
    return module, params, carry, x, reset


def test_gru_is_that_of_flax(gru):
    module, params, carry, x, reset = gru
    ours = params["params"]
    gates = ("r", "z", "n")
    cell = {}

    def split(a):
        return jnp.split(a, 3, axis=-1)

    for gate, kernel, bias in zip(
        gates, split(ours["input"]["kernel"]), split(ours["input"]["bias"]), strict=True
    ):
        cell[f"i{gate}"] = {"kernel": kernel, "bias": bias}
    for gate, kernel in zip(gates, split(ours["carry_kernel"]), strict=True):
        cell[f"h{gate}"] = {"kernel": kernel}
    cell["hn"]["bias"] = ours["candidate_bias"]
    reference, h = nn.GRUCell(4), carry
    outputs = []
    for t in range(6):
        h = jnp.where(reset[t][:, None], 0, h)
        h, y = reference.apply({"params": cell}, h, x[t])
        outputs.append(y)
    final, ys = module.apply(params, carry, x, reset)
    np.testing.assert_allclose(ys, jnp.stack(outputs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(final, h, rtol=1e-5, atol=1e-6)


def test_gru_over_time_is_its_steps_one_by_one(gru):
    module, params, carry, x, reset = gru
    _, whole = module.apply(params, carry, x, reset)
    for t in range(6):
        carry, y = module.apply(params, carry, x[t : t + 1], reset[t : t + 1])
        np.testing.assert_allclose(y[0], whole[t], rtol=1e-6, atol=1e-6)


def test_reset_forgets_everything(gru):
    module, params, carry, x, reset = gru
    first = reset.at[0].set(True)
    _, a = module.apply(params, carry, x, first)
    _, b = module.apply(params, carry * 50, x, first)
    np.testing.assert_array_equal(a, b)


def test_features_without_a_network_are_refused():
    from flockax.envs import ArraySpec, EntitySet

    spec = EntitySet(*(ArraySpec((3, 2), "float32") for _ in range(3)))
    with pytest.raises(ValueError, match="neither a vector"):
        networks.window_shape(spec)


def test_convolutions_are_those_of_flax():
    """The product with the matrix of patches equals a convolution with the same kernel."""
    import flax.linen as nn

    x = np.random.default_rng(0).normal(size=(3, 2, 7, 6)).astype(np.float32)
    torso = networks.WindowTorso((2, 7, 6), channels=(4, 5))
    params = torso.init(jax.random.key(0), x.reshape(3, -1))
    expected = np.moveaxis(x, 1, -1)
    for i, (channels, stride) in enumerate(((4, 1), (5, 2))):
        dense = params["params"][f"conv_{i}"]
        kernel = dense["kernel"].reshape(3, 3, -1, channels)
        conv = nn.Conv(channels, (3, 3), (stride, stride), padding="VALID")
        values = {"params": {"kernel": kernel, "bias": dense["bias"] + 0.1}}
        dense["bias"] = dense["bias"] + 0.1
        expected = nn.relu(conv.apply(values, expected))
    np.testing.assert_allclose(
        torso.apply(params, x.reshape(3, -1)), expected.reshape(3, -1), rtol=1e-4, atol=1e-5
    )


def test_windows_narrower_than_a_kernel_are_padded():
    torso = networks.WindowTorso((1, 3, 3))
    out, _ = torso.init_with_output(jax.random.key(0), jnp.ones((2, 9)))
    assert out.shape == (2, 32)


def test_windows_become_vectors_with_flags_apart_and_numbers_compressed():
    from flockax.envs import ArraySpec

    spec = ArraySpec((1, 1, 1, 2), "int8", -8, 15, flags=3)
    vector = networks.as_vectors(jnp.asarray([[[[13, -8]]]], jnp.int8), spec)
    log2 = np.log(2)
    np.testing.assert_allclose(vector[0], [log2, 0, 0, 0, log2, 0, log2, -log2], rtol=1e-6)
    assert networks.window_shape(spec) == (4, 1, 2)


@pytest.mark.parametrize("share", ["all", "group", "none"])
def test_sharing_reaches_exactly_the_agents_it_should(share):
    env = make("tag", num_predators=2, num_prey=2)
    sharing = Sharing(env, share)
    network = networks.Mlp((6,), 3, recurrent=4)
    size = sharing.inputs(jnp.zeros(env.feature_spec.shape)).shape[-1]
    params = sharing.init(network, jax.random.key(0), size)
    features = jax.random.normal(jax.random.key(1), (2, 3, *env.feature_spec.shape))
    carry, reset = jnp.zeros((3, 4, 4)), jnp.zeros((2, 3, 4), bool)

    def output(params):
        return sharing.apply(network, params, carry, sharing.inputs(features), reset)[1]

    base = output(params)
    assert base.shape == (2, 3, 4, 3)
    touched = []
    for name in params:
        stacked = share == "none"
        count = jax.tree.leaves(params[name])[0].shape[0] if stacked else 1
        for i in range(count):

            def bump(p, i=i, stacked=stacked):
                return p.at[i].add(1.0) if stacked else p + 1.0

            moved = {**params, name: jax.tree.map(bump, params[name])}
            touched.append(
                np.flatnonzero(np.abs(output(moved) - base).max(axis=(0, 1, 3)) > 0).tolist()
            )
    expected = {"all": [[0, 1, 2, 3]], "group": [[0, 1], [2, 3]], "none": [[0], [1], [2], [3]]}
    assert touched == expected[share]
    membership = sharing.membership
    assert [
        np.flatnonzero(membership[:, s]).tolist() for s in range(membership.shape[1])
    ] == expected[share]
    if share == "none":
        leaves = [np.asarray(p) for p in jax.tree.leaves(params["predators"]) if p.ndim > 2]
        assert all(np.abs(p[0] - p[1]).max() > 0 for p in leaves)


def test_groups_with_one_network_are_told_apart():
    env = make("tag", num_predators=2, num_prey=1)
    x = Sharing(env, "all").inputs(jnp.zeros(env.feature_spec.shape))
    np.testing.assert_array_equal(x[:, -2:], [[1, 0], [1, 0], [0, 1]])
    assert (
        Sharing(env, "group").inputs(jnp.zeros(env.feature_spec.shape)).shape
        == env.feature_spec.shape
    )


def test_unknown_sharing_is_refused():
    with pytest.raises(ValueError, match="'some' is not one of all, group, none"):
        Sharing(make("tag"), "some")


def test_initial_weights_have_their_scale_and_differ_between_networks():
    network = networks.Mlp((64, 64), 5, recurrent=48, head_scale=0.01)
    params = networks.draw_params(network, jax.random.key(0), 100, 3)["params"]
    expected = {
        ("dense_0", "kernel"): np.sqrt(2 / 100),
        ("dense_1", "kernel"): np.sqrt(2 / 64),
        ("head", "kernel"): 0.01 / np.sqrt(48),
    }
    for (layer, name), std in expected.items():
        weights = np.asarray(params[layer][name])
        np.testing.assert_allclose(weights.std(axis=(1, 2)), std, rtol=0.15)
        assert abs(np.corrcoef(weights[0].ravel(), weights[1].ravel())[0, 1]) < 0.2
    np.testing.assert_allclose(np.std(params["gru"]["carry_kernel"]), 1 / np.sqrt(48), rtol=0.1)
    assert all((np.asarray(params[layer]["bias"]) == 0).all() for layer in ("dense_0", "head"))
    flat = np.concatenate([np.asarray(p)[0].ravel() for p in jax.tree.leaves(params) if np.any(p)])
    assert len(np.unique(flat)) > 0.999 * len(flat)
