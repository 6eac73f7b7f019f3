"""Every kernel without a path of its own: one axis, everything else equal.  Source: Phase 1 facts, section 5."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tensor_cast.leaf import LeafOp, Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.exact.matching import normalised_forms
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import (
    Candidate,
    OperatorPath,
    Target,
    leaf_tensors,
    row_tensors,
)
from tensor_cast.performance_model.profiling_database.points import RegimeKey
from tensor_cast.performance_model.profiling_database.shapes import strip_leading_one

__all__ = ["GenericComputePath"]


class GenericComputePath(OperatorPath):
    """`axis_0`, the first dimension of the first input; or, by policy, `output_numel`."""

    name = "compute"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    table_missing = MissReason.COMPUTE_CSV_NOT_FOUND
    source_pure = True

    def exact_coordinates(self, target: Target) -> bool:
        """Strict matching only: `axis_0` and the rest of the shapes are the operator, an element count is not."""
        return self.strict and "axis_0" in target.axes

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return (self.name, entry.tc_input_count, policy.generic_axis)

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (tuple(target.axes),)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int]) -> LeafOp:
        first = leaf.tensors[0]
        if set(axes) != {"axis_0"}:
            return super().moved(leaf, axes)
        at = 1 if first.rank > 2 and first.shape[0] == 1 else 0
        shape = (*first.shape[:at], axes["axis_0"], *first.shape[at + 1 :])
        inputs = tuple(replace(spec, shape=shape) if spec is first else spec for spec in leaf.inputs)
        return replace(leaf, inputs=inputs)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        """One target per form in which the kernel may have recorded the inputs."""
        tensors = leaf_tensors(leaf, entry.tc_input_count, strict=self.strict)
        if tensors is None:
            detail = {"cause": str(MissReason.GENERIC_COMPUTE_DTYPE_UNAVAILABLE)}
            return Miss(MissReason.COMPUTE_TARGET_UNAVAILABLE, table.kernel, detail)
        outputs = tuple(spec.shape for spec in leaf.outputs)
        targets = []
        for form in normalised_forms(table.kernel, tensors):
            place = _place(table.kernel, form, outputs, policy.generic_axis)
            if isinstance(place, str):
                return Miss(MissReason.COMPUTE_TARGET_UNAVAILABLE, table.kernel, {"cause": place})
            targets.append(Target(*place))
        return tuple(targets)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        tensors = row_tensors(table, row, entry.tc_input_count)
        outputs = tuple(spec.shape for spec in table.row_outputs(row) or ())
        place = _place(table.kernel, tensors, outputs, policy.generic_axis)
        return place if isinstance(place, str) else Candidate(*place)


def _place(
    kernel: str, tensors: tuple[TensorSpec, ...], outputs: tuple[Shape, ...], axis: str
) -> tuple[dict[str, float], RegimeKey] | str:
    if not tensors:
        return str(MissReason.GENERIC_COMPUTE_INPUT_SHAPE_UNAVAILABLE)
    first, *others = (spec.shape for spec in tensors)
    shapes = (strip_leading_one(first, 3), *(strip_leading_one(shape) for shape in others))
    regime: RegimeKey = (
        ("kernel_type", kernel),
        ("input_count", len(tensors)),
        ("input_dtypes", tuple(spec.dtype for spec in tensors)),
    )
    if axis == "axis_0":
        signature = (shapes[0][1:], *shapes[1:])
        return {"axis_0": float(shapes[0][0])}, (*regime, ("shape_signature", signature))
    if not outputs:
        return str(MissReason.GENERIC_COMPUTE_OUTPUT_SHAPE_UNAVAILABLE)
    if len(outputs) > 1:
        return str(MissReason.GENERIC_COMPUTE_OUTPUT_NUMEL_MULTI_OUTPUT_UNSUPPORTED)
    output = strip_leading_one(outputs[0], 3)
    if not output or math.prod(output) <= 0:
        return str(MissReason.GENERIC_COMPUTE_OUTPUT_SHAPE_INVALID)
    return {"output_numel": float(math.prod(output))}, (*regime, ("output_tail_shape", output[1:]))
