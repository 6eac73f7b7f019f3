"""Pure interpolation functions: adjacent-point lines, linear simplices, and the latency guards.

SciPy's Delaunay (Qhull) triangulates, so that values equal `scipy.interpolate.griddata(method="linear")` on the same
points.  SciPy is optional: without it 2D and 3D questions are refused with `scipy_unavailable`.
Source: RFC 2.1; docs/facts/interpolation.md, "Simplices"; decision 002.13.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensor_cast.arithmetic import total
from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.geometry.simplex import barycentric_transforms, spans_all_axes
from tensor_cast.performance_model.profiling_database.geometry.simplex_cells import (
    SimplexCells,
    weights_at,
    weights_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = [
    "SimplexField",
    "SimplexHit",
    "clamp_to_vertices",
    "find_boundary",
    "griddata_linear_interp",
    "linear_interp",
    "validate_interpolated_latency",
    "validate_positive_latency",
    "weighted_values",
]


def validate_positive_latency(value: object, *, min_latency_us: float = 0.0) -> bool:
    """Whether `value` is a finite number above the bound."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return math.isfinite(number) and number > min_latency_us


def validate_interpolated_latency(value: object, candidate_latencies: Sequence[float] | None = None) -> bool:
    """Whether `value` is positive and, where candidates are given, at least one of them is."""
    if not validate_positive_latency(value):
        return False
    return candidate_latencies is None or any(validate_positive_latency(item) for item in candidate_latencies)


def find_boundary(values: Sequence[float], target: float) -> tuple[float, float] | None:
    """The largest finite value <= target and the smallest >= target, or None where either is missing.  O(n log n)."""
    if not math.isfinite(target):
        return None
    ordered = sorted(value for value in values if math.isfinite(value))
    at = bisect_left(ordered, target)
    if at == len(ordered):
        return None
    if ordered[at] == target:
        return target, target
    return (ordered[at - 1], ordered[at]) if at else None


