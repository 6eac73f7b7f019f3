"""The composites that exact lookup alone answers whole, as the kernels that run them.

Latent attention (H local heads, T tokens, B requests): decode absorbs the projections into the query, prefill expands
keys and values.  `mlapo`: two projections and the cache write.  Whoever sums asks `operators.composites` instead, where
nothing is assumed.
Source: docs/facts/exact-lookup.md, "Composites that the base sums".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensor_cast.operators.composites.latent_leaves import ABSORB_KERNELS, EXPAND_KERNELS, PROJECT_KERNELS
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["SubKernel", "decompose", "is_decomposable", "needs"]


@dataclass(frozen=True, slots=True)
class SubKernel:
    """A canonical leaf, the kernels that may have run it (first to last), and how its rows are matched.

    `sparse_mode` and `num_kv_heads` are set for a dense-attention child, whose query is the leaf's first input.
    """

    leaf: LeafOp
    kernels: tuple[str, ...]
    input_count: int | None = None
    is_attention: bool = False
    sparse_mode: int | None = None
    num_kv_heads: int | None = None


def is_decomposable(operator: str) -> bool:
    """Whether a decomposition exists for the operator."""
    return operator in _DECOMPOSERS


def needs(operator: str) -> str:
    """What a call of a decomposable operator must hold."""
    return _NEEDS[_DECOMPOSERS[operator]]


def decompose(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """The children in launch order; empty where the call lacks what the decomposition needs."""
    decomposer = _DECOMPOSERS.get(leaf.name)
    return () if decomposer is None else decomposer(leaf)


def _latent_attention(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """Children of the latent-attention operators; empty where the weights are absent."""
    query = leaf.role("query")
    if query is None or query.rank != 3:
        return ()
    return _latent_decode(leaf, query) if _is_decode(leaf.requests) else _latent_prefill(leaf, query)


def _quantised(leaf: LeafOp) -> bool:
    return leaf.name.split(".")[1].endswith("_quant")


def _latent_decode(leaf: LeafOp, query: TensorSpec) -> tuple[SubKernel, ...]:
    w_uk, w_uv = leaf.role("w_uk_t"), leaf.role("w_uv")
    if w_uk is None or w_uv is None or w_uk.rank != 3 or w_uv.rank != 3:
        return ()
    tokens, heads = query.shape[:2]
    _, nope, lora = w_uk.shape
    absorb = ("QuantBatchMatmulV3",) if _quantised(leaf) else ABSORB_KERNELS
    requests = leaf.requests
    batch = requests.count if requests is not None and requests.count else tokens
    return (
        _child(
            leaf,
            0,
            "aten.bmm.default",
            absorb,
            ((heads, tokens, nope), (heads, nope, lora)),
            query.dtype,
            input_count=2,
        ),
        _attention(leaf, query, (batch, heads, lora), sparse_mode=0, kv_heads=1),
        _child(
            leaf,
            2,
            "aten.bmm.default",
            PROJECT_KERNELS,
            ((heads, tokens, lora), (heads, lora, w_uv.shape[-1])),
            query.dtype,
        ),
    )


def _latent_prefill(leaf: LeafOp, query: TensorSpec) -> tuple[SubKernel, ...]:
    kv_b, cache = leaf.role("kv_b_proj"), leaf.role("kv_cache")
    if kv_b is None or kv_b.rank != 2 or cache is None:
        return ()
    tokens, heads, width = query.shape
    lora = kv_b.shape[0]
    rope = cache.shape[-1] - lora
    project = ("QuantBatchMatmulV3",) if _quantised(leaf) else EXPAND_KERNELS
    return (
        _child(leaf, 0, "aten.mm.default", project, ((tokens, lora), kv_b.shape), query.dtype, input_count=2),
        _attention(leaf, query, (tokens, heads, width - rope), sparse_mode=3, kv_heads=heads),
    )


def _attention(
    leaf: LeafOp, query: TensorSpec, shape: tuple[int, int, int], *, sparse_mode: int, kv_heads: int
) -> SubKernel:
    if "sparse" in leaf.name:
        dense_shape = (query.shape[0], *shape[1:])
        return _child(
            leaf, 1, "tensor_cast.sparse_attn_sharedkv.default", ("SparseFlashAttention",), (dense_shape,), query.dtype
        )
    attention = LeafOp(
        "tensor_cast.attention.default",
        (replace(query, shape=shape, role="query"),),
        requests=leaf.requests,
        source=f"child:{leaf.name}#1",
    )
    return SubKernel(attention, ("FusedInferAttentionScore",), None, True, sparse_mode, kv_heads)


def _is_decode(requests: Requests | None) -> bool:
    """Whether every query is at most one token; unknown query lengths count as decode."""
    if requests is None or requests.query_lens is None:
        return True
    return max(requests.query_lens, default=0) <= 1


def _preprocess(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """Children of `mlapo` and `mlapo_quant`; empty where a width is unknown."""
    hidden = leaf.role("hidden")
    widths = [leaf.attributes.get(name) for name in ("q_lora_rank", "kv_lora_rank", "qk_rope_dim")]
    if hidden is None or hidden.rank < 2 or any(not isinstance(width, int) for width in widths):
        return ()
    q_lora, kv_lora, rope = (int(width) for width in widths if isinstance(width, int))
    tokens = hidden.numel // hidden.shape[-1]
    up = _q_b_shape(leaf, q_lora)
    if up is None:
        return ()
    quantised = leaf.name.split(".")[1].endswith("_quant")
    kernels = ("QuantBatchMatmulV3",) if quantised else ("MatMulV2",)
    dtype = "int8" if quantised else hidden.dtype
    down = (q_lora + kv_lora + rope, hidden.shape[-1])
    return (
        _child(leaf, 0, "aten.mm.default", kernels, ((tokens, hidden.shape[-1]), down), dtype),
        _child(leaf, 1, "aten.mm.default", kernels, ((tokens, q_lora), up), dtype),
        _child(
            leaf,
            2,
            "tensor_cast.kv_rmsnorm_rope_cache.default",
            ("KvRmsNormRopeCache",),
            ((tokens, 1, 1, kv_lora + rope),),
            hidden.dtype,
        ),
    )


def _q_b_shape(leaf: LeafOp, q_lora: int) -> tuple[int, ...] | None:
    heads, width = leaf.attributes.get("num_heads"), leaf.attributes.get("qk_head_dim")
    if leaf.name.startswith("tensor_cast.mlapo_quant"):
        return (heads * width, q_lora) if isinstance(heads, int) and isinstance(width, int) else None
    weight = leaf.role("q_b_weight")
    return None if weight is None else weight.shape


def _child(
    parent: LeafOp,
    index: int,
    operator: str,
    kernels: tuple[str, ...],
    shapes: tuple[Shape, ...],
    dtype: str,
    *,
    input_count: int | None = None,
    requests: Requests | None = None,
) -> SubKernel:
    """A compute child on plain shapes of one dtype; the input count defaults to the number of shapes."""
    leaf = LeafOp(
        operator,
        tuple(TensorSpec(shape, dtype) for shape in shapes),
        requests=requests,
        source=f"child:{parent.name}#{index}",
    )
    return SubKernel(leaf, kernels, input_count or len(shapes))


_DECOMPOSERS = {
    "tensor_cast.multihead_latent_attention.default": _latent_attention,
    "tensor_cast.multihead_latent_attention_quant.default": _latent_attention,
    "tensor_cast.mla_sparse_attention.default": _latent_attention,
    "tensor_cast.mla_sparse_attention_quant.default": _latent_attention,
    "tensor_cast.mlapo.default": _preprocess,
    "tensor_cast.mlapo_quant.default": _preprocess,
}
_NEEDS = {
    _latent_attention: (
        "query (T, h, D), and w_uk_t and w_uv (h, ...) for a decode or kv_b_proj (lora, ...) and kv_cache for a prefill"
    ),
    _preprocess: (
        "hidden (T, H), q_lora_rank, kv_lora_rank, qk_rope_dim, and q_b_weight (mlapo_quant: num_heads and qk_head_dim)"
    ),
}
