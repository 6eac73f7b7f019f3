"""Operators of low precision: what they multiply, how their 4-bit weights are stored, what they quantise to.

Dtypes of rows go by their own names, those of a call by its operator too: an `int4` product keeps two values of K in
one int8, an `fp8` product of INT8 matrices is none.  Where the two disagree nothing is borrowed.
Source: decisions 002.11, 002.25 and 002.29;
docs/facts/leaf-operators.md, "Products and quantisation", "Experts and collectives".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tensor_cast.dtypes import operand_dtype, profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

__all__ = [
    "INT4",
    "PRODUCTS",
    "QUANTISERS",
    "cache_precision",
    "contradicts",
    "low_precision",
    "output_agreement",
    "quantised_to",
    "spellings",
    "weight_forms",
]

INT4: Final = "DT_INT4"
_ADDMM: Final = "aten.addmm."
_LOW: Final = ("INT8", "UINT8", INT4, "DT_FLOAT4_", "DT_FLOAT8_")

# product -> what its two matrices' database dtypes must begin with
_OPERANDS: Final = {
    "static_quant_linear": ("INT8", "INT8"),
    "static_quant_linear_int4": ("", INT4),
    "fp8_linear": ("DT_FLOAT8_", "DT_FLOAT8_"),
    "mxfp4_linear": ("", "DT_FLOAT4_"),
    "grouped_matmul_quant": ("INT8", "INT8"),
    "grouped_matmul_quant_int4": ("", INT4),
    "grouped_matmul_fp8": ("DT_FLOAT8_", "DT_FLOAT8_"),
    "grouped_matmul_mxfp4": ("", "DT_FLOAT4_"),
}
PRODUCTS: Final = {
    f"tensor_cast.{name}{form}.default": operands
    for name, operands in _OPERANDS.items()
    for form in ("", "_swiglu" if name.startswith("grouped") else "_all_reduce")
}
_NORMS: Final = ("rms_norm", "add_rms_norm")
_SCALES: Final = ("symmetric", "asymmetric", "mxfp4")
QUANTISERS: Final = frozenset(
    f"tensor_cast.{name}.default"
    for name in (
        "quantize",
        "add_rms_norm_quant2",
        *(f"{norm}_quant" for norm in _NORMS),
        *(f"dynamic_quantize_{scale}" for scale in _SCALES),
        *(f"{norm}_dynamic_quant{more}_{scale}" for norm in _NORMS for more in ("", "2") for scale in _SCALES),
    )
)


def low_precision(name: str) -> bool:
    """Whether a database dtype has eight bits or fewer."""
    return name.startswith(_LOW)


def contradicts(operator: str, left: str, right: str) -> bool:
    """Whether database dtypes are not those that the operator multiplies: an FP8 product of INT8 matrices is none."""
    wanted = PRODUCTS.get(operator, ("", ""))
    return not (left.startswith(wanted[0]) and right.startswith(wanted[1]))


def spellings(leaf: LeafOp) -> tuple[LeafOp, ...] | dict[str, object]:
    """The call as rows may have recorded it, the likeliest first; else the details of a miss, with its `cause`.

    One spelling for all but products of low precision, and products with a bias: a kernel takes it behind the matrices.
    """
    if leaf.name not in PRODUCTS:
        return _bias_last(leaf)
    return contradiction(leaf) or weight_forms(leaf) or {"cause": "packed_weight_unreadable"}


def _bias_last(leaf: LeafOp) -> tuple[LeafOp, ...]:
    """`aten.addmm(bias, x, weight)` as its kernel has the operands, then as they were given."""
    if not leaf.name.startswith(_ADDMM) or len(leaf.tensors) != 3:
        return (leaf,)
    bias, *matrices = leaf.tensors
    scalars = [spec for spec in leaf.inputs if not spec.shape]
    return (replace(leaf, inputs=(*matrices, bias, *scalars)), leaf)


def contradiction(leaf: LeafOp) -> dict[str, object]:
    """Why a product multiplies other matrices than its operator does, as details of a miss; empty where it does not."""
    names = [profile_dtype(dtype) for dtype in (_operand(leaf, "x", 0), _operand(leaf, "weight", 1)) if dtype]
    if len(names) < 2 or None in names or not contradicts(leaf.name, str(names[0]), str(names[1])):
        return {}
    return {"cause": "operand_dtypes_are_not_the_operators", "input_dtypes": names}


def _operand(leaf: LeafOp, role: str, place: int) -> str | None:
    """The dtype of the first operand of a role, or of the tensor in its place where nothing has the role."""
    dtypes = leaf.tensor_dtypes
    held = (dtype for spec, dtype in zip(leaf.tensors, dtypes, strict=True) if spec.role == role)
    return next(held, dtypes[place] if place < len(dtypes) else None)


def weight_forms(leaf: LeafOp) -> tuple[LeafOp, ...]:
    """A product as rows may have recorded its weights: as it is, but 4-bit integers first with every value counted.

    K of the activation and N of the output say whether a stored `(K/2, N)` holds two values in one, in either
    orientation.  The stored form itself follows where no row could mean another product by it.  Empty where the shapes
    fit no reading, or several products.
    """
    if PRODUCTS.get(leaf.name, ("", ""))[1] != INT4:
        return (leaf,)
    x = leaf.role("x") or (leaf.tensors[0] if leaf.tensors else None)
    places = _weight_places(leaf)
    shapes = {leaf.inputs[place].shape for place in places}
    if x is None or not x.shape or len(shapes) != 1 or len(next(iter(shapes))) < 2:
        return ()
    [stored], k = shapes, x.shape[-1]
    whole = _whole(stored, k, _columns(leaf))
    forms = [leaf if shape == stored else _stored_as(leaf, places, shape) for shape in whole]
    return (*forms, leaf) if whole and k not in stored[-2:] else tuple(forms)


def _weight_places(leaf: LeafOp) -> list[int]:
    """Where the weights stand among the inputs: by their role, else second of the tensors."""
    named = [i for i, spec in enumerate(leaf.inputs) if spec.role == "weight"]
    return named or [i for i, spec in enumerate(leaf.inputs) if spec.shape][1:2]


def _columns(leaf: LeafOp) -> int | None:
    """N of the product, where the call tells its output; a fused SwiGlu halves it."""
    if not leaf.outputs or not leaf.outputs[0].shape:
        return None
    return leaf.outputs[0].shape[-1] * (2 if "_swiglu" in leaf.name else 1)


def _whole(stored: Shape, k: int, n: int | None) -> list[Shape]:
    """The weights behind a stored one with every value counted, all of one product; empty where that is open."""
    *batch, first, second = stored
    readings = {
        (first, second): second if first == k else first if second == k else None,
        (2 * first, second): second if 2 * first == k else None,
        (first, 2 * second): first if 2 * second == k else None,
    }
    found = {shape: columns for shape, columns in readings.items() if columns is not None and n in (None, columns)}
    return [(*batch, *shape) for shape in found] if len(set(found.values())) == 1 else []


def _stored_as(leaf: LeafOp, places: list[int], shape: Shape) -> LeafOp:
    inputs = [replace(spec, shape=shape) if i in places else spec for i, spec in enumerate(leaf.inputs)]
    return replace(leaf, inputs=tuple(inputs))


def quantised_to(leaf: LeafOp) -> str | None:
    """The database name of what a quantising operator puts out first, or None where the call or the name is silent.

    A dtype that the database has no name for is itself: no row holds it.
    """
    if leaf.name not in QUANTISERS or not leaf.outputs:
        return None
    held = operand_dtype(leaf.name, "", leaf.outputs[0].dtype)
    name = profile_dtype(held) or held
    return name if profile_dtype(held) is None or low_precision(name) else None


def cache_precision(name: str | None) -> str:
    """What sets a KV cache apart: its database dtype where it has eight bits or fewer, else `wide`.

    A dtype without a database name (`uint8`) is itself, which no row holds.
    """
    return name if name is not None and low_precision(name) else "wide"


def output_agreement(table: TensorTable, leaf: LeafOp) -> Callable[[int], bool] | None:
    """Whether a row puts out what a quantising operator asks for, where both say so; None where nobody asks."""
    wanted = quantised_to(leaf)
    if wanted is None:
        return None

    def agrees(row: int) -> bool:
        outputs = table.row_outputs(row)
        return not outputs or outputs[0].dtype == wanted

    return agrees
