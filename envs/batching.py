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
    leaves, treedef = jax.tree.flatten(operands)
    # Keys go in as their bits: the key-reuse checker takes custom_vmap for the end of a key.
    impls = [jax.random.key_impl(x) if _is_key(x) else None for x in leaves]
    plain = [
        x if impl is None else jax.random.key_data(x) for x, impl in zip(leaves, impls, strict=True)
    ]

    def of_leaves(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*plain: Any) -> Any:
            leaves = [
                x if impl is None else jax.random.wrap_key_data(x, impl=impl)
                for x, impl in zip(plain, impls, strict=True)
            ]
            return function(*jax.tree.unflatten(treedef, leaves))

        return call

    return _branch(pred, of_leaves(general), of_leaves(shortcut), plain)


def _branch(
    pred: Array, general: Callable[..., Any], shortcut: Callable[..., Any], leaves: list[Any]
) -> Any:
    @custom_vmap
    def call(pred: Array, leaves: list[Any]) -> Any:
        return jax.lax.cond(jnp.any(pred), general, shortcut, *leaves)

    @call.def_vmap
    def _rule(axis_size: int, in_batched: Any, pred: Array, leaves: list[Any]) -> Any:
        pred_batched, batched = in_batched
        if not any(batched):
            result = _branch(pred, general, shortcut, leaves)
            return result, jax.tree.map(lambda _: False, result)
        if not pred_batched:
            pred = jnp.broadcast_to(pred, (axis_size, *pred.shape))
        # An operand without the batch axis stays without it: broadcasting it would only cost.
        axes: list[Any] = [0 if x else None for x in batched]
        wide = [jax.vmap(f, in_axes=axes, axis_size=axis_size) for f in (general, shortcut)]
        result = _branch(pred, wide[0], wide[1], leaves)
        return result, jax.tree.map(lambda _: True, result)

    return call(pred, leaves)


def merge_batches(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `jax.vmap` of a batched function widen its batch instead of rewriting its loops.

    Args:
        function: of trees of arrays with one leading axis of equal size, returning such a tree, in
            which a row depends on the rows of the arguments at the same place only.

    Returns:
        A function of the same meaning.
    """
    call = custom_vmap(function)

    @call.def_vmap
    def _rule(size: int, batched: Any, *trees: Any) -> tuple[Any, Any]:
        def widen(x: Array, x_batched: bool) -> Array:
            wide = x if x_batched else jnp.broadcast_to(x, (size, *x.shape))
            return wide.reshape(-1, *wide.shape[2:])

        result = call(*jax.tree.map(widen, trees, tuple(batched)))
        result = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), result)
        return result, jax.tree.map(lambda _: True, result)

    return call


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
