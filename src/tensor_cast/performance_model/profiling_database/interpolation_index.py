"""Candidates by regime, and the one procedure that interpolates inside a regime.

Low dimension first: the axis groups are tried in the order given; the first that succeeds answers.  A slice (the
points that agree with the target on every other axis) is prepared once and kept, its triangulation included, so that a
question costs a dictionary access and a bisection or a simplex walk, independent of the number of rows.
Source: RFC 2.2 and 3.4; docs/facts/interpolation.md, "Regimes", "Inside one regime".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.evidence import Attempt, RegimeKey
from tensor_cast.performance_model.profiling_database.geometry.points import MergedPoints, PointSet, merge_points
from tensor_cast.performance_model.profiling_database.geometry.slices import (
    ALL_POINTS,
    RFC_METHOD,
    Found,
    Method,
    Pick,
    Slice,
    blend,
    bracket_width,
    build_slice,
    checked,
    grid_problem,
    inside_frontier,
    line,
    partition,
)
from tensor_cast.performance_model.profiling_database.interpolation_math import SimplexField, SimplexHit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]

__all__ = ["AxisMatcher", "CandidateGroup", "CandidateIndex", "Hidden"]

_SCANS = 2
_NOTHING = "nothing"

AxisMatcher = Callable[[float, float], bool]
Hidden = Mapping[str, Collection[float]]
"""Points left out of a search: those whose value on every axis named is among the values given."""


Others = Callable[[Mapping[str, float]], tuple[float, ...]]


@dataclass(slots=True)
class _Cut:
    """The slices along some axes, by the values on the other ones (`fixed`)."""

    axes: tuple[str, ...]
    fixed: tuple[str, ...]
    others: Others
    parts: Mapping[tuple[float, ...], IntArray]
    slices: dict[tuple[object, ...], Slice] = field(default_factory=dict)


def _getter(names: tuple[str, ...]) -> Others:
    """What reads a target's values on these axes, as a tuple."""
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda target: (target[names[0]],)) if names else (lambda target: ())


