"""Batch-level branches that stay branches under `jax.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Array = jax.Array


def cond_any(
    pred: Array, general: Callable[..., Any], shortcut: Callable[..., Any], *operands: Any
) -> Any:
    """Runs `general` if any element of `pred` is true, else the cheaper `shortcut`.

    `jax.lax.cond` under `jax.vmap` turns into a select that computes both branches. Here a batch axis
    (seeds, say) joins the decision instead: `general` runs for all if any element of the whole batch
    needs it. So `general` must agree with `shortcut` wherever `pred` is false.

    Args:
        pred: ``bool[...]``.
        general: a function of the operands, right for every `pred`.
        shortcut: a function of the operands with outputs of the same structure, shapes and dtypes,
            right where no element of `pred` is true.
        *operands: pytrees of arrays. Batched values must come in here, not through a closure.

    Returns:
        What the chosen function returns.
    """

    @custom_vmap
    def call(pred: Array, operands: Any) -> Any:
        return jax.lax.cond(jnp.any(pred), general, shortcut, *operands)

    @call.def_vmap
    def _rule(axis_size: int, in_batched: Any, pred: Array, operands: Any) -> Any:
        axes = jax.tree.map(lambda batched: 0 if batched else None, in_batched[1])
        flat_axes, _ = jax.tree.flatten(axes, is_leaf=lambda x: x is None)
        leaves, treedef = jax.tree.flatten(operands)
        # An operand without the batch axis stays without it: broadcasting it would only cost.
        kept = [axis is None for axis in flat_axes]
        if not in_batched[0]:
            pred = jnp.broadcast_to(pred, (axis_size, *pred.shape))

        def over_batch(function: Callable[..., Any]) -> Callable[..., Any]:
            def batched(*leaves: Any) -> Any:
                in_axes = [None if keep else 0 for keep in kept]
                call_flat = lambda *xs: function(*jax.tree.unflatten(treedef, xs))  # noqa: E731
                return jax.vmap(call_flat, in_axes=in_axes, axis_size=axis_size)(*leaves)

            return batched

        result = cond_any(pred, over_batch(general), over_batch(shortcut), *leaves)
        return result, jax.tree.map(lambda _: True, result)

    return call(pred, operands)
