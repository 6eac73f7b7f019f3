"""What every canonical decomposition shares: reading the parent, and building its children."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tensor_cast.dtypes import stored_bytes
from tensor_cast.operators.leaf import KERNEL_TYPES, AttrValue, LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = [
    "LackingError",
    "carried_requests",
    "integer",
    "is_quantised",
    "layers_of",
    "numbered",
    "optional_integer",
    "output_dtype",
    "product",
    "rows_of",
    "tensor",
]

_PRODUCTS: Final = {
    "int8": "tensor_cast.static_quant_linear.default",
    "float8_e4m3fn": "tensor_cast.fp8_linear.default",
    "float8_e5m2": "tensor_cast.fp8_linear.default",
}
_FLOATS: Final = ("bfloat16", "float16", "float32")
_CARRIED_ATTRS: Final = ("model",)


class LackingError(Exception):
    """Internal: the call lacks `missing`; `canonical_leaves` turns it into a `NotDecomposable`."""

    def __init__(self, *missing: str) -> None:
        super().__init__(*missing)
        self.missing = missing


def tensor(leaf: LeafOp, role: str, rank: int | None = None) -> TensorSpec:
    """The input that fills `role`, of `rank` where one is given."""
    spec = leaf.role(role)
    if spec is None or (rank is not None and spec.rank != rank):
        raise LackingError(role if rank is None else f"{role} of rank {rank}")
    return spec


def integer(leaf: LeafOp, name: str) -> int:
    """The positive integer attribute `name`."""
    value = optional_integer(leaf, name)
    if value is None:
        raise LackingError(name)
    return value


def optional_integer(leaf: LeafOp, name: str) -> int | None:
    value = leaf.attributes.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def is_quantised(leaf: LeafOp) -> bool:
    return leaf.name.split(".")[1].endswith("_quant")


def layers_of(cache: TensorSpec) -> Shape:
    """A paged cache as `(blocks, block, D)`: unit dimensions of the tail dropped."""
    shape = (*cache.shape[:1], *(dim for dim in cache.shape[1:] if dim != 1))
    if len(shape) != 3:
        raise LackingError(f"{cache.role} (blocks, block, D)")
    return shape


def rows_of(spec: TensorSpec) -> tuple[int, int]:
    """`(..., K)` as tokens and K, both above 0."""
    if spec.rank < 2 or spec.numel == 0:
        raise LackingError(f"{spec.role} (..., T, K)")
    if stored_bytes(spec.dtype) is None:
        raise LackingError(f"{spec.role} of a known dtype (got {spec.dtype})")
    return spec.numel // spec.shape[-1], spec.shape[-1]


def output_dtype(leaf: LeafOp, fallback: str) -> str:
    """The dtype the call hands on: its output's, else `fallback` where that is a float."""
    if leaf.outputs:
        return leaf.outputs[0].dtype
    if fallback not in _FLOATS:
        raise LackingError("outputs")
    return fallback


def product(
    x: Shape, weight: Shape, weight_dtype: str, out_dtype: str, kernels: tuple[str, ...] | None = None
) -> LeafOp:
    """`(…, M, K) x (…, K, N)` as the operator the weight's dtype calls for; both operands have that dtype.

    Float weights: `aten.mm`, or `aten.bmm` at rank 3, run by `kernels` where the parent is known to launch these.
    INT8: `static_quant_linear`; FP8: `fp8_linear`.
    """
    attrs: tuple[tuple[str, AttrValue], ...] = ()
    out = (*x[:-1], weight[-1])
    if weight_dtype in _FLOATS:
        name, out_dtype = ("aten.bmm.default" if len(x) == 3 else "aten.mm.default"), weight_dtype
        attrs = () if kernels is None else ((KERNEL_TYPES, kernels),)
    elif weight_dtype in _PRODUCTS:
        name = _PRODUCTS[weight_dtype]
    else:
        raise LackingError(f"a projection weight of a known layout (got {weight_dtype})")
    operands = (TensorSpec(x, weight_dtype, role="x"), TensorSpec(weight, weight_dtype, role="weight"))
    return LeafOp(name, operands, (TensorSpec(out, out_dtype),), attrs)


def carried_requests(leaf: LeafOp) -> Requests | None:
    """The parent's request grouping with the shape of its block table filled in from the tensor."""
    table = leaf.role("block_table")
    known = leaf.requests
    if table is None or table.rank != 2:
        return known
    if known is None:
        return Requests(block_table_shape=table.shape)
    return known if known.block_table_shape is not None else replace(known, block_table_shape=table.shape)


def numbered(parent: LeafOp, parts: Iterable[LeafOp]) -> tuple[LeafOp, ...]:
    """The children in launch order, each naming its parent and position; facts about the model go along."""
    carried: dict[str, AttrValue] = {k: v for k, v in parent.attrs if k in _CARRIED_ATTRS}
    return tuple(
        replace(part, source=f"child:{parent.name}#{i}", attrs=tuple({**carried, **dict(part.attrs)}.items()))
        for i, part in enumerate(parts)
    )