class CandidateGroup:
    """The points of one regime.  Thread-safe: preparing a slice takes the group's lock, reading one does not."""

    def __init__(self, regime_key: RegimeKey, points: PointSet) -> None:
        self.regime_key = regime_key
        self.regime = dict(regime_key)
        self.points = points
        self._parts: dict[tuple[object, ...], Mapping[tuple[float, ...], IntArray]] = {}
        self._cuts: dict[tuple[object, ...], _Cut] = {}
        self._exact: dict[tuple[object, ...], MergedPoints] = {}
        self._levels: dict[str, FloatArray] = {}
        self._lacking: dict[str, CandidateGroup] = {}
        self._lock = threading.RLock()
        self._scans = 0
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

    def without(self, hidden: Hidden) -> CandidateGroup:
        """This group as it would be had the hidden points not been measured.

        Shares what this group has sorted, so that leaving out one coordinate costs the slices that are asked, not the
        group.  Kept by nobody.
        """
        return _Thinned(self, _left(self.points, hidden))

    def exact(self, target: Mapping[str, float], pick: Pick = ALL_POINTS) -> Found | Attempt:
        """The measured point at exactly the target's coordinates, or the attempt that says why there is none."""
        axes = tuple(target)
        if any(axis not in self.points.axes for axis in axes):
            return Attempt(axes, MissReason.MISSING_TARGET_AXIS)
        merged = self._exact.get((pick, axes))
        if merged is None and self._surely_absent(target):
            return Attempt(axes, MissReason.OUTSIDE_AXIS_BOUNDARY, len(self))
        if merged is None:
            merged = self._merge_all(axes, pick)
        at = merged.positions.get(tuple(target.values()))
        if at is None:
            return Attempt(axes, MissReason.OUTSIDE_AXIS_BOUNDARY, len(merged))
        problem = merged.problem(at)
        if problem is not None:
            return Attempt(axes, problem, len(merged))
        return Found(float(merged.values[at]), "exact_coordinate", axes, merged, (at,), (1.0,))

    def merged(self, axes: tuple[str, ...], pick: Pick) -> MergedPoints | None:
        """The points merged on all of a target's axes; None where the group lacks one of them."""
        return self._merge_all(axes, pick) if all(axis in self.points.axes for axis in axes) else None

    def levels(self, axis: str) -> FloatArray:
        """Measured values of an axis, sorted."""
        import numpy as np

        levels = self._levels.get(axis)
        if levels is None:
            column = self.points.axes.get(axis)
            levels = np.zeros(0) if column is None else np.unique(column[~np.isnan(column)])
            self._levels[axis] = levels
        return levels

    def _surely_absent(self, target: Mapping[str, float]) -> bool:
        """Whether no point lies at the target, looked up by a scan: a process that asks once needs no index of it all.

        From the third question on the index is the cheaper way, and nothing is said here.
        """
        self._scans += 1
        if self._scans > _SCANS:
            return False
        here = self.points.latency_us > 0
        for axis, value in target.items():
            here = here & (self.points.axes[axis] == value)
        return not here.any()

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
                pending.append((bracket_width(outcome), outcome))
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
        held = self.points.axes
        for axis in axes:
            if axis not in target or axis not in held:
                return Attempt(axes, MissReason.MISSING_TARGET_AXIS)
        prepared = self.slice_for(target, axes, pick, matchers)
        if prepared is None or prepared.merged.filtered < 2:
            count = 0 if prepared is None else prepared.merged.filtered
            return Attempt(axes, MissReason.INSUFFICIENT_FILTERED_CANDIDATES, count)
        at = tuple([target[axis] for axis in axes])
        for value, (low, high) in zip(at, prepared.span, strict=True):
            if not low <= value <= high:
                levels = tuple(prepared.xs) if len(axes) == 1 else ()
                return Attempt(
                    axes, MissReason.OUTSIDE_AXIS_BOUNDARY, prepared.merged.filtered, prepared.span, levels=levels
                )
        if len(axes) == 1:
            return line(prepared, axes, at[0])
        return self.multi(prepared, axes, at, method)

    def multi(self, prepared: Slice, axes: tuple[str, ...], at: tuple[float, ...], method: Method) -> Found | Attempt:
        """Two or three axes at once inside a prepared slice."""
        count = prepared.merged.filtered
        problem = self.grid_problem(prepared)
        if problem:
            return Attempt(axes, MissReason.GRID_STRUCTURE_REJECTED, count, prepared.span, problem)
        if method.frontier_guard and not inside_frontier(prepared, at):
            return Attempt(axes, MissReason.BEYOND_MEASURED_FRONTIER, count, prepared.span)
        if method.multi_axis == "bracket_blend":
            return blend(prepared, axes, at)
        found = self.field(prepared)
        outcome = found if isinstance(found, MissReason) else found.at(at)
        if isinstance(outcome, SimplexHit):
            usable = prepared.merged.usable
            vertices = tuple(int(usable[vertex]) for vertex in outcome.vertices)
            return checked(prepared, axes, "griddata_linear", outcome.value, vertices, outcome.weights)
        return Attempt(axes, outcome, count, prepared.span)

    @staticmethod
    def grid_problem(prepared: Slice) -> str:
        """Why a slice cannot span two or three axes, or an empty text."""
        if prepared.problem is None:
            prepared.problem = grid_problem(prepared.merged, len(prepared.merged.axes))
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
        cut = self._cuts.get((axes, pick, tuple(target))) or self._cut(axes, pick, tuple(target))
        wanted: tuple[Any, ...] = cut.others(target)
        if matchers:
            wanted = tuple(
                self._matching(axis, value, matchers[axis]) if axis in matchers else value
                for axis, value in zip(cut.fixed, wanted, strict=True)
            )
        prepared = cut.slices.get(wanted)
        if prepared is None and (matchers or wanted in cut.parts):
            prepared = self._prepare(cut, wanted)
        return prepared

    def _cut(self, axes: tuple[str, ...], pick: Pick, names: tuple[str, ...]) -> _Cut:
        fixed = tuple(axis for axis in names if axis not in axes)
        with self._lock:
            parts = self._partition(fixed, axes, pick)
            return self._cuts.setdefault((axes, pick, names), _Cut(axes, fixed, _getter(fixed), parts))

    def _prepare(self, cut: _Cut, wanted: tuple[object, ...]) -> Slice | None:
        with self._lock:
            if wanted in cut.slices:
                return cut.slices[wanted]
            chosen = self._chosen(cut.parts, wanted)
            if not len(chosen):
                return None
            cut.slices[wanted] = build_slice(merge_points(self.points, chosen, cut.axes))
            return cut.slices[wanted]

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
        return tuple([level for level in self.levels(axis).tolist() if accepts(value, level)])

    def _partition(
        self, fixed: tuple[str, ...], axes: tuple[str, ...], pick: Pick
    ) -> Mapping[tuple[float, ...], IntArray]:
        """Point indices by their values on the fixed axes; points that lack an axis are left out.  O(n log n), once."""
        key = (fixed, axes, pick)
        if key not in self._parts:
            self._parts[key] = partition(self.points, fixed, axes, pick)
        return self._parts[key]

    @staticmethod
    def _empty() -> IntArray:
        import numpy as np

        return np.zeros(0, dtype=np.int64)


