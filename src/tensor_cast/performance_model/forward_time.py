"""The time of a forward pass: operators with how often they run, and where their microseconds come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensor_cast.performance_model.base import (
    LeafTime,
    OperatorTime,
    TimeSource,
    calls_by_source,
    microseconds_by_source,
    summed,
    weighted_confidence,
)

__all__ = ["CountedTime", "ForwardTime"]


@dataclass(frozen=True, slots=True)
class CountedTime:
    """One operator's time and how often the operator runs."""

    time: OperatorTime
    count: int


@dataclass(frozen=True, slots=True)
class ForwardTime:
    """The sum, each leaf of each operator once per run, and what it rests on."""

    operators: tuple[CountedTime, ...]

    @property
    def parts(self) -> tuple[tuple[LeafTime, int], ...]:
        """Every leaf with how often it runs."""
        return tuple((part, item.count) for item in self.operators for part in item.time.leaves)

    @property
    def latency_us(self) -> float:
        """Microseconds of the leaves with a time: the whole pass only where `complete`."""
        return summed(self.parts)

    @property
    def complete(self) -> bool:
        """Whether every leaf has a time."""
        return all(item.time.complete for item in self.operators)

    @property
    def microseconds(self) -> Mapping[TimeSource, float]:
        """Microseconds by source."""
        return microseconds_by_source(self.parts)

    @property
    def calls(self) -> Mapping[TimeSource, int]:
        """Leaf calls by source, misses included."""
        return calls_by_source(self.parts)

    @property
    def misses(self) -> tuple[tuple[LeafTime, int], ...]:
        """The leaves without a time, each distinct one once, with how often it runs."""
        found: dict[LeafTime, int] = {}
        for part, count in self.parts:
            if part.latency_us is None:
                found[part] = found.get(part, 0) + count
        return tuple(found.items())

    @property
    def confidence(self) -> float:
        """Mean over the leaves with a time, weighted by latency."""
        return weighted_confidence(self.parts)

    @property
    def synthetic(self) -> bool:
        """Whether any latency rests on generated rows."""
        return any(item.time.synthetic for item in self.operators)

    def __str__(self) -> str:
        """The sum, PARTIAL where a leaf is missing, the share of each source, then one line per miss."""
        missed = sum(count for _, count in self.misses)
        partial = f" PARTIAL: {missed} leaf calls without a time" if missed else ""
        total = self.latency_us
        shares = ", ".join(f"{source} {us:.6g} us ({us / total:.1%})" for source, us in self.microseconds.items() if us)
        line = f"{total:.6g} us{partial}" + (f"; {shares}" if shares else "")
        line += f"; confidence {self.confidence:.2f}" + ("; SYNTHETIC data" if self.synthetic else "")
        return "\n".join([line, *(f"  {count} x {part}" for part, count in self.misses)])

    def to_json(self) -> dict[str, object]:
        """The same facts as plain JSON values."""
        return {
            "latency_us": self.latency_us if self.microseconds or self.complete else None,
            "complete": self.complete,
            "confidence": self.confidence,
            "synthetic": self.synthetic,
            "microseconds_by_source": {str(source): us for source, us in self.microseconds.items()},
            "calls_by_source": {str(source): count for source, count in self.calls.items()},
            "misses": [{**part.to_json(), "count": count} for part, count in self.misses],
            "operators": [{**item.time.to_json(), "count": item.count} for item in self.operators],
        }
