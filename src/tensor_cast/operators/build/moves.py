"""Lookups of rows, concatenation and casts.

Source: docs/facts/leaf-operators.md "Arguments".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import leading, positive
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape

__all__ = ["cast", "cat", "embedding"]


def embedding(tokens: int, vocabulary: int, width: int, *, dtype: str = BF16) -> LeafOp:
    """Rows of `(V, D)` at int64 indices `(1, T)`: `(1, T, D)`."""
    positive(tokens=tokens, vocabulary=vocabulary, width=width)
    inputs = {"weight": tensor(dtype, vocabulary, width), "indices": tensor("int64", 1, tokens)}
    return call("aten.embedding.default", inputs, (tensor(dtype, 1, tokens, width),))


def cat(
    shapes: Sequence[Shape],
    *,
    dim: int = 0,
    dtype: str = BF16,
    namespace: Literal["tensor_cast", "aten"] = "tensor_cast",
) -> LeafOp:
    """The tensors side by side along `dim`; refuses shapes that differ elsewhere."""
    for at, shape in enumerate(shapes):
        leading(shape, f"shapes[{at}]")
    rank = len(shapes[0]) if shapes else 0
    if not -rank <= dim < rank:
        raise InvalidValueError(f"dim: expected {-rank} to {rank - 1} of at least one tensor, got {dim}")
    at = dim % rank
    if any((*shape[:at], *shape[at + 1 :]) != (*shapes[0][:at], *shapes[0][at + 1 :]) for shape in shapes):
        raise InvalidValueError(f"shapes: expected sizes that agree but for dim {dim}, got {list(shapes)}")
    joined = (*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])
    tensors = tuple(tensor(dtype, *shape) for shape in shapes)
    return call(f"{namespace}.cat.default", {"tensors": tensors}, (tensor(dtype, *joined),), dim=dim)


def cast(shape: Shape, source: str, target: str) -> LeafOp:
    """`aten.to.dtype`: the same values in another dtype.  Outside the signature table, so its tensor has no role."""
    made = tensor(target, *leading(shape, "shape"))
    return call("aten.to.dtype", {"": tensor(source, *shape)}, (made,), dtype=made.dtype)
