"""What every exact lookup may use: the database, the device, the parallel layout, and the indexes built so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median
from typing import Any, Final, NamedTuple, TypeVar

from tensor_cast.devices import DeviceProfile
from tensor_cast.dtypes import profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.evidence import Evidence, merged_rows
from tensor_cast.performance_model.profiling_database.exact.agreement import agreement, fact_names
from tensor_cast.performance_model.profiling_database.exact.inexact import describe_changes
from tensor_cast.performance_model.profiling_database.exact.row_index import Accept, RowIndex, RowMatch
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = [
    "ExactContext",
    "csv_missing",
    "dtypes_lacking",
    "measured",
    "profile_dtypes",
    "profile_inputs",
    "rescaled",
    "tables_lacking",
]

T = TypeVar("T")
_MANY_ROWS: Final = 16


@dataclass
class ExactContext:
    """Shared by the lookups of one data source; indexes are built once per key, under a lock.

    `strict`: only the very operator matches; otherwise the RFC's padding, tolerance and dtype rules hold as well.
    """

    database: ProfilingDatabase
    device: DeviceProfile | None = None
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    strict: bool = False
    _indexes: dict[tuple[object, ...], Any] = field(default_factory=dict)
    _records_facts: dict[str, bool] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def cached(self, key: tuple[object, ...], build: Callable[[], T]) -> T:
        """The object built for `key`, built at most once."""
        try:
            found: T = self._indexes[key]
            return found
        except KeyError:
            with self._lock:
                if key not in self._indexes:
                    self._indexes[key] = build()
                kept: T = self._indexes[key]
                return kept

    @property
    def exact_match(self) -> str:
        """The word of the mapping header for how rows are matched."""
        return "strict" if self.strict else "compatible"

    def tensor_table(self, kernel: str) -> TensorTable | None:
        """The kernel's rows when they are recorded as tensors."""
        table = self.database.table(kernel)
        return None if isinstance(table, ColumnTable) else table

    def row_index(self, kernel: str, input_count: int | None) -> RowIndex | None:
        """The index over a kernel's inputs, or None where the kernel has no table."""
        key = ("rows", kernel, input_count)
        found: RowIndex | None = self._indexes.get(key)
        if found is None:
            table = self.tensor_table(kernel)
            if table is not None:
                found = self.cached(key, lambda: RowIndex(table, input_count, strict=self.strict))
        return found

    def agreement(self, table: TensorTable, leaf: LeafOp) -> Accept | None:
        """What tells rows that contradict what the question knows; None where nothing can."""
        known = self._records_facts.get(table.kernel)
        if known is None:
            known = self._records_facts.setdefault(table.kernel, bool(fact_names(table)))
        return agreement(table, leaf, self.parallel) if known else None

    @property
    def provenance(self) -> str:
        """What the mapping says of rows that were not measured."""
        return self.database.mapping.header.get("provenance", "synthetic")


@lru_cache(maxsize=4096)
def profile_dtypes(dtypes: tuple[str, ...], strict: bool = False) -> tuple[str, ...] | None:
    """Semantic dtypes under the database's names; None where one has no name."""
    names = [profile_dtype(dtype, strict=strict) for dtype in dtypes]
    return None if None in names else tuple(str(name) for name in names)


def profile_inputs(leaf: LeafOp, input_count: int | None, *, strict: bool = False) -> tuple[TensorSpec, ...] | None:
    """The leaf's tensors under the database's dtype names; None where a dtype has no name."""
    names = profile_dtypes(leaf.tensor_dtypes[:input_count], strict)
    if names is None:
        return None
    return tuple([TensorSpec(spec.shape, name) for spec, name in zip(leaf.tensors, names, strict=False)])


def csv_missing(context: ExactContext, kernels: tuple[str, ...]) -> Miss:
    """The miss for kernels none of which has a table, with what loading them found."""
    details = {"attempted_kernel_types": list(kernels), **tables_lacking(context, kernels)}
    return Miss(MissReason.CSV_NOT_FOUND, details=details)


