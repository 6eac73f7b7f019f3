"""Where a fused dispatch + FFN + combine call or row lies: weights, subtype, expert parallelism, routing.

Source: RFC 4.1.1; docs/facts/interpolation.md, "Fused dispatch";
docs/facts/leaf-operators.md, "Weights of fused experts".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from tensor_cast.dtypes import operand_dtype, profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.agreement import parse_ep_size
from tensor_cast.performance_model.profiling_database.exact.context import dtypes_lacking
from tensor_cast.performance_model.profiling_database.exact.low_precision import INT4
from tensor_cast.performance_model.profiling_database.paths.packing import whole_experts
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import to_nd

__all__ = ["ExpertsPlace", "leaf_place", "quant_subtype_of_operator", "quant_subtype_of_row", "row_place"]

_SUBTYPES: Final = {
    "tensor_cast.dispatch_ffn_combine.default": "plain",
    "tensor_cast.dispatch_ffn_combine_quant.default": "w8a8",
    "tensor_cast.dispatch_ffn_combine_quant_int4.default": "int4",
    "tensor_cast.dispatch_ffn_combine_fp8.default": "fp8",
    "tensor_cast.dispatch_ffn_combine_mxfp4.default": "mxfp4",
}
_WIDE: Final = ("DT_BF16", "DT_FLOAT16")
_ROW_WEIGHT_FORMAT: Final = "FRACTAL_NZ"


def quant_subtype_of_operator(operator: str) -> str | None:
    """`plain`, `w8a8`, `int4`, `fp8` or `mxfp4`; None for another operator."""
    return _SUBTYPES.get(operator)


def quant_subtype_of_row(activation: str, weight1: str, weight2: str) -> str | None:
    """The subtype a row's dtypes stand for; None where no rule names it."""
    if weight1 != weight2 or activation not in _WIDE:
        return None
    if weight1 == "INT8":
        return "w8a8"
    if weight1 in _WIDE:
        return "plain"
    if weight1 == INT4:
        return "int4"
    if weight1.startswith("DT_FLOAT8_"):
        return "fp8"
    return "mxfp4" if weight1 == "DT_FLOAT4_E2M1" else None


@dataclass(frozen=True, slots=True)
class ExpertsPlace:
    """Everything the regime holds, whichever side it was read from."""

    tokens: int
    hidden: int
    topk: int
    gmm1: Shape
    gmm2: Shape
    activation: TensorSpec
    weight_dtypes: tuple[str, str]
    weight_format: str
    subtype: str
    ep_size: int

    def regime(self, kernel: str) -> RegimeKey:
        return (
            ("kernel_type", kernel),
            ("activation_dtype", self.activation.dtype),
            ("activation_format", self.activation.format),
            ("quant_subtype", self.subtype),
            ("weight_dtypes", self.weight_dtypes),
            ("weight_format", self.weight_format),
            ("gmm1_shape", self.gmm1),
            ("gmm2_shape", self.gmm2),
            ("hidden_size", self.hidden),
            ("topk", self.topk),
            ("ep_size", self.ep_size),
        )


