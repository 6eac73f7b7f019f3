"""Attention over paged keys and values.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.parts import BLOCK, leaf, like, new_tokens, sizes, tensor
from tensor_cast.operators.leaf import LeafOp, Requests

__all__ = ["attention", "attention_quant"]


def attention(
    requests: Requests,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "bfloat16",
    kv_dtype: str | None = None,
) -> LeafOp:
    """Query `(T, heads x head_dim)`, key and value `(blocks, block_size, kv_heads, head_dim)`; out like query."""
    return _attention("attention", requests, heads, kv_heads, head_dim, blocks, block_size, dtype, kv_dtype or dtype)


def attention_quant(
    requests: Requests,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "int8",
    kv_dtype: str = "int8",
    out_dtype: str = "bfloat16",
) -> LeafOp:
    """The same over a quantised cache: scalar scales of query, cache and probabilities follow the tensors."""
    found = _attention("attention_quant", requests, heads, kv_heads, head_dim, blocks, block_size, dtype, kv_dtype)
    scales = [tensor(f"{name}_scale", (), "float32") for name in ("query", "kv", "attention_prob")]
    outputs = [like(found.inputs[0], out_dtype)]
    return leaf("attention_quant", (*found.inputs, *scales), outputs, {"out_dtype": out_dtype}, requests)


def _attention(
    name: str,
    requests: Requests,
    heads: int,
    kv_heads: int,
    head_dim: int,
    blocks: int,
    block_size: int,
    dtype: str,
    kv_dtype: str,
) -> LeafOp:
    sizes(name, heads=heads, kv_heads=kv_heads, head_dim=head_dim, blocks=blocks, block_size=block_size)
    if heads % kv_heads:
        raise InvalidValueError(f"{name}: heads {heads} is no multiple of kv_heads {kv_heads}")
    query = tensor("query", (new_tokens(name, requests), heads * head_dim), dtype)
    paged = (blocks, block_size, kv_heads, head_dim)
    inputs = (query, tensor("key", paged, kv_dtype), tensor("value", paged, kv_dtype))
    return leaf(name, inputs, [like(query)], None, requests)
