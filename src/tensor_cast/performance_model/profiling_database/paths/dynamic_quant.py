"""Dynamic quantisation (`compute_scale`): M rows and K width over rows of one output signature and scale mode.

Source: RFC 4.4.2; docs/facts/interpolation.md, "Modes of a scale"; decision 002.10.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tensor_cast.dtypes import operand_dtype, profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, dtypes_lacking
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import kernel_traits
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import (
    at_role,
    immovable,
    reshaped,
    tensor_places,
    with_rows,
)
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["DynamicQuantPath", "scale_mode"]

_HINTS: Final[Mapping[str, str]] = {
    "input_shape_empty": "a scalar has no rows",
    "compute_scale_outputs_lt_2": "give the quantised tensor and its scale",
    "quant_output_shape_mismatch": "the first output has the shape of x",
    "compute_scale_mode_unextractable": "a scale holds one value, one for each row or one for each column",
}
ScaleMode = tuple[str, int | None]


def scale_mode(kernel: str, shape: Shape, m: int, k: int) -> ScaleMode | None:
    """How one auxiliary output is spread: `(mode, block size)`; None where no rule names it.

    0-d is per_tensor; M values are per_token (which wins when M = K), K values per_channel; a vector of at most K
    values, of a kernel that scales blocks, is per_block with ceil(K / values).
    """
    if not shape:
        return ("per_tensor", None)
    size = math.prod(shape)
    if kernel_traits(kernel).scale_blocks:
        return ("per_block", -(-k // size)) if len(shape) == 1 and size <= k else None
    if size == m:
        return ("per_token", None)
    return ("per_channel", None) if size == k else None


class DynamicQuantPath(OperatorPath):
    """M, then K, then both.  The base cannot tell output signatures apart, so this path owns exact matches."""

    name = "compute_scale"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    owns_exact = True
    checks_exact = True
    source_pure = True

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (("M",), ("K",), ("M", "K"))

    def uniform(self, leaf: LeafOp, axes: Collection[str]) -> bool:
        """A block size is a quotient of K: two widths of one block size need not be described alike."""
        x = _activation(leaf)
        if x is None or "K" not in axes:
            return True
        sizes = {math.prod(x.shape[:-1]), x.shape[-1]}
        return all(not spec.shape or spec.numel in sizes for spec in leaf.outputs[1:])

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """M rows in one dimension; scales follow the rows, the columns, or the blocks that they belong to."""
        x = _activation(leaf)
        if x is None or not x.shape or not set(axes) <= {"M", "K"}:
            raise immovable(leaf, axes, ("M", "K"))
        old = (math.prod(x.shape[:-1]), x.shape[-1])
        new = (axes.get("M", old[0]), axes.get("K", old[1]))
        place = at_role(leaf, "x")
        outputs = {
            at: _scale_shape(spec.shape, old, new) if at else (*with_rows(spec.shape, new[0])[:-1], new[1])
            for at, spec in enumerate(leaf.outputs)
        }
        shape = (*with_rows(x.shape, new[0])[:-1], new[1])
        return reshaped(leaf, {tensor_places(leaf)[0] if place is None else place: shape}, outputs)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        x = _activation(leaf)
        if x is None:
            return _unavailable(table.kernel, "input_shape_missing", "give the tensor x")
        names = [
            _quant_dtype(x.dtype),
            *(profile_dtype(operand_dtype(leaf.name, "", spec.dtype), strict=self.strict) for spec in leaf.outputs),
        ]
        if None in names:
            named = (x, *leaf.outputs)
            hint = dtypes_lacking(named, strict=True)
            return _unavailable(table.kernel, "dtype_without_a_database_name", hint)
        dtypes = [str(name) for name in names]
        outputs = tuple(
            TensorSpec(spec.shape, dtype, spec.format) for spec, dtype in zip(leaf.outputs, dtypes[1:], strict=True)
        )
        place = _place(table.kernel, TensorSpec(x.shape, dtypes[0], x.format), outputs)
        if isinstance(place, str):
            shapes = ", ".join(str(spec.shape) for spec in outputs) or "none"
            return _unavailable(table.kernel, place, f"x {x.shape} with outputs {shapes}: {_HINTS[place]}")
        regime = dict(place[1])
        notes = {
            "compute_subcategory": "compute_scale",
            "scale_mode": regime["scale_mode"],
            "block_size": regime["block_size"],
            "auxiliary_modes": [list(mode) for mode in regime["auxiliary_modes"]],
        }
        return (Target(place[0], place[1], notes=notes),)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        x, outputs = table.inputs[row][0], table.row_outputs(row)
        if x is None:
            return "input_shape_empty"
        if outputs is None:
            return "output_dtypes_mismatch"
        place = _place(table.kernel, x, outputs)
        return place if isinstance(place, str) else Candidate(*place)


def _unavailable(kernel: str, cause: str, hint: str) -> Miss:
    return Miss(MissReason.TARGET_UNAVAILABLE, kernel, {"cause": cause, "hint": hint})


def _activation(leaf: LeafOp) -> TensorSpec | None:
    return leaf.role("x") or (leaf.tensors[0] if leaf.tensors else None)


def _scale_shape(shape: Shape, old: tuple[int, int], new: tuple[int, int]) -> Shape:
    """The shape of a scale for M rows of K values: one for each row, for each column, or for each block of a row."""
    size, (m, k) = math.prod(shape), new
    if not shape or (size not in old and k == old[1]):
        return shape
    if size == old[0]:
        kept = 1 if len(shape) > 1 and shape[-1] == 1 else 0
        return with_rows(shape, m, kept)
    return with_rows(shape, k if size == old[1] else -(-k // -(-old[1] // max(size, 1))), 0)


def _quant_dtype(name: str) -> str | None:
    """FP16 has rows of its own here, and only here."""
    return "DT_FLOAT16" if name == "float16" else profile_dtype(name)


def _place(kernel: str, x: TensorSpec, outputs: tuple[TensorSpec, ...]) -> tuple[dict[str, float], RegimeKey] | str:
    if not x.shape:
        return "input_shape_empty"
    if len(outputs) < 2:
        return "compute_scale_outputs_lt_2"
    if outputs[0].shape != x.shape:
        return "quant_output_shape_mismatch"
    m, k = math.prod(x.shape[:-1]), x.shape[-1]
    modes = tuple(scale_mode(kernel, spec.shape, m, k) for spec in outputs[1:])
    if any(mode is None for mode in modes):
        return "compute_scale_mode_unextractable"
    first = modes[0] or ("", None)
    regime: RegimeKey = (
        ("kernel_type", kernel),
        ("input_dtype", x.dtype),
        ("input_format", x.format),
        ("output_count", len(outputs)),
        ("output_dtypes", tuple(spec.dtype for spec in outputs)),
        ("output_formats", tuple(spec.format for spec in outputs)),
        ("scale_mode", first[0]),
        ("block_size", first[1]),
        ("auxiliary_modes", modes),
    )
    return {"M": float(m), "K": float(k)}, regime