def leaf_place(leaf: LeafOp, ep_size: int, *, strict: bool = False) -> ExpertsPlace | Miss:
    """The call's place, or the miss that names what it lacks."""
    subtype = quant_subtype_of_operator(leaf.name)
    x, ids = leaf.role("x"), leaf.role("expert_indices")
    if subtype is None or x is None or x.rank < 2:
        hint = "give the tensor x of rank >= 2" if subtype else f"{leaf.name} is none of {', '.join(_SUBTYPES)}"
        return Miss(MissReason.MOE_FUSED_TARGET_UNEXTRACTABLE, details={"hint": hint})
    hidden, tokens = x.shape[-1], math.prod(x.shape[:-1])
    if ids is None or ids.rank < 2 or math.prod(ids.shape[:-1]) != tokens or ids.shape[-1] < 1:
        return Miss(MissReason.TOPK_UNEXTRACTABLE, details={"hint": f"give expert_indices ({tokens}, topk)"})
    shapes = _weight_shapes(leaf, hidden, subtype)
    if shapes is None:
        hint = f"give gmm1_weight ({hidden}, N) and gmm2_weight (N/2, {hidden}) of each expert"
        return Miss(MissReason.MOE_FUSED_TARGET_UNEXTRACTABLE, details={"hint": hint})
    gmm1, gmm2 = shapes
    weights = (*leaf.roles("gmm1_weight")[:1], *leaf.roles("gmm2_weight")[:1])
    named = [replace(spec, dtype=operand_dtype(leaf.name, spec.role, spec.dtype)) for spec in (x, *weights)]
    dtypes = [profile_dtype(spec.dtype, strict=strict) for spec in named]
    if None in dtypes:
        hint = dtypes_lacking(named, strict=strict)
        return Miss(MissReason.MOE_FUSED_TARGET_UNEXTRACTABLE, subtype, {"hint": hint})
    activation, weight1, weight2 = (str(name) for name in dtypes)
    return ExpertsPlace(
        tokens=tokens,
        hidden=hidden,
        topk=ids.shape[-1],
        gmm1=gmm1,
        gmm2=gmm2,
        activation=TensorSpec(x.shape, activation, x.format),
        weight_dtypes=(weight1, weight2),
        weight_format=_ROW_WEIGHT_FORMAT if subtype != "plain" else leaf.roles("gmm1_weight")[0].format,
        subtype=subtype,
        ep_size=ep_size,
    )


def _weight_shapes(leaf: LeafOp, hidden: int, subtype: str) -> tuple[Shape, Shape] | None:
    """`(E, H, N)` of GMM1 and `(E, N/2, H)` of GMM2, from one tensor per expert or one stacked tensor each."""
    first, second = _stacked(leaf.roles("gmm1_weight")), _stacked(leaf.roles("gmm2_weight"))
    if first is None or second is None:
        return None
    if subtype == "int4":
        whole = whole_experts(first[1:], second[1:], hidden)
        return None if whole is None else ((first[0], *whole[0]), (second[0], *whole[1]))
    gmm1, gmm2 = _oriented(first, hidden, hidden_first=True), _oriented(second, hidden, hidden_first=False)
    return None if gmm1 is None or gmm2 is None else (gmm1, gmm2)


def _stacked(weights: tuple[TensorSpec, ...]) -> Shape | None:
    """`(experts, rows, columns)` as the call gives them."""
    if not weights or len({spec.shape for spec in weights}) != 1:
        return None
    shape = weights[0].shape
    stacked = shape if len(shape) == 3 and len(weights) == 1 else (len(weights), *shape)
    return stacked if len(stacked) == 3 else None


def _oriented(stacked: Shape, hidden: int, *, hidden_first: bool) -> Shape | None:
    experts, rows, columns = stacked
    if (rows if hidden_first else columns) == hidden:
        return stacked
    return (experts, columns, rows) if (columns if hidden_first else rows) == hidden else None


def row_place(table: TensorTable, row: int) -> ExpertsPlace | str:
    """The row's place, or why it cannot be used: seven inputs, INT32 expert ids, a valid EP size."""
    inputs = table.row_inputs(row)
    if len(inputs) != 7 or None in table.inputs[row][:7] or any(not spec.dtype for spec in inputs):
        return "moe_physical_signature_incomplete"
    x, w1, w2, ids = inputs[:4]
    shape = to_nd(x.shape, x.format)
    if w1.rank < 3 or w2.rank < 3 or len(shape) < 2:
        return "moe_weight_shapes_unextractable"
    if table.cell(row, "EP Size") is None:
        return "ep_size_missing"
    ep_size = parse_ep_size(table.cell(row, "EP Size"))
    if ep_size is None:
        return "ep_size_invalid"
    tokens = math.prod(shape[:-1])
    if ids.dtype != "INT32" or ids.rank < 2 or math.prod(ids.shape[:-1]) != tokens:
        return "topk_unextractable"
    subtype = quant_subtype_of_row(x.dtype, w1.dtype, w2.dtype)
    if subtype is None:
        return "quant_subtype_unknown"
    if w1.format != w2.format:
        return "weight_formats_differ"
    activation = TensorSpec(shape, x.dtype, x.format)
    return ExpertsPlace(
        tokens,
        shape[-1],
        ids.shape[-1],
        w1.shape,
        w2.shape,
        activation,
        (w1.dtype, w2.dtype),
        w1.format,
        subtype,
        ep_size,
    )
