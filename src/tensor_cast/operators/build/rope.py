"""Rotary embeddings.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.operators.build.parts import leaf, like, sizes, tensor
from tensor_cast.operators.leaf import LeafOp

__all__ = ["apply_rope", "apply_rope_inplace", "apply_rope_single", "fused_rope"]


def apply_rope(
    tokens: int,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    batch: int = 1,
    dtype: str = "bfloat16",
    is_neox: bool = True,
) -> LeafOp:
    """Query `(B, heads, S, d)` and key `(B, kv_heads, S, d)`; out both with tokens before heads."""
    sizes("apply_rope", tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim, batch=batch)
    turn = (batch, tokens, head_dim)
    inputs = (
        tensor("query", (batch, heads, tokens, head_dim), dtype),
        tensor("key", (batch, kv_heads, tokens, head_dim), dtype),
        tensor("cos", turn, dtype),
        tensor("sin", turn, dtype),
    )
    outputs = [tensor("", (batch, tokens, count, head_dim), dtype) for count in (heads, kv_heads)]
    return leaf("apply_rope", inputs, outputs, {"is_neox": is_neox})


def apply_rope_single(
    tokens: int, *, heads: int, head_dim: int, batch: int = 1, dtype: str = "bfloat16", transpose_output: bool = True
) -> LeafOp:
    """One tensor `(B, heads, S, d)`; out with tokens before heads, unless `transpose_output` is off."""
    sizes("apply_rope_single", tokens=tokens, heads=heads, head_dim=head_dim, batch=batch)
    x = tensor("x", (batch, heads, tokens, head_dim), dtype)
    turn = (batch, tokens, head_dim)
    out = (batch, tokens, heads, head_dim) if transpose_output else x.shape
    inputs = (x, tensor("cos", turn, dtype), tensor("sin", turn, dtype))
    attrs = {"is_neox": True, "transpose_output": transpose_output}
    return leaf("apply_rope_single", inputs, [tensor("", out, dtype)], attrs)


def apply_rope_inplace(
    tokens: int,
    *,
    heads: int,
    head_dim: int,
    rope_dim: int,
    batch: int = 1,
    dtype: str = "bfloat16",
    inverse: bool = False,
) -> LeafOp:
    """`(B, S, heads, d)` turned in place over its last `rope_dim` values; out the same tensor."""
    sizes("apply_rope_inplace", tokens=tokens, heads=heads, head_dim=head_dim, rope_dim=rope_dim, batch=batch)
    x = tensor("x", (batch, tokens, heads, head_dim), dtype)
    turn = (batch, tokens, rope_dim)
    attrs = {"is_neox": True, "inverse": inverse, "rope_head_dim": rope_dim}
    return leaf("apply_rope_inplace", (x, tensor("cos", turn, dtype), tensor("sin", turn, dtype)), [like(x)], attrs)


def fused_rope(
    tokens: int, *, heads: int, kv_heads: int, head_dim: int, rotary_dim: int, dtype: str = "bfloat16"
) -> LeafOp:
    """Query `(T, heads, d)`, key `(T, kv_heads, d)` and one table `(T, 2 x rotary_dim)`; out the same shapes."""
    sizes("fused_rope", tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rotary_dim=rotary_dim)
    query = tensor("query", (tokens, heads, head_dim), dtype)
    key = tensor("key", (tokens, kv_heads, head_dim), dtype)
    inputs = (query, key, tensor("cos_sin", (tokens, 2 * rotary_dim), dtype))
    return leaf("fused_rope", inputs, [like(query), like(key)], {"rotary_dim": rotary_dim, "is_neox_style": True})
