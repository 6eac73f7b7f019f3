"""Quantisation of activations, with given scales or scales of their own.

`x` is `(..., K)` with the leading dimensions of `tokens`.
Source: docs/facts/leaf-operators.md "Products and quantisation".
"""

from __future__ import annotations

from typing import Literal

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import Rows, leading, one_of, positive
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["DynamicForm", "dynamic_quantize", "made_by", "quantize"]

_FORMS = ("symmetric", "asymmetric", "mxfp4")
DynamicForm = Literal["symmetric", "asymmetric", "mxfp4"]


def quantize(
    tokens: Rows,
    k: int,
    *,
    scale: Literal["tensor", "channel"] = "tensor",
    offset: bool = False,
    dtype: str = BF16,
    out_dtype: str = "int8",
) -> LeafOp:
    """A given float32 scale applied, 0-d or `(K)`, with an int32 offset of its shape where asked for."""
    positive(k=k)
    one_of(("tensor", "channel"), scale=scale)
    shape, shared = (*leading(tokens), k), (k,) if scale == "channel" else ()
    inputs = {
        "x": tensor(dtype, *shape),
        "scale": tensor("float32", *shared),
        "offset": tensor("int32", *shared) if offset else None,
    }
    output = tensor(out_dtype, *shape)
    return call("quantize", inputs, (output,), out_dtype=output.dtype)


def dynamic_quantize(
    tokens: Rows,
    k: int,
    *,
    form: DynamicForm = "symmetric",
    dims: tuple[int, ...] = (-1,),
    group_size: int = 32,
    scale_per_row: bool = True,
    dtype: str = BF16,
    out_dtype: str = "int8",
) -> LeafOp:
    """Scales found from the activation and applied: quantised, scale, and for `asymmetric` an int32 offset.

    A float32 scale is shared over `dims`: `(-1,)` is one per row `(..., 1)`, `()` one in all, 0-d.  `mxfp4` makes
    4-bit values with an E8M0 scale per `group_size` of K, `(..., groups)`, or `(groups)` as the baseline has it
    without `scale_per_row`.  Refuses a dim that `x` has not.
    """
    positive(k=k)
    x = tensor(dtype, *leading(tokens), k)
    outputs, attrs = made_by(form, x.shape, dims, group_size, out_dtype, scale_per_row=scale_per_row)
    return call(f"dynamic_quantize_{form}", {"x": x}, outputs, **attrs)


def made_by(
    form: DynamicForm, shape: Shape, dims: tuple[int, ...], group_size: int, out_dtype: str, *, scale_per_row: bool
) -> tuple[tuple[TensorSpec, ...], dict[str, AttrValue]]:
    """What quantising a tensor of `shape` makes, and the attributes that say how."""
    one_of(_FORMS, form=form)
    if form == "mxfp4":
        positive(group_size=group_size)
        groups = -(-shape[-1] // group_size)
        scale = tensor("float8_e8m0fnu", *(shape[:-1] if scale_per_row else ()), groups)
        return (tensor("int4", *shape), scale), {"group_size": group_size}
    made, shared = tensor(out_dtype, *shape), _shared(shape, dims)
    offset = (tensor("int32", *shared),) if form == "asymmetric" else ()
    attrs: dict[str, AttrValue] = {"dims": dims, "scale_dtype": "float32", "out_dtype": made.dtype}
    return (made, tensor("float32", *shared), *offset), attrs


def _shared(shape: Shape, dims: tuple[int, ...]) -> Shape:
    """The shape of a scale: 1 along `dims`, 0-d where none is named."""
    rank = len(shape)
    if any(not -rank <= dim < rank for dim in dims):
        raise InvalidValueError(f"dims: expected {-rank} to {rank - 1}, got {dims}")
    over = {dim % rank for dim in dims}
    return tuple(1 if at in over else size for at, size in enumerate(shape)) if dims else ()
