"""Dense attention: FusedInferAttentionScore, prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensor_cast.demo.rows import (
    DemoRow,
    DemoTable,
    bf16,
    int8,
    int32,
    int64,
)
from tensor_cast.demo.runtime import ATTENTION_COLUMNS, BLOCK, Batch
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["tables"]

_CONTEXTS: Final = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_TABLE_WIDTH: Final = 512
_CACHE_BLOCKS: Final = 12307
_SLOTS: Final = 31
_WORK: Final = (
    "flops = 4*heads*dim*sum over requests of query*(context - (query-1)/2), "
    "bytes = the contexts' keys and values, the query and the output"
)


def tables(version: str) -> Iterator[DemoTable]:
    """The dense attention kernel; the same in every version."""
    rows = (*_prefill(), *_batched_prefill(), *_decode(), *_latent_decode())
    yield DemoTable("FusedInferAttentionScore", 9.0, _WORK, rows, "MIX_AIC", ATTENTION_COLUMNS, True, True)


def _prefill() -> Iterator[DemoRow]:
    for heads, kv_heads in ((4, 1), (8, 1), (16, 1), (32, 8)):
        for tokens in (128, 512, 1024, 2048, 4096):
            for context in _CONTEXTS:
                if context >= tokens:
                    yield _row(Batch((tokens,), (context,), _TABLE_WIDTH), heads, kv_heads)


def _batched_prefill() -> Iterator[DemoRow]:
    for count in (2, 4, 8):
        for context in (2048, 4096, 8192, 16384):
            yield _row(Batch.even(count, 2048 // count, context, _TABLE_WIDTH), 8, 1)


def _decode() -> Iterator[DemoRow]:
    for heads, kv_heads in ((4, 1), (8, 1), (32, 8)):
        for count in (1, 4, 16, 64):
            for context in _CONTEXTS:
                yield _row(Batch.even(count, 1, context, _TABLE_WIDTH), heads, kv_heads)


def _row(batch: Batch, heads: int, kv_heads: int, dim: int = 128) -> DemoRow:
    query = bf16(batch.tokens, heads, dim)
    cache = bf16(_CACHE_BLOCKS, BLOCK, kv_heads * dim)
    slots = {0: query, 1: cache, 2: cache, 4: int8(2048, 2048)}
    extra = batch.columns(heads=heads, kv_heads=kv_heads, sparse_mode=3, layout="TND")
    flops, moved = _work(batch, heads, dim, 2 * kv_heads * dim)
    return DemoRow(_fill(slots, batch), (query, None), flops, moved, extra=extra)


def _latent_decode() -> Iterator[DemoRow]:
    for heads in (16, 32):
        for count in (1, 2, 4, 8, 16, 32, 64, 128):
            for context in _CONTEXTS:
                yield _latent_row(Batch.even(count, 1, context, _TABLE_WIDTH), heads)


def _latent_row(batch: Batch, heads: int) -> DemoRow:
    shape: Shape = (batch.count, heads, 1, 512)
    query, cache = bf16(*shape), bf16(_CACHE_BLOCKS, BLOCK, 512)
    slots = {0: query, 1: cache, 2: cache, 24: bf16(*shape[:-1], 64), 25: bf16(_CACHE_BLOCKS, BLOCK, 64)}
    extra = batch.columns(heads=heads, kv_heads=1, sparse_mode=0, layout="BNSD_NBSD")
    flops, moved = _work(batch, heads, 576, 576)
    return DemoRow(_fill(slots, batch), (query, None), flops, moved, extra=extra)


def _fill(slots: dict[int, TensorSpec], batch: Batch) -> tuple[TensorSpec | None, ...]:
    lengths = int64(batch.count)
    filled = {**slots, 5: lengths, 6: lengths, 14: int32(batch.count, batch.table_width)}
    return tuple(filled.get(i) for i in range(_SLOTS))


def _work(batch: Batch, heads: int, dim: int, cached_per_token: int) -> tuple[float, float]:
    pairs = sum(q * (c - (q - 1) / 2) for q, c in zip(batch.queries, batch.contexts, strict=True))
    moved = 2.0 * (cached_per_token * sum(batch.contexts) + 2 * batch.tokens * heads * dim)
    return 4.0 * heads * dim * pairs, moved
