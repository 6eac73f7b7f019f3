"""The details of answers and misses: which rows, which axes, which boundaries, what was tried and why it failed.

Source: Phase 1 facts, sections 3.3 and 9; seed RFC, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tensor_cast.errors import how_to_install
from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.geometry.slices import Attempt, Found
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.paths.path import Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable, suspect_rows

__all__ = [
    "KernelAttempt",
    "deciding_attempt",
    "decisive_attempt",
    "found_details",
    "kernels_that_ran",
    "miss_details",
    "shape_rule",
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


def decisive_attempt(attempts: Sequence[KernelAttempt]) -> KernelAttempt | None:
    """The kernel whose reason is reported: the one that got furthest, the first in mapping order among equals."""
    return max(attempts, key=lambda attempt: attempt.depth, default=None)


def deciding_attempt(readings: Sequence[Sequence[Attempt]]) -> Attempt | None:
    """The attempt whose reason is reported: the most telling one, the first among equals."""
    return max((attempt for attempts in readings for attempt in attempts), key=_telling, default=None)


def _telling(attempt: Attempt) -> int:
    """How much a reader can do with the reason.

    A question that only SciPy's absence left open says so.  A single axis with rows on it tells most: everything else
    agreed.  Then a question inside the measured box that the rows could not carry, then one outside the box.
    """
    reason = attempt.reason
    if reason is MissReason.SCIPY_UNAVAILABLE:
        return 5
    if reason in _UNTELLING:
        return 1 if reason is not MissReason.MISSING_TARGET_AXIS else 0
    if len(attempt.axes) == 1:
        return 4
    return 2 if reason is MissReason.OUTSIDE_AXIS_BOUNDARY else 3


_OPEN: Final = (MissReason.KERNEL_VARIANT_AMBIGUOUS, MissReason.KERNEL_VARIANT_CHANGES)
_UNTELLING: Final = frozenset(
    {
        MissReason.MISSING_TARGET_AXIS,
        MissReason.INSUFFICIENT_FILTERED_CANDIDATES,
        MissReason.INTERPOLATION_DIM_DISABLED,
        MissReason.GRID_STRUCTURE_REJECTED,
    }
)


def shape_rule(found: Found, transformed: bool) -> str:
    """The rule recorded in `shape_match_info`."""
    if found.method == "exact_coordinate":
        return "exact_coordinate"
    family = {"linear_1d": "linear", "griddata_linear": "griddata_linear"}.get(found.method, found.method)
    return f"interpolated_{found.dim}d_{family}" + ("_sqrt" if transformed else "")


def found_details(
    found: Found, target: Target, group: CandidateGroup, table: TensorTable | ColumnTable, transform: str | None
) -> dict[str, Any]:
    """Everything an answer rests on."""
    merged = found.merged
    coordinates = [merged.coordinates[vertex].tolist() for vertex in found.vertices]
    asked = [target.axes[axis] for axis in found.axes]
    transformed = transform is not None and "seq" in found.axes and found.dim > 0
    details: dict[str, Any] = {
        "kernel_type": table.kernel,
        "method": found.method + ("_sqrt" if transformed else ""),
        "interpolation_dim": found.dim,
        "axes": list(found.axes),
        "target": dict(zip(found.axes, asked, strict=True)),
        "axis_boundary": {
            axis: [min(c[i] for c in coordinates), max(c[i] for c in coordinates)] for i, axis in enumerate(found.axes)
        },
        "candidate_points": [dict(zip(found.axes, c, strict=True)) for c in coordinates],
        "candidate_count": merged.filtered,
        "exact_fields": dict(group.regime_key),
        "effective_filters": [axis for axis in target.axes if axis not in found.axes],
        "unfiltered_due_to_missing_axis": [],
        "exact_coordinate_match": any(c == asked for c in coordinates),
        "matched_row_meta": [row for vertex in found.vertices for row in _vertex_rows(found, vertex, table)],
    }
    if found.dim == 1 and len(found.vertices) == 1:
        details["exact_axis_value"] = True
    if found.dim > 1:
        details["simplex"] = {
            "simplex_vertex_indices": list(found.vertices),
            "barycentric_weights": list(found.weights),
        }
        details["grid_quality"] = {"unique_point_count": len(merged.usable), "filtered_point_count": merged.filtered}
    if transformed:
        details |= _untransformed(found, asked, coordinates)
    if isinstance(table, TensorTable) and (layout := table.source_layout(_rows(found))):
        details["source_layout"] = layout
    if suspect := suspect_rows(details["matched_row_meta"]):
        details["suspect_row"] = suspect
    if found.attempts:
        details["attempts"] = [attempt.to_details() for attempt in found.attempts]
    return details


def _rows(found: Found) -> list[int]:
    """Every row behind an answer."""
    return [row for vertex in found.vertices for row in found.merged.members(vertex).tolist()]


def _vertex_rows(found: Found, vertex: int, table: TensorTable | ColumnTable) -> list[dict[str, Any]]:
    merged = found.merged
    rows = merged.members(vertex).tolist()
    meta = _row_meta(table, rows[0])
    if len(rows) == 1:
        return [meta]
    latencies = merged.member_latencies(vertex)
    meta |= {
        "aggregation": "median",
        "latency_us": float(merged.values[vertex]),
        "duplicate_count": len(rows),
        "duplicate_row_indices": rows[:_MANY_ROWS],
        "duplicate_row_meta": [_row_meta(table, row) for row in rows[:_MANY_ROWS]],
        "duplicate_latency_min_us": float(latencies.min()),
        "duplicate_latency_max_us": float(latencies.max()),
        "duplicate_latency_std_us": float(latencies.std()),
    }
    return [meta]


def _row_meta(table: TensorTable | ColumnTable, row: int) -> dict[str, Any]:
    if isinstance(table, ColumnTable):
        return table.row_meta(row)
    return table.row_meta(row, table.candidate_latency)


def _untransformed(found: Found, asked: list[float], coordinates: list[list[float]]) -> dict[str, Any]:
    at = found.axes.index("seq")
    lengths = [round(c[at] ** 2) for c in coordinates]
    return {
        "axis_transform": "sqrt(seq)",
        "target_pre_transform": {"seq": round(asked[at] ** 2)},
        "axis_boundary_pre_transform": {"seq": [min(lengths), max(lengths)]},
    }


def miss_details(kernels: Sequence[str], attempts: Sequence[KernelAttempt]) -> dict[str, Any]:
    """What a reader needs to see why nothing answered: the decisive kernel's place and range, then every attempt."""
    details: dict[str, Any] = {
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
    differs = shown.details.get("nearest_regime_differs_in") or shown.details.get("regime_differs_in")
    if differs:
        details["regime_differs_in"] = differs
    if shown.reason is MissReason.SCIPY_UNAVAILABLE:
        details["hint"] = f"two or three axes need SciPy: {how_to_install('simplex')}"
    if unreadable := [attempt.details["unreadable"] for attempt in attempts if "unreadable" in attempt.details]:
        details["unreadable_tables"] = unreadable
    for attempt in (shown, *attempts):
        if "hint" in attempt.details:
            details.setdefault("hint", attempt.details["hint"])
    return details


def kernels_that_ran(
    table: TensorTable | ColumnTable, groups: Sequence[CandidateGroup], target: Target, deciding: Attempt | None
) -> dict[str, Any]:
    """The kernels between which a question is open, with what settles it; nothing where that is not the reason."""
    if deciding is None or deciding.reason not in _OPEN or not isinstance(table, ColumnTable):
        return {}
    at = target.axes if deciding.reason is MissReason.KERNEL_VARIANT_AMBIGUOUS else {}
    seen = {code for group in groups for code in _variants_at(group, at)}
    names = [table.variants[code] for code in sorted(seen)]
    return {"kernel_sources": names, "hint": f"give attrs.kernel_source, one of {', '.join(names)}"}


def _variants_at(group: CandidateGroup, at: Mapping[str, float]) -> set[int]:
    """Variant codes of a group's points, those at a coordinate where one is given."""
    points = group.points
    if points.variants is None:
        return set()
    chosen = points.latency_us > 0
    for axis, value in at.items():
        chosen &= points.axes[axis] == value
    return set(points.variants[chosen].tolist())


def _measured(target: Target, deciding: Attempt | None) -> dict[str, Any]:
    """The measured range of the axes that the question left, or of all that were tried where it left none."""
    if deciding is None or not deciding.measured:
        return {}
    spans = dict(zip(deciding.axes, deciding.measured, strict=True))
    left = {axis: span for axis, span in spans.items() if not span[0] <= target.axes[axis] <= span[1]}
    shown = {axis: tuple(_asked(target, axis, end) for end in span) for axis, span in (left or spans).items()}
    found: dict[str, Any] = {"measured_range": shown}
    if left:
        found["outside_axes"] = list(left)
    if deciding.levels and len(deciding.levels) <= _MANY_ROWS:
        [axis] = deciding.axes
        found["measured_values"] = {axis: [_asked(target, axis, level) for level in deciding.levels]}
    return found


def _asked(target: Target, axis: str, value: float) -> float:
    """A value as it was asked or measured, where the axis holds its square root."""
    return float(round(value**2)) if axis in target.roots else value
