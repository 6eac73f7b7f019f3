"""Activations and pointwise arithmetic.

Source: docs/facts/leaf-operators.md "Arguments".
"""

from __future__ import annotations

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import Rows, leading, positive
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape

__all__ = ["add", "div", "gelu", "mul", "silu", "swiglu", "v4_clamped_swiglu"]


def swiglu(tokens: Rows, width: int, *, dtype: str = BF16) -> LeafOp:
    """Gate and up, `(..., D)` each, to one like up."""
    return _gated("swiglu", tokens, width, dtype, None)


def v4_clamped_swiglu(tokens: Rows, width: int, *, swiglu_limit: float, dtype: str = BF16) -> LeafOp:
    """DeepSeek-V4's SwiGLU, whose inputs are clamped to `swiglu_limit`; refuses a limit not above 0."""
    if not swiglu_limit > 0:
        raise InvalidValueError(f"swiglu_limit: expected a number above 0, got {swiglu_limit}")
    return _gated("v4_clamped_swiglu", tokens, width, dtype, swiglu_limit)


def _gated(name: str, tokens: Rows, width: int, dtype: str, limit: float | None) -> LeafOp:
    positive(width=width)
    half = tensor(dtype, *leading(tokens), width)
    return call(name, {"gate": half, "up": half}, (half,), swiglu_limit=limit)


def silu(tokens: Rows, width: int, *, dtype: str = BF16) -> LeafOp:
    """SiLU of `(..., D)`."""
    return _pointwise("silu", tokens, width, dtype)


def gelu(tokens: Rows, width: int, *, dtype: str = BF16) -> LeafOp:
    """GELU of `(..., D)`."""
    return _pointwise("gelu", tokens, width, dtype)


def _pointwise(name: str, tokens: Rows, width: int, dtype: str) -> LeafOp:
    positive(width=width)
    x = tensor(dtype, *leading(tokens), width)
    return call(name, {"x": x}, (x,))


def add(shape: Shape, other: Shape | float, *, dtype: str = BF16) -> LeafOp:
    """The sum of a tensor and another, or a number; refuses shapes that do not broadcast."""
    return _binary("add", shape, other, dtype)


def mul(shape: Shape, other: Shape | float, *, dtype: str = BF16) -> LeafOp:
    """The product of a tensor and another, or a number; refuses shapes that do not broadcast."""
    return _binary("mul", shape, other, dtype)


def div(shape: Shape, other: Shape | float, *, dtype: str = BF16) -> LeafOp:
    """The quotient of a tensor and another, or a number; refuses shapes that do not broadcast."""
    return _binary("div", shape, other, dtype)


def _binary(name: str, shape: Shape, other: Shape | float, dtype: str) -> LeafOp:
    x, operator = tensor(dtype, *leading(shape, "shape")), f"aten.{name}.Tensor"
    if not isinstance(other, tuple):
        return call(operator, {"x": x}, (x,), other=other)
    made = tensor(dtype, *_broadcast(shape, leading(other, "other") if other else ()))
    return call(operator, {"x": x, "other": tensor(dtype, *other)}, (made,))


def _broadcast(left: Shape, right: Shape) -> Shape:
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (left, right)]
    if any(one != two and 1 not in (one, two) for one, two in zip(*padded, strict=True)):
        raise InvalidValueError(f"other: expected a shape that broadcasts with {left}, got {right}")
    return tuple(max(pair) for pair in zip(*padded, strict=True))
