"""Communication: exact message size, else a latency line fitted to the group and clamped to the bracketing rows.

Source: docs/facts/exact-lookup.md, "Collectives".
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from tensor_cast.arithmetic import total
from tensor_cast.dtypes import canonical_ascend_dtype, canonical_dtype, profile_dtype, stored_bytes
from tensor_cast.errors import UnknownNameError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import (
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.evidence import Evidence, RowRef, merged_rows
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, tables_lacking
from tensor_cast.performance_model.profiling_database.interpolation_math import linear_interp
from tensor_cast.performance_model.profiling_database.tables.communication_csv import (
    CommunicationRow,
    CommunicationTable,
)

__all__ = ["Message", "alpha_beta", "lookup_communication", "lookup_message", "rank_group"]


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
    width = stored_bytes(tensor.dtype)
    if width is None:
        return Miss(MissReason.DTYPE_UNMAPPED, tensor.dtype, {"hint": f"the bytes of {tensor.dtype} are not known"})
    size = int(tensor.numel * width)
    if leaf.name.startswith("tensor_cast.reduce_scatter"):
        size //= len(group)
    return lookup_message(context, kernel, Message(size, group, tensor.dtype, (tensor.shape,)))


@dataclass(frozen=True, slots=True)
class Message:
    """What a collective moves: bytes of one rank, the ranks, the dtype, and the shapes it stands for."""

    size_bytes: int
    group: tuple[int, ...]
    dtype: str
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SizePoint:
    """One message size: its representative latency and the rows behind it, in file order."""

    message_bytes: int
    latency_us: float
    rows: tuple[CommunicationRow, ...]


def lookup_message(context: ExactContext, kernel: str, message: Message) -> QueryResult | Miss:
    """The latency of one message size over one group of ranks.

    Between two sizes: compatible matching fits a line to the whole group and clamps it to the two neighbours, strict
    matching takes the line between the two neighbours, and compares dtypes.  Both answer from the same representatives.
    """
    table = context.database.communication_table(kernel)
    if table is None:
        raw = context.database.report(kernel).status == "missing_column"
        reason = MissReason.CSV_FORMAT_RAW if raw else MissReason.CSV_NOT_FOUND
        return Miss(reason, details={"attempted_kernel_types": [kernel], **tables_lacking(context, (kernel,))})
    return _Question(context, table, message).answer()


@dataclass(frozen=True, slots=True)
class _Question:
    """One message put to one table."""

    context: ExactContext
    table: CommunicationTable
    message: Message

    @property
    def tier(self) -> int | None:
        device = self.context.device
        return None if device is None else device.topology_tier(self.message.group)

    def answer(self) -> QueryResult | Miss:
        points = self._points()
        if not points and self._rows():
            return self._other_dtype()
        size, sizes = self.message.size_bytes, [point.message_bytes for point in points]
        at = bisect_left(sizes, size)
        if at < len(points) and sizes[at] == size:
            return self._result(points[at].latency_us, 0.9, (points[at],))
        if at in (0, len(points)):
            return self._outside(sizes)
        low, high = points[at - 1], points[at]
        if self.context.strict:
            latency = linear_interp(size, low.message_bytes, low.latency_us, high.message_bytes, high.latency_us)
            return self._result(latency, 0.8, (low, high), "linear_1d")
        key = ("alpha_beta", self.table.kernel, len(self.message.group), self.tier)
        alpha, beta = self.context.cached(key, lambda: alpha_beta(self._rows()))
        bounds = sorted((low.latency_us, high.latency_us))
        return self._result(min(max(alpha + beta * size, bounds[0]), bounds[1]), 0.8, (low, high), "alpha_beta_clamped")

    def _rows(self) -> tuple[CommunicationRow, ...]:
        return self.table.rows(len(self.message.group), self.tier)

    def _points(self) -> tuple[SizePoint, ...]:
        """The measured sizes, one representative each: the first row, or under strict matching the median."""
        dtype = self.message.dtype if self.context.strict else ""
        key = ("sizes", self.table.kernel, len(self.message.group), self.tier, dtype)
        return self.context.cached(key, self._merged)

    def _merged(self) -> tuple[SizePoint, ...]:
        strict = self.context.strict
        by_size: dict[int, list[CommunicationRow]] = {}
        for row in self._rows():
            if not strict or _same_dtype(row.dtype, self.message.dtype):
                by_size.setdefault(row.message_bytes, []).append(row)
        return tuple(
            SizePoint(size, median(row.latency_us for row in rows) if strict else rows[0].latency_us, tuple(rows))
            for size, rows in sorted(by_size.items())
        )

    def _result(
        self, latency_us: float, confidence: float, points: tuple[SizePoint, ...], method: str = ""
    ) -> QueryResult:
        source = QuerySource.INTERPOLATED if method else QuerySource.MEASURED
        return QueryResult.later(latency_us, confidence, source, _Sizes(self, points, method))

    def ref(self, point: SizePoint) -> RowRef:
        """The row, or the repeats, of a measured size."""
        rows = point.rows if self.context.strict else point.rows[:1]
        return merged_rows([row.ref(self.table.source) for row in rows], point.latency_us)

    def _other_dtype(self) -> Miss:
        held = ", ".join(sorted({row.dtype for row in self._rows()}))
        differs = {"dtype": {"asked": self.message.dtype, "measured": held}}
        details = {"attempted_kernel_types": [self.table.kernel], "exact_match": "strict", "regime_differs_in": differs}
        return Miss(MissReason.REGIME_KEY_UNMATCHED, details=details)

    def _outside(self, sizes: list[int]) -> Miss:
        details: dict[str, object] = {
            "attempted_kernel_types": [self.table.kernel],
            "exact_match": self.context.exact_match,
            "target_axes": {"message_bytes": float(self.message.size_bytes)},
            "num_devices": len(self.message.group),
            "topology_tier": self.tier,
        }
        if sizes:
            details["measured_range"] = {"message_bytes": (float(sizes[0]), float(sizes[-1]))}
        else:
            details["regime_differs_in"] = self._other_group()
        return Miss(MissReason.SHAPE_MISMATCH, details=details)

    def _other_group(self) -> dict[str, object]:
        """In what the measured groups differ from the one asked for: the ranks, or else the level of interconnect."""
        asked, held = len(self.message.group), sorted({devices for devices, _ in self.table.groups})
        if asked not in held:
            return {"num_devices": {"asked": asked, "measured": ", ".join(map(str, held)) or "nothing"}}
        tiers = sorted(str(tier) for devices, tier in self.table.groups if devices == asked)
        return {"topology_tier": {"asked": self.tier, "measured": ", ".join(tiers)}}


class _Sizes(NamedTuple):
    """The measured sizes behind an answer: the very one, or its neighbours."""

    question: _Question
    points: tuple[SizePoint, ...]
    method: str

    @property
    def dim(self) -> int:
        return 1 if self.method else 0

    def evidence(self) -> Evidence:
        context, table = self.question.context, self.question.table
        notes: dict[str, object] = {"topology_tier": self.question.tier}
        if self.method:
            notes |= {"method": self.method, "axes": ["message_bytes"], "interpolation_dim": 1}
        return Evidence(
            table.kernel,
            context.exact_match,
            tuple(map(self.question.ref, self.points)),
            synthetic=context.provenance if table.synthetic else None,
            notes=notes,
        )

    def info(self) -> ShapeMatchInfo:
        return ShapeMatchInfo(self.question.message.shapes, (), "comm")


def _same_dtype(recorded: str, asked: str) -> bool:
    """A blank cell is not known; `FLOAT16`, `DT_FLOAT16`, `fp16` and `float16` are one name."""
    if not recorded.strip() or canonical_ascend_dtype(recorded) == profile_dtype(asked, strict=True):
        return True
    try:
        return canonical_dtype(recorded.strip().lower().removeprefix("dt_")) == asked
    except UnknownNameError:
        return False


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
