"""Coordinates of a slice as nested brackets and as a frontier: questions about many points in a few sorted searches."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    BoolArray = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["Frontier", "Lattice"]

_MOST_CELLS: Final = 1 << 22


class Frontier:
    """Whether some measured point lies at or beyond a place on every axis, and some at or before it.

    Tables over the ranks of all axes but the last hold how far the points beyond reach on the last, so that a question
    costs a bisection for each axis.
    """

    def __init__(self, corners: FloatArray) -> None:
        self._corners = corners
        self._levels = [np.unique(column) for column in corners.T[:-1]]
        self._bounds: list[list[float]] = [level.tolist() for level in self._levels]
        shape = [len(level) for level in self._levels]
        self._tabled = math.prod(shape) <= _MOST_CELLS
        if not self._tabled:
            return
        places = tuple(
            np.searchsorted(level, column) for level, column in zip(self._levels, corners.T[:-1], strict=True)
        )
        highest, lowest = np.full(shape, -np.inf), np.full(shape, np.inf)
        np.maximum.at(highest, places, corners[:, -1])
        np.minimum.at(lowest, places, corners[:, -1])
        for axis in range(len(shape)):
            highest = np.flip(np.maximum.accumulate(np.flip(highest, axis), axis=axis), axis)
            lowest = np.minimum.accumulate(lowest, axis=axis)
        self._highest, self._lowest = highest, lowest

    def holds(self, at: tuple[float, ...]) -> bool:
        if not self._tabled:
            return bool((self._corners >= at).all(axis=1).any() and (self._corners <= at).all(axis=1).any())
        beyond = tuple([bisect_left(bounds, x) for bounds, x in zip(self._bounds, at, strict=False)])
        before = tuple([bisect_right(bounds, x) - 1 for bounds, x in zip(self._bounds, at, strict=False)])
        if min(before) < 0 or any(rank == len(bounds) for rank, bounds in zip(beyond, self._bounds, strict=True)):
            return False
        return bool(self._lowest[before] <= at[-1] <= self._highest[beyond])

    def hold_many(self, points: FloatArray) -> BoolArray:
        """As `holds` for (n, dim) points."""
        if not self._tabled:
            return np.array([self.holds(tuple(point)) for point in points.tolist()], dtype=bool)
        columns = list(zip(self._levels, points.T[:-1], strict=True))
        beyond = [np.searchsorted(level, column) for level, column in columns]
        before = [np.searchsorted(level, column, side="right") - 1 for level, column in columns]
        inside = np.ones(len(points), dtype=bool)
        for level, high, low in zip(self._levels, beyond, before, strict=True):
            inside &= (high < len(level)) & (low >= 0)
        at = np.flatnonzero(inside)
        last = points[at, -1]
        inside[at] = self._lowest[tuple(rank[at] for rank in before)] <= last
        inside[at] &= last <= self._highest[tuple(rank[at] for rank in beyond)]
        return inside


class Lattice:
    """Sorted coordinates as nested brackets: each value of the first axis has its own values of the second, and so on.

    Level by level the values lie in one array, those of one parent next to each other; a key of parent and rank makes
    one sorted search over all parents.
    """

    def __init__(self, corners: FloatArray) -> None:
        self._levels = [np.unique(column) for column in corners.T]
        fresh = np.zeros(len(corners), dtype=bool)
        fresh[:1] = True
        parent = np.zeros(1, dtype=np.int64)
        self._steps: list[tuple[FloatArray, IntArray, IntArray]] = []
        owners = np.zeros(len(corners), dtype=np.int64)
        for axis, level in enumerate(self._levels):
            fresh[1:] |= corners[1:, axis] != corners[:-1, axis]
            parent = owners[fresh]
            values = corners[fresh, axis]
            keys = parent * (len(level) + 1) + np.searchsorted(level, values)
            starts = np.searchsorted(parent, np.arange(int(owners[-1]) + 2)) if len(corners) else np.zeros(1, np.int64)
            self._steps.append((values, keys, starts))
            owners = np.cumsum(fresh) - 1

    def around(self, points: FloatArray) -> tuple[IntArray, list[FloatArray], BoolArray]:
        """Vertices (n, 2^dim) and weights of the cell around each point, and which points have none.

        A point on a measured value has that value on both sides, the second with weight 0.
        """
        outside = np.zeros(len(points), dtype=bool)
        nodes = [np.zeros(len(points), dtype=np.int64)]
        shares: list[tuple[FloatArray, ...]] = [()]
        for step, level, x in zip(self._steps, self._levels, points.T, strict=True):
            rank = np.searchsorted(level, x)
            below: list[IntArray] = []
            parts: list[tuple[FloatArray, ...]] = []
            for node, part in zip(nodes, shares, strict=True):
                low, high, share, lacks = _sides(step, len(level) + 1, node, rank, x)
                outside |= lacks
                below += [low, high]
                parts += [(*part, 1.0 - share), (*part, share)]
            nodes, shares = below, parts
        return np.column_stack(nodes), [_product(part) for part in shares], outside


def _sides(
    step: tuple[FloatArray, IntArray, IntArray], width: int, node: IntArray, rank: IntArray, x: FloatArray
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """The values of each node around `x`: low, high, the share of high, and where there are none."""
    values, keys, starts = step
    high = np.searchsorted(keys, node * width + rank)
    ends = high >= starts[node + 1]
    high = np.minimum(high, len(values) - 1)
    same = values[high] == x
    lacks = ends | (~same & (high == starts[node]))
    low = np.where(same | lacks, high, high - 1)
    x0, x1 = values[low], values[high]
    share = np.where(x1 == x0, 0.0, (x - x0) / np.where(x1 == x0, 1.0, x1 - x0))
    return low, high, share, lacks


def _product(shares: tuple[FloatArray, ...]) -> FloatArray:
    """Multiplied from the last axis to the first, as single questions do."""
    result = shares[-1]
    for share in shares[-2::-1]:
        result = share * result
    return result
