"""What every exact lookup may use: the database, the device, the parallel layout, and the indexes built so far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tensor_cast.devices import DeviceProfile
from tensor_cast.dtypes import profile_dtype
from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.exact.row_index import RowIndex, RowMatch
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable

__all__ = ["ExactContext", "csv_missing", "measured", "profile_inputs"]

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
        table = self.tensor_table(kernel)
        if table is None:
            return None
        return self.cached(("rows", kernel, input_count), lambda: RowIndex(table, input_count))


def profile_inputs(leaf: LeafOp, input_count: int | None) -> tuple[TensorSpec, ...] | None:
    """The leaf's tensors under the database's dtype names; None where a dtype has no name."""
    found = []
    for spec in leaf.tensors[:input_count]:
        name = profile_dtype(spec.dtype)
        if name is None:
            return None
        found.append(TensorSpec(spec.shape, name) if name != spec.dtype else spec)
    return tuple(found)


def csv_missing(context: ExactContext, kernels: tuple[str, ...]) -> Miss:
    """The miss for kernels none of which has a table, with what loading them found."""
    problems = {kernel: context.database.report(kernel).problems for kernel in kernels}
    details = {"attempted_kernel_types": list(kernels), "tables": problems}
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
    evidence: dict[str, Any] = {
        "kernel_type": table.kernel,
        **details,
        "matched_row_meta": [table.row_meta(match.row, latency)],
    }
    if table.synthetic:
        evidence["synthetic"] = context.database.mapping.header.get("provenance", "synthetic")
    info = ShapeMatchInfo(
        tuple(spec.shape for spec in leaf.tensors),
        tuple(spec.shape for spec in table.row_inputs(match.row)),
        rule or match.rule.name,
    )
    return QueryResult(float(latency.values[match.row]), confidence, QuerySource.MEASURED, evidence, info)


def rescaled(result: QueryResult, factor: float, confidence: float, **details: Any) -> QueryResult:
    """The same result with its latency scaled and the reason noted."""
    return replace(
        result,
        latency_us=result.latency_us * factor,
        confidence=confidence,
        details={**result.details, **details},
    )
