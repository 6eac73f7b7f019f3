"""The lightning indexer as an independent leaf.  Source: RFC 4.3.1."""

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

__all__ = ["LightningIndexerPath"]

_REQUEST_SLOTS: Final = (3, 4, 5)  # query lengths, KV lengths, block table


class LightningIndexerPath(SparsePath):
    """Tokens, cache blocks, then both; top-k and request grouping isolate."""

    name = "lightning_indexer"
    shapes_on_purpose = True

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("tokens",), ("cache_blocks",), ("tokens", "cache_blocks"))

    def axes(self, place: SparsePlace) -> dict[str, float]:
        return {"tokens": float(place.tokens), "cache_blocks": float(place.cache.shape[0])}

    def regime(self, kernel: str, place: SparsePlace) -> RegimeKey:
        return (*place.common(kernel), ("cache_tail", drop_unit_dims(place.cache.shape)[1:]))

    def leaf_place(self, leaf: LeafOp, entry: OperatorEntry) -> SparsePlace | Miss:
        if not leaf.outputs or not leaf.outputs[0].shape:
            return Miss(MissReason.TOPK_UNEXTRACTABLE, details={"hint": "give the output: its last dimension is top-k"})
        return leaf_place(leaf, entry, leaf.role("indexer_cache"), leaf.outputs[0].shape[-1], strict=self.strict)

    def row_place(self, table: TensorTable, row: int) -> SparsePlace | str:
        outputs = table.row_outputs(row)
        if not outputs or not outputs[0].shape:
            return "output_signature_missing"
        return row_place(table, row, outputs[0].shape[-1], _REQUEST_SLOTS)
