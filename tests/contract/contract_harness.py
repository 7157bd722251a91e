"""What the contract test-suite runs: compiled functions and recorded episodes of one environment.

Everything of a case is compiled once and shared by all tests: `reset` and `step` of one environment,
and `play`, a scan of a `VectorEnv` with random or given actions.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from flockax.envs import DiscreteActions, Environment, VectorEnv
from flockax.envs.registry import Entry

# Tests compile much and run little: without optimisation a compilation takes a quarter of the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

NUM_ENVS = 3
STEPS = 24
HORIZON = 7


def cases_of(entries: tuple[Entry, ...]) -> list[Case]:
    """A case for every size of every entry."""
    return [Case(entry, number) for entry in entries for number in range(len(entry.sizes))]


class Case:
    """One environment of one size.

    Attributes:
        entry: its registry entry.
        number: which of the entry's sizes.
    """

    def __init__(self, entry: Entry, number: int) -> None:
        self.entry, self.number = entry, number

    def __repr__(self) -> str:
        size = self.entry.sizes[self.number]
        return "-".join([self.entry.id, *(str(value) for value in size.values())])

    def forget(self) -> None:
        """Drops what was compiled and recorded, and what chex has counted."""
        chex.clear_trace_counter()
        self.__dict__ = {"entry": self.entry, "number": self.number}

    @functools.cached_property
    def env(self) -> Environment:
        return self.entry.cls(**self.entry.sizes[self.number])

    @functools.cached_property
    def params(self) -> Any:
        """The default parameters with a short horizon, so that episodes end within a record."""
        return self.env.make_params(horizon=HORIZON)

    @functools.cached_property
    def reset(self) -> Any:
        return jit(chex.assert_max_traces(self.env.reset, n=1))

    @functools.cached_property
    def step(self) -> Any:
        """`Environment.step`, compiled; a second trace raises an AssertionError."""
        return jit(chex.assert_max_traces(self.env.step, n=1))

    @functools.cached_property
    def vector(self) -> VectorEnv:
        return VectorEnv(self.env, NUM_ENVS)

    @functools.cached_property
    def vector_reset(self) -> Any:
        return jit(self.vector.reset)

    @functools.cached_property
    def _play(self) -> Any:
        vector, spec = self.vector, self.env.action_spec

        def one(carry: Any, given: Any) -> Any:
            observation, state, params = carry
            key, action, random = given
            sampled = spec.sample(jax.random.fold_in(key, 2**20), observation.action_mask)
            action = jnp.where(random, sampled.astype(action.dtype), action)
            after, next_state, reward, terminated, truncated, info = vector.step(
                key, state, action, params
            )
            record = {
                "observation": observation,
                "state": vector.env_state(state),
                "global_state": vector.global_state(state, params),
                "action": action,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "info": info,
            }
            return (after, next_state, params), record

        return jit(lambda carry, given: jax.lax.scan(one, carry, given))

    def play(self, seed: int, given: Any = None, params: Any = None, steps: int = STEPS) -> Record:
        """Plays a `VectorEnv` from its start.

        Args:
            seed: of the start, the steps and the random actions.
            given: actions ``[STEPS, E, A, ...]`` to play, or None for random open ones.
            params: parameters, or None for those of the case.
            steps: a multiple of STEPS.

        Returns:
            What happened, as NumPy arrays with leading axes ``[T, E]``.
        """
        params = self.params if params is None else params
        start, play = jax.random.split(jax.random.key(seed))
        carry = (*self.vector_reset(start, params), params)
        random = np.full(STEPS, given is None)
        if given is None:
            given = np.zeros(self.action_shape, self.action_dtype)
        keys = jax.random.split(play, steps)
        parts = []
        for first in range(0, steps, STEPS):
            chunk = keys[first : first + STEPS]
            carry, part = self._play(carry, (chunk, given, random))
            parts.append(jax.device_get(part))
        steps_played = jax.tree.map(lambda *xs: np.concatenate(xs), *parts)
        return Record(start=start, keys=keys, params=params, final=carry, **steps_played)

    @functools.cached_property
    def record(self) -> Record:
        """A random rollout with several episodes."""
        return self.play(0)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of the actions of a rollout: ``[STEPS, E, A]`` or ``[STEPS, E, A, D]``."""
        return (STEPS, NUM_ENVS, *self.env.action_spec.shape)

    @property
    def discrete(self) -> bool:
        return isinstance(self.env.action_spec, DiscreteActions)

    @property
    def action_dtype(self) -> Any:
        return jnp.result_type(int) if self.discrete else jnp.result_type(float)

    @functools.cached_property
    def action_sizes(self) -> np.ndarray:
        """``int[A]``: the true number of actions or components of each agent."""
        return np.concatenate([np.full(g.size, g.action_size) for g in self.env.groups])

    @functools.cached_property
    def agent_axes(self) -> Any:
        """For each state leaf (in tree order) its axes over agents or over the slots of a group.

        A tuple of ``(axis, first slot, last slot)``. An axis counts if it has the right length at
        every registered size, which tells agents from, say, as many landmarks.
        """
        sized = [Case(self.entry, number) for number in range(len(self.entry.sizes))]
        leaves = [jax.tree.leaves(jax.eval_shape(case.env.reset, KEY)[1]) for case in sized]
        spans = [_spans(case.env) for case in sized]
        here = spans[self.number]

        def axes(leaf: int) -> tuple[tuple[int, int, int], ...]:
            found = []
            for axis in range(leaves[self.number][leaf].ndim):
                for name, (start, stop) in here.items():
                    lengths = [s[name][1] - s[name][0] if name in s else 0 for s in spans]
                    if all(len(x) > leaf for x in leaves) and all(
                        x[leaf].ndim > axis and x[leaf].shape[axis] == length
                        for x, length in zip(leaves, lengths, strict=True)
                    ):
                        found.append((axis, start, stop))
                        break
            return tuple(found)

        return [axes(leaf) for leaf in range(len(leaves[self.number]))]

    def permute_state(self, state: Any, order: np.ndarray) -> Any:
        """The state with the slots in another order; `order` permutes within groups."""
        leaves, treedef = jax.tree.flatten(state)
        permuted = []
        for leaf, axes in zip(leaves, self.agent_axes, strict=True):
            for axis, start, stop in axes:
                leaf = np.take(leaf, order[start:stop] - start, axis=axis)
            permuted.append(leaf)
        return jax.tree.unflatten(treedef, permuted)

    def move_agents(self, state: Any, slots: np.ndarray, by: float) -> Any:
        """The state with the numbers of some slots changed, where they are floats."""
        leaves, treedef = jax.tree.flatten(state)
        changed = []
        for leaf, axes in zip(leaves, self.agent_axes, strict=True):
            if axes and np.issubdtype(leaf.dtype, np.floating):
                axis, start, stop = axes[0]
                chosen = slots[start:stop].reshape((-1,) + (1,) * (leaf.ndim - axis - 1))
                leaf = (leaf + by * chosen).astype(leaf.dtype)
            changed.append(leaf)
        return jax.tree.unflatten(treedef, changed)

    def permutations(self) -> Iterator[np.ndarray]:
        """Some permutations of the slots within groups."""
        rng = np.random.default_rng(0)
        groups = self.env.groups
        yield np.concatenate([np.arange(g.start, g.stop)[::-1] for g in groups])
        for _ in range(2):
            yield np.concatenate([rng.permutation(np.arange(g.start, g.stop)) for g in groups])


