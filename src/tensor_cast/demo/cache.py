"""Cache writes and rotary embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensor_cast.demo.grids import TOKENS
from tensor_cast.demo.rows import DemoRow, DemoTable, bf16, int32, int64
from tensor_cast.demo.runtime import BLOCK

__all__ = ["tables"]

_WRITE: Final = "bytes = the new entries read and written, plus their slots"
_LATENT: Final = "bytes = the new entries read, written to the cache and returned, plus angles and slots"
_ROPE: Final = "bytes = query and key read and written, plus one table row a token"
_STREAM: Final = "bytes = every operand and the output once"
_BLOCKS: Final = 1766
_UPDATES: Final = (1, 2, 4, 8, 16, 32, 64, 102, 128, 256, 512, 1024)


def tables(version: str) -> Iterator[DemoTable]:
    """The cache and rope kernels of one version."""
    yield DemoTable("ReshapeAndCacheNdKernel", 2.3, _WRITE, tuple(_reshape_and_cache()))
    yield DemoTable("KvRmsNormRopeCache", 3.6, _LATENT, tuple(_kv_norm_rope()))
    yield DemoTable("InterleaveRope", 2.1, _STREAM, tuple(_interleave_rope()))
    if version != "0.13":
        yield DemoTable("_triton_rope", 3.3, _ROPE, tuple(_triton_rope()))
    if version == "0.18":
        yield DemoTable("ScatterNdUpdate", 3.9, _WRITE, tuple(_scatter((226048, 113024), 128)))
        yield DemoTable("ScatterNdUpdateAiCore", 4.6, _WRITE, tuple(_scatter((226048,), 512)))


def _reshape_and_cache() -> Iterator[DemoRow]:
    for heads in (1, 8):
        cache = bf16(_BLOCKS, BLOCK, heads, 128)
        for tokens in TOKENS:
            new = bf16(tokens, heads, 128)
            moved = 2.0 * 2 * 2 * new.numel + 8 * tokens
            yield DemoRow((new, new, cache, cache, int64(tokens)), (cache, cache), moved_bytes=moved)


def _kv_norm_rope() -> Iterator[DemoRow]:
    rope_cache, latent_cache = bf16(_BLOCKS, BLOCK, 1, 64), bf16(_BLOCKS, BLOCK, 1, 512)
    for tokens in TOKENS:
        angles = bf16(tokens, 1, 1, 64)
        inputs = (bf16(tokens, 1, 1, 576), bf16(512), angles, angles, int64(tokens), rope_cache, latent_cache)
        outputs = (rope_cache, latent_cache, bf16(tokens, 1, 1, 64), bf16(tokens, 1, 1, 512))
        moved = 2.0 * tokens * (576 + 2 * 64 + 2 * 576) + 8 * tokens
        yield DemoRow((*inputs, *(None,) * 5), outputs, moved_bytes=moved)


def _interleave_rope() -> Iterator[DemoRow]:
    for heads in (1, 16, 32):
        for tokens in TOKENS:
            angles = bf16(tokens, 1, 1, 64)
            yield DemoRow((bf16(tokens, heads, 1, 64), angles, angles), (bf16(tokens, heads, 1, 64),))


def _triton_rope() -> Iterator[DemoRow]:
    for heads, kv_heads in ((32, 8), (8, 1), (4, 1)):
        for tokens in TOKENS:
            query, key = bf16(tokens, heads, 128), bf16(tokens, kv_heads, 128)
            moved = 2.0 * 2 * (query.numel + key.numel) + 2.0 * 128 * tokens
            yield DemoRow((query, key, bf16(40960, 128)), (query, key), moved_bytes=moved)


def _scatter(capacities: tuple[int, ...], width: int) -> Iterator[DemoRow]:
    for capacity in capacities:
        for count in _UPDATES:
            data = bf16(capacity, width)
            moved = 2.0 * 2 * count * width + 4 * count
            yield DemoRow((data, int32(count, 1), bf16(count, width)), (data,), moved_bytes=moved)
