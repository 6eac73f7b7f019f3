"""Dense and quantised matrix products: M rows, K reduced, N columns, one quantisation subtype.

Source: GPU table facts, `gemm_perf`; leaf-operator facts, section 1.4 (weights `(K, N)`, `(N, K)` accepted).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.performance_model.profiling_database.column_facts.facts import (
    ColumnFacts,
    base_name,
    refuse,
    required_role,
    shared_dtype,
)
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["describe_matmul"]

# operator -> the subtypes it may stand for, the first by default
_QUANTS: Final[dict[str, tuple[str, ...]]] = {
    "fp8_linear": ("fp8", "fp8_block"),
    "static_quant_linear": ("int8", "sq", "int8_wo"),
    "static_quant_linear_int4": ("int4_wo",),
    "mxfp4_linear": ("mxfp4",),
    "nvfp4_linear": ("nvfp4",),
}
_PACKED_DTYPE: Final = "float4_e2m1fn_x2"


def describe_matmul(leaf: LeafOp, constants: Mapping[str, Any]) -> ColumnFacts:
    """Axes M, K, N; fact `quant`.  Refuses shapes that do not multiply and a `quant` foreign to the operator."""
    x, weight = required_role(leaf, "x"), required_role(leaf, "weight")
    if x.rank < 2 or weight.rank != 2:
        hint = f"expected x (..., M, K) and weight (K, N), got {x.shape} and {weight.shape}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "weight" if x.rank >= 2 else "x", hint)
    reduced = x.shape[-1] * (2 if x.dtype == _PACKED_DTYPE else 1)
    columns = _columns(weight, reduced, packed=base_name(leaf) == "static_quant_linear_int4")
    axes = {"M": float(math.prod(x.shape[:-1])), "K": float(reduced), "N": float(columns)}
    quant = _quant(leaf, constants, x, weight)
    return ColumnFacts(axes, {"quant": quant}, settled={"quant": quant})


def _columns(weight: TensorSpec, reduced: int, *, packed: bool) -> int:
    """N: the dimension that is not K; a packed weight holds two values of K in one element."""
    first, last = weight.shape
    sizes = (reduced, reduced / 2) if packed or weight.dtype == _PACKED_DTYPE else (reduced,)
    for size in sizes:
        if first == size:
            return last
        if last == size:
            return first
    hint = f"neither dimension of weight {weight.shape} is K={reduced} of x"
    raise refuse(MissReason.TARGET_UNAVAILABLE, "weight", hint)


def _quant(leaf: LeafOp, constants: Mapping[str, Any], x: TensorSpec, weight: TensorSpec) -> str:
    allowed = _QUANTS.get(base_name(leaf))
    if allowed is None:
        return shared_dtype(x, weight)
    asked = leaf.attributes.get("quant") or constants.get("quant") or allowed[0]
    if asked not in allowed:
        hint = f"{leaf.name} may stand for {', '.join(allowed)}; got quant {asked!r}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "quant", hint)
    return str(asked)
