"""The rules by which a simulated input equals a recorded one.

Best rule first: identity, then strips, transposes, flattening and merging, then block padding.
Source: docs/facts/exact-lookup.md, "Forms of the inputs", "Rules for one input", "Padding".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import KernelTraits, kernel_traits
from tensor_cast.performance_model.profiling_database.tables.shapes import shape_is_padded, strip_leading_one

__all__ = [
    "IDENTITY",
    "InputRule",
    "Rank",
    "combine_rules",
    "dtype_key",
    "match_input",
    "normalised_forms",
]

_RELAXED_DTYPES: Final = frozenset({"DT_BF16", "FLOAT"})


class Rank(IntEnum):
    """Quality of a match; the lowest wins."""

    IDENTITY = 0
    RESHAPED = 1
    PADDED = 2


@dataclass(frozen=True, slots=True)
class InputRule:
    """The rule that joined one input."""

    name: str
    rank: Rank


IDENTITY: Final = InputRule("identity", Rank.IDENTITY)
_STRIP: Final = InputRule("batch_strip", Rank.RESHAPED)
_TRANSPOSE: Final = InputRule("transpose", Rank.RESHAPED)
_PADDING: Final = InputRule("padding", Rank.PADDED)
_STRIP_PADDING: Final = InputRule("batch_strip+padding", Rank.PADDED)
_FLATTEN: Final = InputRule("flatten_3d", Rank.RESHAPED)
_FLATTEN_PADDING: Final = InputRule("flatten_3d+padding", Rank.PADDED)
_MERGE: Final = InputRule("merge_last_dims", Rank.RESHAPED)
_MERGE_PADDING: Final = InputRule("merge_last_dims+padding", Rank.PADDED)


def dtype_key(kernel: str, name: str, *, strict: bool = False) -> str:
    """The dtype as a match key: kernels with relaxed dtypes take BF16 and FLOAT for one, unless matching is strict."""
    relaxed = not strict and kernel_traits(kernel).relaxed and name in _RELAXED_DTYPES
    return "FLOAT_GROUP" if relaxed else name


def match_input(target: Shape, row: Shape, kernel: str, position: int) -> InputRule | None:
    """The first rule that makes `target` equal `row` (both logical ND), or None.  `position` is the input's index."""
    if target == row:
        return IDENTITY
    bare, row_bare = strip_leading_one(target), strip_leading_one(row)
    if bare in (row_bare, row):
        return _STRIP
    traits = kernel_traits(kernel)
    if traits.product and position >= 1 and len(row) == 2 and bare == (row[1], row[0]):
        return _TRANSPOSE
    if shape_is_padded(bare, row):
        return _PADDING
    if row_bare is not row and shape_is_padded(bare, row_bare):
        return _STRIP_PADDING
    return _match_regrouped(target, bare, row, traits) if traits.regrouped else None


def _match_regrouped(target: Shape, bare: Shape, row: Shape, traits: KernelTraits) -> InputRule | None:
    if traits.flattened and len(row) == 2:
        for shape in (bare, target):
            if len(shape) == 3:
                flat = (shape[0] * shape[1], shape[2])
                if flat == row:
                    return _FLATTEN
                if shape_is_padded(flat, row):
                    return _FLATTEN_PADDING
    if traits.merged and len(row) == 2:
        for shape in (bare, target):
            if len(shape) == 3:
                merged = (shape[0], shape[1] * shape[2])
                if merged == row:
                    return _MERGE
                if shape_is_padded(merged, row):
                    return _MERGE_PADDING
    return None


def combine_rules(rules: Sequence[InputRule]) -> InputRule:
    """The rule recorded for a whole row, and its rank.

    Strips, transposes, flattening and merging overwrite what earlier inputs recorded; `padding` is recorded only over
    `identity`, `batch_strip+padding` only over `identity` or `batch_strip`.  The rank is that of the worst input.
    """
    recorded = "identity"
    for rule in rules:
        if rule is IDENTITY:
            continue
        if rule is _PADDING:
            recorded = rule.name if recorded == "identity" else recorded
        elif rule is _STRIP_PADDING:
            recorded = rule.name if recorded in ("identity", "batch_strip") else recorded
        else:
            recorded = rule.name
    return InputRule(recorded, max((rule.rank for rule in rules), default=Rank.IDENTITY))


def normalised_forms(kernel: str, specs: tuple[TensorSpec, ...]) -> tuple[tuple[TensorSpec, ...], ...]:
    """The forms in which a kernel may have recorded these inputs: as they are, and rewritten where a rule says so."""
    form = kernel_traits(kernel).recorded_as
    if form == "rope" and len(specs) >= 2:
        return (_rope_form(specs), specs)
    if form == "halves_joined" and len(specs) == 2:
        joined = _swiglu_form(*specs)
        return (joined, specs) if joined else (specs,)
    if form == "cache_halves" and len(specs) == 4:
        halves = _cache_write_form(specs)
        return (halves, specs) if halves else (specs,)
    return (specs,)


def _rope_form(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    query, key, *rest = (_swap_middle(spec) if i < 2 else spec for i, spec in enumerate(specs[:4]))
    if len(specs) >= 4:
        rest = [_insert_head(spec) for spec in rest]
    return (key, query, *rest)


def _swap_middle(spec: TensorSpec) -> TensorSpec:
    if spec.rank != 4:
        return spec
    b, h, s, d = spec.shape
    return replace(spec, shape=(b, s, h, d))


def _insert_head(spec: TensorSpec) -> TensorSpec:
    if spec.rank != 3:
        return spec
    one, s, d = spec.shape
    return replace(spec, shape=(one, s, 1, d))


def _swiglu_form(gate: TensorSpec, up: TensorSpec) -> tuple[TensorSpec, ...] | None:
    a, b = strip_leading_one(gate.shape), strip_leading_one(up.shape)
    if gate.dtype != up.dtype or len(a) != len(b) or a[:-1] != b[:-1]:
        return None
    return (replace(gate, shape=(*a[:-1], a[-1] + b[-1])),)


def _cache_write_form(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...] | None:
    key, value, cache, slots = specs
    if key.rank != 2 or value.rank != 2 or cache.rank < 2 or cache.shape[0] != 2:
        return None
    half = replace(cache, shape=cache.shape[1:])
    heads = [replace(spec, shape=(spec.shape[0], 1, spec.shape[1])) for spec in (key, value)]
    return (*heads, half, half, slots)