@dataclasses.dataclass
class Record:
    """A rollout of a `VectorEnv`; arrays have leading axes ``[T, E]``.

    Attributes:
        start: the key it was reset with.
        keys: ``key[T]``, of the steps.
        params: its parameters.
        final: observation, `VectorState` and parameters at the end.
        observation: before each step.
        state: of the environments, before each step.
        global_state: before each step.
        action: as given, before the environment looked at it.
        reward: ``f[T, E, A]``.
        terminated: ``bool[T, E]``.
        truncated: ``bool[T, E]``.
        info: of each step.
    """

    start: Any
    keys: Any
    params: Any
    final: Any
    observation: Any
    state: Any
    global_state: Any
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Mapping[str, Any]

    @functools.cached_property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated

    @functools.cached_property
    def step_keys(self) -> Any:
        """``key[T, E]``: what each environment's step used."""
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        return jax.vmap(fold, (0, None))(self.keys, jnp.arange(NUM_ENVS, dtype=jnp.uint32))

    def at(self, t: int, e: int) -> tuple[Any, Any, np.ndarray]:
        """``(key, state, action)`` of one step of one environment."""
        state = jax.tree.map(lambda x: x[t, e], self.state)
        return self.step_keys[t, e], state, self.action[t, e]

    def everywhere(self) -> Iterator[tuple[int, int]]:
        """All ``(t, e)``."""
        return iter(np.ndindex(self.done.shape))


