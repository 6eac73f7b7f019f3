"""Which simplices of a triangulation can hold a point: looked up by the grid cell the point lies in.

Measured tables are nearly grids, so a cell between adjacent coordinate values meets only a few simplices, and finding
the right one needs no walk through the mesh.  The triangulation itself stays Qhull's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SimplexCells"]

_CELLS_PER_SIMPLEX: Final = 8


class SimplexCells:
    """Simplices by the cells their bounding boxes cover, in ascending order."""

    def __init__(self, levels: list[list[float]], cells: dict[tuple[int, ...], NDArray[np.int64]]) -> None:
        self._levels = levels
        self._cells = cells

    @classmethod
    def build(
        cls, points: NDArray[np.float64], simplices: NDArray[np.int32], transform: NDArray[np.float64]
    ) -> SimplexCells | None:
        """The lookup, or None where boxes cover so many cells that it would not pay."""
        import numpy as np

        levels = [np.unique(column) for column in points.T]
        places = np.column_stack(
            [np.searchsorted(level, column) for level, column in zip(levels, points.T, strict=True)]
        )
        corners = places[simplices]
        low, high = corners.min(axis=1), corners.max(axis=1)
        solid = np.flatnonzero((high > low).all(axis=1) & np.isfinite(transform).all(axis=(1, 2)))
        covered = (high[solid] - low[solid]).prod(axis=1)
        if covered.sum() > _CELLS_PER_SIMPLEX * max(len(simplices), 64):
            return None
        cells: dict[tuple[int, ...], list[int]] = {}
        for simplex, start, stop in zip(solid.tolist(), low[solid].tolist(), high[solid].tolist(), strict=True):
            for cell in product(*(range(a, b) for a, b in zip(start, stop, strict=True))):
                cells.setdefault(cell, []).append(simplex)
        return cls([level.tolist() for level in levels], {cell: np.array(found) for cell, found in cells.items()})

    def candidates(self, target: Sequence[float]) -> NDArray[np.int64] | None:
        """Simplices that may hold the target, or None outside every cell."""
        cell = tuple([max(bisect_left(level, x) - 1, 0) for level, x in zip(self._levels, target, strict=True)])
        return self._cells.get(cell)
