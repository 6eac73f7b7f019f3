"""One descriptor for the leaves that DeepSeek-V4 emits directly and GLM-5 emits as children.

Source: docs/facts/leaf-operators.md, "Canonical forms"; decisions 002.8 and 002.9.  T tokens, h heads:

* `sparse_attn_sharedkv`: query `(T, h, D)`, kv = the cache `(blocks, block, D)`, topk_indices `(T, 1, topk)` int32;
* `quant_lightning_indexer`: query `(T, h, D)`, weights `(T, h)`, indexer_cache `(blocks, block, D)`, one output
  `(T, 1, topk)` int32;
* `scatter_nd_update_mla`: update `(N, D)`, cache `(slots, D)`, index `(N, 1)` int32, N rows written by this call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["INDEXER", "SCATTER", "SPARSE", "canonical_leaf", "indexer_leaf", "scatter_leaf", "sparse_leaf"]

SPARSE: Final = "tensor_cast.sparse_attn_sharedkv.default"
INDEXER: Final = "tensor_cast.quant_lightning_indexer.default"
SCATTER: Final = "tensor_cast.scatter_nd_update_mla.default"


def sparse_leaf(query: TensorSpec, cache: TensorSpec, topk: int, requests: Requests | None) -> LeafOp:
    """Sparse attention of `query` `(T, h, D)` over `topk` selected positions of a paged `cache`."""
    tokens, _, width = query.shape
    inputs = (
        replace(query, role="query"),
        replace(cache, shape=_bare(cache.shape), role="kv"),
        TensorSpec((tokens, 1, topk), "int32", role="topk_indices"),
    )
    return LeafOp(SPARSE, inputs, (replace(query, role=""),), (("head_dim", width),), requests)


def indexer_leaf(query: TensorSpec, cache: TensorSpec, topk: int, requests: Requests | None) -> LeafOp:
    """Selection of `topk` positions for `query` `(T, h, D)` from a paged index `cache`."""
    inputs = (
        replace(query, role="query"),
        replace(query, shape=query.shape[:-1], role="weights"),
        replace(cache, shape=_bare(cache.shape), role="indexer_cache"),
    )
    outputs = (TensorSpec((query.shape[0], 1, topk), "int32"),)
    return LeafOp(INDEXER, inputs, outputs, (("topk_limit", topk),), requests)


def scatter_leaf(update: TensorSpec, cache: TensorSpec) -> LeafOp:
    """A write of the rows of `update` `(N, D)` into `cache`."""
    rows = math.prod(update.shape[:-1])
    slots = TensorSpec((math.prod(cache.shape[:-1]), cache.shape[-1]), cache.dtype, cache.format, "cache")
    inputs = (
        TensorSpec((rows, update.shape[-1]), update.dtype, update.format, "update"),
        slots,
        TensorSpec((rows, 1), "int32", role="index"),
    )
    return LeafOp(SCATTER, inputs, (replace(slots, role=""),))


def canonical_leaf(leaf: LeafOp) -> LeafOp:
    """The leaf in canonical form; unchanged where it already is, or where a tensor that decides it is absent."""
    rewrite = _REWRITES.get(leaf.name)
    found = None if rewrite is None else rewrite(leaf)
    if found is None:
        return leaf
    attrs: dict[str, AttrValue] = {**dict(found.attrs), **dict(leaf.attrs)}
    return replace(found, attrs=tuple(attrs.items()), source=leaf.source)


def _sparse(leaf: LeafOp) -> LeafOp | None:
    query, indices = _flat(leaf.role("query"), 3), leaf.role("topk_indices")
    cache, fresh = leaf.role("kv_dependency"), leaf.role("kv")
    if query is None or indices is None or not indices.shape:
        return None
    if cache is not None and fresh is not None and math.prod(fresh.shape[:-1]) != query.shape[0]:
        return None  # fresh values of other tokens: a contradiction that whoever is asked must see
    cache = cache or fresh
    if cache is None or cache.rank < 2:
        return None
    return sparse_leaf(query, cache, indices.shape[-1], leaf.requests)


def _indexer(leaf: LeafOp) -> LeafOp | None:
    query, weights = _flat(leaf.role("query"), 3), leaf.role("weights")
    cache = leaf.role("indexer_cache")
    if query is None or cache is None or cache.rank < 2 or not leaf.outputs or not leaf.outputs[0].shape:
        return None
    found = indexer_leaf(query, cache, leaf.outputs[0].shape[-1], leaf.requests)
    if weights is None or weights.dtype == query.dtype:
        return found
    inputs = tuple(replace(spec, dtype=weights.dtype) if spec.role == "weights" else spec for spec in found.inputs)
    return replace(found, inputs=inputs)


def _scatter(leaf: LeafOp) -> LeafOp | None:
    update, cache = leaf.role("update"), leaf.role("cache")
    if update is None or cache is None or update.rank < 2 or cache.rank < 2 or leaf.role("index") is None:
        return None
    return scatter_leaf(update, cache)


_REWRITES: Final[Mapping[str, Callable[[LeafOp], LeafOp | None]]] = {
    SPARSE: _sparse,
    INDEXER: _indexer,
    SCATTER: _scatter,
}


def _bare(shape: Shape) -> Shape:
    """A cache without tail dimensions equal to 1."""
    return (shape[0], *(dim for dim in shape[1:] if dim != 1))


def _flat(query: TensorSpec | None, rank: int) -> TensorSpec | None:
    """`(B, S, h, D)` as `(B*S, h, D)`; None for any other rank."""
    if query is None or query.rank not in (rank, rank + 1):
        return None
    lead = query.shape[: query.rank - rank + 1]
    return replace(query, shape=(math.prod(lead), *query.shape[-rank + 1 :]))
