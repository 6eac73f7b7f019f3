"""MLA cache update: tokens over rows of one complete cache shape.

Source: RFC 4.4.3; docs/facts/interpolation.md, "Cache updates"; decisions 002.8 and 002.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tensor_cast.dtypes import profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, dtypes_lacking
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import (
    at_role,
    immovable,
    reshaped,
    with_rows,
)
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["CacheUpdatePath", "canonical_cache_shape"]


def canonical_cache_shape(shape: Shape) -> Shape:
    """`(slots, D)` of a cache given as `(blocks, block, D)` or `(slots, D)`."""
    return (math.prod(shape[:-1]), shape[-1])


class CacheUpdatePath(OperatorPath):
    """Arguments `(update, cache, index)` against rows `(cache, index, update)`."""

    name = "scatter_nd_update_mla"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    checks_exact = True
    source_pure = True

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("tokens",),)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """The tokens of the update and their indices."""
        update, index = at_role(leaf, "update"), at_role(leaf, "index")
        if update is None or set(axes) != {"tokens"}:
            raise immovable(leaf, axes, ("tokens",))
        shape, size = leaf.inputs[update].shape, axes["tokens"]
        shapes = {update: with_rows(shape, size, 1 if len(shape) > 1 else 0)}
        if index is not None and leaf.inputs[index].numel == _tokens(shape):
            shapes[index] = _indices(leaf.inputs[index].shape, size)
        return reshaped(leaf, shapes)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        roles = (leaf.role("cache"), leaf.role("index"), leaf.role("update"))
        named = [
            TensorSpec(spec.shape, name, spec.format)
            for spec in roles
            if spec is not None and (name := _kernel_dtype(spec, self.strict)) is not None
        ]
        place = _place(table.kernel, tuple(named)) if len(named) == 3 else None
        if place is None:
            given = [spec for spec in roles if spec is not None]
            hint = dtypes_lacking(given, strict=self.strict) or "give update, cache (blocks, block, D) and index"
            details = {"cause": "scatter_target_unextractable", "hint": hint}
            return Miss(MissReason.TARGET_UNAVAILABLE, table.kernel, details)
        return (Target(*place),)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        inputs = tuple(spec for spec in table.inputs[row][:3] if spec is not None)
        if len(inputs) < 3:
            return "input_shapes_missing"
        place = _place(table.kernel, inputs)
        return "scatter_shape_unextractable" if place is None else Candidate(*place)


def _kernel_dtype(spec: TensorSpec, strict: bool) -> str | None:
    """The database name; the simulator's int64 slot mapping is the kernel's INT32."""
    if spec.role == "index" and spec.dtype == "int64":
        return "INT32"
    return profile_dtype(spec.dtype, strict=strict)


def _tokens(update: Shape) -> int:
    return update[0] if len(update) <= 2 else math.prod(update[:-1])


def _indices(shape: Shape, tokens: int) -> Shape:
    """One index for each token, its unit dimensions kept."""
    return with_rows(shape, tokens, 1 if len(shape) > 1 and shape[-1] == 1 else 0)


def _place(kernel: str, tensors: tuple[TensorSpec, ...]) -> tuple[dict[str, float], RegimeKey] | None:
    cache, index, update = tensors
    if update.rank < 1 or cache.rank < 2:
        return None
    tokens = _tokens(update.shape)
    regime: RegimeKey = (
        ("kernel_type", kernel),
        ("cache_dtype", cache.dtype),
        ("index_dtype", index.dtype),
        ("update_dtype", update.dtype),
        ("cache_shape", canonical_cache_shape(cache.shape)),
        ("update_tail", update.shape[-1:] if update.rank > 1 else ()),
        ("formats", (cache.format, index.format, update.format)),
    )
    return {"tokens": float(tokens)}, regime
