"""Sums whose bits depend on the numbers alone: the built-in `sum` over floats changed with Python 3.12."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["total"]


def total(values: Iterable[float]) -> float:
    """The sum from left to right, each partial sum rounded; 0.0 of nothing."""
    result = 0.0
    for value in values:
        result += value
    return result
