"""Putting a call together: tensors by role in argument order, attributes that are known, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tensor_cast.dtypes import canonical_dtype
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["BF16", "Inputs", "call", "copies", "tensor"]

BF16: Final = "bfloat16"
Inputs = Mapping[str, TensorSpec | Sequence[TensorSpec] | None]
"""Argument to its tensor, its list of tensors, or None where the optional argument is absent."""


def tensor(dtype: str, *shape: int) -> TensorSpec:
    """A tensor of any spelling of a dtype; without dimensions, a 0-d one.  Refuses more elements than 63 bits count."""
    name = canonical_dtype(dtype)
    try:
        return TensorSpec(shape, name)
    except InvalidValueError as error:
        raise InvalidValueError(f"{shape}: {error}") from None


def copies(count: int, spec: TensorSpec) -> tuple[TensorSpec, ...]:
    """A list argument of equal tensors."""
    return (spec,) * count


def call(
    operator: str,
    inputs: Inputs,
    outputs: Sequence[TensorSpec] = (),
    requests: Requests | None = None,
    /,
    **attrs: AttrValue,
) -> LeafOp:
    """The leaf of `tensor_cast.<operator>.default`, or of an operator given with its namespace and overload.

    `inputs` stand in argument order.  An attribute of None is one the call does not give.
    """
    name = operator if "." in operator else f"tensor_cast.{operator}.default"
    known = tuple((key, value) for key, value in attrs.items() if value is not None)
    return LeafOp(name, tuple(_with_roles(inputs)), tuple(outputs), known, requests)


def _with_roles(inputs: Inputs) -> Iterator[TensorSpec]:
    for role, given in inputs.items():
        for spec in (given,) if isinstance(given, TensorSpec) else given or ():
            yield TensorSpec(spec.shape, spec.dtype, spec.format, role)
