"""What constructors share: checked sizes, tensors with roles, a leaf of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index

from tensor_cast.dtypes import canonical_dtype
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["BLOCK", "divided", "leaf", "like", "new_tokens", "sizes", "tensor"]

BLOCK = 128
"""Tokens of a cache block, the default of vllm-ascend."""


def sizes(operator: str, **given: int) -> None:
    """Every size is a whole number of at least 1.  Raises InvalidValueError with the operator and the size."""
    for name, value in given.items():
        try:
            whole = index(value)
        except TypeError:
            raise InvalidValueError(f"{operator}: {name} must be a whole number, got {value!r}") from None
        if whole < 1:
            raise InvalidValueError(f"{operator}: {name} must be at least 1, got {value}")


def divided(operator: str, name: str, value: int, by: int) -> int:
    """A size that is a whole multiple of another, divided by it."""
    if value % by:
        raise InvalidValueError(f"{operator}: {name} {value} is no multiple of {by}")
    return value // by


def new_tokens(operator: str, requests: Requests) -> int:
    """Tokens of a step: the sum of the query lengths.  Raises InvalidValueError where they are not known."""
    if not requests.query_lens or sum(requests.query_lens) < 1:
        raise InvalidValueError(f"{operator}: requests need query_lens with at least one token")
    return sum(requests.query_lens)


def tensor(role: str, shape: Shape, dtype: str) -> TensorSpec:
    """One tensor that fills a role, an output without one.  Raises InvalidValueError, with the role."""
    try:
        return TensorSpec(shape, canonical_dtype(dtype), role=role)
    except InvalidValueError as error:
        raise InvalidValueError(f"{role or 'output'}: {error}") from None


def like(spec: TensorSpec, dtype: str | None = None) -> TensorSpec:
    """An output of a tensor's shape."""
    return TensorSpec(spec.shape, spec.dtype if dtype is None else canonical_dtype(dtype))


def leaf(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec] = (),
    attrs: Mapping[str, AttrValue] | None = None,
    requests: Requests | None = None,
) -> LeafOp:
    """`tensor_cast.NAME.default`, or an `aten` operator with its own namespace."""
    full = name if name.startswith("aten.") else f"tensor_cast.{name}.default"
    return LeafOp(full, tuple(inputs), tuple(outputs), tuple((attrs or {}).items()), requests)
