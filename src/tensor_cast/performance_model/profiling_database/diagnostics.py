"""The details of answers and misses: which rows, which axes, which boundaries, what was tried and why it failed.

Source: RFC 6; docs/facts/interpolation.md, "What an answer records", "Which reason is reported".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tensor_cast.errors import how_to_install
from tensor_cast.performance_model.profiling_database.evidence import (
    Attempt,
    Interval,
    Neighbourhood,
    RowRef,
    merged_rows,
)
from tensor_cast.performance_model.profiling_database.geometry.slices import Found, Method, Pick
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup, CandidateIndex
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath, Target
from tensor_cast.performance_model.profiling_database.reasons import MissReason
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = [
    "AMBIGUOUS",
    "Agreeing",
    "Failure",
    "KernelAttempt",
    "deciding_attempt",
    "decisive_attempt",
    "found_rows",
    "kernel_failure",
    "kernels_that_ran",
    "measured_spans",
    "miss_details",
    "neighbourhood",
    "other_regime",
    "row_numbers",
    "row_ref",
    "rows_that_disagree",
    "shape_rule",
    "unknown_fact",
]

_MANY_ROWS: Final = 16


@dataclass(frozen=True, slots=True)
class KernelAttempt:
    """One kernel that did not answer, and why."""

    kernel: str
    reason: MissReason
    details: Mapping[str, Any]
    target: Target | None = None
    deciding: Attempt | None = None

    @property
    def depth(self) -> tuple[int, int, int]:
        """How far it got: table, target, regime, geometry; then how telling its reason is, and how near its rows."""
        if self.deciding is not None:
            return 3, _telling(self.deciding), 0
        apart = -len(self.details.get("nearest_regime_differs_in", ()))
        if self.target is not None:
            return 2, 0, apart
        return (0 if "table" in self.details else 1), 0, -len(self.details.get("regime_differs_in", ()))

    def to_details(self) -> dict[str, Any]:
        return {"kernel_type": self.kernel, "status": str(self.reason), **self.details}


class Failure(NamedTuple):
    """What was tried for a target in one group of rows, to no avail."""

    target: Target
    attempts: tuple[Attempt, ...]
    group: CandidateGroup
    pick: Pick = Pick()


def decisive_attempt(attempts: Sequence[KernelAttempt]) -> KernelAttempt | None:
    """The kernel whose reason is reported: the one that got furthest, the first in mapping order among equals."""
    return max(attempts, key=lambda attempt: attempt.depth, default=None)


def deciding_attempt(readings: Sequence[Sequence[Attempt]]) -> Attempt | None:
    """The attempt whose reason is reported: the most telling one, the first among equals."""
    return max((attempt for attempts in readings for attempt in attempts), key=_telling, default=None)


def _telling(attempt: Attempt) -> int:
    """How much a reader can do with the reason.

    A question that only SciPy's absence left open says so.  A single axis with rows on it tells most: everything else
    agreed.  Then a question inside the measured box that the rows could not carry, then one outside the box, then a box
    with too few rows for its axes.
    """
    reason = attempt.reason
    if reason in _RANKED:
        return _RANKED[reason]
    if len(attempt.axes) == 1:
        return 5
    return 3 if reason is MissReason.OUTSIDE_AXIS_BOUNDARY else 4


AMBIGUOUS = (MissReason.AMBIGUOUS_DUPLICATE_COORDINATE, MissReason.KERNEL_VARIANT_AMBIGUOUS)
_OPEN: Final = (MissReason.KERNEL_VARIANT_AMBIGUOUS, MissReason.KERNEL_VARIANT_CHANGES)
_RANKED: Final[Mapping[MissReason, int]] = {
    MissReason.SCIPY_UNAVAILABLE: 6,
    MissReason.GRID_STRUCTURE_REJECTED: 2,
    MissReason.INSUFFICIENT_FILTERED_CANDIDATES: 1,
    MissReason.INTERPOLATION_DIM_DISABLED: 1,
    MissReason.MISSING_TARGET_AXIS: 0,
}


def shape_rule(place: Neighbourhood) -> str:
    """The rule recorded in `shape_match_info`."""
    if place.method == "exact_coordinate":
        return "exact_coordinate"
    family = {"linear_1d": "linear", "griddata_linear": "griddata_linear"}.get(place.method, place.method)
    return f"interpolated_{place.dim}d_{family}" + ("_sqrt" if place.rooted else "")


def neighbourhood(found: Found, target: Target, group: CandidateGroup, rooted: bool) -> Neighbourhood:
    """Where the target lies among the points that answered it."""
    merged = found.merged
    return Neighbourhood(
        found.method,
        found.dim,
        found.axes,
        tuple(target.axes[axis] for axis in found.axes),
        tuple(merged.places[vertex] for vertex in found.vertices),
        tuple(found.weights),
        tuple(found.vertices),
        group.regime_key,
        tuple(axis for axis in target.axes if axis not in found.axes),
        merged.filtered,
        len(merged.usable),
        rooted,
    )


def found_rows(found: Found, table: TensorTable | ColumnTable) -> tuple[RowRef, ...]:
    """One reference for each vertex of an answer."""
    merged = found.merged
    return tuple(
        merged_rows([row_ref(table, row) for row in merged.members(vertex).tolist()], float(merged.values[vertex]))
        for vertex in found.vertices
    )


def row_numbers(found: Found) -> list[int]:
    """Every row behind an answer."""
    return [row for vertex in found.vertices for row in found.merged.members(vertex).tolist()]


def row_ref(table: TensorTable | ColumnTable, row: int) -> RowRef:
    """A row by the latency that interpolation uses."""
    return table.row_ref(row) if isinstance(table, ColumnTable) else table.row_ref(row, table.candidate_latency)


def miss_details(kernels: Sequence[str], attempts: Sequence[KernelAttempt]) -> dict[str, Any]:
    """What a reader needs to see why nothing answered: the decisive kernel's place and range, then every attempt."""
    details: dict[str, object] = {
        "attempted_kernel_types": list(kernels),
        "attempts": [attempt.to_details() for attempt in attempts],
    }
    shown = decisive_attempt(attempts)
    if shown is None:
        return details
    if shown.target is not None:
        details["target_axes"] = {axis: _asked(shown.target, axis, value) for axis, value in shown.target.axes.items()}
        details["target_regime"] = dict(shown.target.regime)
        details |= _measured(shown.target, shown.deciding)
    if spans := shown.details.get("measured_spans"):
        details["measured_range"] = spans
    differs = shown.details.get("nearest_regime_differs_in") or shown.details.get("regime_differs_in")
    if differs:
        details["regime_differs_in"] = differs
    if shown.reason is MissReason.SCIPY_UNAVAILABLE:
        details["hint"] = f"two or three axes need SciPy: {how_to_install('simplex')}"
    for name in ("unreadable_tables", *(("missing_tables",) if "table" in shown.details else ())):
        if files := [file for attempt in attempts for file in attempt.details.get(name, ())]:
            details[name] = files
    for attempt in (shown, *attempts):
        if "hint" in attempt.details:
            details.setdefault("hint", attempt.details["hint"])
    return details


