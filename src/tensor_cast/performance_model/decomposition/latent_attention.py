"""Multi-head latent attention: projection, attention, projection back.

Source: exact-lookup facts, section 9.3.  H local heads, T tokens, B requests; decode absorbs the projections into the
query, prefill expands keys and values instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.decomposition.sub_kernel import SubKernel, child

__all__ = ["ABSORB_KERNELS", "EXPAND_KERNELS", "PROJECT_KERNELS", "decompose_latent_attention", "is_decode"]

ABSORB_KERNELS: Final = ("BatchMatMulV2", "BatchMatMulNd")
PROJECT_KERNELS: Final = ("TransposeBatchMatMul",)
EXPAND_KERNELS: Final = ("MatMulV2",)


def is_decode(requests: Requests | None) -> bool:
    """Whether every query is at most one token; unknown query lengths count as decode."""
    if requests is None or requests.query_lens is None:
        return True
    return max(requests.query_lens, default=0) <= 1


def decompose_latent_attention(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """Children of the latent-attention operators; empty where the weights are absent."""
    query = leaf.role("query")
    if query is None or query.rank != 3:
        return ()
    return _decode(leaf, query) if is_decode(leaf.requests) else _prefill(leaf, query)


def _quantised(leaf: LeafOp) -> bool:
    return leaf.name.split(".")[1].endswith("_quant")


def _decode(leaf: LeafOp, query: TensorSpec) -> tuple[SubKernel, ...]:
    w_uk, w_uv = leaf.role("w_uk_t"), leaf.role("w_uv")
    if w_uk is None or w_uv is None or w_uk.rank != 3 or w_uv.rank != 3:
        return ()
    tokens, heads = query.shape[:2]
    _, nope, lora = w_uk.shape
    absorb = ("QuantBatchMatmulV3",) if _quantised(leaf) else ABSORB_KERNELS
    requests = leaf.requests
    batch = requests.count if requests is not None and requests.count else tokens
    return (
        child(
            leaf,
            0,
            "aten.bmm.default",
            absorb,
            ((heads, tokens, nope), (heads, nope, lora)),
            query.dtype,
            input_count=2,
        ),
        _attention(leaf, query, (batch, heads, lora), sparse_mode=0, kv_heads=1),
        child(
            leaf,
            2,
            "aten.bmm.default",
            PROJECT_KERNELS,
            ((heads, tokens, lora), (heads, lora, w_uv.shape[-1])),
            query.dtype,
        ),
    )


def _prefill(leaf: LeafOp, query: TensorSpec) -> tuple[SubKernel, ...]:
    kv_b, cache = leaf.role("kv_b_proj"), leaf.role("kv_cache")
    if kv_b is None or kv_b.rank != 2 or cache is None:
        return ()
    tokens, heads, width = query.shape
    lora = kv_b.shape[0]
    rope = cache.shape[-1] - lora
    project = ("QuantBatchMatmulV3",) if _quantised(leaf) else EXPAND_KERNELS
    return (
        child(leaf, 0, "aten.mm.default", project, ((tokens, lora), kv_b.shape), query.dtype, input_count=2),
        _attention(leaf, query, (tokens, heads, width - rope), sparse_mode=3, kv_heads=heads),
    )


def _attention(
    leaf: LeafOp, query: TensorSpec, shape: tuple[int, int, int], *, sparse_mode: int, kv_heads: int
) -> SubKernel:
    if "sparse" in leaf.name:
        dense_shape = (query.shape[0], *shape[1:])
        return child(
            leaf, 1, "tensor_cast.sparse_attn_sharedkv.default", ("SparseFlashAttention",), (dense_shape,), query.dtype
        )
    attention = LeafOp(
        "tensor_cast.attention.default",
        (replace(query, shape=shape, role="query"),),
        requests=leaf.requests,
        source=f"child:{leaf.name}#1",
    )
    return SubKernel(attention, ("FusedInferAttentionScore",), None, True, sparse_mode, kv_heads)