def linear_interp(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The line through two points at `x`, never outside the two values; equal abscissae return `y0`."""
    if x1 == x0:
        return y0
    return clamp_to_vertices(y0 + (y1 - y0) * ((x - x0) / (x1 - x0)), (y0, y1))


def clamp_to_vertices(value: float, vertices: Sequence[float]) -> float:
    """`value` with rounding beyond the vertices' range removed."""
    return min(max(value, min(vertices)), max(vertices))


@dataclass(frozen=True, slots=True)
class SimplexHit:
    """A value inside the hull: the vertices' positions in the point list and their barycentric weights (sum 1)."""

    value: float
    vertices: tuple[int, ...]
    weights: tuple[float, ...]


class SimplexField:
    """Points triangulated once; each question then finds its simplex.

    `points` is (n, dim) with dim 2 or 3 and pairwise different rows, `values` has length n.  Building is O(n log n) in
    2D and about that in 3D for measured grids; a question costs a look at the few simplices of its grid cell.
    """

    def __init__(self, points: FloatArray, values: FloatArray) -> None:
        from scipy.spatial import Delaunay

        self._values = values
        self._mesh = Delaunay(points)
        self._transform = barycentric_transforms(points, self._mesh.simplices)
        self._cells = SimplexCells(points, self._mesh.simplices, self._transform)
        self._corners: list[list[int]] = self._mesh.simplices.tolist()
        self._numbers: list[float] = values.tolist()

    @classmethod
    def build(cls, points: FloatArray, values: FloatArray) -> SimplexField | MissReason:
        """The field, or why these points span none."""
        reason = _point_problem(points, values)
        if reason is not None:
            return reason
        if not spans_all_axes(points):
            return MissReason.DEGENERATE_POINT_CLOUD
        try:
            from scipy.spatial import QhullError
        except ImportError:
            return MissReason.SCIPY_UNAVAILABLE
        try:
            return cls(points, values)
        except (QhullError, ValueError):
            return MissReason.SCIPY_EXCEPTION

    def at(self, target: Sequence[float]) -> SimplexHit | MissReason:
        """The value at `target`; `outside_convex_hull` where no simplex holds it."""
        found = self._cells.find(target)
        if found is None:
            simplex = self._walk(target)
            if simplex < 0:
                return MissReason.OUTSIDE_CONVEX_HULL
            found = simplex, weights_at(self._transform[simplex].tolist(), target)
        simplex, weights = found
        if not all(map(math.isfinite, weights)):
            return MissReason.EMPTY_RESULT
        vertices = tuple(self._corners[simplex])
        corners = [self._numbers[vertex] for vertex in vertices]
        value = clamp_to_vertices(total([w * y for w, y in zip(weights, corners, strict=True)]), corners)
        return SimplexHit(value, vertices, weights)

    def _walk(self, target: Sequence[float]) -> int:
        """Qhull's own search, for points on the rim of the hull or in a flat simplex."""
        import numpy as np

        return int(self._mesh.find_simplex(np.array([target]))[0])

    def at_many(self, targets: FloatArray) -> FloatArray:
        """As `at` for (n, dim) targets, NaN where it has no value."""
        return self.hits(targets)[0]

    def hits(self, targets: FloatArray) -> tuple[FloatArray, IntArray, list[FloatArray]]:
        """Values at (n, dim) targets (NaN where `at` has none), (n, dim + 1) vertices, and the weights by vertex."""
        import numpy as np

        found = self._cells.find_many(targets)
        lost = np.flatnonzero(found < 0)
        if len(lost):
            lost = lost[self._mesh.find_simplex(targets[lost]) >= 0]
            found[lost] = [self._walk(target) for target in targets[lost].tolist()]
        weights = weights_of(self._transform[found], targets)
        vertices = self._mesh.simplices[found].astype(np.int64)
        corners = [self._values[column] for column in vertices.T]
        values = weighted_values(weights, corners)
        bad = (found < 0) | ~np.isfinite(weights).all(axis=0)
        values[bad] = np.nan
        return values, vertices, weights


def weighted_values(weights: Sequence[FloatArray], corners: Sequence[FloatArray]) -> FloatArray:
    """`clamp_to_vertices(total(w * y), corners)` for columns of weights and corner values, bit for bit."""
    import numpy as np

    values = weights[0] * corners[0]
    for weight, corner in zip(weights[1:], corners[1:], strict=True):
        values = values + weight * corner
    clamped: FloatArray = np.minimum(np.maximum(values, np.minimum.reduce(corners)), np.maximum.reduce(corners))
    return clamped


def _point_problem(points: FloatArray, values: FloatArray) -> MissReason | None:
    import numpy as np

    if points.ndim != 2 or values.ndim != 1:
        return MissReason.INVALID_ARRAY_RANK
    if len(points) != len(values):
        return MissReason.POINT_SHAPE_MISMATCH
    dim = points.shape[1]
    if dim not in (2, 3) or len(points) < dim + 1:
        return MissReason.INSUFFICIENT_POINTS
    if not (np.isfinite(points).all() and np.isfinite(values).all()):
        return MissReason.NON_FINITE_INPUT
    return None


def griddata_linear_interp(
    points: ArrayLike, values: ArrayLike, target: ArrayLike, *, return_details: bool = False
) -> float | tuple[float | None, dict[str, Any]] | None:
    """One 2D or 3D question on unprepared points: the latency, or None; with details when asked.

    Details carry `reason` on failure, `simplex_vertex_indices` and `barycentric_weights` on success.
    """
    import numpy as np

    outcome = _griddata(
        np.asarray(points, dtype=np.float64),
        np.asarray(values, dtype=np.float64),
        np.asarray(target, dtype=np.float64),
    )
    if isinstance(outcome, MissReason):
        return (None, {"reason": str(outcome)}) if return_details else None
    details = {"simplex_vertex_indices": list(outcome.vertices), "barycentric_weights": list(outcome.weights)}
    return (outcome.value, details) if return_details else outcome.value


def _griddata(points: FloatArray, values: FloatArray, target: FloatArray) -> SimplexHit | MissReason:
    import numpy as np

    reason = _point_problem(points, values)
    if reason is not None:
        return reason
    if target.shape != (points.shape[1],):
        return MissReason.POINT_SHAPE_MISMATCH
    if not np.isfinite(target).all():
        return MissReason.NON_FINITE_INPUT
    field = SimplexField.build(points, values)
    if isinstance(field, MissReason):
        return field
    hit = field.at(target.tolist())
    if isinstance(hit, SimplexHit) and not validate_interpolated_latency(hit.value):
        return MissReason.LATENCY_GUARD_REJECTED
    return hit
