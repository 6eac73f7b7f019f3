"""What a slice answers at many points: the arithmetic of single questions, column by column, with the same bits.

Every value is NaN where a single question would be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tensor_cast.performance_model.profiling_database.geometry.slices import Found, Method, Slice
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.interpolation_math import SimplexField, weighted_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["line_values", "multi_values"]

_FEW: Final = 6


def line_values(prepared: Slice, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Along one axis: the values, and how wide the bracket of each is."""
    xs, ys = np.asarray(prepared.xs), np.asarray(prepared.ys)
    if not len(xs):
        return np.full(len(x), np.nan), np.full(len(x), np.inf)
    high = np.searchsorted(xs, x).clip(max=len(xs) - 1)
    low = np.where(xs[high] == x, high, np.maximum(high - 1, 0))
    x0, x1, y0, y1 = xs[low], xs[high], ys[low], ys[high]
    width = np.where(x1 == x0, 1.0, x1 - x0)
    values = y0 + (y1 - y0) * ((x - x0) / width)
    values = np.minimum(np.maximum(values, np.minimum(y0, y1)), np.maximum(y0, y1))
    refused = (x < xs[0]) | (x > xs[-1])
    if prepared.merged.variants is not None:
        kinds = prepared.merged.variants[np.asarray(prepared.index)]
        refused |= kinds[low] != kinds[high]
    values[refused] = np.nan
    return values, (x1 + 1) / (x0 + 1)


def multi_values(group: CandidateGroup, prepared: Slice, points: FloatArray, method: Method) -> FloatArray:
    """At (n, 2) or (n, 3) points of a slice; few points are asked one by one, which costs less."""
    values = np.full(len(points), np.nan)
    low, high = np.array(prepared.span).T
    at = np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))
    if not len(at) or group.grid_problem(prepared):
        return values
    if len(at) <= _FEW:
        found = [group.multi(prepared, prepared.merged.axes, tuple(point), method) for point in points[at].tolist()]
        values[at] = [one.latency_us if isinstance(one, Found) else np.nan for one in found]
        return values
    values[at] = _many(group, prepared, points[at], method)
    return values


def _many(group: CandidateGroup, prepared: Slice, points: FloatArray, method: Method) -> FloatArray:
    values = np.full(len(points), np.nan)
    at = np.arange(len(points))
    if method.frontier_guard:
        at = at[prepared.rim().hold_many(points[at])]
    if not len(at):
        return values
    if method.multi_axis == "bracket_blend":
        found, vertices, weights = _blended(prepared, points[at])
    else:
        field = group.field(prepared)
        if not isinstance(field, SimplexField):
            return values
        found, vertices, weights = field.hits(points[at])
    found[~(found > 0) | ~np.isfinite(found)] = np.nan
    if prepared.merged.variants is not None:
        found[_mixed(prepared.merged.variants[prepared.merged.usable], vertices, weights)] = np.nan
    values[at] = found
    return values


def _mixed(kinds: IntArray, vertices: IntArray, weights: Sequence[FloatArray]) -> NDArray[np.bool_]:
    """Which answers rest on more than one kernel variant; vertices of weight 0 do not count."""
    counted = np.column_stack(weights) > 0
    held = kinds[vertices]
    low = np.where(counted, held, np.iinfo(np.int64).max).min(axis=1)
    high = np.where(counted, held, -1).max(axis=1)
    mixed: NDArray[np.bool_] = high > low
    return mixed


def _blended(prepared: Slice, points: FloatArray) -> tuple[FloatArray, IntArray, list[FloatArray]]:
    vertices, weights, outside = prepared.brackets().around(points)
    heights = prepared.merged.values[prepared.merged.usable]
    values = weighted_values(weights, [heights[column] for column in vertices.T])
    values[outside] = np.nan
    return values, vertices, weights
