"""What can be gathered over the neighbours of a point, one neighbour at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

Array = jax.Array

# (dx, dy, own, other) -> terms; see `Neighbours.sums`.
Pair = Callable[[Array, Array, Any, Any], Any]


class Candidate(NamedTuple):
    """A pair of points that may be neighbours; all arrays have, or broadcast to, one shape.

    Attributes:
        dx: from the one to the other along x.
        dy: along y.
        inside: whether they are neighbours.
        own: values of the one.
        other: values of the other.
        number: ``int32``, which point the other is.
    """

    dx: Array
    dy: Array
    inside: Array
    own: Any
    other: Any
    number: Array


class Fold(Protocol):
    """Something gathered over neighbours."""

    @property
    def lanes(self) -> int:
        """How many neighbours may be visited at once, each with a carry of its own."""

    def start(self, shape: tuple[int, ...]) -> Any:
        """The carry before the first neighbour, as arrays of `shape`."""

    def visit(self, carry: Any, candidate: Candidate) -> Any:
        """The carry after one more candidate."""

    def join(self, carry: Any) -> Any:
        """One carry out of those of the lanes, which are on the last axis."""

    def matrix(self, pairs: Candidate) -> Any:
        """The carry after all the candidates on the last axis."""


@dataclasses.dataclass(frozen=True)
class Sums:
    """Sums of the terms of a pair.

    Attributes:
        pair: the terms.
        dtypes: a tuple of their dtypes.
    """

    pair: Pair
    dtypes: tuple[Any, ...]
    lanes: int = 16  # XLA on CPU: 2 to 4 times as fast as 4 or 8, which it unrolls term by term

    def start(self, shape: tuple[int, ...]) -> Any:
        """Zeros."""
        return tuple(jnp.zeros(shape, dtype) for dtype in self.dtypes)

    def visit(self, carry: Any, candidate: Candidate) -> Any:
        """Adds the terms of a neighbour."""
        terms = self.pair(candidate.dx, candidate.dy, candidate.own, candidate.other)
        return tuple(
            total + jnp.where(candidate.inside, term, 0).astype(total.dtype)
            for total, term in zip(carry, terms, strict=True)
        )

    def join(self, carry: Any) -> Any:
        """The sums over the lanes."""
        return tuple(jnp.sum(total, axis=-1) for total in carry)

    def matrix(self, pairs: Candidate) -> Any:
        """The sums over all neighbours."""
        nothing = self.start(jnp.broadcast_shapes(pairs.dx.shape, pairs.inside.shape))
        return self.join(self.visit(nothing, pairs))


@dataclasses.dataclass(frozen=True)
class NearestFold:
    """The k nearest neighbours, by distance and then by number: an insertion into a sorted list.

    Attributes:
        k: how many.
        dtype: of squared distances.
        nobody: the number that stands for no neighbour; larger than any other.
    """

    k: int
    dtype: Any
    nobody: int
    lanes: int = 1

    def start(self, shape: tuple[int, ...]) -> Any:
        """Nobody, infinitely far."""
        square = tuple(jnp.full(shape, jnp.inf, self.dtype) for _ in range(self.k))
        number = tuple(jnp.full(shape, self.nobody, jnp.int32) for _ in range(self.k))
        return square, number

    def visit(self, carry: Any, candidate: Candidate) -> Any:
        """Puts a neighbour where it belongs and moves those behind it on by one place."""
        squares, numbers = carry
        square = candidate.dx * candidate.dx + candidate.dy * candidate.dy
        square = jnp.where(candidate.inside, square, jnp.inf)
        number = jnp.where(candidate.inside, candidate.number, self.nobody)
        nearer = [
            (square < s) | ((square == s) & (number < n))
            for s, n in zip(squares, numbers, strict=True)
        ]
        new_squares, new_numbers = [], []
        for i in range(self.k):
            before = i and jnp.where(nearer[i - 1], squares[i - 1], square)
            before_number = i and jnp.where(nearer[i - 1], numbers[i - 1], number)
            new_squares.append(jnp.where(nearer[i], before if i else square, squares[i]))
            new_numbers.append(jnp.where(nearer[i], before_number if i else number, numbers[i]))
        return tuple(new_squares), tuple(new_numbers)

    def join(self, carry: Any) -> Any:
        """Of the only lane."""
        return jax.tree.map(lambda x: jnp.squeeze(x, axis=-1), carry)

    def matrix(self, pairs: Candidate) -> Any:
        """The first k of all neighbours."""
        square = jnp.where(pairs.inside, pairs.dx * pairs.dx + pairs.dy * pairs.dy, jnp.inf)
        missing = max(0, self.k - square.shape[-1])
        square = jnp.pad(
            square, [(0, 0)] * (square.ndim - 1) + [(0, missing)], constant_values=jnp.inf
        )
        # Of equal numbers `top_k` puts the first one first.
        square, number = jax.lax.top_k(-square, self.k)
        parts = jnp.moveaxis(-square, -1, 0), jnp.moveaxis(number, -1, 0)
        return tuple(parts[0]), tuple(parts[1].astype(jnp.int32))
