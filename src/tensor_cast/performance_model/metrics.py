"""Sums and shares over counted leaf times.

Each function takes pairs of a leaf's time and how often it runs; a leaf without a time enters no sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensor_cast.performance_model.base import LeafTime, TimeSource

__all__ = ["calls_by_source", "microseconds_by_source", "summed", "weighted_confidence"]


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
