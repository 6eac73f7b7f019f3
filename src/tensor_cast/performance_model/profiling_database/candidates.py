"""From a kernel table to a candidate index: rows described by a path, grouped by regime, rejections counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from tensor_cast.performance_model.profiling_database.interpolation_index import (
    CandidateGroup,
    CandidateIndex,
)
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.known_facts import candidate_with_facts, regime_facts
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath
from tensor_cast.performance_model.profiling_database.points import PointSet, RegimeKey

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
    groups: dict[RegimeKey, list[tuple[int, Candidate]]] = {}
    latency = table.candidate_latency.values
    facts = regime_facts(table)
    for row in range(len(table)):
        if not latency[row] > 0:
            rejected["latency_invalid"] += 1
            continue
        described = path.candidate(table, row, entry, policy, view)
        if isinstance(described, str):
            rejected[described] += 1
            continue
        if facts:
            described = candidate_with_facts(described, table, row, facts)
        groups.setdefault(described.regime, []).append((row, described))
    made = [CandidateGroup(key, _points(table, members)) for key, members in groups.items()]
    return CandidateIndex(made, rejected, table.report.rows_read)


def _points(table: TensorTable, members: list[tuple[int, Candidate]]) -> PointSet:
    import numpy as np

    rows = np.array([row for row, _ in members], dtype=np.int64)
    names = dict.fromkeys(axis for _, candidate in members for axis in candidate.axes)
    axes = {name: np.array([candidate.axes.get(name, np.nan) for _, candidate in members]) for name in names}
    choice = table.candidate_latency
    labels = np.array([choice.label(int(row)) for row in rows], dtype=np.int64)
    unusable = _ambiguous([candidate for _, candidate in members], choice.values[rows].tolist())
    return PointSet(axes, choice.values[rows], rows, labels, unusable=unusable)


def _ambiguous(candidates: list[Candidate], latencies: list[float]) -> NDArray[np.bool_] | None:
    """Which candidates share their coordinate with one of another identity, or with a latency too far from their own.

    Whatever column the latencies are from.
    """
    import numpy as np

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
