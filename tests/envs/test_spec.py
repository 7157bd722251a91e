"""Flags in the integers of a window come apart."""

import jax.numpy as jnp
import numpy as np

from flockax.envs import ArraySpec
from flockax.envs.spec import unpack


def test_unpack_gives_flags_and_the_number_above_them():
    number = np.arange(-15, 16)[:, None]
    flags = np.arange(8)[None, :]
    packed = jnp.asarray(8 * number + flags, jnp.int8)[None, None]
    spec = ArraySpec((1, 1, 31, 8), "int8", -120, 127, flags=3)
    parts = np.asarray(unpack(packed, spec))[0]
    assert parts.shape == (4, 31, 8)
    for bit in range(3):
        np.testing.assert_array_equal(parts[bit], np.broadcast_to(flags >> bit & 1, (31, 8)))
    np.testing.assert_array_equal(parts[3], np.broadcast_to(number, (31, 8)))


def test_channels_stay_in_order_and_without_a_number_there_are_only_flags():
    window = jnp.asarray([[[[1]], [[2]]]], jnp.int8)
    spec = ArraySpec((1, 2, 1, 1), "int8", 0, 3, flags=2)
    np.testing.assert_array_equal(unpack(window, spec).reshape(-1), [1, 0, 0, 1])


def test_a_window_without_flags_is_left_alone():
    window = jnp.arange(4).reshape(1, 1, 2, 2)
    assert unpack(window, ArraySpec((1, 1, 2, 2), "int32", 0, 3)) is window
