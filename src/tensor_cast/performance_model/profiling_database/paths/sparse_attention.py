"""Lightning indexer and sparse flash attention as independent leaves.

Source: seed RFC, section 4.3; phase 2 facts, section 4; rulings 5 to 9.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tensor_cast.dtypes import profile_dtype
from tensor_cast.leaf import LeafOp, Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.attention import integer_cell
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.paths.request_grouping import (
    Grouping,
    leaf_grouping,
    row_grouping,
)
from tensor_cast.performance_model.profiling_database.points import RegimeKey

__all__ = ["LightningIndexerPath", "SparseFlashAttentionPath", "drop_unit_dims"]

VALUES: Final = "runtime_values"
SHAPES: Final = "shapes"
SHAPES_WITHOUT_VALUES: Final = "shapes_of_rows_without_values"


def drop_unit_dims(shape: Shape) -> Shape:
    """A cache shape without tail dimensions equal to 1: `(blocks, 128, 1, 128)` is `(blocks, 128, 128)`."""
    return (shape[0], *(dim for dim in shape[1:] if dim != 1))


@dataclass(frozen=True, slots=True)
class _Place:
    tokens: int
    heads: int
    head_dim: int
    query: TensorSpec
    cache: TensorSpec
    topk: int
    grouping: Grouping
    phase: str | None
    api_path: str | None

    def common(self, kernel: str) -> RegimeKey:
        pairs: list[tuple[str, Any]] = [
            ("kernel_type", kernel),
            ("query_dtype", self.query.dtype),
            ("cache_dtype", self.cache.dtype),
            ("input_formats", (self.query.format, self.cache.format)),
            ("query_rank", 3),
            ("heads", self.heads),
            ("head_dim", self.head_dim),
            ("topk", self.topk),
            ("request_grouping", self.grouping.shapes),
        ]
        if self.api_path is not None:
            pairs.append(("api_path", self.api_path))
        return tuple(pairs)


class _SparsePath(OperatorPath):
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    checks_exact = True
    source_pure = True
    allow_extra = frozenset({"api_path"})

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return (self.name,)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        place = self._leaf_place(leaf, entry)
        if isinstance(place, Miss):
            return place
        regime = self.regime(table.kernel, place)
        values = place.grouping.values
        if values is None:
            return (self._target(place, regime, SHAPES),)
        full = (*regime, ("request_values", values))
        return self._target(place, full, VALUES), self._target(place, regime, SHAPES_WITHOUT_VALUES)

    def _target(self, place: _Place, regime: RegimeKey, view: str) -> Target:
        notes = {"grouping_source": view, "phase": place.phase, "api_path": place.api_path, "topk": place.topk}
        return Target(self.axes(place), regime, notes=notes, view=view)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        place = self._row_place(table, row)
        if isinstance(place, str):
            return place
        regime = self.regime(table.kernel, place)
        values = place.grouping.values
        if view == VALUES:
            if values is None:
                return "runtime_metadata_incomplete"
            return Candidate(self.axes(place), (*regime, ("request_values", values)), _identity(place.grouping))
        if view == SHAPES_WITHOUT_VALUES and values is not None:
            return "runtime_values_differ"
        return Candidate(self.axes(place), regime, _identity(place.grouping))

    @abstractmethod
    def axes(self, place: _Place) -> dict[str, float]:
        """Continuous axes."""

    @abstractmethod
    def regime(self, kernel: str, place: _Place) -> RegimeKey:
        """Regime fields without the request values."""

    @abstractmethod
    def _leaf_place(self, leaf: LeafOp, entry: OperatorEntry) -> _Place | Miss: ...

    @abstractmethod
    def _row_place(self, table: TensorTable, row: int) -> _Place | str: ...


class LightningIndexerPath(_SparsePath):
    """Tokens, cache blocks, then both; top-k and request grouping isolate."""

    name = "lightning_indexer"

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("tokens",), ("cache_blocks",), ("tokens", "cache_blocks"))

    def axes(self, place: _Place) -> dict[str, float]:
        return {"tokens": float(place.tokens), "cache_blocks": float(place.cache.shape[0])}

    def regime(self, kernel: str, place: _Place) -> RegimeKey:
        return (*place.common(kernel), ("cache_tail", drop_unit_dims(place.cache.shape)[1:]))

    def _leaf_place(self, leaf: LeafOp, entry: OperatorEntry) -> _Place | Miss:
        if not leaf.outputs or not leaf.outputs[0].shape:
            return Miss(MissReason.TOPK_UNEXTRACTABLE, details={"hint": "the output's last dimension is top-k"})
        return _leaf_place(leaf, entry, leaf.role("indexer_cache"), leaf.outputs[0].shape[-1])

    def _row_place(self, table: TensorTable, row: int) -> _Place | str:
        inputs, outputs = table.row_inputs(row), table.row_outputs(row)
        if len(inputs) < 6 or not outputs:
            return "input_signature_missing"
        slots = (inputs[3].shape, inputs[4].shape, inputs[5].shape)
        return _row_place(table, row, outputs[0].shape[-1] if outputs[0].shape else 0, slots)


class SparseFlashAttentionPath(_SparsePath):
    """Tokens only; the whole cache shape and the sparse phase isolate; fails closed without either."""

    name = "sparse_attention"

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("tokens",),)

    def axes(self, place: _Place) -> dict[str, float]:
        return {"tokens": float(place.tokens)}

    def regime(self, kernel: str, place: _Place) -> RegimeKey:
        cache = ("cache_shape", drop_unit_dims(place.cache.shape))
        return (*place.common(kernel), cache, ("sparse_phase", place.phase))

    def _leaf_place(self, leaf: LeafOp, entry: OperatorEntry) -> _Place | Miss:
        indices = leaf.role("topk_indices")
        if indices is None or not indices.shape:
            return Miss(MissReason.TOPK_UNEXTRACTABLE, details={"hint": "topk_indices (..., topk) needed"})
        place = _leaf_place(leaf, entry, leaf.role("kv_dependency") or leaf.role("kv"), indices.shape[-1])
        if isinstance(place, _Place) and place.phase is None:
            hint = "give query and KV lengths of the requests, or the phase"
            return Miss(MissReason.SEMANTIC_FIELD_MISSING, "phase", {"hint": hint})
        return place

    def _row_place(self, table: TensorTable, row: int) -> _Place | str:
        inputs = table.row_inputs(row)
        if len(inputs) < 7:
            return "input_signature_missing"
        slots = (inputs[5].shape, inputs[6].shape, inputs[4].shape)
        place = _row_place(table, row, inputs[3].shape[-1], slots)
        return "sparse_phase_unknown" if isinstance(place, _Place) and place.phase is None else place


def _leaf_place(leaf: LeafOp, entry: OperatorEntry, cache: TensorSpec | None, topk: int) -> _Place | Miss:
    query = leaf.role("query")
    if query is None or query.rank not in (3, 4):
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "query", {"hint": "(T,H,D) or (B,S,H,D)"})
    if cache is None or cache.rank < 2:
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "cache")
    dtypes = (profile_dtype(query.dtype), profile_dtype(cache.dtype))
    if dtypes[0] is None or dtypes[1] is None:
        return Miss(MissReason.DTYPE_UNMAPPED, query.dtype if dtypes[0] is None else cache.dtype)
    tokens = query.shape[0] if query.rank == 3 else query.shape[0] * query.shape[1]
    grouping = leaf_grouping(leaf, tokens)
    if isinstance(grouping, Miss):
        return grouping
    return _Place(
        tokens,
        query.shape[-2],
        query.shape[-1],
        TensorSpec(query.shape, dtypes[0], query.format),
        TensorSpec(cache.shape, dtypes[1], cache.format),
        topk,
        grouping,
        leaf.requests.phase if leaf.requests is not None else None,
        entry.api_path,
    )


def _row_place(table: TensorTable, row: int, topk: int, slots: tuple[Shape, Shape, Shape]) -> _Place | str:
    query, cache = table.row_inputs(row)[:2]
    if query.rank != 3 or cache.rank < 2:
        return "query_shape_unextractable"
    recorded = integer_cell(table, row, "Runtime topk")
    if topk <= 0 or (recorded is not None and recorded != topk):
        return "topk_unextractable"
    grouping = row_grouping(table, row, slots, query.shape[0])
    if isinstance(grouping, str):
        return grouping
    phase = grouping.requests.phase if grouping.requests is not None else table.cell(row, "Runtime phase")
    api_path = table.cell(row, "API Path") or table.cell(row, "Runtime api_path")
    tokens, heads, head_dim = query.shape
    return _Place(tokens, heads, head_dim, query, cache, topk, grouping, phase, api_path)


def _identity(grouping: Grouping) -> Hashable:
    if grouping.requests is None:
        return None
    return (grouping.requests.query_lens, grouping.requests.kv_lens)