KEY = jax.eval_shape(lambda: jax.random.key(0))


def _spans(env: Environment) -> dict[str, tuple[int, int]]:
    groups = {group.name: (group.start, group.stop) for group in env.groups}
    return {"": (0, env.num_agents), **groups}


def leaves_with_names(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree with their paths, for messages."""
    return [
        (jax.tree_util.keystr(path), x) for path, x in jax.tree_util.tree_leaves_with_path(tree)
    ]


def assert_finite(tree: Any, what: str) -> None:
    """No float of the tree is NaN or infinite."""
    for name, leaf in leaves_with_names(tree):
        if np.issubdtype(np.asarray(leaf).dtype, np.floating):
            assert np.isfinite(leaf).all(), f"{what}{name} is not finite"


def assert_same(actual: Any, expected: Any, what: str) -> None:
    """Equal bit for bit."""
    chex.assert_trees_all_equal_structs(actual, expected)
    for (name, x), y in zip(leaves_with_names(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=f"{what}{name}")


def assert_close(actual: Any, expected: Any, what: str, tolerance: float = 2e-5) -> None:
    """Integers and booleans equal, floats equal to rounding (relative to the largest of the leaf)."""
    chex.assert_trees_all_equal_structs(actual, expected)
    for (name, x), y in zip(leaves_with_names(actual), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        if np.issubdtype(y.dtype, np.floating) and y.size:
            scale = max(1.0, float(np.max(np.abs(y))))
            np.testing.assert_allclose(
                x, y, rtol=tolerance, atol=tolerance * scale, err_msg=f"{what}{name}"
            )
        else:
            np.testing.assert_array_equal(x, y, err_msg=f"{what}{name}")


def assert_spec(tree: Any, spec: Any, what: str, batch: int = 0) -> None:
    """Shape, dtype and range of every array are as its `ArraySpec` says.

    Args:
        tree: arrays with `batch` leading axes.
        spec: a tree of `ArraySpec` of the same structure.
        what: names the tree in messages.
        batch: the number of leading axes that the spec does not have.
    """
    specs, arrays = jax.tree.leaves(spec), leaves_with_names(tree)
    assert len(specs) == len(arrays), f"{what}: {len(arrays)} arrays for {len(specs)} specs"
    for (name, x), one in zip(arrays, specs, strict=True):
        assert x.shape[batch:] == one.shape, f"{what}{name}: {x.shape[batch:]} is not {one.shape}"
        assert x.dtype == one.dtype, f"{what}{name}: {x.dtype} is not {one.dtype}"
        if x.size:
            assert x.min() >= one.low, f"{what}{name}: {x.min()} < {one.low}"
            assert x.max() <= one.high, f"{what}{name}: {x.max()} > {one.high}"
