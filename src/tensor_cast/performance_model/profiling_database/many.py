"""Many questions at once: one operator, some of its axes as arrays, answered in vectorised passes.

The order of precedence is that of single questions, point by point: exact coordinates, then axis groups from low to
high dimension, latency source by latency source, kernel by kernel.  One axis costs one sorted search over all points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensor_cast.errors import InvalidValueError
from tensor_cast.performance_model.profiling_database.interpolation_index import AxisMatcher, CandidateGroup
from tensor_cast.performance_model.profiling_database.interpolation_math import SimplexField
from tensor_cast.performance_model.profiling_database.slices import Found, Method, Pick, Slice

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["ManyAnswers", "Sweep", "fill_exact", "fill_interpolated"]


@dataclass(frozen=True)
class ManyAnswers:
    """Latencies in microseconds (NaN where there is no answer) and the dimension of each answer.

    `dims` is 0 for a measured point, 1 to 3 for an interpolation, -1 for a miss; `query` on a point tells why.
    """

    latency_us: FloatArray
    dims: IntArray

    @property
    def answered(self) -> NDArray[np.bool_]:
        return self.dims >= 0

    def __len__(self) -> int:
        return len(self.dims)


class Sweep:
    """The points of a sweep and the answers found so far."""

    def __init__(self, varied: Mapping[str, ArrayLike]) -> None:
        columns = {axis: np.atleast_1d(np.asarray(values, dtype=np.float64)) for axis, values in varied.items()}
        sizes = {len(column) for column in columns.values()}
        if not columns or len(sizes) != 1 or any(column.ndim != 1 for column in columns.values()):
            raise InvalidValueError(f"query_many: axes must be arrays of one length, got {sorted(sizes)}")
        self.varied: dict[str, FloatArray] = columns
        self.size = sizes.pop()
        self.latency_us = np.full(self.size, np.nan)
        self.dims = np.full(self.size, -1, dtype=np.int64)

    @property
    def open(self) -> IntArray:
        """Points without an answer."""
        return np.flatnonzero(self.dims < 0)

    def fill(self, at: IntArray, values: FloatArray, dim: int) -> None:
        """Record the answers that are numbers."""
        good = np.isfinite(values) & (values > 0)
        self.latency_us[at[good]] = values[good]
        self.dims[at[good]] = dim

    def along(self, varied: Mapping[str, FloatArray]) -> Sweep:
        """The same points and answers with other coordinates."""
        seen = Sweep(varied)
        seen.latency_us, seen.dims = self.latency_us, self.dims
        return seen

    def axes(self, fixed: Mapping[str, float]) -> dict[str, FloatArray | float]:
        """The target's axes with the varied ones as arrays.  Raises InvalidValueError for an unknown axis."""
        unknown = [axis for axis in self.varied if axis not in fixed]
        if unknown:
            raise InvalidValueError(f"query_many: no axis {unknown[0]!r}; this operator has {', '.join(fixed)}")
        return {axis: self.varied.get(axis, value) for axis, value in fixed.items()}

    def answers(self) -> ManyAnswers:
        return ManyAnswers(self.latency_us, self.dims)


def fill_exact(
    sweep: Sweep,
    group: CandidateGroup,
    fixed: Mapping[str, float],
    pick: Pick,
    matchers: Mapping[str, AxisMatcher],
) -> None:
    """Answer the points that were measured."""
    sweep.axes(fixed)
    varied = tuple(axis for axis in fixed if axis in sweep.varied)
    prepared = group.slice_for(fixed, varied, pick, matchers)
    if prepared is None:
        return
    positions, merged, at = prepared.merged.positions, prepared.merged, sweep.open
    columns = [sweep.varied[axis][at].tolist() for axis in varied]
    found = np.array([positions.get(place, -1) for place in zip(*columns, strict=True)], dtype=np.int64)
    hits = np.flatnonzero(found >= 0)
    hits = hits[merged.problems[found[hits]] == 0]
    sweep.fill(at[hits], merged.values[found[hits]], 0)


def fill_interpolated(
    sweep: Sweep,
    group: CandidateGroup,
    fixed: Mapping[str, float],
    pick: Pick,
    axis_groups: Sequence[tuple[str, ...]],
    method: Method,
    matchers: Mapping[str, AxisMatcher],
) -> None:
    """Answer what the axis groups can, in their order."""
    axes = sweep.axes(fixed)
    lines = [group_axes for group_axes in axis_groups if len(group_axes) == 1]
    if method.tightest_axis and (method.max_dim is None or method.max_dim >= 1):
        _fill_tightest(sweep, group, axes, pick, lines, method, matchers)
    for group_axes in axis_groups:
        if method.max_dim is not None and len(group_axes) > method.max_dim:
            continue
        if method.tightest_axis and len(group_axes) == 1:
            continue
        for at, prepared in _slices(sweep, group, axes, group_axes, pick, matchers):
            values, _ = _values(group, prepared, axes, group_axes, at, method)
            sweep.fill(at, values, len(group_axes))


