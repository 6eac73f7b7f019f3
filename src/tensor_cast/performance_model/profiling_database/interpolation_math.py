"""Pure interpolation functions: adjacent-point lines, linear simplices, and the latency guards.

Source: Phase 1 facts section 3.2; seed RFC section 2.1.  SciPy's Delaunay (Qhull) triangulates, so that values equal
`scipy.interpolate.griddata(method="linear")` on the same points.  SciPy is optional: without it 2D and 3D questions are
refused with `scipy_unavailable`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tensor_cast.performance_model.profiling_database.barycentric import barycentric_transforms, spans_all_axes
from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.simplex_cells import SimplexCells

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]

__all__ = [
    "SimplexField",
    "SimplexHit",
    "clamp_to_vertices",
    "find_boundary",
    "griddata_linear_interp",
    "linear_interp",
    "validate_interpolated_latency",
    "validate_positive_latency",
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


_ON_FACE: Final = 1e-12


class SimplexField:
    """Points triangulated once; each question then finds its simplex.

    `points` is (n, dim) with dim 2 or 3 and pairwise different rows, `values` has length n.  Building is O(n log n) in
    2D and about that in 3D for measured grids; a question costs a look at the few simplices of its grid cell.
    """

    def __init__(self, points: FloatArray, values: FloatArray) -> None:
        from scipy.spatial import Delaunay

        self._values = values
        self._mesh = Delaunay(points)
        self._simplices = self._mesh.simplices
        self._transform = barycentric_transforms(points, self._simplices)
        self._numbers: list[float] = values.tolist()
        self._dim = points.shape[1]
        self._cells = SimplexCells.build(points, self._simplices, self._transform)

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
        found = self._locate(target)
        if found < 0:
            return MissReason.OUTSIDE_CONVEX_HULL
        *matrix, origin = self._transform[found].tolist()
        offset = [x - x0 for x, x0 in zip(target, origin, strict=True)]
        partial = [sum([a * d for a, d in zip(line, offset, strict=True)]) for line in matrix]
        weights = (*partial, 1.0 - sum(partial))
        if not all(map(math.isfinite, weights)):
            return MissReason.EMPTY_RESULT
        vertices = tuple(self._simplices[found].tolist())
        corners = [self._numbers[vertex] for vertex in vertices]
        value = clamp_to_vertices(sum([w * y for w, y in zip(weights, corners, strict=True)]), corners)
        return SimplexHit(value, vertices, weights)

    def _locate(self, target: Sequence[float]) -> int:
        import numpy as np

        point = np.array([target])
        candidates = None if self._cells is None else self._cells.candidates(target)
        if candidates is not None:
            transform = self._transform[candidates]
            partial = np.einsum("nij,nj->ni", transform[:, : self._dim], point - transform[:, self._dim])
            inside = (partial >= -_ON_FACE).all(axis=1) & (partial.sum(axis=1) <= 1 + _ON_FACE)
            first = int(inside.argmax()) if len(inside) else 0
            if len(inside) and inside[first]:
                return int(candidates[first])
        return int(self._mesh.find_simplex(point)[0])

    def at_many(self, targets: FloatArray) -> FloatArray:
        """Values at (n, dim) targets, NaN outside the hull; one vectorised pass."""
        import numpy as np

        found = self._mesh.find_simplex(targets)
        inside = found >= 0
        result = np.full(len(targets), np.nan)
        if not inside.any():
            return result
        transform = self._transform[found[inside]]
        offset = targets[inside] - transform[:, self._dim]
        partial = np.einsum("nij,nj->ni", transform[:, : self._dim], offset)
        weights = np.column_stack([partial, 1.0 - partial.sum(axis=1)])
        corners = self._values[self._simplices[found[inside]]]
        values = (weights * corners).sum(axis=1)
        result[inside] = np.clip(values, corners.min(axis=1), corners.max(axis=1))
        return result


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
