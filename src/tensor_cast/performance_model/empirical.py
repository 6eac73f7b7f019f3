"""From operators to time: composites taken apart upstream, every leaf asked of the data source once, summed once, here.

Source: RFC 3.2; decision 002.14.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.composites import NotDecomposable, canonical_leaf, canonical_leaves
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.records import OperatorRecord, as_leaf
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.base import LeafTime, OperatorTime, PerformanceModel, TimeSource
from tensor_cast.performance_model.forward_time import CountedTime, ForwardTime
from tensor_cast.performance_model.profiling_database.data_source import (
    DataSourcePerformanceModel,
    Miss,
    QueryResult,
    QuerySource,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase

__all__ = ["EmpiricalModel"]

_SOURCES: Final = {
    QuerySource.MEASURED: TimeSource.MEASURED,
    QuerySource.INTERPOLATED: TimeSource.INTERPOLATED,
}


@runtime_checkable
class _HasDatabase(Protocol):
    @property
    def database(self) -> ProfilingDatabase: ...


class EmpiricalModel:
    """Time from measurements, and from `fallback` for the leaves they do not answer.

    A composite is asked as its canonical leaves, never whole, with two exceptions: an entry of the source's mapping
    that is no composite (a database that measured the operator as one kernel), and a call that cannot be decomposed,
    which is asked as it is.  Without a fallback a leaf that nobody answers stays a MISS and the sum is partial.
    """

    def __init__(
        self,
        source: DataSourcePerformanceModel,
        fallback: PerformanceModel | None = None,
        parallel: ParallelConfig | None = None,
    ) -> None:
        self.source = source
        self.fallback = fallback
        self.parallel = parallel or ParallelConfig()

    def estimate(self, leaf: LeafOp) -> OperatorTime:
        """As `time`: the model can be another one's fallback."""
        return self.time(leaf)

    def time(self, op: LeafOp | OperatorRecord) -> OperatorTime:
        """One operator call: a leaf's answer, or a composite's leaves."""
        leaf = as_leaf(op)
        children = None if self._measured_whole(leaf) else canonical_leaves(leaf, self.parallel)
        if isinstance(children, NotDecomposable):
            return OperatorTime(leaf, self._ask(leaf), children)
        questions = (canonical_leaf(leaf),) if children is None else children
        return OperatorTime(leaf, tuple(part for question in questions for part in self._ask(question)))

    def total(self, ops: Iterable[tuple[LeafOp | OperatorRecord, int]]) -> ForwardTime:
        """A forward pass: each operator with how often it runs.  Equal operators are asked once.

        Raises InvalidValueError for a count that is no integer >= 1.
        """
        known: dict[LeafOp, OperatorTime] = {}
        counted = []
        for op, count in ops:
            leaf = as_leaf(op)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InvalidValueError(f"{leaf.name}: count must be an integer >= 1, got {count!r}")
            if leaf not in known:
                known[leaf] = self.time(leaf)
            counted.append(CountedTime(known[leaf], count))
        return ForwardTime(tuple(counted))

    def _measured_whole(self, leaf: LeafOp) -> bool:
        if not isinstance(self.source, _HasDatabase):
            return False
        entry = self.source.database.mapping.operators.get(leaf.name)
        return entry is not None and not entry.composite

    def _ask(self, leaf: LeafOp) -> tuple[LeafTime, ...]:
        answer = self.source.query(leaf)
        if isinstance(answer, QueryResult) and answer.source in _SOURCES:
            found = LeafTime(leaf, _SOURCES[answer.source], answer.latency_us, answer.confidence, answer=answer)
            return (found,)
        missed = LeafTime(leaf, TimeSource.MISS, None, 0.0, _reason(answer), answer)
        estimate = None if self.fallback is None else self.fallback.estimate(leaf)
        if estimate is None or not estimate.complete:
            return (missed,)
        return tuple(replace(part, reason=missed.reason) for part in estimate.leaves)


def _reason(answer: QueryResult | Miss) -> str:
    """Why this is no time: the miss, or the children a partial sum lacks."""
    if isinstance(answer, Miss):
        return answer.code
    missed = ",".join(str(kernel) for kernel in answer.details.get("missed_kernels", ()))
    return f"{str(answer.source).lower()}:{missed}"
