"""Writes of new keys and values, or latents, into a paged cache.

T tokens; `slot_mapping` `(T)` int64 says where each goes.  `cache_dtype` is the cache's where it differs.
Source: docs/facts/leaf-operators.md "Attention".
"""

from __future__ import annotations

from tensor_cast.operators.build.batch import BLOCK_SIZE
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import positive
from tensor_cast.operators.leaf import LeafOp

__all__ = ["concat_and_cache_mla", "kv_rmsnorm_rope_cache", "reshape_and_cache"]


def reshape_and_cache(
    tokens: int,
    kv_heads: int,
    head_dim: int,
    *,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """Keys and values `(T, hk*d)` into the cache `(2, blocks, block_size, hk, d)`, which they change: no output."""
    positive(tokens=tokens, kv_heads=kv_heads, head_dim=head_dim, blocks=blocks, block_size=block_size)
    new = tensor(dtype, tokens, kv_heads * head_dim)
    inputs = {
        "key": new,
        "value": new,
        "kv_cache": tensor(cache_dtype or dtype, 2, blocks, block_size, kv_heads, head_dim),
        "slot_mapping": tensor("int64", tokens),
    }
    return call("reshape_and_cache", inputs)


def concat_and_cache_mla(
    tokens: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    *,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """Latents `(T, lora)` and their rotary part `(T, rope)` into `(blocks, block_size, lora+rope)`: no output."""
    width = _width(tokens, kv_lora_rank, qk_rope_head_dim, blocks, block_size)
    inputs = {
        "kv_c": tensor(dtype, tokens, kv_lora_rank),
        "k_rot": tensor(dtype, tokens, qk_rope_head_dim),
        "kv_cache": tensor(cache_dtype or dtype, blocks, block_size, width),
        "slot_mapping": tensor("int64", tokens),
    }
    return call("concat_and_cache_mla", inputs)


def kv_rmsnorm_rope_cache(
    tokens: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    *,
    blocks: int,
    block_size: int = BLOCK_SIZE,
    epsilon: float = 1e-6,
    dtype: str = BF16,
    cache_dtype: str | None = None,
) -> LeafOp:
    """Norm of the latent, rotary embedding of its tail, and the cache write; makes `(T, rope)` and `(T, lora)`."""
    width = _width(tokens, kv_lora_rank, qk_rope_head_dim, blocks, block_size)
    angles = tensor(dtype, 1, tokens, qk_rope_head_dim)
    inputs = {
        "kv": tensor(dtype, tokens, width),
        "gamma": tensor(dtype, kv_lora_rank),
        "cos": angles,
        "sin": angles,
        "kv_cache": tensor(cache_dtype or dtype, blocks, block_size, width),
        "slot_mapping": tensor("int64", tokens),
    }
    outputs = (tensor(dtype, tokens, qk_rope_head_dim), tensor(dtype, tokens, kv_lora_rank))
    attrs = {"kv_lora_rank": kv_lora_rank, "qk_rope_dim": qk_rope_head_dim}
    return call("kv_rmsnorm_rope_cache", inputs, outputs, epsilon=epsilon, **attrs)


def _width(tokens: int, lora: int, rope: int, blocks: int, block_size: int) -> int:
    positive(tokens=tokens, kv_lora_rank=lora, qk_rope_head_dim=rope, blocks=blocks, block_size=block_size)
    return lora + rope
