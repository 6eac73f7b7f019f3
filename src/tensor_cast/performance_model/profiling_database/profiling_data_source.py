"""Exact lookup: a measured row that is the very operator, or a reasoned miss.

Asks the interpolation engine for measured coordinates only, never for an interpolation.
Source: docs/facts/exact-lookup.md, "Order of dispatch".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tensor_cast.devices import DeviceProfile
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.records import OperatorRecord, as_leaf
from tensor_cast.operators.tensor import Shape
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.data_source import (
    DataSourcePerformanceModel,
    Miss,
    MissReason,
    QueryResult,
    QuerySource,
    ShapeMatchInfo,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.dispatch import kernel_missing, path_for
from tensor_cast.performance_model.profiling_database.earlier_names import (
    DTYPE_MAP,
    SUPPORTED_QUERY_MODES,
    SubKernelSpec,
    fractal_nz_to_nd,
    get_topology_tier,
)
from tensor_cast.performance_model.profiling_database.exact.attention import (
    attention_params,
    lookup_attention,
)
from tensor_cast.performance_model.profiling_database.exact.communication import lookup_communication
from tensor_cast.performance_model.profiling_database.exact.composite import lookup_composite
from tensor_cast.performance_model.profiling_database.exact.compute import (
    lookup_compute,
    lookup_elementwise,
    lookup_moe_fused,
)
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import (
    EXACT_MATCH_MODES,
    OperatorEntry,
    pinned_entry,
)

__all__ = [
    "DTYPE_MAP",
    "SUPPORTED_QUERY_MODES",
    "ProfilingDataSource",
    "SubKernelSpec",
    "fractal_nz_to_nd",
    "get_topology_tier",
]

_CACHED_ANSWERS = 1 << 16
Handler = Callable[[LeafOp], QueryResult | Miss]
_COORDINATE_MODES = ("attention_lightning_indexer", "attention_sparse_sharedkv", "scatter_nd_update_mla")
_NO_PLAIN_SHAPES = (*_COORDINATE_MODES, "attention_special")
_UNDECIDED = (MissReason.AMBIGUOUS_DUPLICATE_COORDINATE, MissReason.SEMANTIC_FIELD_MISSING)
_NO_POINT = (
    MissReason.CANDIDATE_GROUP_FAILED,
    MissReason.COMPUTE_MULTIDIM_INTERPOLATION_FAILED,
    MissReason.ATTENTION_CANDIDATE_GROUP_FAILED,
)
_CODES_WITH_KERNELS = (MissReason.SUB_KERNEL_MISS, MissReason.ATTENTION_SUB_KERNEL_MISS)


class ProfilingDataSource(DataSourcePerformanceModel):
    """Answers from measured rows only.

    `data_dir` is anything that `open_database` opens, or an opened database; `mapping` a mapping file to use instead of
    the database's own.  `exact_match` is `strict` (only the very operator matches) or `compatible` (the RFC's padding,
    tolerance and dtype rules as well); by default what the mapping's header says, and `compatible` without one.
    Answers are kept, so a repeated question is one dictionary access; a new one costs a few index accesses, whatever
    the number of rows.
    """

    def __init__(
        self,
        data_dir: str | Path | ProfilingDatabase,
        device_profile: DeviceProfile | None = None,
        parallel_config: ParallelConfig | None = None,
        *,
        mapping: str | Path | None = None,
        exact_match: str | None = None,
    ) -> None:
        database = data_dir if isinstance(data_dir, ProfilingDatabase) else open_database(data_dir, mapping=mapping)
        if exact_match is not None and exact_match not in EXACT_MATCH_MODES:
            allowed = ", ".join(EXACT_MATCH_MODES)
            raise InvalidValueError(f"exact_match: expected one of {allowed}; got {exact_match!r}")
        strict = database.mapping.strict if exact_match is None else exact_match == "strict"
        self.context = ExactContext(database, device_profile, parallel_config or ParallelConfig(), strict)
        self._answer = lru_cache(maxsize=_CACHED_ANSWERS)(self.answer)
        self._handlers: dict[tuple[str, AttrValue], Handler] = {}
        own = {name: getattr(ProfilingDataSource, name) for name in ("lookup", "query")}
        self.overridden = frozenset(name for name, method in own.items() if getattr(type(self), name) is not method)
        self._last = threading.local()

    @property
    def database(self) -> ProfilingDatabase:
        return self.context.database

    @property
    def data_dir(self) -> Path:
        return self.database.path

    @property
    def comm_grid(self) -> Shape | None:
        """The device's rank grid, or None without a device profile."""
        return None if self.context.device is None else self.context.device.comm_grid

    @property
    def ep_size(self) -> int | None:
        """The configured expert-parallel size, or None."""
        return self.context.parallel.expert_parallel_size

    @property
    def exact_match(self) -> str:
        """How rows are matched: `strict` or `compatible`."""
        return self.context.exact_match

    @property
    def last_miss_reason(self) -> str:
        """Reason of this thread's last miss: a bare code, with the kernels where a child of a composite missed."""
        return str(getattr(self._last, "reason", ""))

    @property
    def last_shape_match_info(self) -> ShapeMatchInfo | None:
        """How this thread's last lookup matched, or a record whose rule is the miss reason."""
        info: ShapeMatchInfo | None = getattr(self._last, "info", None)
        return info

    def query(self, op: LeafOp | OperatorRecord) -> QueryResult | Miss:
        """The measured answer (PARTIAL for an incomplete composite), or the miss.

        A subclass that overrides `lookup` alone is asked through it.
        """
        if self.overridden == {"lookup"}:
            return super().query(op)
        return self._answer(op if isinstance(op, LeafOp) else as_leaf(op))

    def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
        """As `query`, with None for a miss and its reason in `last_miss_reason`."""
        leaf = as_leaf(op)
        answer = self.query(leaf) if self.overridden == {"query"} else self._answer(leaf)
        if isinstance(answer, Miss):
            self._last.reason = _phase1_reason(answer)
            self._last.info = ShapeMatchInfo(tuple(spec.shape for spec in leaf.tensors), (), str(answer.reason))
            return None
        if answer.source is QuerySource.PARTIAL:
            self._last.reason = str(answer.details.get("miss_reason", ""))
        self._last.info = answer.shape_match_info
        return answer

    def entry(self, op: LeafOp) -> OperatorEntry | None:
        """The mapping entry of an operator, narrowed to the kernels that a child of a composite is known to run."""
        entry = self.database.mapping.operators.get(op.name)
        pinned = op.pinned_kernels
        return entry if pinned is None else pinned_entry(entry, op.name, pinned)

    def answer(self, leaf: LeafOp) -> QueryResult | Miss:
        """As `query`, without keeping the answer: for a caller that keeps its own."""
        key = (leaf.name, leaf.pinned_kernels)
        handler = self._handlers.get(key)
        if handler is None:
            entry = self.entry(leaf)
            if entry is None:
                return Miss(MissReason.UNMAPPED, leaf.name)
            handler = self._handlers.setdefault(key, self._handler(entry))
        return handler(leaf)

    def asks_coordinates(self, entry: OperatorEntry) -> bool:
        """Whether this source answers an entry's operators from the coordinates of their interpolation path alone."""
        return not self.overridden and entry.query_mode in _COORDINATE_MODES

    def _handler(self, entry: OperatorEntry) -> Handler:
        """What answers an entry's operators; the first rule that applies wins."""
        context = self.context
        if "family" in entry.facts:
            return lambda leaf: self._at_coordinates(leaf, entry)
        if entry.composite:
            return lambda leaf: lookup_composite(context, leaf, entry)
        if entry.category == "communication":
            return lambda leaf: lookup_communication(context, leaf, entry.kernel_type or "")
        return self._strict_handler(entry) if context.strict else self._compatible_handler(entry)

    def _compatible_handler(self, entry: OperatorEntry) -> Handler:
        context, mode = self.context, entry.query_mode
        if mode == "attention_special":
            return lambda leaf: _attention(context, leaf, entry)
        if mode == "elementwise":
            return lambda leaf: lookup_elementwise(context, leaf, entry)
        if mode == "moe_fused":
            return lambda leaf: lookup_moe_fused(context, leaf, entry)
        if mode in _COORDINATE_MODES:
            return lambda leaf: self._at_coordinates(leaf, entry)
        return self._plain_handler(entry, lambda leaf: self._compute(leaf, entry))

    def _strict_handler(self, entry: OperatorEntry) -> Handler:
        """Coordinates of the path's own regime; plain shapes where the path leaves matches to the base."""
        path = path_for(entry, strict=True)

        def answer(leaf: LeafOp) -> QueryResult | Miss:
            if isinstance(path, Miss):
                return self._compute(leaf, entry)
            found = self._at_coordinates(leaf, entry)
            settled = isinstance(found, QueryResult) or found.reason in _UNDECIDED
            if settled or path.owns(leaf) or entry.query_mode in _NO_PLAIN_SHAPES:
                return found
            return self._compute(leaf, entry)

        return answer if entry.query_mode is not None else self._plain_handler(entry, answer)

    def _plain_handler(self, entry: OperatorEntry, compute: Handler) -> Handler:
        if entry.zero_cost or entry.accepted_miss:
            return lambda leaf: accounted_zero(entry, leaf)
        if not entry.kernels:
            return lambda leaf: kernel_missing(leaf.name)
        return compute

    def _compute(self, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
        return lookup_compute(self.context, leaf, entry.kernels, entry.tc_input_count)

    def _at_coordinates(self, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
        """The measured row at a leaf's own coordinates, for leaves that plain shapes cannot match."""
        from tensor_cast.performance_model.profiling_database.engine import InterpolationEngine

        path = path_for(entry, strict=self.context.strict)
        if isinstance(path, Miss):
            return path
        engine = self.context.cached(("coordinate_engine",), lambda: InterpolationEngine(self.context))
        found = engine.answer(path, leaf, entry, "exact", measured_only=True)
        return found if isinstance(found, QueryResult) else _no_measured_point(found)


def _attention(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    params = attention_params(leaf)
    return params if isinstance(params, Miss) else lookup_attention(context, leaf, entry.kernels, params)


def _phase1_reason(miss: Miss) -> str:
    """The code alone, with kernels for a missed child only (docs/facts/exact-lookup.md, "Reasons of misses")."""
    return miss.code if miss.reason in _CODES_WITH_KERNELS else str(miss.reason)


def _no_measured_point(miss: Miss) -> Miss:
    """The miss of an exact question whose geometry reasons would speak of interpolation."""
    if miss.reason not in _NO_POINT:
        return miss
    details = {**miss.details, "hint": "no row at this very place"}
    return replace(miss, reason=MissReason.SHAPE_MISMATCH, details=details)


def accounted_zero(entry: OperatorEntry, leaf: LeafOp) -> QueryResult:
    """The documented zero of a `zero_cost` or `accepted_miss` entry."""
    details: dict[str, object] = {"kernel_type": entry.kernel_type or "", "zero_cost": True}
    rule = "zero_cost"
    if not entry.zero_cost:
        rule = "accepted_miss"
        details = {"kernel_type": "accepted_miss", "zero_cost": True, "note": entry.accepted_miss}
    info = ShapeMatchInfo(tuple(spec.shape for spec in leaf.tensors), (), rule)
    return QueryResult(0.0, 1.0, QuerySource.MEASURED, details, info)
