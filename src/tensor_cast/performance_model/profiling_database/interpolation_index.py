"""Candidates by regime, and the one procedure that interpolates inside a regime.

Low dimension first: the axis groups are tried in the order given; the first that succeeds answers.  A slice (the
points that agree with the target on every other axis) is prepared once and kept, its triangulation included, so that a
question costs a dictionary access and a bisection or a simplex walk, independent of the number of rows.
Source: Phase 1 facts, sections 2 and 3; seed RFC sections 2 and 3.4.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.interpolation_math import (
    SimplexField,
    SimplexHit,
    clamp_to_vertices,
    linear_interp,
)
from tensor_cast.performance_model.profiling_database.points import (
    MergedPoints,
    PointSet,
    RegimeKey,
    merge_points,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

__all__ = ["Attempt", "AxisMatcher", "CandidateGroup", "CandidateIndex", "Found", "Method", "Pick", "Slice"]

AxisMatcher = Callable[[float, float], bool]
CONFIDENCE: Final = {0: 1.0, 1: 0.70, 2: 0.65, 3: 0.60}


@dataclass(frozen=True, slots=True)
class Method:
    """How a group interpolates; the defaults are the RFC's."""

    max_dim: int | None = None
    multi_axis: str = "simplex"
    tightest_axis: bool = False
    frontier_guard: bool = False


class Pick(NamedTuple):
    """Which points of a group take part: one latency-source label, one kernel variant, or all."""

    label: int | None = None
    variant: int | None = None


ALL_POINTS: Final = Pick()
RFC_METHOD: Final = Method()


class Attempt(NamedTuple):
    """One axis group that did not answer."""

    axes: tuple[str, ...]
    reason: MissReason
    candidates: int = 0
    measured: tuple[tuple[float, float], ...] = ()
    note: str = ""

    def to_details(self) -> dict[str, Any]:
        details: dict[str, Any] = {"axes": list(self.axes), "status": str(self.reason)}
        if self.candidates or self.reason is MissReason.INSUFFICIENT_FILTERED_CANDIDATES:
            details["candidate_count"] = self.candidates
        if self.measured:
            details["measured_range"] = dict(zip(self.axes, (list(span) for span in self.measured), strict=True))
        if self.note:
            details["note"] = self.note
        return details


class Found(NamedTuple):
    """An answer: the latency and the merged coordinates it rests on, with their weights (sum 1)."""

    latency_us: float
    method: str
    axes: tuple[str, ...]
    merged: MergedPoints
    vertices: tuple[int, ...]
    weights: tuple[float, ...]
    attempts: tuple[Attempt, ...] = ()

    @property
    def dim(self) -> int:
        return 0 if self.method == "exact_coordinate" else len(self.axes)


@dataclass(slots=True)
class Slice:
    """Points that agree with a target on all but the selected axes."""

    merged: MergedPoints
    xs: list[float] = field(default_factory=list)
    ys: list[float] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    span: tuple[tuple[float, float], ...] = ()
    problem: str | None = None
    field_or_reason: SimplexField | MissReason | None = None
    tree: Any = None


