"""Which points of a sweep the base could answer: every varied dimension is measured, or pads a measured one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.int64]

__all__ = ["BlockPairs", "block_of", "near", "possible_rows"]

_LARGEST = 2**62
_LAST_BLOCK = 2**31 - 1


def possible_rows(
    varied: Mapping[str, IntArray], measured: Collection[int], factors: Collection[int] = (1,)
) -> BoolArray:
    """Whether every value, times one of the factors, is in `measured` or a padded form of one of them.

    A value pads a measured one below it exactly when it pads the nearest one below, so one sorted search settles all
    blocks.  O(n log m), vectorised.
    """
    levels = np.array(sorted(measured), dtype=np.int64)
    possible = np.full(len(next(iter(varied.values()))), bool(len(levels)))
    for values in varied.values() if len(levels) else ():
        reached = np.zeros(len(values), dtype=bool)
        for factor in sorted(set(factors) - {0}):
            top = _LARGEST // factor
            reached |= (values <= top) & _reaches(np.minimum(values, top) * factor, levels)
        possible &= reached
    return possible


def _reaches(column: IntArray, levels: IntArray) -> BoolArray:
    at = np.searchsorted(levels, column)
    below = levels[np.maximum(at - 1, 0)]
    gap = np.where(below < column, column - below, 64)
    found = (column % 8 == 0) & (gap < 8) & (below >= 64)
    for block in (16, 32, 64):
        found |= (column % block == 0) & (gap < block)
    reached: BoolArray = found | (levels[at.clip(max=len(levels) - 1)] == column)
    return reached


def block_of(size: int) -> int:
    """The block of 64 that a dimension fills last: the same for a dimension and for what pads it."""
    return min(-(-size // 64), _LAST_BLOCK)


@dataclass(frozen=True, eq=False)
class BlockPairs:
    """Blocks that occur together in a row, as sorted codes of two blocks."""

    codes: IntArray

    @classmethod
    def of(cls, pairs: Collection[tuple[int, int]]) -> BlockPairs:
        return cls(np.array(sorted(one << 31 | other for one, other in pairs), dtype=np.int64))

    def hold(self, varied: Mapping[str, IntArray]) -> BoolArray:
        """Whether any two values of a point lie in blocks that occur together."""
        blocks = [np.minimum(-(-values // 64), _LAST_BLOCK) for values in varied.values()]
        found = np.ones(len(blocks[0]), dtype=bool)
        for one, other in combinations(blocks, 2):
            found &= _among(one << 31 | other, self.codes)
        return found


def _among(values: IntArray, levels: IntArray) -> BoolArray:
    if not len(levels):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(levels[np.searchsorted(levels, values).clip(max=len(levels) - 1)] == values)


def near(values: IntArray, measured: Collection[int], distance: int) -> BoolArray:
    """Whether some measured value lies within the distance."""
    levels = np.array(sorted(measured), dtype=np.int64)
    if not len(levels):
        return np.zeros(len(values), dtype=bool)
    at = np.searchsorted(levels, values)
    after, before = levels[at.clip(max=len(levels) - 1)], levels[np.maximum(at - 1, 0)]
    return np.asarray(np.minimum(abs(after - values), abs(before - values)) <= distance)
