"""Adam for sets of agents that share parameters, each clipped and stepped as if it were alone."""

from __future__ import annotations

from typing import Any

import jax
import optax

from flockax.agents.core.sharing import Sharing

Array = jax.Array


def adam(rate: Array | float, max_norm: Array | float) -> optax.GradientTransformation:
    """Adam after clipping by the global norm, on one flat vector: few operations, no small ones."""
    return optax.flatten(
        optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(rate, eps=1e-5))
    )


def init_optimizer(sharing: Sharing, params: Any) -> dict[str, Any]:
    """The states of Adam at the start, by set of agents.

    Args:
        sharing: says who shares.
        params: by role ("actor", "critic"), then by set.
    """
    init = adam(1.0, 1.0).init
    if sharing.share == "none":
        init = jax.vmap(init)
    return {name: init(_of_set(params, name)) for name, _, _ in sharing.sets}


def apply_gradients(
    sharing: Sharing,
    rate: Array,
    max_norm: Array,
    params: Any,
    optimizer: dict[str, Any],
    gradients: Any,
) -> tuple[Any, dict[str, Any]]:
    """One step of Adam, clipped by the norm of each set of agents that share parameters.

    Args:
        sharing: says who shares.
        rate: the learning rate now.
        max_norm: the largest norm.
        params: by role, then by set.
        optimizer: the states of Adam, by set.
        gradients: like `params`.

    Returns:
        ``(params, optimizer)``.
    """
    step = adam(rate, max_norm).update
    if sharing.share == "none":
        step = jax.vmap(step)
    new_params: dict[str, Any] = {role: {} for role in params}
    new_optimizer = {}
    for name, _, _ in sharing.sets:
        own = _of_set(params, name)
        updates, new_optimizer[name] = step(_of_set(gradients, name), optimizer[name], own)
        for role, moved in optax.apply_updates(own, updates).items():
            new_params[role][name] = moved
    return new_params, new_optimizer


def _of_set(tree: Any, name: str) -> dict[str, Any]:
    """The part of one set of agents: ``{role: {set: x}}`` to ``{role: x}``."""
    return {role: sets[name] for role, sets in tree.items()}
