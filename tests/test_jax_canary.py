"""The installed jax computes what it is told to.

jax 0.10.2 does not on CPU (jax-ml/jax #39103): a compiled, vmapped matrix-vector product with a
reduction after it is wrong once the batch has 32769 rows of float32, or 16385 of float64. That is what
a policy over many agents is.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize(("x64", "rows"), [(False, 32769), (True, 16385)])
def test_compiled_matrix_vector_products_are_right(x64, rows):
    with jax.enable_x64(x64):
        column = jnp.arange(rows, dtype=jnp.result_type(float))
        batch = jnp.stack([column, jnp.zeros_like(column), jnp.zeros_like(column)], axis=1)
        matrix = jnp.eye(3, dtype=column.dtype)

        def square(row):  # in full precision, which accelerators do not use unasked
            return jnp.sum(jnp.matmul(matrix, row, precision="highest") ** 2)

        squares = jax.jit(jax.vmap(square))(batch)
    wrong = np.flatnonzero(~np.isclose(squares, np.arange(rows, dtype=float) ** 2, rtol=1e-5))
    if len(wrong):
        pytest.fail(
            f"jax {jax.__version__} computes wrong results on {jax.default_backend()}: rows {wrong} of "
            f"{rows} of a compiled matrix-vector product are not what they must be. jax 0.10.2 is known "
            "for this (jax-ml/jax #39103); install another jax, nothing here can be trusted on this one."
        )
