"""Attention over selected positions: the indexer that selects and the kernel that attends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from tensor_cast.demo.rows import DemoRow, DemoTable, bf16, int32
from tensor_cast.demo.runtime import BLOCK, SELECTED_COLUMNS, TOPK, Batch

__all__ = ["tables"]

_TABLE_WIDTH: Final = 1584
_BLOCKS: Final = (883, 1766, 3532)
_INDEX_HEADS: Final = 32
_QUERIES: Final = (2, 3, 4, 8, 16, 32, 64, 128)
_INDEXER_WORK: Final = (
    "flops = 2*heads*128*sum of query*context, bytes = the contexts' keys, query, weights and 512 bytes per cache block"
)
_SPARSE_WORK: Final = (
    "flops = 4*heads*576*sum of query*min(topk, context), bytes = the selected keys, the query and the output"
)


def tables(version: str) -> Iterator[DemoTable]:
    """Both kernels exist in 0.18 alone."""
    if version == "0.18":
        yield DemoTable("LightningIndexer", 8.0, _INDEXER_WORK, tuple(_indexer()), "MIX_AIC", SELECTED_COLUMNS)
        yield DemoTable("SparseFlashAttention", 12.0, _SPARSE_WORK, tuple(_sparse()), "MIX_AIC", SELECTED_COLUMNS)


def _indexer() -> Iterator[DemoRow]:
    for blocks in _BLOCKS:
        for context in (3000, 8192):
            for count in (1, 2, 8, 32, 64):
                yield _indexer_row(Batch.even(count, 1, context, _TABLE_WIDTH), blocks)
            for count in (1, 2, 8):
                for query in _QUERIES:
                    yield _indexer_row(Batch.even(count, query, context, _TABLE_WIDTH), blocks)
        for tokens in (512, 1024, 2048, 4096, 8192):
            yield _indexer_row(Batch((tokens,), (tokens,), _TABLE_WIDTH), blocks)
        yield _indexer_row(Batch((2, 3), (3000, 3000), _TABLE_WIDTH), blocks)
        yield _indexer_row(Batch.even(34, 3, 3000, _TABLE_WIDTH), blocks)
        # Rows of a profile without runtime values: only the shapes of the request metadata are known.
        for query in (2, 4, 8, 16):
            yield _indexer_row(Batch.even(4, query, 3000, _TABLE_WIDTH), blocks, runtime=False)


def _indexer_row(batch: Batch, blocks: int, runtime: bool = True) -> DemoRow:
    heads = _INDEX_HEADS
    inputs = (
        bf16(batch.tokens, heads, 128),
        bf16(blocks, BLOCK, 1, 128),
        bf16(batch.tokens, heads),
        int32(batch.count),
        int32(batch.count),
        int32(batch.count, batch.table_width),
    )
    outputs = (int32(batch.tokens, 1, TOPK), bf16(batch.tokens, 1, TOPK))
    pairs = sum(q * c for q, c in zip(batch.queries, batch.contexts, strict=True))
    moved = 2.0 * 128 * sum(batch.contexts) + 2.0 * batch.tokens * heads * 129 + 512.0 * blocks
    case = f"li_{_case(batch, blocks)}"
    extra = batch.selected_columns(heads=heads, case=case, sparse=False) if runtime else batch.shape_columns()
    return DemoRow(inputs, outputs, 2.0 * heads * 128 * pairs, moved, extra=extra)


def _sparse() -> Iterator[DemoRow]:
    for heads in (4, 16):
        for context in (3000, 5769):
            for count in (1, 2, 8):
                for query in (1, *_QUERIES):
                    yield _sparse_row(Batch.even(count, query, context, _TABLE_WIDTH), heads)
        for tokens in (512, 1024, 2048, 4096, 8192):
            yield _sparse_row(Batch((tokens,), (tokens,), _TABLE_WIDTH), heads)
        for query in (2, 4, 8, 16):
            yield _sparse_row(Batch.even(4, query, 3000, _TABLE_WIDTH), heads, runtime=False)
    # One coordinate, two request groupings: whoever knows only the shapes must be refused.
    yield _sparse_row(Batch((3, 3), (4096, 4096), _TABLE_WIDTH), 8)
    yield _sparse_row(Batch((1, 5), (1024, 7168), _TABLE_WIDTH), 8)


def _sparse_row(batch: Batch, heads: int, runtime: bool = True, blocks: int = 1766) -> DemoRow:
    cache, lengths, query = bf16(blocks, BLOCK, 1, 512), int32(batch.count), bf16(batch.tokens, heads, 512)
    inputs = (
        query,
        cache,
        cache,
        int32(batch.tokens, 1, TOPK),
        int32(batch.count, batch.table_width),
        lengths,
        lengths,
        bf16(batch.tokens, heads, 64),
        bf16(blocks, BLOCK, 1, 64),
    )
    selected = sum(q * min(TOPK, c) for q, c in zip(batch.queries, batch.contexts, strict=True))
    moved = 2.0 * 576 * selected + 2.0 * batch.tokens * heads * (576 + 512)
    case = f"sfa_{_case(batch, heads)}"
    extra = batch.selected_columns(heads=heads, case=case, sparse=True) if runtime else batch.shape_columns()
    return DemoRow(inputs, (query,), 4.0 * heads * 576 * selected, moved, extra=extra)


def _case(batch: Batch, variant: int) -> str:
    return f"{crc32(repr((batch, variant)).encode()):08x}"
