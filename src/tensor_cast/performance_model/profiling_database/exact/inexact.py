"""What an inexact match changed, in words: `M 1 -> 16` says a row of M = 1 answered for M = 16."""

from __future__ import annotations

from typing import Final

from tensor_cast.dtypes import profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.exact.matching import Rank
from tensor_cast.performance_model.profiling_database.exact.row_index import RowMatch
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import kernel_traits
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import strip_leading_one

__all__ = ["describe_changes"]

_LEFT: Final = ("M", "K")


def describe_changes(table: TensorTable, match: RowMatch, leaf: LeafOp) -> list[str]:
    """Dimensions that were padded and dtypes that were taken for another; empty where the row is the operator."""
    held = table.logical_inputs[match.row][: len(match.asked) or None]
    changes: dict[str, None] = {}
    if match.asked and match.rule.rank is Rank.PADDED:
        for i, (asked, row) in enumerate(zip(match.asked, held, strict=False)):
            changes.update(dict.fromkeys(_dimensions(table.kernel, i, asked, row)))
    dtypes = dict.fromkeys(row.dtype for row in held)
    for dtype in leaf.tensor_dtypes[: len(held)]:
        if profile_dtype(dtype, strict=True) not in dtypes:
            changes[f"dtype {'/'.join(dtypes)} -> {dtype}"] = None
    return list(changes)


def _dimensions(kernel: str, position: int, asked: TensorSpec, row: TensorSpec) -> list[str]:
    target, measured = _aligned(asked.shape, row.shape)
    if len(target) != len(measured):
        return [f"input {position} {_text(measured)} -> {_text(target)}"]
    pairs = enumerate(zip(target, measured, strict=True))
    return [f"{_name(kernel, position, i, len(target))} {held} -> {dim}" for i, (dim, held) in pairs if dim != held]


def _aligned(asked: Shape, row: Shape) -> tuple[Shape, Shape]:
    return (asked, row) if len(asked) == len(row) else (strip_leading_one(asked), strip_leading_one(row))


def _name(kernel: str, position: int, dim: int, rank: int) -> str:
    if kernel_traits(kernel).product and position == 0 and rank >= 2 and dim >= rank - 2:
        return _LEFT[dim - rank + 2]
    return f"input {position} dim {dim}"


def _text(shape: Shape) -> str:
    return ",".join(str(dim) for dim in shape)
