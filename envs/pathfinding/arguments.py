"""Checks of the arguments of the map generators."""

from __future__ import annotations

import numpy as np


def require_count(function: str, low: int, **arguments: int) -> None:
    """Checks that arguments are integers, none below `low`.

    Raises:
        ValueError: naming function, argument, value and what is allowed.
    """
    for name, value in arguments.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < low:
            raise ValueError(f"{function}: {name}={value!r}; allowed: an integer >= {low}")


def require_share(function: str, **arguments: float) -> None:
    """Checks that arguments are numbers in [0, 1].

    Raises:
        ValueError: naming function, argument, value and what is allowed.
    """
    for name, value in arguments.items():
        number = isinstance(value, int | float | np.integer | np.floating)
        if not number or not 0 <= value <= 1:
            raise ValueError(f"{function}: {name}={value!r}; allowed: a number in [0, 1]")
