"""What an answer rests on, as typed values, and the one place where they become JSON (RFC 8.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, pstdev
from typing import Any, Final

from tensor_cast.performance_model.profiling_database.reasons import MissReason

__all__ = [
    "Attempt",
    "Evidence",
    "Interval",
    "Neighbourhood",
    "RegimeKey",
    "Repeats",
    "RowRef",
    "evidence_details",
    "merged_rows",
    "row_details",
    "suspect_rows",
]

RegimeKey = tuple[tuple[str, Any], ...]
_MANY_ROWS: Final = 16


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed range of values: of an axis, or of latencies in microseconds."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float]) -> Interval:
        known = tuple(values)
        return cls(min(known), max(known))


@dataclass(frozen=True, slots=True)
class RowRef:
    """One measured row; with `repeats` the rows of one coordinate, which `latency_us` is the median of.

    `line` is the line of a text file, `index` its row once loaded, `row` the row of a columnar file.  `merged` and
    `spread` tell of repeats that were joined when a columnar file was read.
    """

    file: str
    latency_us: float
    line: int | None = None
    index: int | None = None
    row: int | None = None
    column: str = ""
    selection: str = ""
    variant: str = ""
    message_bytes: int | None = None
    merged: int = 1
    spread: float = 1.0
    suspect: str = ""
    repeats: Repeats | None = None

    @property
    def place(self) -> int:
        """The number by which a reader finds the row in its file."""
        return next((number for number in (self.index, self.row, self.line) if number is not None), 0)


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often a coordinate was measured, and between which latencies; the first of its rows."""

    count: int
    latency_us: Interval
    std_us: float
    rows: tuple[RowRef, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One axis group that did not answer.  `levels` are the measured values of a single axis that was left."""

    axes: tuple[str, ...]
    reason: MissReason
    candidates: int = 0
    measured: tuple[tuple[float, float], ...] = ()
    note: str = ""
    levels: tuple[float, ...] = ()

    def to_details(self) -> dict[str, object]:
        details: dict[str, object] = {"axes": list(self.axes), "status": str(self.reason)}
        if self.candidates or self.reason is MissReason.INSUFFICIENT_FILTERED_CANDIDATES:
            details["candidate_count"] = self.candidates
        if self.measured:
            details["measured_range"] = dict(zip(self.axes, (list(span) for span in self.measured), strict=True))
        if self.note:
            details["note"] = self.note
        return details


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Where a question lies among the measured points of its regime, and which of them answer it.

    `coordinates[i]` is a vertex with weight `weights[i]` (sum 1), `target` the question on the same axes; `vertices`
    are their positions among the `usable` distinct points of `filtered` rows.  `held` are the axes on which the points
    agree with the question.  `rooted` marks lengths that are held as square roots.
    """

    method: str
    dim: int
    axes: tuple[str, ...]
    target: tuple[float, ...]
    coordinates: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    vertices: tuple[int, ...]
    regime: RegimeKey
    held: tuple[str, ...]
    filtered: int
    usable: int
    rooted: bool = False

    def boundary(self) -> tuple[Interval, ...]:
        """Axis by axis the range of the vertices."""
        return tuple(map(Interval.around, zip(*self.coordinates, strict=True)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything an answer rests on.

    `rows` are the vertices' rows, in the order of `neighbourhood.vertices` where the answer lies among points.
    `attempts` failed before this answer was found, `synthetic` says what made rows that were not measured, and `notes`
    hold what one kernel or path states of its own accord, ready for JSON.
    """

    kernel: str
    exact_match: str
    rows: tuple[RowRef, ...]
    neighbourhood: Neighbourhood | None = None
    attempts: tuple[Attempt, ...] = ()
    layout: str = ""
    synthetic: str | None = None
    notes: Mapping[str, object] = field(default_factory=dict, hash=False)


def merged_rows(rows: Sequence[RowRef], latency_us: float | None = None) -> RowRef:
    """One row, or several repeats of one coordinate as one reference that stands for their median."""
    first = rows[0]
    if len(rows) == 1:
        return first
    latencies = [row.latency_us for row in rows]
    repeats = Repeats(len(rows), Interval.around(latencies), pstdev(latencies), tuple(rows[:_MANY_ROWS]))
    return RowRef(
        first.file,
        median(latencies) if latency_us is None else latency_us,
        first.line,
        first.index,
        first.row,
        first.column,
        first.selection,
        first.variant,
        first.message_bytes,
        first.merged,
        first.spread,
        first.suspect,
        repeats,
    )


def suspect_rows(rows: Iterable[RowRef]) -> list[str]:
    """`file:line: reason` of every suspect row, those merged into a repeated coordinate included."""
    found: dict[str, None] = {}
    for row in rows:
        for one in (row, *(row.repeats.rows if row.repeats is not None else ())):
            if one.suspect:
                found[f"{one.file}:{one.line}: {one.suspect}"] = None
    return list(found)


def row_details(row: RowRef) -> dict[str, Any]:
    """A row as details name it."""
    details: dict[str, object] = {"file": row.file}
    known = {"line": row.line, "row": row.row, "row_index": row.index, "message_bytes": row.message_bytes}
    details |= {name: value for name, value in known.items() if value is not None}
    details["latency_us"] = row.latency_us
    texts = {"latency_column": row.column, "latency_selection": row.selection, "kernel_variant": row.variant}
    details |= {name: text for name, text in texts.items() if text}
    if row.merged > 1:
        details |= {"repeats_merged": row.merged, "repeat_spread": row.spread}
    if row.suspect:
        details["suspect"] = row.suspect
    if row.repeats is not None:
        details |= _repeat_details(row.repeats)
    return details


def _repeat_details(repeats: Repeats) -> dict[str, object]:
    return {
        "aggregation": "median",
        "duplicate_count": repeats.count,
        "duplicate_row_indices": [row.place for row in repeats.rows],
        "duplicate_row_meta": [row_details(row) for row in repeats.rows],
        "duplicate_latency_min_us": repeats.latency_us.low,
        "duplicate_latency_max_us": repeats.latency_us.high,
        "duplicate_latency_std_us": repeats.std_us,
    }


def evidence_details(evidence: Evidence) -> dict[str, object]:
    """The details of an answer: plain values for JSON, keys as the RFC names them."""
    details: dict[str, object] = {"kernel_type": evidence.kernel, "exact_match": evidence.exact_match}
    if evidence.neighbourhood is not None:
        details |= _place_details(evidence.neighbourhood)
    details["matched_row_meta"] = [row_details(row) for row in evidence.rows]
    if evidence.layout:
        details["source_layout"] = evidence.layout
    if suspect := suspect_rows(evidence.rows):
        details["suspect_row"] = suspect
    if evidence.attempts:
        details["attempts"] = [attempt.to_details() for attempt in evidence.attempts]
    details |= evidence.notes
    if evidence.synthetic is not None:
        details["synthetic"] = evidence.synthetic
    return details


def _place_details(place: Neighbourhood) -> dict[str, object]:
    axes, points = place.axes, place.coordinates
    details: dict[str, object] = {
        "method": place.method + ("_sqrt" if place.rooted else ""),
        "interpolation_dim": place.dim,
        "axes": list(axes),
        "target": dict(zip(axes, place.target, strict=True)),
        "axis_boundary": {axis: [span.low, span.high] for axis, span in zip(axes, place.boundary(), strict=True)},
        "candidate_points": [dict(zip(axes, point, strict=True)) for point in points],
        "candidate_count": place.filtered,
        "exact_fields": dict(place.regime),
        "effective_filters": list(place.held),
        "unfiltered_due_to_missing_axis": [],
        "exact_coordinate_match": place.target in points,
    }
    if place.dim == 1 and len(place.vertices) == 1:
        details["exact_axis_value"] = True
    if place.dim > 1:
        details["simplex"] = {
            "simplex_vertex_indices": list(place.vertices),
            "barycentric_weights": list(place.weights),
        }
        details["grid_quality"] = {"unique_point_count": place.usable, "filtered_point_count": place.filtered}
    return details | (_unrooted(place) if place.rooted else {})


def _unrooted(place: Neighbourhood) -> dict[str, object]:
    """Lengths as they were asked and measured."""
    at = place.axes.index("seq")
    lengths = [round(point[at] ** 2) for point in place.coordinates]
    return {
        "axis_transform": "sqrt(seq)",
        "target_pre_transform": {"seq": round(place.target[at] ** 2)},
        "axis_boundary_pre_transform": {"seq": [min(lengths), max(lengths)]},
    }
