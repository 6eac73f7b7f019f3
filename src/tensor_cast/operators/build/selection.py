"""Attention over selected positions: the indexers, the sparse attention they feed, and their caches.

B sequences of S tokens (the simulator packs a batch as one sequence).
Source: docs/facts/leaf-operators.md "Attention".
"""

from __future__ import annotations

from collections.abc import Iterable

from tensor_cast.operators.build.batch import BLOCK_SIZE, check_tokens, lengths, metadata
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import at_most, positive
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests

__all__ = ["compressor", "dsa_indexer", "quant_lightning_indexer", "scatter_nd_update_mla", "sparse_attn_sharedkv"]

_COMPRESSED = 4  # positions behind one entry of the index cache


def dsa_indexer(
    tokens: int,
    hidden: int,
    *,
    q_lora_rank: int,
    index_heads: int,
    topk_limit: int,
    blocks: int,
    requests: Requests | None = None,
    is_decode_values: Iterable[bool] | None = None,
    index_head_dim: int = 128,
    qk_rope_head_dim: int = 64,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
    wq_b_dtype: str | None = None,
) -> LeafOp:
    """The indexer of DSA: hidden `(1, T, H)` to int64 positions `(1, T, topk_limit)`, writing its own paged cache."""
    sizes = {"tokens": tokens, "hidden": hidden, "q_lora_rank": q_lora_rank, "index_heads": index_heads}
    sizes |= {"index_head_dim": index_head_dim, "qk_rope_head_dim": qk_rope_head_dim}
    positive(**sizes, topk_limit=topk_limit, blocks=blocks, block_size=block_size)
    at_most(index_head_dim, "index_head_dim", qk_rope_head_dim=qk_rope_head_dim)
    check_tokens(tokens, requests)
    angles, known = tensor(dtype, 1, tokens, qk_rope_head_dim), metadata(requests)
    inputs = {
        "hidden": tensor(dtype, 1, tokens, hidden),
        "qa_normed": tensor(dtype, 1, tokens, q_lora_rank),
        "cos": angles,
        "sin": angles,
        "indexer_cache": tensor(cache_dtype or dtype, blocks, block_size, index_head_dim),
        "slot_mapping": tensor("int64", tokens),
        "block_table": known.get("block_table"),
        "seq_lens": known.get("seq_lens"),
        "wq_b": tensor(wq_b_dtype or dtype, index_heads * index_head_dim, q_lora_rank),
        "wk": tensor(dtype, index_head_dim, hidden),
        "weights_proj": tensor(dtype, index_heads, hidden),
        "k_norm": tensor(dtype, index_head_dim),
        "query_lens": known.get("query_lens"),
    }
    attrs: dict[str, AttrValue] = {"num_heads": index_heads, "head_dim": index_head_dim, "topk_limit": topk_limit}
    if is_decode_values is not None:
        attrs["is_decode_values"] = tuple(str(flag) for flag in is_decode_values)
    selected = tensor("int64", 1, tokens, topk_limit)
    return call("dsa_indexer", inputs, (selected,), requests, qk_rope_dim=qk_rope_head_dim, **attrs)


