"""Norms, activations, casts, gathers and quantisation: kernels that stream their operands once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tensor_cast.demo.grids import PROFILED_TOKENS, TOKENS, WIDTHS
from tensor_cast.demo.rows import (
    DemoRow,
    DemoTable,
    bf16,
    fp32,
    int8,
    int32,
    int64,
    tensor,
)
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["tables"]

_STREAM: Final = "bytes = every operand and the output once"
_GATHER: Final = "bytes = the gathered rows read and written, plus the indices"
_NORM_WIDTHS: Final = (1536, 2048, 4096, 5120, 7168)
_Maker = Callable[..., TensorSpec]


def tables(version: str) -> Iterator[DemoTable]:
    """The streaming kernels of one version."""
    yield DemoTable("RmsNorm", 2.8, _STREAM, tuple(_rms_norm()))
    yield DemoTable("SwiGlu", 2.2, _STREAM, tuple(_swiglu()))
    yield DemoTable("Cast", 1.5, _STREAM, tuple(_casts()))
    yield DemoTable("GatherV2", 2.6, _GATHER, tuple(_gather((32000, 129280, 151936), (4096, 5120, 7168))))
    yield DemoTable("GatherV3", 2.5, _GATHER, tuple(_gather((100352,), (3072,))))
    yield DemoTable("Index", 3.1, _GATHER, tuple(_index()))
    yield DemoTable("AscendQuantV2", 2.0, _STREAM, tuple(_static_quant()))
    yield DemoTable("DynamicQuant", 2.7, _STREAM, tuple(_dynamic_quant(with_fp16=version == "0.18")))
    if version == "0.13":
        yield DemoTable("AddRmsNorm", 3.2, _STREAM, tuple(_add_rms_norm(bias=False)))
    else:
        yield DemoTable("AddRmsNormBias", 3.4, _STREAM, tuple(_add_rms_norm(bias=True)))
        yield DemoTable("TensorMove", 1.4, _STREAM, tuple(_moves((1536, 3072))))
        yield DemoTable("CastAiCore", 2.0, _STREAM, tuple(_cast(TOKENS, 896, bf16, fp32)))
        yield DemoTable("GatherV2AiCore", 3.0, _GATHER, tuple(_gather((64000,), (2560,))))
    if version == "0.18":
        yield DemoTable("AddRmsNorm", 3.2, _STREAM, tuple(_add_rms_norm(bias=False)))
        yield DemoTable("LayerNormV3", 3.0, _STREAM, tuple(_layer_norm()))
    if version != "0.15":
        yield DemoTable("ConcatD", 1.9, _STREAM, tuple(_concat()))


def _rms_norm() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in _NORM_WIDTHS:
            yield DemoRow((bf16(tokens, width), bf16(width)), (bf16(tokens, width), fp32(tokens, 1)))
        for heads in (4, 8):
            outputs = (bf16(tokens, heads, 128), fp32(tokens, heads, 1))
            yield DemoRow((bf16(tokens, heads, 128), bf16(128)), outputs)
    for tokens in PROFILED_TOKENS:
        yield DemoRow((bf16(tokens, 5120), bf16(5120)), (bf16(tokens, 5120), fp32(tokens, 1)), filled="profile")
    for tokens in (128, 512, 2048):
        yield DemoRow((bf16(tokens, 6144), bf16(6144)), (bf16(tokens, 6144), fp32(tokens, 1)), filled="profile")


def _add_rms_norm(bias: bool) -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in _NORM_WIDTHS:
            rows = bf16(tokens, width)
            weights = (bf16(width), bf16(width)) if bias else (bf16(width),)
            yield DemoRow((rows, rows, *weights), (rows, fp32(tokens, 1), rows))


def _swiglu() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in (768, 1536, 2048, 4096):
            yield DemoRow((bf16(tokens, 2 * width),), (bf16(tokens, width),))


def _casts() -> Iterator[DemoRow]:
    for width in (1024, 5120, 7168):
        yield from _cast(TOKENS, width, bf16, fp32)
        yield from _cast(TOKENS, width, fp32, bf16)


def _cast(tokens: tuple[int, ...], width: int, source: _Maker, target: _Maker) -> Iterator[DemoRow]:
    for count in tokens:
        yield DemoRow((source(count, width),), (target(count, width),))


def _moves(widths: tuple[int, ...]) -> Iterator[DemoRow]:
    for width in widths:
        yield from _cast(TOKENS, width, bf16, bf16)


def _concat() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        # Along the rows with a fixed second part, and along the columns, where both parts grow together.
        yield DemoRow((bf16(tokens, 5120), bf16(128, 5120)), (bf16(tokens + 128, 5120),))
        yield DemoRow((bf16(tokens, 512), bf16(tokens, 64)), (bf16(tokens, 576),))


def _gather(vocabularies: tuple[int, ...], widths: tuple[int, ...]) -> Iterator[DemoRow]:
    for vocabulary in vocabularies:
        for width in widths:
            for count in TOKENS:
                moved = 2.0 * 2 * count * width + 8 * count
                inputs = (bf16(vocabulary, width), int64(count), int64(1))
                yield DemoRow(inputs, (bf16(count, width),), moved_bytes=moved)


def _index() -> Iterator[DemoRow]:
    for sequence, width in ((32768, 64), (8192, 5120)):
        for count in TOKENS:
            moved = 2.0 * 2 * count * width + 8 * count
            inputs = (bf16(sequence, width), int64(1), int64(count), int64(1))
            yield DemoRow(inputs, (bf16(count, width),), moved_bytes=moved)


def _layer_norm() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in (128, 7168):
            outputs = (fp32(tokens, width), fp32(tokens, 1), fp32(tokens, 1))
            yield DemoRow((fp32(tokens, width), fp32(width), fp32(width)), outputs)


def _static_quant() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in (1536, 5120, 7168):
            yield DemoRow((bf16(tokens, width), bf16(width), bf16(width)), (int8(tokens, width),))


def _dynamic_quant(with_fp16: bool) -> Iterator[DemoRow]:
    dtypes = ("DT_BF16", "DT_FLOAT16") if with_fp16 else ("DT_BF16",)
    for dtype in dtypes:
        for tokens in TOKENS:
            for width in WIDTHS:
                yield DemoRow((tensor((tokens, width), dtype),), (int8(tokens, width), fp32(tokens)))
    for tokens in TOKENS:
        for width in WIDTHS:
            outputs: tuple[TensorSpec, ...] = (int8(tokens, width), fp32(tokens), int32(tokens))
            yield DemoRow((bf16(tokens, width),), outputs)
    for tokens in PROFILED_TOKENS:
        yield DemoRow((bf16(tokens, 7168),), (int8(tokens, 7168), fp32(tokens)), filled="profile")
    yield DemoRow((bf16(16384, 7168),), (int8(16384, 7168), fp32(16384)), filled="planned")
