"""Canonical leaves of latent attention, dense and sparse.

T tokens, B requests, h heads of this rank, `lora` the latent width.  Dense: `multihead_latent_attention(_quant)`;
sparse: `mla_sparse_attention(_quant)`.  Decode absorbs the up-projections (`aten.bmm` before and after attention over
the latent cache); prefill expands the call's T latents with `kv_b_proj` (`aten.mm`).  The quantised forms take their
products from the dtype of the weight.
Source: docs/facts/leaf-operators.md, "Attention", "Leaves of a composite".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensor_cast.operators.composites.descriptor import sparse_leaf
from tensor_cast.operators.composites.leaf_parts import (
    LackingError,
    carried_requests,
    is_quantised,
    layers_of,
    numbered,
    optional_integer,
    output_dtype,
    product,
    tensor,
)
from tensor_cast.operators.composites.phase import Form, attention_form
from tensor_cast.operators.composites.sequence_parallel import (
    local_tokens,
    rank_zero_requests,
    splits_tokens,
)
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.parallel import ParallelConfig

__all__ = [
    "ABSORB_KERNELS",
    "EXPAND_KERNELS",
    "PROJECT_KERNELS",
    "dense_latent_leaves",
    "local_requests",
    "sparse_latent_leaves",
]

ABSORB_KERNELS: Final = ("BatchMatMulV2", "BatchMatMulNd")
PROJECT_KERNELS: Final = ("TransposeBatchMatMul",)
EXPAND_KERNELS: Final = ("MatMulV2",)

_METADATA: Final = ("block_table", "query_start_loc", "seq_lens", "query_lens")


def dense_latent_leaves(leaf: LeafOp, parallel: ParallelConfig) -> tuple[LeafOp, ...]:
    """Decode: bmm, attention `(B, h, 1, lora)` on one latent head, bmm.  Prefill: mm, attention `(T, h, nope)`."""
    query = tensor(leaf, "query", 3)
    if attention_form(leaf) == "prefill":
        expand, shape, value_width = _expanded(leaf, query)
        key = replace(query, shape=shape, role="key")
        value = replace(query, shape=(*shape[:-1], value_width), role="value")
        attention = _attention(leaf, replace(query, shape=shape), key, value, sparse_mode=3)
        return numbered(leaf, (expand, attention))
    absorb, project = _absorbed(leaf, query)
    tokens, heads, lora = query.shape[0], query.shape[1], absorb.outputs[0].shape[-1]
    _one_token_each(leaf, tokens)
    cache = tensor(leaf, "kv_cache")
    blocks, block, _ = layers_of(cache)
    latent = replace(cache, shape=(blocks, 1, block, lora))
    asked = replace(query, shape=(tokens, heads, 1, lora))
    attention = _attention(leaf, asked, replace(latent, role="key"), replace(latent, role="value"), sparse_mode=0)
    return numbered(leaf, (absorb, attention, project))


def sparse_latent_leaves(leaf: LeafOp, parallel: ParallelConfig) -> tuple[LeafOp, ...]:
    """The same projections around `sparse_attn_sharedkv` with query `(T, h, lora)` on the latent part of the cache.

    Under sequence parallelism a prefill's attention sees rank 0's share of the tokens and all heads; the call's heads
    are global then (the weights are replicated) unless `attention_heads_already_global` is given as false.
    """
    query, cache = tensor(leaf, "query", 3), tensor(leaf, "kv_cache")
    form = attention_form(leaf)
    before, after = _projections(leaf, query, form)
    lora = tensor(leaf, "kv_b_proj", 2).shape[0] if form == "prefill" else before.outputs[0].shape[-1]
    tokens, heads, _ = query.shape
    requests = local_requests(leaf, parallel, form, tokens)
    if splits_tokens(parallel, form):
        tokens = local_tokens(tokens, parallel.tensor_parallel_size)
        if leaf.attributes.get("attention_heads_already_global") in (False, "False"):
            heads *= parallel.tensor_parallel_size
    latent = replace(cache, shape=(*layers_of(cache)[:2], lora))
    attention = sparse_leaf(replace(query, shape=(tokens, heads, lora)), latent, _selected(leaf), requests)
    return numbered(leaf, (before, attention, *after))


def local_requests(leaf: LeafOp, parallel: ParallelConfig, form: str, tokens: int) -> Requests | None:
    """The grouping the attention kernel sees: the call's own, or rank 0's where the tokens are spread."""
    requests = carried_requests(leaf)
    if not splits_tokens(parallel, form):
        return requests
    local = None if requests is None else rank_zero_requests(requests, tokens, parallel.tensor_parallel_size)
    if local is None:
        raise LackingError(f"query_lens and kv_lens that account for the {tokens} tokens")
    return local


def _projections(leaf: LeafOp, query: TensorSpec, form: Form) -> tuple[LeafOp, tuple[LeafOp, ...]]:
    if form == "prefill":
        return _expanded(leaf, query)[0], ()
    absorb, project = _absorbed(leaf, query)
    return absorb, (project,)


def _absorbed(leaf: LeafOp, query: TensorSpec) -> tuple[LeafOp, LeafOp]:
    """`(h, T, nope) x (h, nope, lora)` into the query's dtype, and `(h, T, lora) x (h, lora, v)` out of attention."""
    w_uk, w_uv = tensor(leaf, "w_uk_t", 3), tensor(leaf, "w_uv", 3)
    tokens, heads, width = query.shape
    _, nope, lora = w_uk.shape
    cached = layers_of(tensor(leaf, "kv_cache"))[-1]
    if w_uk.shape[0] != heads or not 0 < nope < width or cached != lora + width - nope:
        raise LackingError(f"w_uk_t ({heads}, nope, lora) that fits query and cache")
    if w_uv.shape[:2] != (heads, lora):
        raise LackingError(f"w_uv ({heads}, {lora}, v)")
    absorb = product((heads, tokens, nope), w_uk.shape, w_uk.dtype, query.dtype, ABSORB_KERNELS)
    out = output_dtype(leaf, query.dtype)
    return absorb, product((heads, tokens, lora), w_uv.shape, w_uv.dtype, out, PROJECT_KERNELS)


