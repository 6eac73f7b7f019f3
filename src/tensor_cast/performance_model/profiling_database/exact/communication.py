"""Communication: exact message size, else a latency line fitted to the group and clamped to the bracketing rows.

Source: exact-lookup facts, section 8.
"""

from __future__ import annotations

from bisect import bisect_left

from tensor_cast.arithmetic import total
from tensor_cast.dtypes import dtype_bytes
from tensor_cast.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.readers.communication_csv import (
    CommunicationRow,
    CommunicationTable,
)

__all__ = ["alpha_beta", "lookup_communication", "lookup_message", "rank_group"]


def rank_group(leaf: LeafOp) -> tuple[int, ...] | None:
    """The ranks that take part, from the operator's `rank_group` argument."""
    group = leaf.attributes.get("rank_group")
    if not isinstance(group, tuple) or not group or any(not isinstance(rank, int) for rank in group):
        return None
    return tuple(int(rank) for rank in group)


def lookup_communication(context: ExactContext, leaf: LeafOp, kernel: str) -> QueryResult | Miss:
    """A collective on the operator's first tensor; reduce-scatter counts the bytes one rank receives."""
    group = rank_group(leaf)
    if group is None or not leaf.tensors:
        return Miss(MissReason.INVALID_ARGS, details={"hint": "a collective needs a tensor and its rank_group"})
    tensor = leaf.tensors[0]
    size = int(tensor.numel * dtype_bytes(tensor.dtype))
    if leaf.name.startswith("tensor_cast.reduce_scatter"):
        size //= len(group)
    return lookup_message(context, kernel, size, group, (tensor.shape,))


def lookup_message(
    context: ExactContext,
    kernel: str,
    message_bytes: int,
    group: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...] = (),
) -> QueryResult | Miss:
    """The latency of one message size over one group of ranks."""
    table = context.database.communication_table(kernel)
    if table is None:
        problems = context.database.report(kernel).problems
        raw = any(problem.startswith("missing_column") for problem in problems)
        reason = MissReason.CSV_FORMAT_RAW if raw else MissReason.CSV_NOT_FOUND
        return Miss(reason, details={"attempted_kernel_types": [kernel], "tables": {kernel: problems}})
    tier = None if context.device is None else context.device.topology_tier(group)
    rows = table.rows(len(group), tier)
    sizes = [row.message_bytes for row in rows]
    at = bisect_left(sizes, message_bytes)
    if at < len(rows) and sizes[at] == message_bytes:
        return _result(context, table, rows[at].latency_us, 0.9, QuerySource.MEASURED, tier, shapes, (rows[at],))
    if at in (0, len(rows)):
        return _outside(kernel, message_bytes, sizes, len(group), tier)
    low, high = rows[at - 1], rows[at]
    alpha, beta = context.cached(("alpha_beta", kernel, len(group), tier), lambda: alpha_beta(rows))
    bounds = sorted((low.latency_us, high.latency_us))
    latency = min(max(alpha + beta * message_bytes, bounds[0]), bounds[1])
    return _result(context, table, latency, 0.8, QuerySource.INTERPOLATED, tier, shapes, (low, high))


def _outside(kernel: str, size: int, sizes: list[int], devices: int, tier: int | None) -> Miss:
    details: dict[str, object] = {
        "attempted_kernel_types": [kernel],
        "target_axes": {"message_bytes": float(size)},
        "num_devices": devices,
        "topology_tier": tier,
    }
    if sizes:
        details["measured_range"] = {"message_bytes": (float(sizes[0]), float(sizes[-1]))}
    return Miss(MissReason.SHAPE_MISMATCH, details=details)


def alpha_beta(rows: tuple[CommunicationRow, ...]) -> tuple[float, float]:
    """Least-squares `latency = alpha + beta * bytes` over the rows; a single size gives a constant."""
    n = len(rows)
    mean_x = sum(row.message_bytes for row in rows) / n
    mean_y = total(row.latency_us for row in rows) / n
    spread = total((row.message_bytes - mean_x) ** 2 for row in rows)
    if spread == 0:
        return mean_y, 0.0
    beta = total((row.message_bytes - mean_x) * (row.latency_us - mean_y) for row in rows) / spread
    return mean_y - beta * mean_x, beta


def _result(
    context: ExactContext,
    table: CommunicationTable,
    latency: float,
    confidence: float,
    source: QuerySource,
    tier: int | None,
    shapes: tuple[tuple[int, ...], ...],
    rows: tuple[CommunicationRow, ...],
) -> QueryResult:
    details: dict[str, object] = {
        "kernel_type": table.kernel,
        "topology_tier": tier,
        "matched_row_meta": [
            {"file": table.source, "line": row.line, "latency_us": row.latency_us, "message_bytes": row.message_bytes}
            for row in rows
        ],
    }
    if source is QuerySource.INTERPOLATED:
        details |= {"method": "alpha_beta_clamped", "axes": ["message_bytes"], "interpolation_dim": 1}
    if table.synthetic:
        details["synthetic"] = context.database.mapping.header.get("provenance", "synthetic")
    return QueryResult(latency, confidence, source, details, ShapeMatchInfo(shapes, (), "comm"))