def _fill_tightest(
    sweep: Sweep,
    group: CandidateGroup,
    axes: Mapping[str, FloatArray | float],
    pick: Pick,
    lines: Sequence[tuple[str, ...]],
    method: Method,
    matchers: Mapping[str, AxisMatcher],
) -> None:
    best = np.full(sweep.size, np.inf)
    latency = np.full(sweep.size, np.nan)
    for line in lines:
        for at, prepared in _slices(sweep, group, axes, line, pick, matchers):
            values, gaps = _values(group, prepared, axes, line, at, method)
            better = np.isfinite(values) & (gaps < best[at])
            best[at[better]] = gaps[better]
            latency[at[better]] = values[better]
    sweep.fill(np.arange(sweep.size), np.where(sweep.dims < 0, latency, np.nan), 1)


def _slices(
    sweep: Sweep,
    group: CandidateGroup,
    axes: Mapping[str, FloatArray | float],
    group_axes: tuple[str, ...],
    pick: Pick,
    matchers: Mapping[str, AxisMatcher],
) -> list[tuple[IntArray, Slice]]:
    """The open points by the slice they lie in; measured levels are walked, never points."""
    if any(axis not in axes for axis in group_axes):
        return []
    rest = tuple(axis for axis in axes if axis not in group_axes)
    compared = tuple(axis for axis in rest if axis not in matchers)
    keys = {
        tuple(level for axis, level in zip(rest, key, strict=True) if axis in compared)
        for key in group.partition_keys(rest, group_axes, pick)
    }
    found = []
    still_open = sweep.open
    for key in sorted(keys) if len(still_open) else ():
        at = _lying_at(still_open, axes, compared, key)
        if not len(at):
            continue
        levels = dict(zip(compared, key, strict=True))
        levels |= dict.fromkeys(group_axes, 0.0)
        fixed = {axis: levels[axis] if axis in levels else _scalar(axes[axis]) for axis in axes}
        prepared = group.slice_for(fixed, group_axes, pick, matchers)
        if prepared is not None and prepared.merged.filtered >= 2:
            found.append((at, prepared))
    return found


def _lying_at(
    at: IntArray, axes: Mapping[str, FloatArray | float], compared: tuple[str, ...], key: tuple[float, ...]
) -> IntArray:
    levels = [(axes[axis], level) for axis, level in zip(compared, key, strict=True)]
    if any(isinstance(value, float) and value != level for value, level in levels):
        return at[:0]
    for value, level in levels:
        if not isinstance(value, float):
            at = at[value[at] == level]
    return at


def _scalar(value: FloatArray | float) -> float:
    if not isinstance(value, float):
        raise InvalidValueError("query_many: an axis that is matched by a rule cannot be varied")
    return value


def _values(
    group: CandidateGroup,
    prepared: Slice,
    axes: Mapping[str, FloatArray | float],
    group_axes: tuple[str, ...],
    at: IntArray,
    method: Method,
) -> tuple[FloatArray, FloatArray]:
    """Values of one slice at the points, NaN where it has none, and the log gap of one-axis brackets."""
    columns = []
    for axis in group_axes:
        value = axes[axis]
        columns.append(np.full(len(at), value) if isinstance(value, float) else value[at])
    if len(group_axes) == 1:
        return _line_values(prepared, columns[0])
    points = np.column_stack(columns)
    field = None if method.multi_axis != "simplex" or method.frontier_guard else group.field(prepared)
    if isinstance(field, SimplexField) and prepared.merged.variants is None and not group.grid_problem(prepared):
        return field.at_many(points), np.zeros(len(at))
    values = np.full(len(at), np.nan)
    for i, point in enumerate(points.tolist()):
        outcome = group.multi(prepared, group_axes, tuple(point), method)
        if isinstance(outcome, Found):
            values[i] = outcome.latency_us
    return values, np.zeros(len(at))


def _line_values(prepared: Slice, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    xs, ys = np.asarray(prepared.xs), np.asarray(prepared.ys)
    if not len(xs):
        return np.full(len(x), np.nan), np.full(len(x), np.inf)
    high = np.clip(np.searchsorted(xs, x), 0, len(xs) - 1)
    low = np.where(xs[high] == x, high, np.maximum(high - 1, 0))
    width = np.where(xs[high] == xs[low], 1.0, xs[high] - xs[low])
    values = ys[low] + (ys[high] - ys[low]) * ((x - xs[low]) / width)
    values = np.clip(values, np.minimum(ys[low], ys[high]), np.maximum(ys[low], ys[high]))
    refused = (x < xs[0]) | (x > xs[-1])
    if prepared.merged.variants is not None:
        kinds = prepared.merged.variants[np.asarray(prepared.index)]
        refused |= kinds[low] != kinds[high]
    values[refused] = np.nan
    return values, np.log2((xs[high] + 1) / (xs[low] + 1))
