"""Sparse flash attention as an independent leaf.  Source: RFC 4.3.2; decision 002.7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Target
from tensor_cast.performance_model.profiling_database.paths.sparse_path import SparsePath
from tensor_cast.performance_model.profiling_database.paths.sparse_place import (
    SparsePlace,
    drop_unit_dims,
    leaf_place,
    row_place,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["SparseFlashAttentionPath"]

_TOPK_SLOT: Final = 3
_REQUEST_SLOTS: Final = (5, 6, 4)  # query lengths, KV lengths, block table


class SparseFlashAttentionPath(SparsePath):
    """Tokens only; the whole cache shape and the sparse phase isolate; fails closed without either."""

    name = "sparse_attention"

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("tokens",),)

    def axes(self, place: SparsePlace) -> dict[str, float]:
        return {"tokens": float(place.tokens)}

    def regime(self, kernel: str, place: SparsePlace) -> RegimeKey:
        cache = ("cache_shape", drop_unit_dims(place.cache.shape))
        return (*place.common(kernel), cache, ("sparse_phase", place.phase))

    def leaf_place(self, leaf: LeafOp, entry: OperatorEntry) -> SparsePlace | Miss:
        indices = leaf.role("topk_indices")
        if indices is None or not indices.shape:
            return Miss(MissReason.TOPK_UNEXTRACTABLE, details={"hint": "give topk_indices (..., topk)"})
        cache = leaf.role("kv_dependency") or leaf.role("kv")
        place = leaf_place(leaf, entry, cache, indices.shape[-1], strict=self.strict)
        if isinstance(place, SparsePlace) and place.phase is None:
            hint = "give query and KV lengths of the requests, or the phase"
            return Miss(MissReason.SEMANTIC_FIELD_MISSING, "phase", {"hint": hint})
        return place

    def row_place(self, table: TensorTable, row: int) -> SparsePlace | str:
        inputs = table.inputs[row]
        indices = inputs[_TOPK_SLOT] if len(inputs) > _TOPK_SLOT else None
        if indices is None or not indices.shape:
            return "input_signature_missing"
        place = row_place(table, row, indices.shape[-1], _REQUEST_SLOTS)
        return "sparse_phase_unknown" if isinstance(place, SparsePlace) and place.phase is None else place
