"""Which simplices of a triangulation can hold a point: looked up by the grid cell the point lies in.

Measured tables are nearly grids, so a cell between adjacent coordinate values meets only a few simplices, and finding
the right one needs no walk through the mesh.  The triangulation itself stays Qhull's.  One point and many points are
tested with the same operations in the same order, so that both find the same simplex and the same weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["SimplexCells", "weights_at", "weights_of"]

_CELLS_PER_SIMPLEX: Final = 8
_ON_FACE: Final = 1e-12

Weights = tuple[float, ...]
Corner = tuple[int, list[list[float]]]


def weights_at(transform: Sequence[Sequence[float]], point: Sequence[float]) -> Weights:
    """Barycentric weights of one point, the last completing them to 1."""
    if len(point) == 2:
        (a, b), (c, d), (x0, y0) = transform
        x, y = point[0] - x0, point[1] - y0
        u, v = a * x + b * y, c * x + d * y
        return u, v, 1.0 - (u + v)
    (a, b, c), (d, e, f), (g, h, i), (x0, y0, z0) = transform
    x, y, z = point[0] - x0, point[1] - y0, point[2] - z0
    u, v, w = a * x + b * y + c * z, d * x + e * y + f * z, g * x + h * y + i * z
    return u, v, w, 1.0 - (u + v + w)


def weights_of(transforms: FloatArray, points: FloatArray) -> list[FloatArray]:
    """`weights_at` for (n, dim + 1, dim) transforms and (n, dim) points: one column for each weight."""
    dim = points.shape[1]
    offsets = [points[:, j] - transforms[:, dim, j] for j in range(dim)]
    columns = []
    for i in range(dim):
        column = transforms[:, i, 0] * offsets[0]
        for j in range(1, dim):
            column = column + transforms[:, i, j] * offsets[j]
        columns.append(column)
    covered = columns[0]
    for column in columns[1:]:
        covered = covered + column
    return [*columns, 1.0 - covered]


class SimplexCells:
    """Simplices by the cells that their bounding boxes cover, in ascending order."""

    def __init__(self, points: FloatArray, simplices: NDArray[np.int32], transform: FloatArray) -> None:
        self._transform = transform
        solid = np.flatnonzero(np.isfinite(transform).all(axis=(1, 2)))
        corners = points[simplices[solid]]
        low, high = corners.min(axis=1), corners.max(axis=1)
        levels = [np.unique(column) for column in points.T]
        first, counts = _covered(levels, low, high)
        while counts.prod(axis=1).sum() > _CELLS_PER_SIMPLEX * max(len(simplices), 64):
            levels = [level if len(level) < 3 else np.append(level[:-1:2], level[-1]) for level in levels]
            first, counts = _covered(levels, low, high)
        self._levels = levels
        self._bounds: list[list[float]] = [level.tolist() for level in levels]
        self._strides = np.append(np.cumprod([len(level) for level in levels[:0:-1]])[::-1], 1).astype(np.int64)
        self._file(solid, first, counts)
        self._seen: dict[int, list[Corner]] = {}

    def _file(self, solid: IntArray, first: IntArray, counts: IntArray) -> None:
        """List the simplices of each cell: cells ascending, and in each cell the simplices ascending."""
        sizes = counts.prod(axis=1)
        owner = np.repeat(np.arange(len(solid)), sizes)
        rest = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        cells = np.zeros(len(owner), dtype=np.int64)
        for axis in reversed(range(counts.shape[1])):
            width = counts[owner, axis]
            cells += (first[owner, axis] + rest % width) * self._strides[axis]
            rest = rest // width
        order = np.lexsort((owner, cells))
        self._members = solid[owner[order]]
        self._cells, starts = np.unique(cells[order], return_index=True)
        self._starts = np.append(starts, len(order))

    def find(self, point: Sequence[float]) -> tuple[int, Weights] | None:
        """The first simplex that holds the point, and the weights there."""
        cell = 0
        for bounds, stride, x in zip(self._bounds, self._strides.tolist(), point, strict=True):
            cell += max(bisect_left(bounds, x) - 1, 0) * stride
        for simplex, transform in self._seen.get(cell) or self._look_up(cell):
            weights = weights_at(transform, point)
            if min(weights) >= -_ON_FACE:
                return simplex, weights
        return None

    def _look_up(self, cell: int) -> list[Corner]:
        at = int(np.searchsorted(self._cells, cell))
        found: list[Corner] = []
        if at < len(self._cells) and self._cells[at] == cell:
            members = self._members[self._starts[at] : self._starts[at + 1]]
            found = list(zip(members.tolist(), self._transform[members].tolist(), strict=True))
        self._seen[cell] = found
        return found

    def find_many(self, points: FloatArray) -> IntArray:
        """As `find` for (n, dim) points: the simplex of each, -1 where no simplex of its cell holds it."""
        cell = np.zeros(len(points), dtype=np.int64)
        for level, stride, column in zip(self._levels, self._strides, points.T, strict=True):
            cell += np.maximum(np.searchsorted(level, column) - 1, 0) * stride
        found = np.full(len(points), -1, dtype=np.int64)
        if not len(self._cells):
            return found
        at = np.searchsorted(self._cells, cell).clip(max=len(self._cells) - 1)
        slot, stop = self._starts[at], np.where(self._cells[at] == cell, self._starts[at + 1], 0)
        left = np.flatnonzero(slot < stop)
        while len(left):
            simplex = self._members[slot[left]]
            weights = weights_of(self._transform[simplex], points[left])
            inside = np.minimum.reduce(weights) >= -_ON_FACE
            found[left[inside]] = simplex[inside]
            slot[left] += 1
            left = left[~inside & (slot[left] < stop[left])]
        return found


def _covered(levels: list[FloatArray], low: FloatArray, high: FloatArray) -> tuple[IntArray, IntArray]:
    """The first cell of each bounding box and how many it covers, axis by axis; every box covers at least one."""
    first = [np.searchsorted(level, column, side="right") - 1 for level, column in zip(levels, low.T, strict=True)]
    last = [np.searchsorted(level, column, side="left") for level, column in zip(levels, high.T, strict=True)]
    start = np.column_stack(first).astype(np.int64)
    return start, np.maximum(np.column_stack(last).astype(np.int64) - start, 1)
