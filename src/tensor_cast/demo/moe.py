"""Mixture of experts: the fused dispatch-experts-combine kernel, permutation and gating."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensor_cast.demo.grids import TOKENS
from tensor_cast.demo.rows import (
    DemoRow,
    DemoTable,
    bf16,
    fp32,
    int32,
    int64,
    tensor,
)
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["tables"]

_HIDDEN: Final = 7168
_FUSED_TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_FUSED_WORK: Final = (
    "flops = 3*tokens*topk*hidden*N on the INT8 peak, bytes = the expert weights once plus 3 bytes per routed element"
)
_ROUTED: Final = "bytes = the token rows read and written"
_STREAM: Final = "bytes = every operand and the output once"


def tables(version: str) -> Iterator[DemoTable]:
    """The expert kernels of one version; in 0.15 the fused kernel carries no EP size."""
    yield DemoTable("MoeGatingTopK", 4.4, _STREAM, tuple(_gating()))
    if version == "0.15":
        rows = tuple(_fused_row(tokens, 16, 4096, "") for tokens in (16, 64, 256, 1024))
        yield DemoTable("DispatchFFNCombine", 55.0, _FUSED_WORK, rows, "MIX_AIC")
        return
    yield DemoTable("MoeTokenPermute", 3.8, _ROUTED, tuple(_permute()))
    yield DemoTable("MoeTokenUnpermute", 3.5, _ROUTED, tuple(_unpermute()))
    if version == "0.18":
        yield DemoTable("DispatchFFNCombine", 55.0, _FUSED_WORK, tuple(_fused()), "MIX_AIC", ("EP Size",))


def _fused() -> Iterator[DemoRow]:
    for experts, width, ep_size in ((16, 4096, 16), (8, 4096, 32), (16, 2048, 16)):
        for tokens in _FUSED_TOKENS:
            yield _fused_row(tokens, experts, width, str(ep_size))
    # Launches whose EP size was not recorded: unusable, whatever the question.
    for tokens in (24, 96, 384):
        yield _fused_row(tokens, 16, 4096, "")


def _fused_row(tokens: int, experts: int, width: int, ep_size: str, topk: int = 8) -> DemoRow:
    inputs = (
        bf16(tokens, _HIDDEN),
        tensor((experts, _HIDDEN, width), "INT8", "FRACTAL_NZ"),
        tensor((experts, width // 2, _HIDDEN), "INT8", "FRACTAL_NZ"),
        int32(tokens, topk),
        int64(experts * width),
        int64(experts * _HIDDEN),
        fp32(tokens, topk),
    )
    outputs = (bf16(tokens, _HIDDEN), int32(experts))
    flops = 3.0 * tokens * topk * _HIDDEN * width
    moved = 1.5 * experts * _HIDDEN * width + 3.0 * tokens * topk * _HIDDEN
    return DemoRow(inputs, outputs, flops, moved, peak="int8", extra={"EP Size": ep_size})


def _permute() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in (4096, 7168):
            outputs = (bf16(tokens * 8, width), int32(tokens * 8))
            moved = 2.0 * tokens * width * 9
            yield DemoRow((bf16(tokens, width), int64(tokens, 8)), outputs, moved_bytes=moved)


def _unpermute() -> Iterator[DemoRow]:
    for tokens in TOKENS:
        for width in (4096, 7168):
            inputs = (bf16(tokens * 8, width), int32(tokens * 8), bf16(tokens, 8))
            yield DemoRow(inputs, (bf16(tokens, width),), moved_bytes=2.0 * tokens * width * 9)


def _gating() -> Iterator[DemoRow]:
    scalar = TensorSpec((), "INT32")
    for tokens in TOKENS:
        for experts in (128, 256):
            outputs = (bf16(tokens, 8), int32(tokens, 8), int32(tokens))
            yield DemoRow((bf16(tokens, experts), scalar, scalar), outputs)
