"""Every kernel without a path of its own: one axis, everything else equal.

Source: docs/facts/interpolation.md, "Every other kernel".
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, dtypes_lacking
from tensor_cast.performance_model.profiling_database.exact.launches import OUTPUTS_TELL, launch_of, single_output
from tensor_cast.performance_model.profiling_database.exact.low_precision import (
    QUANTISERS,
    quantised_to,
    spellings,
)
from tensor_cast.performance_model.profiling_database.exact.matching import normalised_forms
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import (
    immovable,
    is_parameter,
    reshaped,
    tensor_places,
)
from tensor_cast.performance_model.profiling_database.paths.path import (
    Candidate,
    OperatorPath,
    Target,
    leaf_tensors,
    row_tensors,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import strip_leading_one

__all__ = ["GenericComputePath"]

_QUANTISED_TO: Final = "quantised_to"
_PUT_OUT: Final = "output_dtype"
_OUTPUTS: Final = "output_count"
_NUMEL: Final = "generic_compute.axis output_numel in op_mapping.yaml needs"
_HINTS: Final[Mapping[str, str]] = {
    str(MissReason.GENERIC_COMPUTE_INPUT_SHAPE_UNAVAILABLE): "give the input tensors",
    str(MissReason.GENERIC_COMPUTE_OUTPUT_SHAPE_UNAVAILABLE): f"{_NUMEL} the output's shape",
    str(MissReason.GENERIC_COMPUTE_OUTPUT_NUMEL_MULTI_OUTPUT_UNSUPPORTED): f"{_NUMEL} a single output",
    str(MissReason.GENERIC_COMPUTE_OUTPUT_SHAPE_INVALID): f"{_NUMEL} an output with elements",
}


class GenericComputePath(OperatorPath):
    """`axis_0`, the first dimension of the first input; or, by policy, `output_numel`."""

    name = "compute"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    table_missing = MissReason.COMPUTE_CSV_NOT_FOUND
    source_pure = True
    allow_extra = frozenset({_QUANTISED_TO, _PUT_OUT, _OUTPUTS})

    def exact_coordinates(self, target: Target) -> bool:
        """Strict matching only: `axis_0` and the rest of the shapes are the operator, an element count is not."""
        return self.strict and "axis_0" in target.axes

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return (self.name, entry.tc_input_count, policy.generic_axis, entry.name in QUANTISERS)

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return (tuple(target.axes),)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """The first dimension of the first input, and the dimension of the same size and position of every tensor that
        has as many dimensions; a vector of indices counts too, a parameter (by its role) never.
        """
        if len(axes) != 1 or not set(axes) <= {"axis_0", "output_numel"} or not leaf.tensors:
            raise immovable(leaf, axes, ("axis_0", "output_numel"))
        ((axis, size),) = axes.items()
        if axis == "output_numel":
            size = _rows_of(leaf, size)
        place = tensor_places(leaf)[0]
        first = _bare(leaf.inputs[place].shape)
        inputs = {
            at: _resized(spec.shape, size)
            for at, spec in enumerate(leaf.inputs)
            if at == place or (_follows(spec, first) and not is_parameter(spec))
        }
        outputs = {at: _resized(spec.shape, size) for at, spec in enumerate(leaf.outputs) if _follows(spec, first)}
        return reshaped(leaf, inputs, outputs)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        """One target per form in which the kernel may have recorded the inputs."""
        described = self._forms(leaf, entry, table.kernel)
        if isinstance(described, dict):
            return Miss(MissReason.COMPUTE_TARGET_UNAVAILABLE, table.kernel, described)
        outputs = tuple(spec.shape for spec in leaf.outputs)
        wanted = _quantised(quantised_to(leaf))
        if self.strict:
            alone = None if wanted else single_output(leaf)
            wanted = (*wanted, *_put_out(alone and alone[0], leaf.name, len(leaf.outputs)))
        targets = []
        for form in described:
            place = _place(table.kernel, form, outputs, policy.generic_axis)
            if isinstance(place, str):
                return _unavailable(table.kernel, place, _HINTS[place])
            targets.append(Target(place[0], (*place[1], *wanted)))
        return tuple(targets)

    def _forms(
        self, leaf: LeafOp, entry: OperatorEntry, kernel: str
    ) -> list[tuple[TensorSpec, ...]] | dict[str, object]:
        """The inputs as rows may hold them, or the details of the miss."""
        spelt = spellings(leaf)
        if isinstance(spelt, dict):
            return spelt
        forms: list[tuple[TensorSpec, ...]] = []
        for spelled in spelt:
            tensors = leaf_tensors(spelled, entry.tc_input_count, strict=self.strict)
            if tensors is None:
                hint = dtypes_lacking(spelled.tensors[: entry.tc_input_count], strict=self.strict)
                return _unavailable(kernel, str(MissReason.GENERIC_COMPUTE_DTYPE_UNAVAILABLE), hint).details
            forms += normalised_forms(kernel, tensors)
        return forms

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        tensors = row_tensors(table, row, entry.tc_input_count)
        outputs = table.row_outputs(row) or ()
        place = _place(table.kernel, tensors, tuple(spec.shape for spec in outputs), policy.generic_axis)
        if isinstance(place, str):
            return place
        held = outputs[0].dtype if outputs and entry.name in QUANTISERS else None
        regime = (*place[1], *_quantised(held))
        if not self.strict:
            return Candidate(place[0], regime)
        alone = outputs[0].dtype if len(outputs) == 1 and held is None else None
        made = _put_out(alone, entry.name, len(outputs))
        return Candidate(place[0], (*regime, *made), launch_of(table, row, entry.tc_input_count))


def _quantised(name: str | None) -> RegimeKey:
    """What a quantising operator or its row puts out, as a regime field where it is known."""
    return () if name is None else ((_QUANTISED_TO, name),)


def _put_out(name: str | None, operator: str, count: int) -> RegimeKey:
    """The dtype of the one tensor that an operator or a row puts out, and of an operator that only quantises how many
    tensors, as regime fields where they are known.
    """
    dtype: RegimeKey = () if name is None else ((_PUT_OUT, name),)
    return (*dtype, (_OUTPUTS, count)) if count and operator in OUTPUTS_TELL else dtype


def _unavailable(kernel: str, cause: str, hint: str) -> Miss:
    return Miss(MissReason.COMPUTE_TARGET_UNAVAILABLE, kernel, {"cause": cause, "hint": f"{cause}: {hint}"})


def _bare(shape: Shape) -> Shape:
    """A shape from its `axis_0` on: one token `(1, H)` has it in front (decision 002.2)."""
    return strip_leading_one(shape, 3)


def _follows(spec: TensorSpec, first: Shape) -> bool:
    """Whether a tensor has the first one's rows: the same size at the same position, or an index for each."""
    bare = _bare(spec.shape) if spec.shape else ()
    if not bare or bare[0] != first[0]:
        return False
    return len(bare) == len(first) or (len(bare) == 1 and "int" in spec.dtype)


def _resized(shape: Shape, size: int) -> Shape:
    at = len(shape) - len(_bare(shape))
    return (*shape[:at], size, *shape[at + 1 :])


def _rows_of(leaf: LeafOp, numel: int) -> int:
    """The rows at which the output has `numel` elements."""
    bare = _bare(leaf.outputs[0].shape) if leaf.outputs and leaf.outputs[0].shape else ()
    width = math.prod(bare[1:])
    if not bare or width <= 0 or numel % width:
        raise InvalidValueError(f"query_many: output_numel {numel} is no multiple of {leaf.name}'s output row {width}")
    return numel // width


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
