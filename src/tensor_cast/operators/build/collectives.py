"""Communication between ranks: every collective takes the shape of the tensor this rank hands over.

Source: docs/facts/leaf-operators.md "Experts and collectives".
"""

from __future__ import annotations

from collections.abc import Sequence

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import leading, multiple, positive
from tensor_cast.operators.leaf import AttrValue, LeafOp
from tensor_cast.operators.tensor import Shape

__all__ = ["all_gather", "all_reduce", "all_to_all", "group_attrs", "reduce_scatter"]


def all_reduce(shape: Shape, *, rank_group: Sequence[int], rank: int | None = None, dtype: str = BF16) -> LeafOp:
    """The sum over the group's ranks, of the same shape on each.  `rank` is this rank, by default the group's first."""
    x = tensor(dtype, *leading(shape, "shape"))
    return call("all_reduce", {"x": x}, (x,), **group_attrs(rank_group, rank))


def all_gather(
    shape: Shape, *, rank_group: Sequence[int], dim: int = 0, rank: int | None = None, dtype: str = BF16
) -> LeafOp:
    """The tensors of all ranks side by side: `dim` is as many times larger as there are ranks."""
    group = group_attrs(rank_group, rank)
    at = _axis(leading(shape, "shape"), dim)
    gathered = (*shape[:at], shape[at] * len(rank_group), *shape[at + 1 :])
    return call("all_gather", {"x": tensor(dtype, *shape)}, (tensor(dtype, *gathered),), dim=dim, **group)


def reduce_scatter(
    shape: Shape, *, rank_group: Sequence[int], dim: int = 0, rank: int | None = None, dtype: str = BF16
) -> LeafOp:
    """This rank's share, along `dim`, of the sum over the ranks.  Refuses a `dim` the ranks do not divide."""
    group = group_attrs(rank_group, rank)
    at = _axis(leading(shape, "shape"), dim)
    multiple(len(rank_group), "the ranks of rank_group", **{f"shape[{at}]": shape[at]})
    share = (*shape[:at], shape[at] // len(rank_group), *shape[at + 1 :])
    return call("reduce_scatter", {"x": tensor(dtype, *shape)}, (tensor(dtype, *share),), dim=dim, **group)


def all_to_all(
    shape: Shape,
    *,
    rank_group: Sequence[int],
    input_splits: Sequence[int] | None = None,
    output_splits: Sequence[int] | None = None,
    rank: int | None = None,
    dtype: str = BF16,
) -> LeafOp:
    """Rows exchanged with every rank: `(rows received, ...)`.  Splits hold the rows per rank, by default equal shares.

    Refuses splits that are not one per rank or do not add up to the rows handed over.
    """
    group = group_attrs(rank_group, rank)
    rows, *rest = leading(shape, "shape")
    sent = _splits("input_splits", input_splits, rows, len(rank_group))
    received = sent if output_splits is None else _splits("output_splits", output_splits, None, len(rank_group))
    output = tensor(dtype, sum(received), *rest)
    splits = {"output_split_sizes": received, "input_split_sizes": sent}
    return call("all_to_all", {"x": tensor(dtype, *shape)}, (output,), **splits, **group)


def group_attrs(rank_group: Sequence[int], rank: int | None) -> dict[str, AttrValue]:
    """`rank` and `rank_group` as attributes.  Refuses an empty group, a rank twice, and a `rank` outside the group."""
    group = tuple(rank_group)
    if not group or len(set(group)) != len(group) or any(type(one) is not int or one < 0 for one in group):
        raise InvalidValueError(f"rank_group: expected different ranks >= 0, at least one, got {group}")
    if rank is not None and rank not in group:
        raise InvalidValueError(f"rank: expected one of rank_group {group}, got {rank}")
    return {"rank": group[0] if rank is None else rank, "rank_group": group}


def _axis(shape: Shape, dim: int) -> int:
    if not -len(shape) <= dim < len(shape):
        raise InvalidValueError(f"dim: expected {-len(shape)} to {len(shape) - 1}, got {dim}")
    return dim % len(shape)


def _splits(name: str, given: Sequence[int] | None, rows: int | None, ranks: int) -> tuple[int, ...]:
    if given is None:
        multiple(ranks, "the ranks of rank_group", **{"shape[0]": rows or 0})
        return ((rows or 0) // ranks,) * ranks
    splits = tuple(given)
    if len(splits) != ranks or any(type(rows) is not int or rows < 0 for rows in splits):
        raise InvalidValueError(f"{name}: expected {ranks} whole numbers >= 0, one per rank, got {splits}")
    if rows is not None and sum(splits) != rows:
        raise InvalidValueError(f"{name}: expected the {rows} rows handed over in all, got {sum(splits)}")
    positive(**{f"sum of {name}": sum(splits)})
    return splits
