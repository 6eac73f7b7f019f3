"""What every exact lookup may use: the database, the device, the parallel layout, and the indexes built so far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from tensor_cast.devices import DeviceProfile
from tensor_cast.dtypes import profile_dtype
from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.profiling_database.data_source import (
    LazyDetails,
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.exact.row_index import RowIndex, RowMatch
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable, suspect_rows

__all__ = ["ExactContext", "csv_missing", "measured", "profile_dtypes", "profile_inputs"]

T = TypeVar("T")


@dataclass
class ExactContext:
    """Shared by the lookups of one data source; indexes are built once per key, under a lock."""

    database: ProfilingDatabase
    device: DeviceProfile | None = None
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    _indexes: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def cached(self, key: tuple[Any, ...], build: Callable[[], T]) -> T:
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

    def tensor_table(self, kernel: str) -> TensorTable | None:
        """The kernel's rows when they are recorded as tensors."""
        table = self.database.table(kernel)
        return None if isinstance(table, ColumnTable) else table

    def row_index(self, kernel: str, input_count: int | None) -> RowIndex | None:
        """The index over a kernel's inputs, or None where the kernel has no table."""
        found: RowIndex | None = self._indexes.get(("rows", kernel, input_count))
        if found is None:
            table = self.tensor_table(kernel)
            if table is not None:
                found = self.cached(("rows", kernel, input_count), lambda: RowIndex(table, input_count))
        return found


@lru_cache(maxsize=4096)
def profile_dtypes(dtypes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Semantic dtypes under the database's names; None where one has no name."""
    names = [profile_dtype(dtype) for dtype in dtypes]
    return None if None in names else tuple(str(name) for name in names)


def profile_inputs(leaf: LeafOp, input_count: int | None) -> tuple[TensorSpec, ...] | None:
    """The leaf's tensors under the database's dtype names; None where a dtype has no name."""
    names = profile_dtypes(leaf.tensor_dtypes[:input_count])
    if names is None:
        return None
    return tuple([TensorSpec(spec.shape, name) for spec, name in zip(leaf.tensors, names, strict=False)])


def csv_missing(context: ExactContext, kernels: tuple[str, ...]) -> Miss:
    """The miss for kernels none of which has a table, with what loading them found."""
    reports = {kernel: context.database.report(kernel) for kernel in kernels}
    problems = {kernel: report.problems for kernel, report in reports.items()}
    details: dict[str, Any] = {"attempted_kernel_types": list(kernels), "tables": problems}
    if unreadable := [report.unreadable for report in reports.values() if report.unreadable]:
        details["unreadable_tables"] = unreadable
    return Miss(MissReason.CSV_NOT_FOUND, details=details)


def measured(
    context: ExactContext,
    table: TensorTable,
    match: RowMatch,
    leaf: LeafOp,
    confidence: float = 1.0,
    rule: str | None = None,
    **details: Any,
) -> QueryResult:
    """The result for one measured row."""
    latency = table.exact_latency

    def evidence() -> dict[str, Any]:
        rows = [table.row_meta(match.row, latency)]
        found = {"kernel_type": table.kernel, **details, "matched_row_meta": rows}
        if suspect := suspect_rows(rows):
            found["suspect_row"] = suspect
        if table.synthetic:
            found["synthetic"] = context.database.mapping.header.get("provenance", "synthetic")
        return found

    info = ShapeMatchInfo(leaf.tensor_shapes, table.input_shapes(match.row), rule or match.rule.name)
    return QueryResult(latency.numbers[match.row], confidence, QuerySource.MEASURED, LazyDetails(evidence), info)


def rescaled(result: QueryResult, factor: float, confidence: float, **details: Any) -> QueryResult:
    """The same result with its latency scaled and the reason noted."""
    return replace(
        result,
        latency_us=result.latency_us * factor,
        confidence=confidence,
        details={**result.details, **details},
    )