def quant_lightning_indexer(
    tokens: int,
    index_heads: int,
    *,
    topk_limit: int,
    blocks: int,
    requests: Requests | None = None,
    batch: int = 1,
    head_dim: int = 128,
    block_size: int = BLOCK_SIZE,
    tp_world_size: int = 1,
    dtype: str = BF16,
    weights_dtype: str | None = None,
    cache_dtype: str | None = None,
) -> LeafOp:
    """DeepSeek-V4's indexer: queries `(B, S, n, 128)` and weights `(B, S, n)` to int64 positions.

    As many are selected as `topk_limit` allows and the longest context holds in fours, at least one; of a context that
    is not known, S stands for it.
    """
    positive(tokens=tokens, index_heads=index_heads, topk_limit=topk_limit, blocks=blocks, batch=batch)
    positive(head_dim=head_dim, block_size=block_size, tp_world_size=tp_world_size)
    check_tokens(batch * tokens, requests)
    inputs = {
        "query": tensor(dtype, batch, tokens, index_heads, head_dim),
        "weights": tensor(weights_dtype or dtype, batch, tokens, index_heads),
        "indexer_cache": tensor(cache_dtype or dtype, blocks, block_size, head_dim),
        **lengths(requests),
    }
    active = max(requests.kv_lens) if requests is not None and requests.kv_lens else tokens
    selected = tensor("int64", batch, tokens, min(topk_limit, max(active // _COMPRESSED, 1)))
    attrs = {"topk_limit": topk_limit, "tp_world_size": tp_world_size}
    return call("quant_lightning_indexer", inputs, (selected,), requests, **attrs)


def sparse_attn_sharedkv(
    tokens: int,
    heads: int,
    *,
    index_width: int,
    blocks: int,
    prefill: bool,
    compress_ratio: int = 0,
    requests: Requests | None = None,
    batch: int = 1,
    head_dim: int = 512,
    block_size: int = BLOCK_SIZE,
    softmax_scale: float | None = None,
    sink: bool = True,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """Attention of queries `(B, S, h, D)` over the `index_width` positions that int32 indices select.

    A decode reads the cache `(blocks, block_size, D)`; a prefill its own keys with the compressed ones behind,
    `(B, S + S//compress_ratio, D)`, and depends on the cache.  The output has the dtype of what is read.
    `softmax_scale` is `head_dim ** -0.5` unless given; without `sink` that tensor is empty.
    """
    positive(tokens=tokens, heads=heads, index_width=index_width, blocks=blocks, batch=batch)
    positive(head_dim=head_dim, block_size=block_size, **({"compress_ratio": compress_ratio} if compress_ratio else {}))
    check_tokens(batch * tokens, requests)
    cache = tensor(cache_dtype or dtype, blocks, block_size, head_dim)
    compressed = tokens // compress_ratio if compress_ratio else 0
    read = tensor(dtype, batch, tokens + compressed, head_dim) if prefill else cache
    inputs = {
        "query": tensor(dtype, batch, tokens, heads, head_dim),
        "kv": read,
        "attn_sink": tensor("float32", heads if sink else 0),
        "topk_indices": tensor("int32", batch, tokens, index_width),
        "kv_dependency": cache if prefill else None,
    }
    output = tensor(read.dtype, batch, tokens, heads, head_dim)
    scale = head_dim**-0.5 if softmax_scale is None else softmax_scale
    return call("sparse_attn_sharedkv", inputs, (output,), requests, softmax_scale=scale, head_dim=head_dim)


def scatter_nd_update_mla(
    rows: int,
    head_dim: int = 512,
    *,
    blocks: int,
    slots: int | None = None,
    window_size: int | None = None,
    requests: Requests | None = None,
    batch: int = 1,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """`rows` of new entries, `(B, rows, D)`, into the cache, which is also the output.

    `slots` is the length of the whole call's int64 slot mapping, by default that of these rows; refuses fewer.
    """
    mapped = batch * rows if slots is None else slots
    positive(rows=rows, head_dim=head_dim, blocks=blocks, batch=batch, block_size=block_size, slots=mapped)
    at_most(mapped, "slots", rows=batch * rows)
    if window_size is not None:
        positive(window_size=window_size)
    cache = tensor(cache_dtype or dtype, blocks, block_size, head_dim)
    inputs = {
        "update": tensor(dtype, batch, rows, head_dim),
        "cache": cache,
        "index": tensor("int64", mapped),
        "seq_lens": metadata(requests).get("seq_lens"),
    }
    return call("scatter_nd_update_mla", inputs, (cache,), requests, window_size=window_size)


def compressor(
    tokens: int,
    hidden: int,
    *,
    compress_ratio: int,
    head_dim: int,
    blocks: int,
    rotate: bool,
    rope_head_dim: int = 64,
    requests: Requests | None = None,
    batch: int = 1,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """Hidden `(B, S, H)` to compressed entries `(B, S//ratio, D)`, and the cache they were written to.

    One entry where every request has one new token; none, a size of 0, for fewer tokens than the ratio.
    """
    positive(tokens=tokens, hidden=hidden, compress_ratio=compress_ratio, head_dim=head_dim, blocks=blocks)
    positive(rope_head_dim=rope_head_dim, batch=batch, block_size=block_size)
    at_most(head_dim, "head_dim", rope_head_dim=rope_head_dim)
    check_tokens(batch * tokens, requests)
    cache = tensor(cache_dtype or dtype, blocks, block_size, head_dim)
    inputs = {
        "hidden": tensor(dtype, batch, tokens, hidden),
        "kv_cache": cache,
        **lengths(requests),
    }
    decoding = requests is not None and requests.query_lens is not None and set(requests.query_lens) == {1}
    made = tensor(dtype, batch, 1 if decoding else tokens // compress_ratio, head_dim)
    attrs = {"compress_ratio": compress_ratio, "head_dim": head_dim, "rope_head_dim": rope_head_dim, "rotate": rotate}
    return call("compressor", inputs, (made, cache), requests, **attrs)