def unknown_fact(kernel: str, target: Target, unknown: dict[str, set[object]]) -> KernelAttempt:
    """A strict question that leaves open in what the rows differ."""
    name, values = next(iter(unknown.items()))
    held = ", ".join(sorted(str(value) for value in values))
    details = {"hint": f"rows differ in {name} ({held}): say which", "subject_field": name}
    return KernelAttempt(kernel, MissReason.SEMANTIC_FIELD_MISSING, details, target)


def other_regime(
    table: TensorTable | ColumnTable,
    index: CandidateIndex,
    target: Target,
    required: frozenset[str],
    extra: frozenset[str],
) -> KernelAttempt:
    """No row agrees: in what the nearest differ, or why none can be used."""
    details: dict[str, object] = {
        "rejected_rows": dict(index.rejected),
        "usable_points": index.usable_points,
        "nearest_regime_differs_in": index.nearest_mismatch(target.regime, extra, required),
    }
    if not index.usable_points:
        counts = ", ".join(f"{reason} {count}" for reason, count in index.rejected.items())
        details["hint"] = f"no usable row in {table.report.source}" + (f": {counts}" if counts else "")
    return KernelAttempt(table.kernel, MissReason.REGIME_KEY_UNMATCHED, details, target)


class Agreeing(NamedTuple):
    """A target, and the groups of a table that agree with it."""

    table: TensorTable | ColumnTable
    target: Target
    groups: Sequence[CandidateGroup]


