"""Exact lookup in tables with named columns: every axis equal, every regime fact equal.

Which facts a table asks for stands in the mapping's `tables` section.
"""

from __future__ import annotations

from typing import Any

from tensor_cast.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.column_facts import ColumnFacts, describe
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, csv_missing
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable
from tensor_cast.performance_model.profiling_database.op_mapping import OperatorEntry

__all__ = ["lookup_tabulated"]


def lookup_tabulated(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    """The measured point of the first kernel that has it."""
    facts = describe(leaf, entry)
    if isinstance(facts, Miss):
        return facts
    tables = [table for kernel in entry.kernels if isinstance(table := context.database.table(kernel), ColumnTable)]
    if not tables:
        return csv_missing(context, entry.kernels)
    for table in tables:
        index = context.cached(("coordinates", table.kernel), lambda table=table: _Coordinates(table))  # type: ignore[misc]
        row = index.find(facts)
        if row is not None:
            return _result(context, table, row, leaf)
    details: dict[str, Any] = {"attempted_kernel_types": list(entry.kernels), "target_axes": dict(facts.axes)}
    return Miss(MissReason.SHAPE_MISMATCH, details=details)


class _Coordinates:
    """Rows by regime and coordinate; a coordinate with several kernels or disagreeing repeats has no single row."""

    def __init__(self, table: ColumnTable) -> None:
        self._table = table
        self._axes = tuple(table.axes)
        self._codes = {key: code for code, key in enumerate(table.regime_keys)}
        self._rows: dict[tuple[Any, ...], list[int]] = {}
        columns = [table.axes[axis].tolist() for axis in self._axes]
        for row, key in enumerate(zip(table.regime_codes.tolist(), *columns, strict=True)):
            self._rows.setdefault(key, []).append(row)

    def find(self, facts: ColumnFacts) -> int | None:
        table = self._table
        wanted = {**facts.regime}
        if any(name not in wanted for name in table.fact_names) or any(a not in facts.axes for a in self._axes):
            return None
        if any(wanted.get(name) != value for name, value in table.constants.items()):
            return None
        code = self._codes.get(tuple(wanted[name] for name in table.fact_names))
        if code is None:
            return None
        rows = self._rows.get((code, *(facts.axes[axis] for axis in self._axes)), [])
        if facts.variant is not None:
            rows = [row for row in rows if table.variants[table.variant_codes[row]] == facts.variant]
        return rows[0] if len(rows) == 1 and not table.ambiguous[rows[0]] else None


def _result(context: ExactContext, table: ColumnTable, row: int, leaf: LeafOp) -> QueryResult:
    names = table.fact_names
    regime = dict(zip(names, table.regime_keys[int(table.regime_codes[row])], strict=True))
    details: dict[str, Any] = {
        "kernel_type": table.kernel,
        "method": "exact_coordinate",
        "axes": list(table.axes),
        "target": {axis: float(values[row]) for axis, values in table.axes.items()},
        "exact_fields": {**table.constants, **regime},
        "matched_row_meta": [table.row_meta(row)],
    }
    info = ShapeMatchInfo(
        tuple(spec.shape for spec in leaf.tensors),
        (tuple(float(values[row]) for values in table.axes.values()),),
        "exact_coordinate",
    )
    return QueryResult(float(table.latency_us[row]), 1.0, QuerySource.MEASURED, details, info)