def tables_lacking(context: ExactContext, kernels: Iterable[str]) -> dict[str, Any]:
    """What loading the kernels' tables found: files that are not there, and files that cannot be read."""
    reports = {kernel: context.database.report(kernel) for kernel in kernels}
    details: dict[str, object] = {"tables": {kernel: list(report.problems) for kernel, report in reports.items()}}
    if absent := [report.absent for report in reports.values() if report.absent]:
        details["missing_tables"] = absent
    if unreadable := [report.unreadable for report in reports.values() if report.unreadable]:
        details["unreadable_tables"] = unreadable
    return details


def dtypes_lacking(specs: Iterable[TensorSpec], *, strict: bool = False) -> str:
    """The hint for tensors of whose dtypes some have no name in the tables; an empty text where all have one."""
    names = sorted({spec.dtype for spec in specs if profile_dtype(spec.dtype, strict=strict) is None})
    return f"the tables have no name for {', '.join(names)}" if names else ""


def measured(
    context: ExactContext,
    table: TensorTable,
    match: RowMatch,
    leaf: LeafOp,
    confidence: float = 1.0,
    rule: str | None = None,
    noted_later: Callable[[], dict[str, object]] | None = None,
    **details: object,
) -> QueryResult:
    """The result for one measured row, or for the median of the repeats that a strict match found.

    Details that cost time are given as `noted_later`, asked for when somebody reads them.
    """
    numbers = table.exact_latency.numbers
    rows = _representative(table, match)
    latency = numbers[match.row] if len(rows) == 1 else median(numbers[row] for row in rows)
    basis = _MatchedRows(context, table, match, rows, leaf, rule, latency, details, noted_later)
    return QueryResult.later(latency, confidence, QuerySource.MEASURED, basis)


class _MatchedRows(NamedTuple):
    """The row, or the repeats, behind a measured answer."""

    context: ExactContext
    table: TensorTable
    match: RowMatch
    rows: tuple[int, ...]
    leaf: LeafOp
    rule: str | None
    latency_us: float
    noted: dict[str, object]
    noted_later: Callable[[], dict[str, object]] | None

    @property
    def dim(self) -> int:
        return 0

    def evidence(self) -> Evidence:
        context, table, match = self.context, self.table, self.match
        refs = [table.row_ref(row, table.exact_latency) for row in self.rows]
        notes = {**self.noted, **({} if self.noted_later is None else self.noted_later())}
        changes = [] if context.strict else describe_changes(table, match, self.leaf)
        if changes and "inexact_match" not in notes:
            notes["inexact_match"] = {"rule": self.rule or match.rule.name, "changes": changes}
        return Evidence(
            table.kernel,
            context.exact_match,
            (merged_rows(refs, self.latency_us),),
            layout=table.source_layout(self.rows) or "",
            synthetic=context.provenance if table.synthetic else None,
            notes=notes,
        )

    def info(self) -> ShapeMatchInfo:
        held = self.table.input_shapes(self.match.row)
        return ShapeMatchInfo(self.leaf.tensor_shapes, held, self.rule or self.match.rule.name)


def _representative(table: TensorTable, match: RowMatch) -> tuple[int, ...]:
    """The rows merged into one answer: of several repeats those measured in the file's preferred column."""
    if len(match.rows) < 2:
        return (match.row,)
    choice = table.exact_latency
    best = min(choice.label(row) for row in match.rows)
    return tuple(row for row in match.rows if choice.label(row) == best)


def rescaled(result: QueryResult, factor: float, confidence: float, **details: object) -> QueryResult:
    """The same result with its latency scaled and the reason noted."""
    return replace(
        result,
        latency_us=result.latency_us * factor,
        confidence=confidence,
        details={**result.details, **details},
    )