def kernel_failure(
    path: OperatorPath, method: Method, index: CandidateIndex, agreeing: Agreeing, failed: list[Failure]
) -> KernelAttempt:
    """Rows agree, but none is at the target or around it; told of the target as the deciding attempt saw it."""
    deciding = deciding_attempt([one.attempts for one in failed])
    table, groups = agreeing.table, agreeing.groups
    last = next((one for one in failed if any(attempt is deciding for attempt in one.attempts)), None)
    seen = agreeing.target if last is None else last.target
    details: dict[str, object] = {
        "rejected_rows": dict(index.rejected),
        "axis_attempts": [attempt.to_details() for one in failed for attempt in one.attempts],
    }
    if deciding is None or not (deciding.measured or deciding.reason in AMBIGUOUS):
        details["measured_spans"] = measured_spans(groups, seen)
    if deciding is not None and deciding.reason is MissReason.INTERPOLATION_DIM_DISABLED:
        policy = f"interpolation_policy.kernel_overrides.{table.kernel}.max_interpolation_dim"
        details["hint"] = f"{policy} is {method.max_dim} in op_mapping.yaml"
    elif last is not None and last.attempts[0].reason is MissReason.AMBIGUOUS_DUPLICATE_COORDINATE:
        details["hint"] = rows_that_disagree(table, last.group, seen, last.pick)
    details |= kernels_that_ran(table, groups, seen, deciding)
    reason = path.final_reason if deciding is None else deciding.reason
    return KernelAttempt(table.kernel, reason, details, seen, deciding)


def kernels_that_ran(
    table: TensorTable | ColumnTable, groups: Sequence[CandidateGroup], target: Target, deciding: Attempt | None
) -> dict[str, object]:
    """The kernels between which a question is open, with what settles it; nothing where that is not the reason."""
    if deciding is None or deciding.reason not in _OPEN or not isinstance(table, ColumnTable):
        return {}
    at = target.axes if deciding.reason is MissReason.KERNEL_VARIANT_AMBIGUOUS else {}
    seen = {code for group in groups for code in _variants_at(group, at)}
    names = [table.variants[code] for code in sorted(seen)]
    return {"kernel_sources": names, "hint": f"give attrs.kernel_source, one of {', '.join(names)}"}


def measured_spans(groups: Sequence[CandidateGroup], target: Target) -> dict[str, tuple[float, float]]:
    """Where the rows that agree in everything but their place lie, axis by axis."""
    spans = {}
    for axis in target.axes:
        levels = [ends for group in groups if len(ends := group.levels(axis))]
        if levels:
            low, high = min(float(ends[0]) for ends in levels), max(float(ends[-1]) for ends in levels)
            spans[axis] = (_asked(target, axis, low), _asked(target, axis, high))
    return spans


def rows_that_disagree(table: TensorTable | ColumnTable, group: CandidateGroup, target: Target, pick: Pick) -> str:
    """The rows of one coordinate that cannot be one answer, and their latencies."""
    merged = group.merged(tuple(target.axes), pick)
    at = None if merged is None else merged.positions.get(tuple(target.axes.values()))
    if merged is None or at is None:
        return ""
    rows = [row_ref(table, row) for row in merged.members(at).tolist()]
    names = ",".join(str(row.row if row.line is None else row.line) for row in rows[:_MANY_ROWS])
    if isinstance(table, ColumnTable):
        return f"repeats of {rows[0].file}:{names} differ by a factor of {rows[0].spread:.3g}"
    span = Interval.around(row.latency_us for row in rows)
    return f"{rows[0].file}:{names} disagree in request metadata or latency, {span.low:g}..{span.high:g} us"


def _variants_at(group: CandidateGroup, at: Mapping[str, float]) -> set[int]:
    """Variant codes of a group's points, those at a coordinate where one is given."""
    points = group.points
    if points.variants is None:
        return set()
    chosen = points.latency_us > 0
    for axis, value in at.items():
        chosen &= points.axes[axis] == value
    return set(points.variants[chosen].tolist())


def _measured(target: Target, deciding: Attempt | None) -> dict[str, object]:
    """The measured range of the axes that the question left, or of all that were tried where it left none."""
    if deciding is None or not deciding.measured:
        return {}
    spans = dict(zip(deciding.axes, deciding.measured, strict=True))
    left = {axis: span for axis, span in spans.items() if not span[0] <= target.axes[axis] <= span[1]}
    shown = {axis: tuple(_asked(target, axis, end) for end in span) for axis, span in (left or spans).items()}
    found: dict[str, object] = {"measured_range": shown}
    if left:
        found["outside_axes"] = list(left)
    if deciding.levels and len(deciding.levels) <= _MANY_ROWS:
        [axis] = deciding.axes
        found["measured_values"] = {axis: [_asked(target, axis, level) for level in deciding.levels]}
    return found


def _asked(target: Target, axis: str, value: float) -> float:
    """A value as it was asked or measured, where the axis holds its square root."""
    return float(round(value**2)) if axis in target.roots else value
