"""How an operator is moved to other coordinates: its tensors are told apart by their position in the call, never by
identity or equality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensor_cast.errors import InvalidValueError, nearest
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = [
    "at_role",
    "immovable",
    "move_product",
    "reshaped",
    "tensor_places",
    "with_rows",
]

_PARAMETERS = ("weight", "gamma", "norm", "bias", "cache", "scale", "offset", "mask", "table")


def immovable(leaf: LeafOp, asked: Iterable[str], allowed: Iterable[str] = ()) -> InvalidValueError:
    """The error for axes along which an operator cannot be moved."""
    known = list(allowed)
    wrong = [axis for axis in asked if axis not in known] or list(asked)
    hint = f"; allowed are {', '.join(known)}{nearest(wrong[0], known)}" if known else ""
    return InvalidValueError(f"query_many: {leaf.name} cannot be moved along {', '.join(wrong)}{hint}")


def tensor_places(leaf: LeafOp) -> list[int]:
    """Where `leaf.tensors` stand among `leaf.inputs`."""
    return [place for place, spec in enumerate(leaf.inputs) if spec.shape]


def at_role(leaf: LeafOp, *names: str) -> int | None:
    """The position of the first input with one of the roles, in the order of the names."""
    for name in names:
        for place, spec in enumerate(leaf.inputs):
            if spec.role == name:
                return place
    return None


def reshaped(
    leaf: LeafOp,
    inputs: Mapping[int, Shape],
    outputs: Mapping[int, Shape] | None = None,
    requests: Requests | None = None,
) -> LeafOp:
    """The operator with other shapes at some positions of its inputs and outputs, and other requests."""
    return LeafOp(
        leaf.name,
        _with(leaf.inputs, inputs),
        _with(leaf.outputs, outputs or {}),
        leaf.attrs,
        requests or leaf.requests,
        leaf.source,
    )


def _with(specs: tuple[TensorSpec, ...], shapes: Mapping[int, Shape]) -> tuple[TensorSpec, ...]:
    if not shapes:
        return specs
    moved = list(specs)
    for place, shape in shapes.items():
        spec = specs[place]
        if shape != spec.shape:
            moved[place] = TensorSpec(shape, spec.dtype, spec.format, spec.role)
    return tuple(moved)


def with_rows(shape: Shape, rows: int, kept: int = 1) -> Shape:
    """A shape whose dimensions before the last `kept` multiply to `rows`, as one row dimension behind ones."""
    leading = len(shape) - kept
    return (*(1,) * (leading - 1), rows, *shape[leading:]) if leading > 0 else shape


def is_parameter(spec: TensorSpec) -> bool:
    """Whether a tensor's role says that it does not grow with the tokens."""
    return any(word in spec.role for word in _PARAMETERS)


def move_product(
    leaf: LeafOp, matrices: Mapping[int, Shape], old: tuple[int, int], new: tuple[int, int], rows: Shape
) -> LeafOp:
    """A matrix product with other matrices: the vectors beside them and the first output follow M and N.

    `old` and `new` are M and N before and after; `rows` is the new shape of the left matrix.
    """
    shapes = dict(matrices)
    if old != new and len(leaf.inputs) > len(shapes):
        for place, spec in enumerate(leaf.inputs):
            if place not in shapes and spec.shape:
                shapes[place] = _beside(spec, old, new)
    first = leaf.outputs[0].shape if leaf.outputs else ()
    outputs = {0: (*first[:-2], *(*rows[:-1], new[1])[-min(2, len(first)) :])} if first else {}
    return reshaped(leaf, shapes, outputs)


def _beside(spec: TensorSpec, old: tuple[int, int], new: tuple[int, int]) -> Shape:
    """Scales, offsets and bias of a product: those of `x` follow M, those of the weight N."""
    if spec.role.startswith("x_") and spec.shape[0] == old[0]:
        return (new[0], *spec.shape[1:])
    if spec.role in ("w_scale", "w_offset", "bias") and spec.shape[-1] == old[1]:
        return (*spec.shape[:-1], new[1])
    return spec.shape
