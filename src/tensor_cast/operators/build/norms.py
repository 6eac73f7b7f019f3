"""Norms, with a residual added first, and with their output quantised.

`x` is `(..., D)` with the leading dimensions of `tokens`.  A residual may have other ones, `(T, D)` beside `(1, T, D)`;
`residual_out` asks for the sum as well (the operators whose name has a 2).
Source: docs/facts/leaf-operators.md "Arguments".
"""

from __future__ import annotations

from math import prod

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.quantise import DynamicForm, made_by
from tensor_cast.operators.build.sizes import Rows, leading, positive
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = [
    "add_rms_norm",
    "add_rms_norm_dynamic_quant",
    "add_rms_norm_quant",
    "layer_norm",
    "rms_norm",
    "rms_norm_dynamic_quant",
    "rms_norm_quant",
]

_SCALE, _OFFSET = tensor("float32"), tensor("int32")


def rms_norm(tokens: Rows, width: int, *, eps: float = 1e-6, dtype: str = BF16) -> LeafOp:
    """The root-mean-square norm, like `x`."""
    x, weight = _normed(tokens, width, dtype)
    return call("rms_norm", {"x": x, "weight": weight}, (x,), eps=eps)


def add_rms_norm(
    tokens: Rows,
    width: int,
    *,
    residual_out: bool = False,
    residual_tokens: Rows | None = None,
    eps: float = 1e-6,
    dtype: str = BF16,
) -> LeafOp:
    """The norm of `x` plus residual, like `x`, and the sum where asked for."""
    inputs = _added(tokens, width, residual_tokens, dtype)
    x = inputs["x"]
    return call(_added_name("", residual_out), inputs, (x, x) if residual_out else (x,), eps=eps)


def rms_norm_quant(
    tokens: Rows, width: int, *, eps: float = 1e-6, dtype: str = BF16, out_dtype: str = "int8"
) -> LeafOp:
    """The norm quantised with a given 0-d scale and offset."""
    x, weight = _normed(tokens, width, dtype)
    inputs = {"x": x, "weight": weight, "quant_scale": _SCALE, "quant_offset": _OFFSET}
    made = tensor(out_dtype, *x.shape)
    return call("rms_norm_quant", inputs, (made,), eps=eps, out_dtype=made.dtype)


def add_rms_norm_quant(
    tokens: Rows,
    width: int,
    *,
    residual_out: bool = False,
    residual_tokens: Rows | None = None,
    eps: float = 1e-6,
    dtype: str = BF16,
    out_dtype: str = "int8",
) -> LeafOp:
    """The norm of `x` plus residual quantised with a given 0-d scale and offset, and the sum where asked for."""
    inputs = {**_added(tokens, width, residual_tokens, dtype), "quant_scale": _SCALE, "quant_offset": _OFFSET}
    made = tensor(out_dtype, *inputs["x"].shape)
    outputs = (made, inputs["x"]) if residual_out else (made,)
    return call(_added_name("_quant", residual_out), inputs, outputs, eps=eps, out_dtype=made.dtype)


def rms_norm_dynamic_quant(
    tokens: Rows,
    width: int,
    *,
    form: DynamicForm = "symmetric",
    dims: tuple[int, ...] = (-1,),
    group_size: int = 32,
    eps: float = 1e-6,
    dtype: str = BF16,
    out_dtype: str = "int8",
) -> LeafOp:
    """The norm, quantised as `dynamic_quantize` does it."""
    x, weight = _normed(tokens, width, dtype)
    outputs, attrs = made_by(form, x.shape, dims, group_size, out_dtype, scale_per_row=True)
    return call(f"rms_norm_dynamic_quant_{form}", {"x": x, "weight": weight}, outputs, eps=eps, **attrs)


def add_rms_norm_dynamic_quant(
    tokens: Rows,
    width: int,
    *,
    form: DynamicForm = "symmetric",
    residual_out: bool = False,
    residual_tokens: Rows | None = None,
    dims: tuple[int, ...] = (-1,),
    group_size: int = 32,
    eps: float = 1e-6,
    dtype: str = BF16,
    out_dtype: str = "int8",
) -> LeafOp:
    """The norm of `x` plus residual, quantised as `dynamic_quantize` does it, and the sum, last, where asked for."""
    inputs = _added(tokens, width, residual_tokens, dtype)
    x = inputs["x"]
    outputs, attrs = made_by(form, x.shape, dims, group_size, out_dtype, scale_per_row=True)
    name = f"{_added_name('_dynamic_quant', residual_out)}_{form}"
    return call(name, inputs, (*outputs, x) if residual_out else outputs, eps=eps, **attrs)


def layer_norm(
    tokens: Rows, width: int, *, weight: bool = True, bias: bool = True, eps: float = 1e-6, dtype: str = BF16
) -> LeafOp:
    """`aten.native_layer_norm`: the norm like `x`, then mean and reciprocal deviation, float32 `(..., 1)`."""
    x, vector = _normed(tokens, width, dtype)
    inputs = {"x": x, "weight": vector if weight else None, "bias": vector if bias else None}
    column = tensor("float32", *x.shape[:-1], 1)
    attrs = {"normalized_shape": (width,)}
    return call("aten.native_layer_norm.default", inputs, (x, column, column), eps=eps, **attrs)


def _normed(tokens: Rows, width: int, dtype: str) -> tuple[TensorSpec, TensorSpec]:
    """`x` and the weight of its last dimension."""
    positive(width=width)
    return tensor(dtype, *leading(tokens), width), tensor(dtype, width)


def _added(tokens: Rows, width: int, residual_tokens: Rows | None, dtype: str) -> dict[str, TensorSpec]:
    x, weight = _normed(tokens, width, dtype)
    if residual_tokens is None:
        return {"x": x, "residual": x, "weight": weight}
    lead = leading(residual_tokens, "residual_tokens")
    if prod(lead) != prod(x.shape[:-1]):
        raise InvalidValueError(f"residual_tokens: expected {prod(x.shape[:-1])} tokens as in x, got {residual_tokens}")
    return {"x": x, "residual": tensor(dtype, *lead, width), "weight": weight}


def _added_name(quant: str, residual_out: bool) -> str:
    return f"add_rms_norm{quant}{'2' if residual_out else ''}"
