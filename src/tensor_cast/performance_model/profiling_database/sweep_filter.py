"""Which points of a sweep the base could answer: every varied dimension is measured, or pads a measured one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.kernel_table import IntArray

__all__ = ["every_place", "places_of", "possible_rows"]


def possible_rows(varied: Mapping[str, Any], measured: Collection[int]) -> IntArray:
    """Positions of the points whose every value is in `measured` or a padded form of one of them.

    A value pads a measured one below it exactly when it pads the nearest one below, so one sorted search settles all
    blocks.  O(n log m), vectorised.
    """
    levels = np.array(sorted(measured), dtype=np.int64)
    if not len(levels):
        return np.zeros(0, dtype=np.int64)
    possible = np.ones(len(next(iter(varied.values()))), dtype=bool)
    for values in varied.values():
        column = np.asarray(values, dtype=np.int64)
        below = levels[np.clip(np.searchsorted(levels, column) - 1, 0, None)]
        gap = np.where(below < column, column - below, 64)
        padded = (column % 8 == 0) & (gap < 8) & (below >= 64)
        for block in (16, 32, 64):
            padded |= (column % block == 0) & (gap < block)
        possible &= np.isin(column, levels) | padded
    return np.flatnonzero(possible)


def every_place(count: int) -> IntArray:
    """Positions of all points of a sweep."""
    return np.arange(count)


def places_of(varied: Mapping[str, Any], positions: IntArray) -> Iterator[IntArray]:
    """The positions of each distinct place, so that a place is asked about once however often it occurs."""
    if not len(positions):
        return
    columns = np.column_stack([np.asarray(values)[positions] for values in varied.values()])
    order = np.lexsort(columns.T[::-1])
    fresh = np.flatnonzero((columns[order][1:] != columns[order][:-1]).any(axis=1)) + 1
    yield from np.split(positions[order], fresh)
