"""Activations, elementwise operators, gathers and joins.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from collections.abc import Sequence

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.parts import leaf, like, sizes, tensor
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape

__all__ = ["ELEMENTWISE", "activation", "cat", "elementwise", "embedding", "swiglu"]

ELEMENTWISE = ("add", "mul", "div")


def swiglu(tokens: int, width: int, *, dtype: str = "bfloat16") -> LeafOp:
    """Gate and up `(T, D)`; out like up."""
    sizes("swiglu", tokens=tokens, width=width)
    gate, up = tensor("gate", (tokens, width), dtype), tensor("up", (tokens, width), dtype)
    return leaf("swiglu", (gate, up), [like(up)])


def activation(kind: str, tokens: int, width: int, *, dtype: str = "bfloat16") -> LeafOp:
    """`silu` or `gelu` of `(T, D)`."""
    if kind not in ("silu", "gelu"):
        raise InvalidValueError(f"activation {kind!r}: silu or gelu")
    sizes(kind, tokens=tokens, width=width)
    x = tensor("x", (tokens, width), dtype)
    return leaf(kind, (x,), [like(x)])


def cat(shapes: Sequence[Shape], *, dim: int = 0, dtype: str = "bfloat16") -> LeafOp:
    """Tensors joined along a dimension, in which alone they may differ."""
    if (
        not shapes
        or any(len(shape) != len(shapes[0]) for shape in shapes)
        or not -len(shapes[0]) <= dim < len(shapes[0])
    ):
        raise InvalidValueError(f"cat: tensors of one rank joined along one of its dimensions, got {shapes} and {dim}")
    at = dim % len(shapes[0])
    rests = {(*shape[:at], *shape[at + 1 :]) for shape in shapes}
    if len(rests) != 1:
        raise InvalidValueError(f"cat: shapes differ beside dimension {dim}: {', '.join(map(str, shapes))}")
    joined = (*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])
    inputs = [tensor("tensors", shape, dtype) for shape in shapes]
    return leaf("cat", inputs, [tensor("", joined, dtype)], {"dim": dim})


def embedding(tokens: int, *, vocabulary: int, width: int, dtype: str = "bfloat16") -> LeafOp:
    """Rows of `(V, D)` for `(1, T)` indices; out `(1, T, D)`."""
    sizes("aten.embedding", tokens=tokens, vocabulary=vocabulary, width=width)
    inputs = (tensor("weight", (vocabulary, width), dtype), tensor("indices", (1, tokens), "int64"))
    return leaf("aten.embedding.default", inputs, [tensor("", (1, tokens, width), dtype)])


def elementwise(kind: str, left: Shape, right: Shape | None = None, *, dtype: str = "bfloat16") -> LeafOp:
    """`add`, `mul` or `div` of a tensor with another one, broadcast, or with a Python number (`right` None)."""
    if kind not in ELEMENTWISE:
        raise InvalidValueError(f"elementwise {kind!r}: one of {', '.join(ELEMENTWISE)}")
    inputs = [tensor("", left, dtype), *([] if right is None else [tensor("", right, dtype)])]
    output = left if right is None else _broadcast(kind, left, right)
    return leaf(f"aten.{kind}.Tensor", inputs, [tensor("", output, dtype)])


def _broadcast(kind: str, left: Shape, right: Shape) -> Shape:
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    found = []
    for one, other in pairs:
        if one != other and 1 not in (one, other):
            raise InvalidValueError(f"{kind}: {left} and {right} do not broadcast")
        found.append(max(one, other))
    return tuple(found)