def _expanded(leaf: LeafOp, query: TensorSpec) -> tuple[LeafOp, Shape, int]:
    """`(T, lora) x (lora, h*(nope+v))`, the query without its rotary part, and v."""
    weight, cache = tensor(leaf, "kv_b_proj", 2), tensor(leaf, "kv_cache")
    tokens, heads, width = query.shape
    lora = weight.shape[0]
    nope = width - (layers_of(cache)[-1] - lora)
    value_width = weight.shape[1] // max(heads, 1) - nope
    if not 0 < nope < width or value_width < 1 or weight.shape[1] % max(heads, 1):
        raise LackingError(f"kv_b_proj (lora, {heads}*(nope + v)) that fits query and cache")
    expand = product((tokens, lora), weight.shape, weight.dtype, query.dtype, EXPAND_KERNELS)
    return expand, (tokens, heads, nope), value_width


def _attention(leaf: LeafOp, query: TensorSpec, key: TensorSpec, value: TensorSpec, *, sparse_mode: int) -> LeafOp:
    name = "tensor_cast.attention_quant.default" if is_quantised(leaf) else "tensor_cast.attention.default"
    metadata = tuple(spec for role in _METADATA if (spec := leaf.role(role)) is not None)
    output = TensorSpec((*query.shape[:-1], value.shape[-1]), output_dtype(leaf, query.dtype))
    attrs = (("sparse_mode", sparse_mode),)
    return LeafOp(name, (query, key, value, *metadata), (output,), attrs, carried_requests(leaf))


def _one_token_each(leaf: LeafOp, tokens: int) -> None:
    """Dense decode is measured with one token a request: refuse a call whose requests do not add up to that."""
    requests = carried_requests(leaf)
    count: int | None = None
    if requests is not None and requests.query_lens is not None:
        count = sum(requests.query_lens) if max(requests.query_lens, default=0) <= 1 else None
    elif requests is not None:
        table = requests.block_table_shape
        count = requests.count if requests.count is not None else None if table is None else table[0]
    if count != tokens:
        raise LackingError(f"one query token for each of {tokens} requests")


def _selected(leaf: LeafOp) -> int:
    """Positions each token attends to: the width of the index tensor, else the configured limit."""
    indices = leaf.role("topk_indices")
    if indices is not None and indices.shape and indices.shape[-1] > 0:
        return indices.shape[-1]
    limit = optional_integer(leaf, "topk_limit")
    if limit is None:
        raise LackingError("topk_indices or topk_limit")
    return limit
