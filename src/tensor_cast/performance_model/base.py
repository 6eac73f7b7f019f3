"""What every model of operator time answers with, and the protocol they share.

One `OperatorTime` per operator call, one `LeafTime` per leaf it runs as.  Latencies are microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

from tensor_cast.operators.composites import NotDecomposable
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import Miss, QueryResult

__all__ = [
    "LeafTime",
    "OperatorTime",
    "PerformanceModel",
    "TimeSource",
    "calls_by_source",
    "microseconds_by_source",
    "summed",
    "weighted_confidence",
]

_SHOWN_TENSORS: Final = 3


class TimeSource(StrEnum):
    """Where the time of a leaf comes from.  MISS: nowhere, its time is unknown and counted in no sum."""

    MEASURED = "MEASURED"
    INTERPOLATED = "INTERPOLATED"
    ANALYTIC = "ANALYTIC"
    MISS = "MISS"


@dataclass(frozen=True, slots=True)
class LeafTime:
    """One leaf's time: `latency_us` is None exactly where the source is MISS.

    `reason` says why the data did not answer, also where a fallback did; `answer` is the data source's own.
    """

    leaf: LeafOp
    source: TimeSource
    latency_us: float | None
    confidence: float
    reason: str = ""
    answer: QueryResult | Miss | None = field(default=None, compare=False, repr=False)

    @property
    def kernel(self) -> str:
        """The kernel that was measured, or an empty text."""
        return "" if self.answer is None else str(self.answer.details.get("kernel_type", ""))

    @property
    def synthetic(self) -> bool:
        """Whether the latency rests on generated rows, not on a device."""
        return isinstance(self.answer, QueryResult) and "synthetic" in self.answer.details

    def __str__(self) -> str:
        time = "no time" if self.latency_us is None else f"{self.latency_us:.6g} us"
        parts = [f"{self.leaf.name} {_shapes(self.leaf)} {time}", str(self.source), self.kernel, self.reason]
        return "; ".join(part for part in parts if part)

    def to_json(self) -> dict[str, object]:
        """The same facts as plain JSON values."""
        document: dict[str, object] = {
            "operator": self.leaf.name,
            "call": self.leaf.source,
            "source": str(self.source),
            "latency_us": self.latency_us,
            "confidence": self.confidence,
        }
        optional = {"kernel": self.kernel, "reason": self.reason, "synthetic": self.synthetic}
        return document | {key: value for key, value in optional.items() if value}


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """One operator call as the leaves it runs as; `refusal` says why a composite was asked about as it is."""

    op: LeafOp
    leaves: tuple[LeafTime, ...]
    refusal: NotDecomposable | None = None

    @property
    def latency_us(self) -> float:
        """The sum over the leaves with a time, each once: the whole time only where `complete`."""
        return summed((part, 1) for part in self.leaves)

    @property
    def complete(self) -> bool:
        """Whether every leaf has a time."""
        return bool(self.leaves) and not self.misses

    @property
    def misses(self) -> tuple[LeafTime, ...]:
        """The leaves without a time."""
        return tuple(part for part in self.leaves if part.latency_us is None)

    @property
    def confidence(self) -> float:
        """Mean over the leaves with a time, weighted by latency."""
        return weighted_confidence((part, 1) for part in self.leaves)

    @property
    def synthetic(self) -> bool:
        return any(part.synthetic for part in self.leaves)

    def __str__(self) -> str:
        """One line: the time, PARTIAL where a leaf is missing, and the leaves."""
        if not self.complete and len(self.misses) == len(self.leaves):
            return f"{self.op.name}: no time; {_reasons(self.misses)}"
        partial = "" if self.complete else f" PARTIAL, without {_reasons(self.misses)}"
        synthetic = "; SYNTHETIC data" if self.synthetic else ""
        return f"{self.op.name}: {self.latency_us:.6g} us{partial} of {_names(self.leaves)}{synthetic}"

    def to_json(self) -> dict[str, Any]:
        """The same facts as plain JSON values; `latency_us` is null where no leaf has a time."""
        document: dict[str, Any] = {
            "operator": self.op.name,
            "latency_us": self.latency_us if len(self.misses) < len(self.leaves) else None,
            "complete": self.complete,
            "confidence": self.confidence,
            "synthetic": self.synthetic,
            "leaves": [part.to_json() for part in self.leaves],
        }
        return document if self.refusal is None else document | {"not_decomposable": self.refusal.to_json()}


def _shapes(leaf: LeafOp) -> str:
    """`(8x7168, 7168x128)`, the first tensors of the call."""
    shown = ["x".join(str(dim) for dim in shape) for shape in leaf.tensor_shapes[:_SHOWN_TENSORS]]
    return f"({', '.join(shown)}{', ...' if len(leaf.tensor_shapes) > _SHOWN_TENSORS else ''})"


def _reasons(parts: Iterable[LeafTime]) -> str:
    """`operator (reason)` of each."""
    return ", ".join(f"{part.leaf.name} ({part.reason})" for part in parts)


def _names(parts: Iterable[LeafTime]) -> str:
    return ", ".join(f"{part.source} {part.leaf.name}" for part in parts)


@runtime_checkable
class PerformanceModel(Protocol):
    """Anything that can say how long an operator takes."""

    def estimate(self, leaf: LeafOp) -> OperatorTime:
        """The time of one call; a model that does not know answers with a MISS and its reason, never with zero."""
        ...


def summed(parts: Iterable[tuple[LeafTime, int]]) -> float:
    """Microseconds, correctly rounded and independent of order."""
    return math.fsum(part.latency_us * count for part, count in parts if part.latency_us is not None)


def microseconds_by_source(parts: Iterable[tuple[LeafTime, int]]) -> Mapping[TimeSource, float]:
    """Microseconds of each source that has a time, in order of first appearance."""
    found: dict[TimeSource, list[tuple[LeafTime, int]]] = {}
    for part, count in parts:
        if part.latency_us is not None:
            found.setdefault(part.source, []).append((part, count))
    return MappingProxyType({source: summed(items) for source, items in found.items()})


def calls_by_source(parts: Iterable[tuple[LeafTime, int]]) -> Mapping[TimeSource, int]:
    """Leaf calls of each source, misses included."""
    found: dict[TimeSource, int] = {}
    for part, count in parts:
        found[part.source] = found.get(part.source, 0) + count
    return MappingProxyType(found)


def weighted_confidence(parts: Iterable[tuple[LeafTime, int]]) -> float:
    """Mean confidence weighted by latency; the least one where all latencies are zero, 0 where there are none."""
    known = [(part.confidence, part.latency_us * count) for part, count in parts if part.latency_us is not None]
    total = math.fsum(weight for _, weight in known)
    if total > 0 and len({confidence for confidence, _ in known}) > 1:
        return math.fsum(confidence * weight for confidence, weight in known) / total
    return min((confidence for confidence, _ in known), default=0.0)
