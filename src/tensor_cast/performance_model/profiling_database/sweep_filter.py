"""Which points of a sweep the base could answer: every varied dimension is measured, or pads a measured one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

__all__ = ["possible_rows"]


def possible_rows(varied: Mapping[str, Any], measured: Collection[int]) -> list[int]:
    """Positions of the points whose every value is in `measured` or a padded form of one of them.

    A value pads a measured one below it exactly when it pads the nearest one below, so one sorted search settles all
    blocks.  O(n log m), vectorised.
    """
    levels = np.array(sorted(measured), dtype=np.int64)
    if not len(levels):
        return []
    possible = None
    for values in varied.values():
        column = np.asarray(values, dtype=np.int64)
        below = levels[np.clip(np.searchsorted(levels, column) - 1, 0, None)]
        gap = np.where(below < column, column - below, 64)
        padded = (column % 8 == 0) & (gap < 8) & (below >= 64)
        for block in (16, 32, 64):
            padded |= (column % block == 0) & (gap < block)
        found = np.isin(column, levels) | padded
        possible = found if possible is None else possible & found
    return [] if possible is None else np.flatnonzero(possible).tolist()
