"""The wrapper: measured answers first, guarded interpolation after, a reasoned miss otherwise.

Dispatch and diagnostics, nothing else: never decomposes an operator, never sums latencies.
Source: RFC 3; decisions 002.1, 002.3, 002.12 and 002.16.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.records import OperatorRecord, as_leaf
from tensor_cast.performance_model.profiling_database.data_source import (
    DataSourcePerformanceModel,
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.engine import InterpolationEngine
from tensor_cast.performance_model.profiling_database.many import (
    ManyAnswers,
    Sweep,
    alike,
    numbers_of,
)
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath
from tensor_cast.performance_model.profiling_database.profiling_data_source import (
    ProfilingDataSource,
    accounted_zero,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    BoolArray = NDArray[np.bool_]

__all__ = ["InterpolatingDataSource"]

_CACHED_ANSWERS = 1 << 16


class InterpolatingDataSource(DataSourcePerformanceModel):
    """Decorates a `ProfilingDataSource`.

    `disable_interpolation` hands every question to the base unchanged.  Answers are kept: a repeated question is one
    dictionary access.  Thread-safe; `last_miss_*` speak of the calling thread only.
    """

    def __init__(self, base: ProfilingDataSource, *, disable_interpolation: bool = False) -> None:
        self.base = base
        self.disabled = disable_interpolation
        self.engine = InterpolationEngine(base.context)
        self._answer = lru_cache(maxsize=_CACHED_ANSWERS)(self._dispatch)
        self._last = threading.local()
        self._paths: dict[str, OperatorPath | Miss] = {}

    @property
    def database(self) -> ProfilingDatabase:
        return self.base.database

    @property
    def last_miss_reason(self) -> str:
        """This thread's own reason, else the base's."""
        return str(getattr(self._last, "reason", "")) or self.base.last_miss_reason

    @property
    def last_miss_details(self) -> dict[str, Any]:
        """A copy of the details of this thread's last miss."""
        return dict(getattr(self._last, "details", {}))

    def query(self, op: LeafOp | OperatorRecord) -> QueryResult | Miss:
        """The answer, or the miss; a base PARTIAL whose interpolation fails is a miss that carries the partial."""
        leaf = op if isinstance(op, LeafOp) else as_leaf(op)
        return self.base.query(leaf) if self.disabled else self._answer(leaf)

    def query_many(self, op: LeafOp | OperatorRecord, **axes: ArrayLike) -> ManyAnswers:
        """The operator at many coordinates: each keyword names one of its axes and gives values, or one for all.

        Equal, point by point and bit by bit, to `query` on the operator moved there: the dimensions of its tensors that
        lie on the axis are replaced, by their position in the call.  Raises InvalidValueError for values that are no
        whole numbers, arrays of different lengths, and an axis that this operator cannot be moved along.
        """
        leaf = as_leaf(op)
        sweep = Sweep(axes)
        entry = self.base.entry(leaf)
        path = None if entry is None else path_for(entry, strict=self.base.context.strict)
        if entry is None or not isinstance(path, OperatorPath) or entry.zero_cost or entry.accepted_miss:
            raise InvalidValueError(f"query_many: {leaf.name} has no axes to vary in this database")

        def moved(at: int) -> LeafOp:
            return path.moved(leaf, sweep.place(at), entry)

        sweep.doubtful = ~self._general(path, leaf, entry, sweep)
        if len(sweep.open):
            self._ask_base(path, leaf, sweep, moved)
        if len(sweep.open):
            self.engine.answer_many(path, {at: moved(at) for at in sweep.probes()}, entry, sweep)
        self._ask(sweep, moved)
        return sweep.answers()

    def _general(self, path: OperatorPath, leaf: LeafOp, entry: OperatorEntry, sweep: Sweep) -> BoolArray:
        """The points that vectorised passes may answer."""
        overridden = type(self).query is not InterpolatingDataSource.query or type(self.base) is not ProfilingDataSource
        if self.disabled or overridden or not path.uniform(leaf, sweep.columns):
            return np.zeros(sweep.size, dtype=bool)
        return alike(sweep.columns, numbers_of(leaf, entry.facts))

    def _ask_base(self, path: OperatorPath, leaf: LeafOp, sweep: Sweep, moved: Callable[[int], LeafOp]) -> None:
        """Answer the points at which the base has a row, where the base comes first."""
        entry = self.base.entry(leaf)
        if path.owns(leaf) or (entry is not None and self.base.asks_coordinates(entry)):
            return
        at = sweep.open
        possible = at[path.base_places(leaf, sweep.columns, self.base.context)[at]]
        for places in sweep.places(possible):
            found = self.base.query(moved(int(places[0])))
            if isinstance(found, QueryResult) and found.source is not QuerySource.PARTIAL:
                sweep.settle(places, found)

    def _ask(self, sweep: Sweep, moved: Callable[[int], LeafOp]) -> None:
        """Ask what is still doubtful, place by place."""
        for places in sweep.places(np.flatnonzero(sweep.doubtful & (sweep.dims < 0))):
            found = self.query(moved(int(places[0])))
            if isinstance(found, QueryResult) and found.source is not QuerySource.PARTIAL:
                sweep.settle(places, found)

    def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
        """As `query`, with None for a miss; the reason is then in `last_miss_reason` and `last_miss_details`."""
        if self.disabled:
            return self.base.lookup(op)
        answer = self._answer(as_leaf(op))
        if isinstance(answer, QueryResult):
            self._last.reason, self._last.details = "", {}
            return answer
        wrapped = str(answer.details.get("path_reason", ""))
        generic = wrapped in ("", str(MissReason.CANDIDATE_GROUP_FAILED))
        self._last.reason = answer.code if generic else wrapped
        history = answer.details.get("attempts", ())
        self._last.details = {
            **answer.details,
            "miss_reason": self._last.reason,
            "miss_code": answer.code,
            "miss_history": [dict(item) for item in history] or [{"reason": answer.code}],
        }
        return None

    def _dispatch(self, leaf: LeafOp) -> QueryResult | Miss:
        entry = self.base.entry(leaf)
        if entry is None:
            return Miss(MissReason.WRAPPER_UNMAPPED, leaf.name)
        if (entry.zero_cost or entry.accepted_miss) and not entry.composite:
            return accounted_zero(entry, leaf)
        path = self._paths.get(entry.name)
        if path is None:
            path = self._paths.setdefault(entry.name, path_for(entry, strict=self.base.context.strict))
        if isinstance(path, OperatorPath) and path.owns(leaf):
            return self.engine.answer(path, leaf, entry, "specialized_exact_miss")
        if isinstance(path, OperatorPath) and self.base.asks_coordinates(entry):
            return self._by_coordinates(path, leaf, entry)
        found = self._base_answer(leaf)
        if isinstance(found, QueryResult) and found.source is not QuerySource.PARTIAL:
            return found
        return self._fall_back(path, leaf, entry, found)

    def _by_coordinates(self, path: OperatorPath, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
        """Where the base looks up the path's own coordinates: asked kernel by kernel, so that an interpolation in the
        primary kernel comes before a measured row of an alternate (decision 002.16)."""
        answer = self.engine.answer(path, leaf, entry, "exact_miss")
        return answer if isinstance(answer, QueryResult) else _with_base(answer, self.base.answer(leaf), "exact_miss")

    def _base_answer(self, leaf: LeafOp) -> QueryResult | Miss:
        """The base's own answer; a base of one's own that overrides `query` or `lookup` is asked through it."""
        return self.base.query(leaf) if self.base.overridden else self.base.answer(leaf)

    def _fall_back(
        self, path: OperatorPath | Miss, leaf: LeafOp, entry: OperatorEntry, base: QueryResult | Miss
    ) -> QueryResult | Miss:
        partial = base if isinstance(base, QueryResult) else None
        fallback_from = "exact_miss" if partial is None else "partial"
        if isinstance(path, Miss):
            return _with_base(path, base, fallback_from)
        answer = self.engine.answer(path, leaf, entry, fallback_from)
        return answer if isinstance(answer, QueryResult) else _with_base(answer, base, fallback_from)


def _with_base(miss: Miss, base: QueryResult | Miss, fallback_from: str) -> Miss:
    """The wrapper's miss with what the base said; where the wrapper has nothing to add the base's reason stands."""
    details = {**miss.details, "fallback_from": fallback_from}
    partial = base if isinstance(base, QueryResult) else None
    of_base = _missed_children(base) if isinstance(base, QueryResult) else base
    details["base_miss_reason"] = of_base.code
    if miss.reason in (
        MissReason.WRAPPER_COMMUNICATION_OWNED_BY_BASE,
        MissReason.WRAPPER_COMPOSITE_OWNED_UPSTREAM,
    ):
        details["wrapper_reason"] = miss.code
        miss, details = of_base, {**details, **of_base.details}
    return replace(miss, details=details, partial=partial)


def _missed_children(partial: QueryResult) -> Miss:
    """The miss that an incomplete sum is: the children without an answer, and why they have none."""
    kernels = [str(kernel) for kernel in partial.details.get("missed_kernels", ())]
    details = {"attempted_kernel_types": kernels, "hint": partial.details.get("hint", "")}
    return Miss(MissReason.SUB_KERNEL_MISS, ",".join(kernels), details)
