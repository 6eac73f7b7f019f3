"""Pointwise kernels in the three broadcast forms: equal shapes, a row vector, a column vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tensor_cast.demo.grids import PROFILED_TOKENS, TOKENS, WIDTHS
from tensor_cast.demo.rows import DemoRow, DemoTable, Filled, bf16, fp32
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["tables"]

_WORK: Final = "bytes = every operand and the output once"
_SPARSE_TOKENS: Final = TOKENS[::2]
Maker = Callable[..., TensorSpec]


def tables(version: str) -> Iterator[DemoTable]:
    """The pointwise kernels of one version."""
    yield DemoTable("Add", 1.6, _WORK, tuple(_pointwise()))
    yield DemoTable("Mul", 1.6, _WORK, tuple(_pointwise()))
    yield DemoTable("RealDiv", 1.9, _WORK, tuple(_divisions()))
    if version != "0.13":
        # Widths of their own: a question for them is answered by the alternate, not by the primary kernel.
        yield DemoTable("AddAiCore", 2.4, _WORK, tuple(_form("equal", TOKENS, (896, 1792))))
        yield DemoTable("MulAiCore", 2.4, _WORK, tuple(_form("equal", TOKENS, (896, 1792))))


def _pointwise() -> Iterator[DemoRow]:
    for form in ("equal", "row", "column"):
        yield from _form(form, TOKENS, WIDTHS)
    yield from _form("equal", _SPARSE_TOKENS, WIDTHS, fp32)
    yield from _form("equal", PROFILED_TOKENS, (5120,), filled="profile")
    yield from _form("equal", (16384,), (5120, 7168), filled="planned")


def _divisions() -> Iterator[DemoRow]:
    for form in ("equal", "row"):
        yield from _form(form, _SPARSE_TOKENS, WIDTHS)


def _form(
    form: str, tokens: Iterable[int], widths: Iterable[int], make: Maker = bf16, filled: Filled = "microbench"
) -> Iterator[DemoRow]:
    wide = tuple(widths)
    for count in tokens:
        for width in wide:
            second = {"equal": (count, width), "row": (width,), "column": (count, 1)}[form]
            yield DemoRow((make(count, width), make(*second)), (make(count, width),), filled=filled)