class CandidateGroup:
    """The points of one regime.  Thread-safe: preparing a slice takes the group's lock, reading one does not."""

    def __init__(self, regime_key: RegimeKey, points: PointSet) -> None:
        self.regime_key = regime_key
        self.regime = dict(regime_key)
        self.points = points
        self._parts: dict[tuple[Any, ...], Mapping[tuple[float, ...], IntArray]] = {}
        self._slices: dict[tuple[Any, ...], Slice] = {}
        self._exact: dict[tuple[Any, ...], MergedPoints] = {}
        self._levels: dict[str, list[float]] = {}
        self._lacking: dict[str, CandidateGroup] = {}
        self._lock = threading.RLock()
        self.triangulations = 0

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """Latency-source labels present, the selected column first."""
        if self.points.labels is None:
            return ()
        return tuple(sorted({int(label) for label in self.points.labels}))

    def lacking(self, axis: str) -> CandidateGroup:
        """The points of this group that do not have `axis`, as a group of its own."""
        import numpy as np

        found = self._lacking.get(axis)
        if found is None:
            with self._lock:
                found = CandidateGroup(
                    self.regime_key, self.points.take(np.flatnonzero(np.isnan(self.points.axes[axis])))
                )
                self._lacking[axis] = found
        return found

    def exact(self, target: Mapping[str, float], pick: Pick = ALL_POINTS) -> Found | Attempt:
        """The measured point at exactly the target's coordinates, or the attempt that says why there is none."""
        axes = tuple(target)
        if any(axis not in self.points.axes for axis in axes):
            return Attempt(axes, MissReason.MISSING_TARGET_AXIS)
        merged = self._exact.get((pick, axes))
        if merged is None:
            merged = self._merge_all(axes, pick)
        at = merged.positions.get(tuple(target.values()))
        if at is None:
            return Attempt(axes, MissReason.OUTSIDE_AXIS_BOUNDARY, len(merged))
        problem = merged.problem(at)
        if problem is not None:
            return Attempt(axes, problem, len(merged))
        return Found(float(merged.values[at]), "exact_coordinate", axes, merged, (at,), (1.0,))

    def _merge_all(self, axes: tuple[str, ...], pick: Pick) -> MergedPoints:
        with self._lock:
            found = self._exact.get((pick, axes))
            if found is None:
                parts = self._partition((), axes, pick)
                found = merge_points(self.points, parts.get((), self._empty()), axes)
                self._exact[(pick, axes)] = found
            return found

    def interpolate(
        self,
        target: Mapping[str, float],
        axis_groups: Sequence[tuple[str, ...]],
        method: Method = RFC_METHOD,
        pick: Pick = ALL_POINTS,
        matchers: Mapping[str, AxisMatcher] | None = None,
    ) -> Found | tuple[Attempt, ...]:
        """The first axis group that answers, or every failed attempt."""
        attempts: list[Attempt] = []
        pending: list[tuple[float, Found]] = []
        for axes in axis_groups:
            if not 1 <= len(axes) <= 3:
                continue
            if pending and len(axes) > 1:
                break
            outcome = self._try(target, axes, method, pick, matchers or {})
            if isinstance(outcome, Attempt):
                attempts.append(outcome)
            elif method.tightest_axis and len(axes) == 1:
                pending.append((_log_gap(outcome), outcome))
            else:
                return _with_attempts(outcome, attempts)
        if pending:
            return _with_attempts(min(pending, key=lambda item: item[0])[1], attempts)
        return tuple(attempts)

    def _try(
        self,
        target: Mapping[str, float],
        axes: tuple[str, ...],
        method: Method,
        pick: Pick,
        matchers: Mapping[str, AxisMatcher],
    ) -> Found | Attempt:
        if method.max_dim is not None and len(axes) > method.max_dim:
            return Attempt(axes, MissReason.INTERPOLATION_DIM_DISABLED)
        for axis in axes:
            if axis not in target or axis not in self.points.axes:
                return Attempt(axes, MissReason.MISSING_TARGET_AXIS)
        prepared = self.slice_for(target, axes, pick, matchers)
        if prepared is None or prepared.merged.filtered < 2:
            count = 0 if prepared is None else prepared.merged.filtered
            return Attempt(axes, MissReason.INSUFFICIENT_FILTERED_CANDIDATES, count)
        at = tuple([target[axis] for axis in axes])
        for value, (low, high) in zip(at, prepared.span, strict=True):
            if not low <= value <= high:
                return Attempt(axes, MissReason.OUTSIDE_AXIS_BOUNDARY, prepared.merged.filtered, prepared.span)
        if len(axes) == 1:
            return _line(prepared, axes, at[0])
        return self.multi(prepared, axes, at, method)

    def multi(self, prepared: Slice, axes: tuple[str, ...], at: tuple[float, ...], method: Method) -> Found | Attempt:
        """Two or three axes at once inside a prepared slice."""
        count = prepared.merged.filtered
        problem = self.grid_problem(prepared)
        if problem:
            return Attempt(axes, MissReason.GRID_STRUCTURE_REJECTED, count, prepared.span, problem)
        if method.frontier_guard and not _inside_frontier(prepared.merged, at):
            return Attempt(axes, MissReason.BEYOND_MEASURED_FRONTIER, count, prepared.span)
        if method.multi_axis == "bracket_blend":
            return _blend(prepared, axes, at)
        found = self.field(prepared)
        outcome = found if isinstance(found, MissReason) else found.at(at)
        if isinstance(outcome, SimplexHit):
            usable = prepared.merged.usable
            vertices = tuple(int(usable[vertex]) for vertex in outcome.vertices)
            return _checked(prepared, axes, "griddata_linear", outcome.value, vertices, outcome.weights)
        return Attempt(axes, outcome, count, prepared.span)

    @staticmethod
    def grid_problem(prepared: Slice) -> str:
        """Why a slice cannot span two or three axes, or an empty text."""
        if prepared.problem is None:
            prepared.problem = _grid_problem(prepared.merged, len(prepared.merged.axes))
        return prepared.problem

    def field(self, prepared: Slice) -> SimplexField | MissReason:
        """The slice's triangulation, built at most once."""
        if prepared.field_or_reason is None:
            with self._lock:
                if prepared.field_or_reason is None:
                    usable = prepared.merged.usable
                    self.triangulations += 1
                    prepared.field_or_reason = SimplexField.build(
                        prepared.merged.coordinates[usable], prepared.merged.values[usable]
                    )
        return prepared.field_or_reason

    def slice_for(
        self,
        target: Mapping[str, float],
        axes: tuple[str, ...],
        pick: Pick,
        matchers: Mapping[str, AxisMatcher],
    ) -> Slice | None:
        """The prepared slice for a target, or None where no point agrees with it on the other axes."""
        fixed = tuple([axis for axis in target if axis not in axes])
        wanted: tuple[Any, ...] = tuple([target[axis] for axis in fixed])
        if matchers:
            wanted = tuple(
                self._matching(axis, value, matchers[axis]) if axis in matchers else value
                for axis, value in zip(fixed, wanted, strict=True)
            )
        key = (axes, fixed, wanted, pick)
        prepared = self._slices.get(key)
        if prepared is None:
            parts = self._parts.get((fixed, axes, pick))
            if parts is None or matchers or wanted in parts:
                prepared = self._prepare(key)
        return prepared

    def _prepare(self, key: tuple[Any, ...]) -> Slice | None:
        axes, fixed, wanted, pick = key
        with self._lock:
            if key in self._slices:
                return self._slices[key]
            chosen = self._chosen(self._partition(fixed, axes, pick), wanted)
            if not len(chosen):
                return None
            self._slices[key] = _build_slice(merge_points(self.points, chosen, axes))
            return self._slices[key]

    def _chosen(self, parts: Mapping[tuple[float, ...], IntArray], wanted: tuple[Any, ...]) -> IntArray:
        import numpy as np

        if not any(isinstance(value, tuple) for value in wanted):
            return parts.get(wanted, self._empty())
        combinations: list[tuple[float, ...]] = [()]
        for value in wanted:
            options = value if isinstance(value, tuple) else (value,)
            combinations = [(*head, option) for head in combinations for option in options]
        found = [parts[combination] for combination in combinations if combination in parts]
        return np.sort(np.concatenate(found)) if found else self._empty()

    def _matching(self, axis: str, value: float, accepts: AxisMatcher) -> tuple[float, ...]:
        levels = self._levels.get(axis)
        if levels is None:
            import numpy as np

            column = self.points.axes.get(axis)
            levels = [] if column is None else np.unique(column[~np.isnan(column)]).tolist()
            self._levels[axis] = levels
        return tuple(level for level in levels if accepts(value, level))

    def _partition(
        self, fixed: tuple[str, ...], axes: tuple[str, ...], pick: Pick
    ) -> Mapping[tuple[float, ...], IntArray]:
        """Point indices by their values on the fixed axes; points that lack an axis are left out.  O(n log n), once."""
        key = (fixed, axes, pick)
        if key not in self._parts:
            self._parts[key] = _split(self.points, fixed, axes, pick)
        return self._parts[key]

    def partition_keys(
        self, fixed: tuple[str, ...], axes: tuple[str, ...], pick: Pick
    ) -> tuple[tuple[float, ...], ...]:
        """Measured combinations of values on the fixed axes."""
        with self._lock:
            return tuple(self._partition(fixed, axes, pick))

    @staticmethod
    def _empty() -> IntArray:
        import numpy as np

        return np.zeros(0, dtype=np.int64)


