"""`ColumnFacts`, and the small questions every family asks of a leaf: attributes, dtypes, request lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tensor_cast.dtypes import canonical_dtype
from tensor_cast.errors import UnknownNameError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason

__all__ = [
    "ColumnFacts",
    "RefusedError",
    "base_name",
    "count_attr",
    "missing",
    "named_dtype",
    "refuse",
    "required_role",
    "shaped",
    "shared_dtype",
    "table_dtype",
    "text_attr",
]

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})

# How the tables spell a dtype.  A dtype without an entry keeps its own name and so meets no row by accident.
_TABLE_NAMES: Final = {"float8_e4m3fn": "fp8", "float8_e5m2": "fp8_e5m2"}


@dataclass(frozen=True)
class ColumnFacts:
    """What a leaf asks of a table: a value per axis, a value per fact, and the kernel it wants to have run.

    More axes and facts are listed than any one table uses.  `variant` is None where the leaf leaves the kernel open.
    `settled` are facts that neither a constant nor an attribute may change any more; they are in `regime` too once
    `describe` has returned.
    """

    axes: Mapping[str, float]
    regime: Mapping[str, object]
    variant: str | None = None
    settled: Mapping[str, object] = field(default_factory=lambda: _NOTHING)


class RefusedError(Exception):
    """Carries the miss that ends a description."""

    def __init__(self, miss: Miss) -> None:
        self.miss = miss
        super().__init__(miss.code)


def refuse(reason: MissReason, subject: str, hint: str, **details: object) -> RefusedError:
    """The refusal to raise: why, about what, and what the caller can do."""
    return RefusedError(Miss(reason, subject, {"hint": hint, **details}))


def missing(subject: str, hint: str) -> RefusedError:
    """The refusal for a value that the leaf does not carry."""
    return refuse(MissReason.SEMANTIC_FIELD_MISSING, subject, hint)


def base_name(leaf: LeafOp) -> str:
    """The operator's own name: `fp8_linear` of `tensor_cast.fp8_linear.default`."""
    return leaf.name.split(".")[1] if "." in leaf.name else leaf.name


def required_role(leaf: LeafOp, *names: str) -> TensorSpec:
    """The first input with one of the roles, never a scalar.  Refuses where there is none."""
    for name in names:
        if (spec := leaf.role(name)) is not None:
            return shaped(spec, name)
    raise missing(names[0], f"{leaf.name} needs its input {names[0]!r}")


def shaped(spec: TensorSpec, name: str) -> TensorSpec:
    """The tensor itself.  Refuses one without dimensions or without elements: no table measured that."""
    if not spec.shape or spec.numel == 0:
        hint = f"{name} {spec.shape} has no {'elements' if spec.shape else 'dimensions'}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, name, hint)
    return spec


def table_dtype(spec: TensorSpec) -> str:
    """The dtype as the tables spell it: `bfloat16`, `fp8`; others keep their name."""
    return _TABLE_NAMES.get(spec.dtype, spec.dtype)


def shared_dtype(first: TensorSpec, second: TensorSpec) -> str:
    """The one dtype of two operands; two different ones are joined and so meet no row."""
    ours, theirs = table_dtype(first), table_dtype(second)
    return ours if ours == theirs else f"{ours}x{theirs}"


def named_dtype(name: str, field_name: str) -> str:
    """A dtype given as text, as the tables spell it.  Refuses a text that names no dtype."""
    try:
        dtype = canonical_dtype(name)
    except UnknownNameError as error:
        raise refuse(MissReason.DTYPE_UNMAPPED, field_name, str(error)) from None
    return _TABLE_NAMES.get(dtype, dtype)


def count_attr(leaf: LeafOp, constants: Mapping[str, Any], name: str) -> int | None:
    """A whole number from the leaf's attributes or the mapping's constants.  Refuses any other type."""
    value = leaf.attributes.get(name)
    if value is None:
        value = constants.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise missing(name, f"{name} must be a whole number, got {value!r}")
    return value


def text_attr(leaf: LeafOp, constants: Mapping[str, Any], name: str, hint: str) -> str:
    """A text from the leaf's attributes or the mapping's constants.  Refuses where neither has it."""
    value = leaf.attributes.get(name)
    if value is None:
        value = constants.get(name)
    if not isinstance(value, str) or not value:
        raise missing(name, hint)
    return value