class _Thinned(CandidateGroup):
    """A group without some of its points; `left` tells which points of the whole group remain."""

    def __init__(self, whole: CandidateGroup, left: BoolArray) -> None:
        import numpy as np

        super().__init__(whole.regime_key, whole.points.take(np.flatnonzero(left)))
        self._whole = whole
        self._left = left

    def _merge_all(self, axes: tuple[str, ...], pick: Pick) -> MergedPoints:
        found = self._exact.get((pick, axes))
        if found is None:
            chosen = self._whole._partition((), axes, pick).get((), self._empty())
            found = merge_points(self._whole.points, chosen[self._left[chosen]], axes)
            self._exact[(pick, axes)] = found
        return found

    def _partition(
        self, fixed: tuple[str, ...], axes: tuple[str, ...], pick: Pick
    ) -> Mapping[tuple[float, ...], IntArray]:
        return self._whole._partition(fixed, axes, pick)

    def _prepare(self, cut: _Cut, wanted: tuple[object, ...]) -> Slice | None:
        chosen = self._chosen(cut.parts, wanted)
        chosen = chosen[self._left[chosen]]
        if not len(chosen):
            return None
        cut.slices[wanted] = build_slice(merge_points(self._whole.points, chosen, cut.axes))
        return cut.slices[wanted]


def _left(points: PointSet, hidden: Hidden) -> BoolArray:
    """Which points are not hidden."""
    import numpy as np

    out = np.full(len(points), bool(hidden))
    for axis, values in hidden.items():
        column = points.axes.get(axis)
        out &= False if column is None else np.isin(column, np.asarray(list(values), dtype=np.float64))
    left: BoolArray = ~out
    return left


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
        self._matches: dict[tuple[object, ...], tuple[CandidateGroup, ...]] = {}

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
        self, target: Mapping[str, object], allow_extra: frozenset[str], required: frozenset[str]
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

    def nearest_mismatch(
        self, target: RegimeKey, allow_extra: frozenset[str] = frozenset(), required: frozenset[str] = frozenset()
    ) -> dict[str, object]:
        """Fields of the closest groups that differ from the target: what a reader needs to see why nothing matched.

        Of the groups that differ in as few fields, those that differ in the fields of the first: `measured` is the
        first's value, `measured_values` all of them where there are several.  A field that only one side has is
        `nothing` on the other where that decides.
        """
        wanted = dict(target)
        best: dict[str, list[object]] = {}
        for i, group in enumerate(self.groups):
            differs = {name: value for name, value in group.regime_key if name in wanted and wanted[name] != value}
            differs |= {name: _NOTHING for name in required if name not in group.regime}
            differs |= {n: value for n, value in group.regime_key if n not in wanted and n not in allow_extra}
            if i == 0 or len(differs) < len(best):
                best = {name: [value] for name, value in differs.items()}
            elif differs.keys() == best.keys():
                for name, value in differs.items():
                    best[name].append(value)
        return {name: _difference(wanted.get(name, _NOTHING), values) for name, values in best.items()}


def _difference(asked: object, measured: list[object]) -> dict[str, object]:
    found: dict[str, Any] = {"asked": asked, "measured": measured[0]}
    values = list(dict.fromkeys(measured))
    if len(values) > 1:
        numbers = all(isinstance(value, int | float) for value in values)
        found["measured_values"] = sorted(values) if numbers else values
    return found