def _split(
    points: PointSet, fixed: tuple[str, ...], axes: tuple[str, ...], pick: Pick
) -> Mapping[tuple[float, ...], IntArray]:
    import numpy as np

    keep = np.isfinite(points.latency_us) & (points.latency_us > 0)
    if pick.label is not None and points.labels is not None:
        keep &= points.labels == pick.label
    if pick.variant is not None and points.variants is not None:
        keep &= points.variants == pick.variant
    for axis in (*fixed, *axes):
        if axis not in points.axes:
            return {}
        keep &= ~np.isnan(points.axes[axis])
    chosen = np.flatnonzero(keep)
    if not fixed:
        return {(): chosen} if len(chosen) else {}
    columns = [points.axes[axis][chosen] for axis in fixed]
    order = np.lexsort(columns[::-1])
    table = np.column_stack([column[order] for column in columns])
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (table[1:] != table[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    pieces = np.split(chosen[order], starts[1:]) if len(order) else []
    return {tuple(table[start].tolist()): np.sort(piece) for start, piece in zip(starts, pieces, strict=True)}


def _build_slice(merged: MergedPoints) -> Slice:
    usable = merged.usable
    prepared = Slice(merged)
    if not len(usable):
        prepared.span = tuple((math.inf, -math.inf) for _ in merged.axes)
        return prepared
    corners = merged.coordinates[usable]
    prepared.span = tuple(zip(corners.min(axis=0).tolist(), corners.max(axis=0).tolist(), strict=True))
    prepared.index = usable.tolist()
    if len(merged.axes) == 1:
        prepared.xs = corners[:, 0].tolist()
        prepared.ys = merged.values[usable].tolist()
    return prepared


def _line(prepared: Slice, axes: tuple[str, ...], x: float) -> Found | Attempt:
    xs = prepared.xs
    at = bisect_left(xs, x)
    if xs[at] == x:
        return _checked(prepared, axes, "linear_1d", prepared.ys[at], (prepared.index[at],), (1.0,))
    low = at - 1
    value = linear_interp(x, xs[low], prepared.ys[low], xs[at], prepared.ys[at])
    share = (x - xs[low]) / (xs[at] - xs[low])
    vertices = (prepared.index[low], prepared.index[at])
    return _checked(prepared, axes, "linear_1d", value, vertices, (1.0 - share, share))


def _checked(
    prepared: Slice,
    axes: tuple[str, ...],
    method: str,
    value: float,
    vertices: tuple[int, ...],
    weights: tuple[float, ...],
) -> Found | Attempt:
    merged = prepared.merged
    if not (math.isfinite(value) and value > 0):
        return Attempt(axes, MissReason.LATENCY_GUARD_REJECTED, merged.filtered, prepared.span)
    if merged.variants is not None and len(vertices) > 1:
        kinds = {int(merged.variants[v]) for v, w in zip(vertices, weights, strict=True) if w > 0}
        if len(kinds) > 1:
            return Attempt(axes, MissReason.KERNEL_VARIANT_CHANGES, merged.filtered, prepared.span)
    return Found(value, method, axes, merged, vertices, weights)


def _grid_problem(merged: MergedPoints, dim: int) -> str:
    usable = merged.usable
    if len(usable) < dim + 1:
        return "unique_point_count_lt_min"
    corners = merged.coordinates[usable]
    if any(corners[:, i].min() == corners[:, i].max() for i in range(dim)):
        return "degenerate_axes"
    return ""


def _inside_frontier(merged: MergedPoints, at: tuple[float, ...]) -> bool:
    corners = merged.coordinates[merged.usable]
    return bool((corners >= at).all(axis=1).any() and (corners <= at).all(axis=1).any())


def _blend(prepared: Slice, axes: tuple[str, ...], at: tuple[float, ...]) -> Found | Attempt:
    """Multilinear over the bracketing cell: bracket the first axis, blend the sub-slices, bracketed in turn."""
    merged = prepared.merged
    if prepared.tree is None:
        prepared.tree = _tree(merged, merged.usable.tolist(), 0)
    weighted = _descend(prepared.tree, at, 0)
    if weighted is None:
        return Attempt(axes, MissReason.BOUNDARY_POINT_MISSING, merged.filtered, prepared.span)
    vertices = tuple(vertex for vertex, _ in weighted)
    weights = tuple(weight for _, weight in weighted)
    corners = [float(merged.values[vertex]) for vertex in vertices]
    value = clamp_to_vertices(sum(w * y for w, y in zip(weights, corners, strict=True)), corners)
    return _checked(prepared, axes, "bracket_blend", value, vertices, weights)


def _tree(merged: MergedPoints, indices: list[int], axis: int) -> Any:
    """Sorted values of one axis and, per value, the tree of the remaining axes (or the point itself)."""
    branches: dict[float, list[int]] = {}
    for index in indices:
        branches.setdefault(float(merged.coordinates[index, axis]), []).append(index)
    values = sorted(branches)
    if axis == len(merged.axes) - 1:
        return values, [branches[value][0] for value in values]
    return values, [_tree(merged, branches[value], axis + 1) for value in values]


def _descend(tree: Any, at: tuple[float, ...], axis: int) -> list[tuple[int, float]] | None:
    values, branches = tree
    x = at[axis]
    high = bisect_left(values, x)
    if high == len(values):
        return None
    if values[high] == x:
        sides = [(high, 1.0)]
    elif high == 0:
        return None
    else:
        share = (x - values[high - 1]) / (values[high] - values[high - 1])
        sides = [(high - 1, 1.0 - share), (high, share)]
    found: list[tuple[int, float]] = []
    for branch, weight in sides:
        if axis == len(at) - 1:
            found.append((branches[branch], weight))
            continue
        below = _descend(branches[branch], at, axis + 1)
        if below is None:
            return None
        found += [(vertex, weight * inner) for vertex, inner in below]
    return found


def _log_gap(found: Found) -> float:
    corners = [float(found.merged.coordinates[vertex, 0]) for vertex in found.vertices]
    low, high = min(corners), max(corners)
    return math.log2((high + 1) / (low + 1))


def _with_attempts(found: Found, attempts: list[Attempt]) -> Found:
    if not attempts:
        return found
    return Found(
        found.latency_us, found.method, found.axes, found.merged, found.vertices, found.weights, tuple(attempts)
    )


class CandidateIndex:
    """All regimes of one kernel under one path, and what was rejected on the way."""

    def __init__(self, groups: Sequence[CandidateGroup], rejected: Mapping[str, int], rows: int) -> None:
        self.groups = tuple(groups)
        self.rejected = dict(rejected)
        self.rows = rows
        self._matches: dict[tuple[Any, ...], tuple[CandidateGroup, ...]] = {}

    @property
    def usable_points(self) -> int:
        return sum(len(group) for group in self.groups)

    def matching(
        self,
        target: RegimeKey,
        allow_extra: frozenset[str] = frozenset(),
        required: frozenset[str] = frozenset(),
    ) -> tuple[CandidateGroup, ...]:
        """Groups whose every field equals the target's; the target may lack those in `allow_extra`.

        A field in `required` must exist on both sides; a field only the target has does not matter.
        """
        key = (target, allow_extra, required)
        found = self._matches.get(key)
        if found is None:
            found = self._match(dict(target), allow_extra, required)
            if len(self._matches) > 65_536:
                self._matches.clear()
            self._matches[key] = found
        return found

    def _match(
        self, target: Mapping[str, Any], allow_extra: frozenset[str], required: frozenset[str]
    ) -> tuple[CandidateGroup, ...]:
        if any(name not in target for name in required):
            return ()
        return tuple(
            group
            for group in self.groups
            if all(name in group.regime for name in required)
            and all(
                target[name] == value if name in target else name in allow_extra for name, value in group.regime_key
            )
        )

    def nearest_mismatch(self, target: RegimeKey) -> dict[str, Any]:
        """Fields of the closest group that differ from the target: what a reader needs to see why nothing matched."""
        wanted = dict(target)
        best: dict[str, Any] | None = None
        for group in self.groups[:5000]:
            different = {
                name: {"asked": wanted.get(name), "measured": value}
                for name, value in group.regime_key
                if name in wanted and wanted[name] != value
            }
            if best is None or len(different) < len(best):
                best = different
        return best or {}
