"""Collectives over the ranks of a group.  Source: docs/facts/leaf-operators.md."""

from __future__ import annotations

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.parts import divided, leaf, sizes, tensor
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import Shape

__all__ = ["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]


def all_reduce(shape: Shape, *, rank_group: tuple[int, ...], dtype: str = "bfloat16") -> LeafOp:
    """The sum over all ranks; out like x."""
    return _collective("all_reduce", shape, shape, rank_group, dtype)


def all_gather(shape: Shape, *, rank_group: tuple[int, ...], dim: int = 0, dtype: str = "bfloat16") -> LeafOp:
    """Every rank's tensor joined along `dim`."""
    at = _dimension("all_gather", shape, dim)
    joined = (*shape[:at], shape[at] * len(rank_group), *shape[at + 1 :])
    return _collective("all_gather", shape, joined, rank_group, dtype, dim)


def reduce_scatter(shape: Shape, *, rank_group: tuple[int, ...], dim: int = 0, dtype: str = "bfloat16") -> LeafOp:
    """The sum over all ranks, of which each keeps its part along `dim`."""
    at = _dimension("reduce_scatter", shape, dim)
    part = divided("reduce_scatter", f"dimension {dim}", shape[at], max(len(rank_group), 1))
    return _collective("reduce_scatter", shape, (*shape[:at], part, *shape[at + 1 :]), rank_group, dtype, dim)


def all_to_all(
    shape: Shape,
    *,
    output_splits: tuple[int, ...],
    input_splits: tuple[int, ...],
    rank_group: tuple[int, ...],
    dtype: str = "bfloat16",
) -> LeafOp:
    """Rows sent to each rank by `input_splits`, rows received by `output_splits`."""
    name = "all_to_all"
    if not len(output_splits) == len(input_splits) == len(rank_group):
        raise InvalidValueError(f"{name}: one split for each of {len(rank_group)} ranks")
    if not shape or sum(input_splits) != shape[0]:
        raise InvalidValueError(f"{name}: input_splits {input_splits} do not make the rows of {shape}")
    received = (sum(output_splits), *shape[1:])
    attrs: dict[str, AttrValue] = {"output_split_sizes": output_splits, "input_split_sizes": input_splits}
    x = tensor("x", shape, dtype)
    attrs |= {"rank": rank_group[0], "rank_group": rank_group}
    return leaf(name, (x,), [tensor("", received, dtype)], attrs)


def _dimension(name: str, shape: Shape, dim: int) -> int:
    if not -len(shape) <= dim < len(shape):
        raise InvalidValueError(f"{name}: {shape} has no dimension {dim}")
    return dim % len(shape)


def _collective(
    name: str, shape: Shape, out: Shape, rank_group: tuple[int, ...], dtype: str, dim: int | None = None
) -> LeafOp:
    sizes(name, ranks=len(rank_group))
    attrs: dict[str, AttrValue] = {"rank": rank_group[0], "rank_group": rank_group}
    if dim is not None:
        attrs["dim"] = dim
    return leaf(name, (tensor("x", shape, dtype),), [tensor("", out, dtype)], attrs)
