"""Broadcast and shared-token elementwise operators.  Source: RFC 4.2.1; decisions 002.2 and 002.15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensor_cast.dtypes import profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, dtypes_lacking
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import immovable, reshaped
from tensor_cast.performance_model.profiling_database.paths.path import (
    Candidate,
    OperatorPath,
    Target,
    leaf_tensors,
    row_tensors,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import strip_leading_one, to_nd

__all__ = ["ElementwisePath", "broadcast_pattern"]

Pattern = tuple[tuple[int, tuple[str, ...]], ...]


def broadcast_pattern(inputs: Sequence[Shape], output: Shape) -> Pattern:
    """Per input its rank and how each output dimension is fed: `same`, `broadcast`, `missing` or `other`.

    Inputs are right-aligned with the output; the pattern does not depend on sizes.
    """
    return tuple((len(shape), _relations(shape, output)) for shape in inputs)


def _relations(shape: Shape, output: Shape) -> tuple[str, ...]:
    aligned: list[int | None] = [None] * (len(output) - len(shape)) + list(shape)
    return tuple(_relation(dim, out) for dim, out in zip(aligned[-len(output) :], output, strict=True))


def _relation(dim: int | None, out: int) -> str:
    if dim is None:
        return "missing"
    if dim == out:
        return "same"
    return "broadcast" if dim == 1 else "other"


class ElementwisePath(OperatorPath):
    """`axis_0`, then `axis_1`, then both for rank-2 outputs; `axis_0` with the whole tail fixed above rank 2."""

    name = "elementwise"
    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    owns_exact = True
    checks_exact = True
    source_pure = True

    def owns(self, leaf: LeafOp) -> bool:
        """Scalar outputs stay with the base, which treats them as ordinary compute."""
        return bool(leaf.outputs and leaf.outputs[0].shape)

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        if "axis_1" in target.axes:
            return (("axis_0",), ("axis_1",), ("axis_0", "axis_1"))
        return (("axis_0",),)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """The output's dimensions, and those of the inputs that are as large at the same position from the right."""
        output = leaf.outputs[0].shape if leaf.outputs else ()
        bare = strip_leading_one(output, 3) if output else ()
        allowed = ("axis_0", "axis_1") if len(bare) == 2 else ("axis_0",)
        if not bare or not set(axes) <= set(allowed):
            raise immovable(leaf, axes, allowed if bare else ())
        sizes = {int(axis[-1]) - len(bare): size for axis, size in axes.items()}  # positions from the right
        inputs = {place: _resized(spec.shape, output, sizes) for place, spec in enumerate(leaf.inputs)}
        outputs = {place: _resized(spec.shape, output, sizes) for place, spec in enumerate(leaf.outputs)}
        return reshaped(leaf, inputs, outputs)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        if not leaf.outputs or not leaf.outputs[0].shape:
            return Miss(
                MissReason.ELEMENTWISE_OUTPUT_UNAVAILABLE, details={"hint": "give the output's shape and dtype"}
            )
        inputs, output = leaf_tensors(leaf, strict=self.strict), leaf.outputs[0]
        dtype = profile_dtype(output.dtype, strict=self.strict)
        if inputs is None or dtype is None:
            hint = dtypes_lacking((*leaf.tensors, output), strict=self.strict)
            return Miss(MissReason.ELEMENTWISE_INPUT_SIGNATURE_UNAVAILABLE, details={"hint": hint})
        return (Target(*_place(table.kernel, inputs, TensorSpec(output.shape, dtype))),)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        outputs = table.row_outputs(row)
        if not outputs or not outputs[0].shape:
            return "output_signature_missing"
        output = TensorSpec(to_nd(outputs[0].shape, outputs[0].format), outputs[0].dtype)
        return Candidate(*_place(table.kernel, row_tensors(table, row), output))


def _resized(shape: Shape, output: Shape, sizes: Mapping[int, int]) -> Shape:
    dims = list(shape)
    for place, size in sizes.items():
        if len(dims) >= -place and dims[place] == output[place]:
            dims[place] = size
    return tuple(dims)


def _place(kernel: str, inputs: tuple[TensorSpec, ...], output: TensorSpec) -> tuple[dict[str, float], RegimeKey]:
    shape = strip_leading_one(output.shape, 3)
    shapes = [_like(spec.shape, output.shape, shape) for spec in inputs]
    axes = {"axis_0": float(shape[0])}
    if len(shape) == 2:
        axes["axis_1"] = float(shape[1])
    regime: RegimeKey = (
        ("kernel_type", kernel),
        ("output_rank", len(shape)),
        ("output_tail", shape[2:] if len(shape) == 2 else shape[1:]),
        ("output_dtype", output.dtype),
        ("input_count", len(inputs)),
        ("input_dtypes", tuple(spec.dtype for spec in inputs)),
        ("broadcast_pattern", broadcast_pattern(shapes, shape)),
    )
    return axes, regime


def _like(shape: Shape, output: Shape, stripped: Shape) -> Shape:
    """An input with the batch 1 dropped where the output dropped it."""
    return shape[1:] if len(output) > len(stripped) and len(shape) == len(output) and shape[0] == 1 else shape
