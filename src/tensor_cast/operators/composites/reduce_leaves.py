"""Canonical leaves of a product followed by an all-reduce: the product, then the collective on its output.

Source: docs/facts/leaf-operators.md, "Products and quantisation", "Leaves of a composite".
"""

from __future__ import annotations

from typing import Final

from tensor_cast.dtypes import canonical_dtype
from tensor_cast.errors import UnknownNameError
from tensor_cast.operators.composites.leaf_parts import LackingError, numbered, tensor
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.parallel import ParallelConfig

__all__ = ["reduce_leaves"]

_COLLECTIVE: Final = ("rank", "rank_group")


def reduce_leaves(leaf: LeafOp, parallel: ParallelConfig) -> tuple[LeafOp, ...]:
    """`aten.mm` (or `aten.addmm` with a bias) or the quantised linear, then `all_reduce` over `rank_group`.

    A group of one rank reduces nothing and has no second leaf.
    """
    x, weight = tensor(leaf, "x"), tensor(leaf, "weight", 2)
    group = leaf.attributes.get("rank_group")
    if not isinstance(group, tuple) or not group or any(not isinstance(rank, int) for rank in group):
        raise LackingError("rank_group")
    output = leaf.outputs[0] if leaf.outputs else TensorSpec(_shape(leaf, x, weight), _dtype(leaf, x))
    compute = _compute(leaf, output)
    if len(group) == 1:
        return numbered(leaf, (compute,))
    reduced = TensorSpec(output.shape, output.dtype, output.format)
    attrs = tuple((name, value) for name, value in leaf.attrs if name in _COLLECTIVE)
    operand = TensorSpec(output.shape, output.dtype, output.format, "x")
    return numbered(leaf, (compute, LeafOp("tensor_cast.all_reduce.default", (operand,), (reduced,), attrs)))


def _compute(leaf: LeafOp, output: TensorSpec) -> LeafOp:
    attrs = tuple((name, value) for name, value in leaf.attrs if name not in _COLLECTIVE)
    if not leaf.name.startswith("tensor_cast.matmul_all_reduce"):
        return LeafOp(leaf.name.replace("_all_reduce", ""), leaf.inputs, (output,), attrs)
    bias = leaf.role("bias")
    operands = (tensor(leaf, "x"), tensor(leaf, "weight"))
    if bias is None:
        return LeafOp("aten.mm.default", operands, (output,), attrs)
    return LeafOp("aten.addmm.default", (bias, *operands), (output,), attrs)


def _shape(leaf: LeafOp, x: TensorSpec, weight: TensorSpec) -> Shape:
    """`(..., M, N)` of `(..., M, K) x (K, N)`; a packed INT4 weight holds K/2 rows."""
    packed = 2 if "int4" in leaf.name else 1
    if x.rank < 2 or x.shape[-1] != packed * weight.shape[0]:
        raise LackingError("x (..., M, K) and weight (K, N), or outputs")
    return (*x.shape[:-1], weight.shape[1])


def _dtype(leaf: LeafOp, x: TensorSpec) -> str:
    """A product of floats keeps its dtype; a quantised one says which it hands on."""
    if leaf.name.startswith("tensor_cast.matmul_all_reduce"):
        return x.dtype
    given = leaf.attributes.get("out_dtype")
    if not isinstance(given, str):
        raise LackingError("outputs or out_dtype")
    try:
        return canonical_dtype(given)
    except UnknownNameError:
        raise LackingError(f"a known out_dtype (got {given})") from None
