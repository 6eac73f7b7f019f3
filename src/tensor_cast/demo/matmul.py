"""Matrix products: plain, quantised and batched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tensor_cast.demo.grids import MATRIX_ROWS, PROFILED_TOKENS
from tensor_cast.demo.rows import (
    DemoRow,
    DemoTable,
    Filled,
    bf16,
    fp32,
    int8,
    int32,
    nz_tile,
    tensor,
)
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["tables"]

_WORK: Final = "flops = 2*M*K*N, bytes = every operand and the output once"
_PLAIN_K: Final = (1024, 2048, 4096, 5120, 7168)
_PLAIN_N: Final = (768, 1024, 2048, 4096, 5120, 7168)
_LARGE_ROWS: Final = (1024, 2048, 4096, 8192)
_BATCHED_ROWS: Final = (1, 4, 16, 32, 64, 128, 256, 512)


def tables(version: str) -> Iterator[DemoTable]:
    """The matrix kernels of one version."""
    yield DemoTable("MatMulV2", 4.0, _WORK, tuple(_matmul_v2()), "AI_CORE")
    yield DemoTable("QuantBatchMatmulV3", 5.0, _WORK + ", INT8 peak", tuple(_quantised()), "MIX_AIC")
    yield DemoTable("BatchMatMulV2", 4.5, _WORK + ", times the batch", tuple(_batched(_BATCHED_ROWS)), "AI_CORE")
    if version == "0.13":
        return
    yield DemoTable("MatMulV3", 4.2, _WORK, tuple(_grid(_LARGE_ROWS, (7168, 8192), (9216, 18432))), "AI_CORE")
    yield DemoTable("MatMulCommon", 6.0, _WORK, tuple(_grid(MATRIX_ROWS, (1536,), (12288, 24576))), "AI_CORE")
    yield DemoTable("TransposeBatchMatMul", 4.8, _WORK + ", times the batch", tuple(_transposed()), "AI_CORE")
    yield DemoTable("BatchMatMulNd", 5.5, _WORK + ", times the batch", tuple(_batched_nd()), "AI_CORE")


def _matmul_v2() -> Iterator[DemoRow]:
    yield from _grid(MATRIX_ROWS, _PLAIN_K, _PLAIN_N)
    # The same products with tiled weights, over fewer widths.
    yield from _grid(MATRIX_ROWS, (5120, 7168), (1024, 2048, 4096), tiled=True)
    # A projection met only in serving profiles, and planned points nobody has run yet.
    yield from (_product(rows, 3072, 1280, filled="profile") for rows in (64, 128, 256, 512))
    yield from (_product(rows, 5120, 768, filled="profile") for rows in PROFILED_TOKENS)
    yield from (_product(rows, 5120, 768, filled="planned") for rows in (12288, 16384))


def _grid(rows: Iterable[int], ks: Iterable[int], ns: tuple[int, ...], tiled: bool = False) -> Iterator[DemoRow]:
    wide = tuple(ks)
    for m in rows:
        for k in wide:
            for n in ns:
                yield _product(m, k, n, tiled, "both" if m in (16, 1024) else "microbench")


def _product(m: int, k: int, n: int, tiled: bool = False, filled: Filled = "microbench") -> DemoRow:
    weight = tensor(nz_tile(n, k, "DT_BF16"), "DT_BF16", "FRACTAL_NZ") if tiled else bf16(n, k)
    return DemoRow((bf16(m, k), weight), (bf16(m, n),), 2.0 * m * k * n, filled=filled)


def _quantised() -> Iterator[DemoRow]:
    for m in MATRIX_ROWS:
        for k in (2048, 4096, 5120, 7168):
            for n in (1024, 2048, 4096, 7168):
                yield _quantised_product(m, k, n, "both" if m in (16, 1024) else "microbench")
    for m in (64, 128, 256, 512):
        yield _quantised_product(m, 7168, 2112, "profile")
        yield _quantised_product(m, 1536, 3072, tiled=False)
    yield _quantised_product(16384, 7168, 2112, "planned")


def _quantised_product(m: int, k: int, n: int, filled: Filled = "microbench", tiled: bool = True) -> DemoRow:
    weight = tensor(nz_tile(n, k, "INT8"), "INT8", "FRACTAL_NZ") if tiled else int8(n, k)
    inputs: tuple[TensorSpec, ...] = (int8(m, k), weight, bf16(n), int32(n))
    if not tiled:
        inputs = (int8(m, k), weight, bf16(n), fp32(m))
    return DemoRow(inputs, (bf16(m, n),), 2.0 * m * k * n, filled=filled, peak="int8")


def _batched(rows: Iterable[int]) -> Iterator[DemoRow]:
    for m in rows:
        for heads in (8, 16, 32):
            for k, n in ((128, 512), (128, 256), (192, 512), (192, 256)):
                flops = 2.0 * heads * m * k * n
                yield DemoRow((bf16(heads, m, k), bf16(heads, k, n)), (bf16(heads, m, n),), flops)


def _transposed() -> Iterator[DemoRow]:
    for m in _BATCHED_ROWS:
        for heads in (8, 16, 32):
            flops = 2.0 * heads * m * 512 * 128
            yield DemoRow((bf16(heads, m, 512), bf16(heads, 512, 128)), (bf16(m, heads, 128),), flops)


def _batched_nd() -> Iterator[DemoRow]:
    for m in _BATCHED_ROWS:
        yield DemoRow((bf16(4, m, 128), bf16(4, 128, 512)), (bf16(4, m, 512),), 2.0 * 4 * m * 128 * 512)
