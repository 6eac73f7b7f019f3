"""Dense and quantised matrix products: M rows, K reduced, N columns, one quantisation subtype.

Source: docs/facts/gpu-tables.md, "Matrix products"; docs/facts/leaf-operators.md, "Products and quantisation".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    base_name,
    refuse,
    required_role,
    shared_dtype,
)
from tensor_cast.performance_model.profiling_database.columns.facts.operands import settle_operands
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["describe_matmul"]

_PACKED_DTYPE: Final = "float4_e2m1fn_x2"
_FOUR_BIT_DTYPES: Final = ("int4", "float4")
_PACKED_OPERATOR: Final = "static_quant_linear_int4"


def describe_matmul(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Axes M, K, N; fact `quant`: what the entry's operands say, else the dtype both operands share.

    Refuses shapes that do not multiply, a packed weight that can be read in two ways, and a `quant` that the operands
    do not stand for.
    """
    x, weight = required_role(leaf, "x"), required_role(leaf, "weight")
    if x.rank < 2 or weight.rank != 2:
        hint = f"expected x (..., M, K) and weight (K, N), got {x.shape} and {weight.shape}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "weight" if x.rank >= 2 else "x", hint)
    rows, reduced = math.prod(x.shape[:-1]), x.shape[-1] * (2 if x.dtype == _PACKED_DTYPE else 1)
    columns = _columns(weight, reduced, packed_by_operator=base_name(leaf) == _PACKED_OPERATOR)
    extents = {"x_scale": (rows, reduced), "w_scale": (columns, reduced)}
    quant = settle_operands(leaf, constants, extents) or _shared(leaf, constants, x, weight)
    axes = {"M": float(rows), "K": float(reduced), "N": float(columns)}
    return ColumnFacts(axes, {"quant": quant}, settled={"quant": quant})


def _columns(weight: TensorSpec, reduced: int, *, packed_by_operator: bool) -> int:
    """N: the dimension that is not K.  A packed weight holds two values of K in one element.

    The operator's own form, `(K/2, N)` where it packs, is taken as it is; any other form must leave one N.
    """
    first, last = weight.shape
    packed = packed_by_operator or weight.dtype == _PACKED_DTYPE
    if packed and 2 * first == reduced:
        return last
    sizes = [reduced / 2] if packed else [reduced]
    if packed and weight.dtype in _FOUR_BIT_DTYPES:
        sizes.append(reduced)
    found = {other for size in sizes for one, other in ((first, last), (last, first)) if one == size}
    if len(found) == 1:
        return found.pop()
    if found:
        hint = (
            f"weight {weight.shape} has K={reduced} of x packed in one dimension or plain in the other: give (K/2, N)"
        )
        raise refuse(MissReason.TARGET_UNAVAILABLE, "weight", hint)
    size = f"K/2={reduced / 2:g}, two values of K in an element," if packed else f"K={reduced}"
    hint = f"neither dimension of weight {weight.shape} is {size} of x {reduced} wide"
    raise refuse(MissReason.TARGET_UNAVAILABLE, "weight", hint)


def _shared(leaf: LeafOp, constants: Mapping[str, object], x: TensorSpec, weight: TensorSpec) -> str:
    quant = shared_dtype(x, weight)
    asked = leaf.attributes.get("quant") or constants.get("quant") or quant
    if asked != quant:
        hint = f"operands of {quant} are not {asked!r}; the mapping's facts.operands can say what they stand for"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "quant", hint)
    return quant
