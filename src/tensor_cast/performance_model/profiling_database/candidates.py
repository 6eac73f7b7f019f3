"""From a kernel table to a candidate index: rows described by a path, grouped by regime, rejections counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.geometry.points import PointSet
from tensor_cast.performance_model.profiling_database.interpolation_index import (
    CandidateGroup,
    CandidateIndex,
)
from tensor_cast.performance_model.profiling_database.known_facts import candidate_with_facts, regime_facts
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import AlikeRows, Candidate, OperatorPath
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.tables.quiet_collector import collector_at_rest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["build_index"]

_ROUNDING: Final = 1e-12  # 0.011 / 0.010 is a little more than 1.1 in binary


def build_index(
    path: OperatorPath,
    table: TensorTable | ColumnTable,
    entry: OperatorEntry,
    policy: KernelPolicy,
    view: str = "",
) -> CandidateIndex:
    """All candidates of a table under a path.  O(rows), once per path, kernel and view."""
    if isinstance(table, ColumnTable):
        return _from_columns(table)
    return _from_tensors(path, table, entry, policy, view)


def _from_tensors(
    path: OperatorPath, table: TensorTable, entry: OperatorEntry, policy: KernelPolicy, view: str
) -> CandidateIndex:
    rejected: Counter[str] = Counter(table.report.rejected)
    latency = table.candidate_latency.values
    facts = regime_facts(table)
    usable = [row for row, value in enumerate(latency.tolist()) if value > 0]
    if len(usable) < len(table):
        rejected["latency_invalid"] += len(table) - len(usable)
    found: list[tuple[int, CandidateGroup]] = []
    with collector_at_rest():
        alike, rest = ({}, usable) if facts else _together(path, table, usable, entry, policy, view)
        groups: dict[RegimeKey, list[tuple[int, Candidate]]] = {}
        for row in rest:
            described = path.candidate(table, row, entry, policy, view)
            if isinstance(described, str):
                rejected[described] += 1
                continue
            known = candidate_with_facts(described, table, row, facts) if facts else described
            groups.setdefault(known.regime, []).append((row, known))
        for key in dict.fromkeys((*alike, *groups)):
            points = _points(table, alike.get(key, []), groups.get(key, []))
            found.append((int(points.rows[0]), CandidateGroup(key, points)))
    found.sort(key=lambda pair: pair[0])  # in file order of their first rows, however they were read
    return CandidateIndex([group for _, group in found], rejected, table.report.rows_read)


def _together(
    path: OperatorPath, table: TensorTable, rows: list[int], entry: OperatorEntry, policy: KernelPolicy, view: str
) -> tuple[dict[RegimeKey, list[AlikeRows]], list[int]]:
    """Rows that the path reads many at a time, by regime, and the rows left over."""
    alike: dict[RegimeKey, list[AlikeRows]] = {}
    read: set[int] = set()
    for part in path.many(table, rows, entry, view):
        one = path.candidate(table, int(part.rows[0]), entry, policy, view)
        if not isinstance(one, str) and one.identity is None and one.agree_within is None:
            alike.setdefault(one.regime, []).append(part)
            read.update(part.rows.tolist())
    return alike, [row for row in rows if row not in read] if len(read) < len(rows) else []


def _points(table: TensorTable, parts: list[AlikeRows], members: list[tuple[int, Candidate]]) -> PointSet:
    """The points of one regime in file order."""
    import numpy as np

    names = dict.fromkeys(axis for part in parts for axis in part.axes)
    names |= dict.fromkeys(axis for _, candidate in members for axis in candidate.axes)
    rows = np.concatenate([*(part.rows for part in parts), np.array([row for row, _ in members], dtype=np.int64)])
    order = np.argsort(rows, kind="stable")
    axes = {}
    for name in names:
        whole = [part.axes.get(name, np.full(len(part.rows), np.nan)) for part in parts]
        axes[name] = np.concatenate([*whole, np.array([c.axes.get(name, np.nan) for _, c in members])])[order]
    rows = rows[order]
    choice = table.candidate_latency
    latencies = [float(choice.values[row]) for row, _ in members]
    unusable = _ambiguous([candidate for _, candidate in members], latencies)
    return PointSet(axes, choice.values[rows], rows, choice.labels[rows], unusable=unusable)


def _ambiguous(candidates: list[Candidate], latencies: list[float]) -> NDArray[np.bool_] | None:
    """Which candidates share their coordinate with one of another identity, or with a latency too far from their own.

    Whatever column the latencies are from.
    """
    import numpy as np

    # as it is wherever rows are read together
    if all(candidate.identity is None and candidate.agree_within is None for candidate in candidates):
        return None
    places = [tuple(sorted(candidate.axes.items())) for candidate in candidates]
    identities: dict[tuple[tuple[str, float], ...], set[Hashable]] = {}
    spans: dict[tuple[tuple[str, float], ...], tuple[float, float]] = {}
    for place, candidate, latency in zip(places, candidates, latencies, strict=True):
        identities.setdefault(place, set()).add(candidate.identity)
        low, high = spans.get(place, (latency, latency))
        spans[place] = (min(low, latency), max(high, latency))

    def unusable(place: tuple[tuple[str, float], ...], candidate: Candidate) -> bool:
        low, high = spans[place]
        limit = candidate.agree_within
        return len(identities[place]) > 1 or (limit is not None and high > low * limit * (1 + _ROUNDING))

    return np.array([unusable(place, candidate) for place, candidate in zip(places, candidates, strict=True)])


def _from_columns(table: ColumnTable) -> CandidateIndex:
    import numpy as np

    order = np.argsort(table.regime_codes, kind="stable")
    codes = table.regime_codes[order]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else np.zeros(0, dtype=np.int64)
    constants = tuple(table.constants.items())
    groups = []
    for code, chosen in zip(codes[starts], np.split(order, starts[1:]) if len(codes) else [], strict=True):
        key = (*constants, *zip(table.fact_names, table.regime_keys[int(code)], strict=True))
        points = PointSet(
            {axis: values[chosen] for axis, values in table.axes.items()},
            table.latency_us[chosen],
            chosen.astype(np.int64),
            variants=table.variant_codes[chosen] if table.variants else None,
            unusable=table.ambiguous[chosen],
        )
        groups.append(CandidateGroup(key, points))
    return CandidateIndex(groups, table.report.rejected, table.report.rows_read)
