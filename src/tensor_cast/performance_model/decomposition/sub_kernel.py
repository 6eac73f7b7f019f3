"""One child of a decomposed operator."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["SubKernel", "child"]


@dataclass(frozen=True, slots=True)
class SubKernel:
    """A canonical leaf, the kernels that may have run it (first to last), and how its rows are matched.

    `sparse_mode` and `num_kv_heads` are set for a dense-attention child, whose query is the leaf's first input.
    """

    leaf: LeafOp
    kernels: tuple[str, ...]
    input_count: int | None = None
    is_attention: bool = False
    sparse_mode: int | None = None
    num_kv_heads: int | None = None


def child(
    parent: LeafOp,
    index: int,
    operator: str,
    kernels: tuple[str, ...],
    shapes: tuple[Shape, ...],
    dtype: str,
    *,
    input_count: int | None = None,
    requests: Requests | None = None,
) -> SubKernel:
    """A compute child on plain shapes of one dtype; the input count defaults to the number of shapes."""
    leaf = LeafOp(
        operator,
        tuple(TensorSpec(shape, dtype) for shape in shapes),
        requests=requests,
        source=f"child:{parent.name}#{index}",
    )
    return SubKernel(leaf, kernels, input_count or len(shapes))
