"""Where a sparse-attention leaf or row lies; read the same way from both sides.

Source: RFC 4.3; docs/facts/interpolation.md, "Requests of a row"; decisions 002.5 to 002.9.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tensor_cast.dtypes import profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.attention import integer_cell
from tensor_cast.performance_model.profiling_database.exact.context import dtypes_lacking
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.request_grouping import (
    Grouping,
    leaf_grouping,
    row_grouping,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

__all__ = ["SparsePlace", "drop_unit_dims", "leaf_place", "row_place"]


def drop_unit_dims(shape: Shape) -> Shape:
    """A cache shape without tail dimensions equal to 1: `(blocks, 128, 1, 128)` is `(blocks, 128, 128)`."""
    return (shape[0], *(dim for dim in shape[1:] if dim != 1))


@dataclass(frozen=True, slots=True)
class SparsePlace:
    """What both kernels need to know.  `identity` tells rows of one coordinate apart whose requests differ."""

    tokens: int
    heads: int
    head_dim: int
    query: TensorSpec
    cache: TensorSpec
    topk: int
    grouping: Grouping
    phase: str | None
    api_path: str | None
    identity: Hashable = None

    def common(self, kernel: str) -> RegimeKey:
        """The regime fields the indexer and sparse attention share."""
        pairs: list[tuple[str, object]] = [
            ("kernel_type", kernel),
            ("query_dtype", self.query.dtype),
            ("cache_dtype", self.cache.dtype),
            ("input_formats", (self.query.format, self.cache.format)),
            ("query_rank", 3),
            ("heads", self.heads),
            ("head_dim", self.head_dim),
            ("topk", self.topk),
        ]
        if self.api_path is not None:
            pairs.append(("api_path", self.api_path))
        return tuple(pairs)


def leaf_place(
    leaf: LeafOp, entry: OperatorEntry, cache: TensorSpec | None, topk: int, *, strict: bool = False
) -> SparsePlace | Miss:
    """The leaf's place, or the miss that names the field it lacks.  A 4D query `(B, S, H, D)` is `(B*S, H, D)`."""
    query = leaf.role("query")
    if query is None or query.rank not in (3, 4):
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "query", {"hint": "give query (T,H,D) or (B,S,H,D)"})
    if cache is None or cache.rank < 2:
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "cache", {"hint": "give the cache (blocks, block, D)"})
    dtypes = (profile_dtype(query.dtype, strict=strict), profile_dtype(cache.dtype, strict=strict))
    if dtypes[0] is None or dtypes[1] is None:
        hint = dtypes_lacking((query, cache), strict=strict)
        return Miss(MissReason.DTYPE_UNMAPPED, query.dtype if dtypes[0] is None else cache.dtype, {"hint": hint})
    tokens = query.shape[0] if query.rank == 3 else query.shape[0] * query.shape[1]
    grouping = leaf_grouping(leaf, tokens)
    if isinstance(grouping, Miss):
        return grouping
    return SparsePlace(
        tokens,
        query.shape[-2],
        query.shape[-1],
        TensorSpec(query.shape, dtypes[0], query.format),
        TensorSpec(cache.shape, dtypes[1], cache.format),
        topk,
        grouping,
        grouping.phase,
        entry.api_path,
    )


def row_place(table: TensorTable, row: int, topk: int, slots: tuple[int, int, int]) -> SparsePlace | str:
    """The row's place, or why it cannot be used.

    `slots` are the inputs that hold query lengths, KV lengths and block table.
    """
    inputs = table.inputs[row]
    query, cache, *metadata = (inputs[slot] if slot < len(inputs) else None for slot in (0, 1, *slots))
    if query is None or cache is None or None in metadata:
        return "input_signature_missing"
    if query.rank != 3 or cache.rank < 2:
        return "query_shape_unextractable"
    recorded = integer_cell(table, row, "Runtime topk")
    if topk <= 0 or (recorded is not None and recorded != topk):
        return "topk_unextractable"
    queries, contexts, blocks = (spec.shape for spec in metadata if spec is not None)
    grouping = row_grouping(table, row, (queries, contexts, blocks), query.shape[0])
    if isinstance(grouping, str):
        return grouping
    requests = grouping.requests
    api_path = table.cell(row, "API Path") or table.cell(row, "Runtime api_path")
    identity = None if requests is None else (requests.query_lens, requests.kv_lens)
    tokens, heads, head_dim = query.shape
    return SparsePlace(tokens, heads, head_dim, query, cache, topk, grouping, grouping.phase, api_path, identity)
