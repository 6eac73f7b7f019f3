"""Operators of DeepSeek-V4.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.parts import BLOCK, leaf, like, sizes, tensor
from tensor_cast.operators.leaf import LeafOp, Requests

__all__ = [
    "compressor",
    "hc_head",
    "hc_post",
    "hc_pre_inv_rms",
    "hc_pre_sinkhorn",
    "quant_lightning_indexer",
    "scatter_nd_update_mla",
    "sparse_attn_sharedkv",
    "v4_clamped_swiglu",
]

_INDEX_DIM, _COMPRESSION = 128, 4


def quant_lightning_indexer(
    requests: Requests,
    *,
    index_heads: int,
    topk: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "float8_e4m3fn",
) -> LeafOp:
    """Queries `(B, S, heads, 128)` against the cached keys; out the best positions of each token.

    At most a quarter of the longest context is chosen, as the cache is compressed four times.
    """
    name = "quant_lightning_indexer"
    sizes(name, index_heads=index_heads, topk=topk, blocks=blocks, block_size=block_size)
    batch, length = _alike(name, requests)
    longest = max(requests.kv_lens or (length,))
    chosen = min(topk, max(longest // _COMPRESSION, 1))
    inputs = (
        tensor("query", (batch, length, index_heads, _INDEX_DIM), dtype),
        tensor("weights", (batch, length, index_heads), "float32"),
        tensor("indexer_cache", (blocks, block_size, _INDEX_DIM), dtype),
        tensor("seq_lens", (batch,), "int32"),
        tensor("query_lens", (batch,), "int32"),
    )
    outputs = [tensor("", (batch, length, chosen), "int64")]
    return leaf(name, inputs, outputs, {"topk_limit": topk, "tp_world_size": 1}, requests)


def sparse_attn_sharedkv(
    requests: Requests,
    *,
    heads: int,
    head_dim: int = 512,
    chosen: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "bfloat16",
) -> LeafOp:
    """Query `(B, S, heads, D)` over the chosen positions of one shared key and value; out `(B, S, heads, D)`."""
    name = "sparse_attn_sharedkv"
    sizes(name, heads=heads, head_dim=head_dim, chosen=chosen, blocks=blocks, block_size=block_size)
    batch, length = _alike(name, requests)
    query = tensor("query", (batch, length, heads, head_dim), dtype)
    inputs = (
        query,
        tensor("kv", (blocks, block_size, head_dim), dtype),
        tensor("attn_sink", (heads,), "float32"),
        tensor("topk_indices", (batch, length, chosen), "int32"),
    )
    attrs = {"softmax_scale": head_dim**-0.5, "head_dim": head_dim}
    return leaf(name, inputs, [like(query)], attrs, requests)


def scatter_nd_update_mla(
    tokens: int, *, width: int, blocks: int, batch: int = 1, block_size: int = BLOCK, dtype: str = "bfloat16"
) -> LeafOp:
    """New latents `(B, s, D)` into the cache; out like the cache."""
    name = "scatter_nd_update_mla"
    sizes(name, tokens=tokens, width=width, blocks=blocks, batch=batch, block_size=block_size)
    cache = tensor("cache", (blocks, block_size, 1, width), dtype)
    inputs = (tensor("update", (batch, tokens, width), dtype), cache, tensor("index", (batch * tokens,), "int64"))
    return leaf(name, inputs, [like(cache)])


def compressor(
    requests: Requests,
    *,
    hidden: int,
    head_dim: int,
    rope_dim: int,
    ratio: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "bfloat16",
) -> LeafOp:
    """Hidden states compressed `ratio` to one: `(B, S // ratio, head_dim)`, one where every query is one token."""
    name = "compressor"
    sizes(name, hidden=hidden, head_dim=head_dim, rope_dim=rope_dim, ratio=ratio, blocks=blocks, block_size=block_size)
    batch, length = _alike(name, requests)
    cache = tensor("kv_cache", (blocks, block_size, head_dim), dtype)
    outputs = [tensor("", (batch, 1 if length == 1 else length // ratio, head_dim), dtype), like(cache)]
    attrs = {"compress_ratio": ratio, "head_dim": head_dim, "rope_head_dim": rope_dim, "rotate": False}
    return leaf(name, (tensor("hidden", (batch, length, hidden), dtype), cache), outputs, attrs, requests)


def hc_pre_inv_rms(length: int, *, hidden: int, mult: int, batch: int = 1, dtype: str = "bfloat16") -> LeafOp:
    """Inverse root mean squares of `(B, S, mult, hidden)`: `(B, S, 1)` in float32."""
    sizes("hc_pre_inv_rms", length=length, hidden=hidden, mult=mult, batch=batch)
    x = tensor("x", (batch, length, mult, hidden), dtype)
    return leaf("hc_pre_inv_rms", (x,), [tensor("", (batch, length, 1), "float32")], {"hc_mult": mult})


def hc_pre_sinkhorn(length: int, *, hidden: int, mult: int, batch: int = 1, dtype: str = "bfloat16") -> LeafOp:
    """Mixing weights of hyper-connections: `(B, S, hidden)`, `(B, S, mult)` and `(B, S, mult, mult)`."""
    sizes("hc_pre_sinkhorn", length=length, hidden=hidden, mult=mult, batch=batch)
    width = (2 + mult) * mult
    inputs = (
        tensor("x", (batch, length, width), "float32"),
        tensor("hidden", (batch, length, mult, hidden), dtype),
        tensor("hc_scale", (3,), "float32"),
        tensor("hc_base", (width,), "float32"),
    )
    rows = (batch, length)
    outputs = (
        tensor("", (*rows, hidden), dtype),
        tensor("", (*rows, mult), "float32"),
        tensor("", (*rows, mult, mult), "float32"),
    )
    return leaf("hc_pre_sinkhorn", inputs, outputs, {"hc_mult": mult, "sinkhorn_iters": 1, "hc_eps": 1e-6})


def hc_post(length: int, *, hidden: int, mult: int, batch: int = 1, dtype: str = "bfloat16") -> LeafOp:
    """Hidden states spread over the connections: `(B, S, mult, hidden)`."""
    sizes("hc_post", length=length, hidden=hidden, mult=mult, batch=batch)
    residual = tensor("residual", (batch, length, mult, hidden), dtype)
    return leaf("hc_post", (tensor("x", (batch, length, hidden), dtype), residual), [like(residual)], {"hc_mult": mult})


def hc_head(length: int, *, hidden: int, mult: int, batch: int = 1, dtype: str = "bfloat16") -> LeafOp:
    """Connections joined before the head: `(B, S, hidden)`."""
    sizes("hc_head", length=length, hidden=hidden, mult=mult, batch=batch)
    inputs = (
        tensor("x", (batch, length, mult, hidden), dtype),
        tensor("fn", (mult, mult * hidden), "float32"),
        tensor("scale", (1,), "float32"),
        tensor("base", (mult,), "float32"),
    )
    outputs = [tensor("", (batch, length, hidden), dtype)]
    return leaf("hc_head", inputs, outputs, {"hc_mult": mult, "hc_eps": 1e-6})


def v4_clamped_swiglu(tokens: int, *, width: int, limit: float, dtype: str = "bfloat16") -> LeafOp:
    """SwiGLU whose halves are clamped at `limit`; out like the second half."""
    sizes("v4_clamped_swiglu", tokens=tokens, width=width)
    gate, up = tensor("gate", (tokens, width), dtype), tensor("up", (tokens, width), dtype)
    return leaf("v4_clamped_swiglu", (gate, up), [like(up)], {"swiglu_limit": limit})


def _alike(operator: str, requests: Requests) -> tuple[int, int]:
    """Requests and their common query length.  Raises InvalidValueError where they differ."""
    lengths = set(requests.query_lens or ())
    if len(lengths) != 1 or min(lengths) < 1:
        raise InvalidValueError(f"{operator}: requests of one query length, got {requests.query_lens}")
    return len(requests.query_lens or ()), lengths.pop()
