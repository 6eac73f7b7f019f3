"""Writes into the cache.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.operators.build.parts import BLOCK, leaf, sizes, tensor
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["concat_and_cache_mla", "kv_rmsnorm_rope_cache", "reshape_and_cache"]


def reshape_and_cache(
    tokens: int, *, kv_heads: int, head_dim: int, blocks: int, block_size: int = BLOCK, dtype: str = "bfloat16"
) -> LeafOp:
    """Key and value `(T, kv_heads x head_dim)` into `(2, blocks, block_size, kv_heads, head_dim)`; no output."""
    name = "reshape_and_cache"
    sizes(name, tokens=tokens, kv_heads=kv_heads, head_dim=head_dim, blocks=blocks, block_size=block_size)
    fresh = (tokens, kv_heads * head_dim)
    cache = tensor("kv_cache", (2, blocks, block_size, kv_heads, head_dim), dtype)
    inputs = (tensor("key", fresh, dtype), tensor("value", fresh, dtype), cache, _slots(tokens))
    return leaf(name, inputs)


def concat_and_cache_mla(
    tokens: int, *, kv_lora_rank: int, rope_dim: int, blocks: int, block_size: int = BLOCK, dtype: str = "bfloat16"
) -> LeafOp:
    """Latent `(T, lora)` and rope `(T, rope)` parts into `(blocks, block_size, lora + rope)`; nothing comes out."""
    name = "concat_and_cache_mla"
    sizes(name, tokens=tokens, kv_lora_rank=kv_lora_rank, rope_dim=rope_dim, blocks=blocks, block_size=block_size)
    cache = tensor("kv_cache", (blocks, block_size, kv_lora_rank + rope_dim), dtype)
    fresh = tensor("kv_c", (tokens, kv_lora_rank), dtype), tensor("k_rot", (tokens, rope_dim), dtype)
    return leaf(name, (*fresh, cache, _slots(tokens)))


def kv_rmsnorm_rope_cache(
    tokens: int,
    *,
    kv_lora_rank: int,
    rope_dim: int,
    blocks: int,
    block_size: int = BLOCK,
    dtype: str = "bfloat16",
    epsilon: float = 1e-6,
) -> LeafOp:
    """Norm, rope and cache write of `(T, lora + rope)`; out the rope part and the latent part."""
    name = "kv_rmsnorm_rope_cache"
    sizes(name, tokens=tokens, kv_lora_rank=kv_lora_rank, rope_dim=rope_dim, blocks=blocks, block_size=block_size)
    width = kv_lora_rank + rope_dim
    turn = (1, tokens, rope_dim)
    inputs = (
        tensor("kv", (tokens, width), dtype),
        tensor("gamma", (kv_lora_rank,), dtype),
        tensor("cos", turn, dtype),
        tensor("sin", turn, dtype),
        tensor("kv_cache", (blocks, block_size, width), dtype),
        _slots(tokens),
    )
    outputs = (tensor("", (tokens, rope_dim), dtype), tensor("", (tokens, kv_lora_rank), dtype))
    attrs = {"kv_lora_rank": kv_lora_rank, "qk_rope_dim": rope_dim, "epsilon": epsilon}
    return leaf(name, inputs, outputs, attrs)


def _slots(tokens: int) -> TensorSpec:
    return tensor("slot_mapping", (tokens,), "int64")
