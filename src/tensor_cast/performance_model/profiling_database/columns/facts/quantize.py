"""Quantisation of an activation: M rows of K values, to one dtype, with one scale or one per row.

Source: docs/facts/gpu-tables.md, "Quantisation"; docs/facts/leaf-operators.md, "Products and quantisation".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    base_name,
    missing,
    named_dtype,
    required_role,
    table_dtype,
)
from tensor_cast.performance_model.profiling_database.columns.facts.operands import settle_operands

__all__ = ["describe_quantize"]


def describe_quantize(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Axes M, K; facts `quant` (the dtype made), `scale_mode` (per_token, per_tensor, other), `input_dtype`."""
    x = required_role(leaf, "x")
    settle_operands(leaf, constants)
    rows = math.prod(x.shape[:-1])
    dynamic = base_name(leaf) != "quantize"
    scale = leaf.outputs[1] if dynamic and len(leaf.outputs) > 1 else leaf.role("scale")
    return ColumnFacts(
        {"M": float(rows), "K": float(x.shape[-1])},
        {
            "quant": _made(leaf, constants),
            "scale_mode": (_dims_mode(leaf, x) if dynamic else None) or _scale_mode(scale, rows),
            "input_dtype": table_dtype(x),
        },
    )


def _made(leaf: LeafOp, constants: Mapping[str, object]) -> str:
    """The dtype of the quantised output."""
    if leaf.outputs:
        return table_dtype(leaf.outputs[0])
    name = leaf.attributes.get("out_dtype") or constants.get("out_dtype")
    if not isinstance(name, str):
        raise missing("out_dtype", "give attrs.out_dtype or the outputs of the call")
    return named_dtype(name, "out_dtype")


def _dims_mode(leaf: LeafOp, x: TensorSpec) -> str | None:
    """From `dims`, the dimensions a scale is shared over; `[]` means all of them."""
    dims = leaf.attributes.get("dims")
    if dims is None:
        return None
    named = (dims,) if isinstance(dims, int) else dims
    if named == ():
        return "per_tensor"
    return "per_token" if named in ((-1,), (x.rank - 1,)) else "other"


def _scale_mode(scale: TensorSpec | None, rows: int) -> str:
    """From the shape of the scale: one value, or one per row."""
    if scale is None:
        raise missing(
            "scale", "give attrs.dims, the scale output or the scale input: it tells per_token from per_tensor"
        )
    if scale.rank >= 1 and scale.numel == rows and (scale.shape[-1] == 1 or scale.rank == 1) and rows > 1:
        return "per_token"
    if scale.numel == 1:
        return "per_token" if scale.rank >= 2 and rows == 1 else "per_tensor"
    return "other"
