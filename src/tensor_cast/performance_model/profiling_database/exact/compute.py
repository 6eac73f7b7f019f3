"""Exact lookup of ordinary compute, elementwise and fused-MoE operators.

Source: docs/facts/exact-lookup.md, "Rules for one input", "Elementwise operators", "Fused experts".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from tensor_cast.dtypes import profile_dtype, profile_dtype_bytes
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason, QueryResult
from tensor_cast.performance_model.profiling_database.exact.agreement import parse_ep_size
from tensor_cast.performance_model.profiling_database.exact.context import (
    ExactContext,
    csv_missing,
    dtypes_lacking,
    measured,
    profile_dtypes,
    profile_inputs,
    rescaled,
    tables_lacking,
)
from tensor_cast.performance_model.profiling_database.exact.launches import launches_apart, puts_out
from tensor_cast.performance_model.profiling_database.exact.low_precision import output_agreement, spellings
from tensor_cast.performance_model.profiling_database.exact.matching import InputRule, Rank
from tensor_cast.performance_model.profiling_database.exact.row_index import Accept, RowMatch
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import (
    shape_is_padded,
    strip_leading_one,
)

__all__ = ["EP_SIZE_HINT", "lookup_compute", "lookup_elementwise", "lookup_moe_fused"]

EP_SIZE_HINT: Final = "give --ep-size (ParallelConfig.expert_parallel_size), the ranks the experts lie on"
_SHOWN: Final = 4


def lookup_compute(
    context: ExactContext, leaf: LeafOp, kernels: tuple[str, ...], input_count: int | None
) -> QueryResult | Miss:
    """The best row of the first kernel that has one."""
    forms = spellings(leaf)
    if isinstance(forms, dict):
        return Miss(MissReason.SHAPE_MISMATCH, details={"attempted_kernel_types": list(kernels), **forms})
    for form in forms:
        found = _lookup_form(context, leaf, form, kernels, input_count)
        if isinstance(found, QueryResult):
            break
    return found


def _lookup_form(
    context: ExactContext, leaf: LeafOp, form: LeafOp, kernels: tuple[str, ...], input_count: int | None
) -> QueryResult | Miss:
    """A row of the operator as `form` spells it."""
    strict = context.strict
    shapes, dtypes = form.tensor_shapes[:input_count], profile_dtypes(form.tensor_dtypes[:input_count], strict)
    inputs: tuple[TensorSpec, ...] | None = None
    found_table = False
    for kernel in kernels:
        index = context.row_index(kernel, input_count)
        if index is None:
            continue
        found_table = True
        accept = _both(context.agreement(index.table, leaf), _output_rule(context, index.table, leaf))
        match = None if dtypes is None or strict or accept is not None else index.identical(shapes, dtypes)
        if match is None:
            inputs = inputs or profile_inputs(form, input_count, strict=strict)
            match = None if inputs is None else index.find(inputs, accept)
        if match is not None and launches_apart(index.table, match.rows, input_count):
            return _ambiguous(index.table, match)
        if match is not None:
            return measured(context, index.table, match, leaf)
    if not found_table:
        return csv_missing(context, kernels)
    return _no_row(leaf, kernels, inputs)


def _output_rule(context: ExactContext, table: TensorTable, leaf: LeafOp) -> Accept | None:
    """What tells rows that put out something else than the operator does."""
    rule = output_agreement(table, leaf)
    return _both(rule, puts_out(table, leaf)) if context.strict else rule


def _ambiguous(table: TensorTable, match: RowMatch) -> Miss:
    """Rows alike in all that the mapping compares, measured on different operands or outputs."""
    details = {
        "rows": [table.row_ref(row, table.exact_latency).place for row in match.rows],
        "hint": "rows differ in operands or outputs that tc_input_count leaves out",
    }
    return Miss(MissReason.AMBIGUOUS_DUPLICATE_COORDINATE, table.kernel, details)


def _both(first: Accept | None, second: Accept | None) -> Accept | None:
    if first is None or second is None:
        return first or second
    return lambda row: first(row) and second(row)


def _no_row(leaf: LeafOp, kernels: tuple[str, ...], inputs: tuple[TensorSpec, ...] | None) -> Miss:
    details: dict[str, object] = {
        "attempted_kernel_types": list(kernels),
        "input_shapes": [list(spec.shape) for spec in leaf.tensors],
    }
    if inputs is None:
        details["dtypes_without_a_database_name"] = sorted(
            {spec.dtype for spec in leaf.tensors if profile_dtype(spec.dtype) is None}
        )
        details["hint"] = dtypes_lacking(leaf.tensors)
    else:
        details["hint"] = f"no row has {'inputs ' + _cells(inputs) if inputs else 'no inputs'}"
    return Miss(MissReason.SHAPE_MISMATCH, details=details)


def _cells(specs: Sequence[TensorSpec]) -> str:
    """Shapes and dtypes as the cells of a table hold them; of many tensors the first."""
    shown, more = specs[:_SHOWN], "..." if len(specs) > _SHOWN else ""
    shapes = ";".join(",".join(map(str, spec.shape)) for spec in shown)
    return f"{shapes}{more} of {';'.join(spec.dtype for spec in shown)}{more}"


def lookup_elementwise(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    """A row with the target's output shape, whatever its inputs; another output dtype is scaled by byte width.

    Without a non-scalar output the operator is looked up as ordinary compute.
    """
    if not leaf.outputs or not leaf.outputs[0].shape:
        return lookup_compute(context, leaf, entry.kernels, entry.tc_input_count)
    kernel = entry.kernel_type or ""
    table = context.tensor_table(kernel)
    wanted = profile_dtype(leaf.outputs[0].dtype)
    if table is None:
        return _no_output(leaf, kernel, **tables_lacking(context, (kernel,)))
    if wanted is None:
        return _no_output(leaf, kernel, hint=dtypes_lacking(leaf.outputs[:1]))
    index = context.cached(("outputs", kernel), lambda: _OutputIndex(table))
    match = index.find(strip_leading_one(leaf.outputs[0].shape), wanted)
    if match is None:
        output = TensorSpec(leaf.outputs[0].shape, wanted)
        return _no_output(leaf, kernel, hint=f"no row has the output {_cells((output,))}")
    held = index.dtype(match.row)
    notes: dict[str, Any] = {"query_mode": "elementwise"}
    if match.rule.rank is Rank.PADDED:
        shapes = (table.row_outputs(match.row) or ())[0].shape, leaf.outputs[0].shape
        notes["inexact_match"] = {"rule": "padding", "changes": [f"output {list(shapes[0])} -> {list(shapes[1])}"]}
    result = measured(context, table, match, leaf, rule="elementwise", **notes)
    if held == wanted:
        return result
    scale = profile_dtype_bytes(wanted) / profile_dtype_bytes(held)
    note = {"rule": "dtype scale", "changes": [f"{held} -> {wanted}"]}
    return rescaled(result, scale, 0.9, dtype_scale=scale, inexact_match=note)


def _no_output(leaf: LeafOp, kernel: str, **details: Any) -> Miss:
    """One reason for every miss, a missing table included (docs/facts/exact-lookup.md, "Elementwise operators")."""
    asked = {"attempted_kernel_types": [kernel], "output_shape": list(leaf.outputs[0].shape)}
    return Miss(MissReason.ELEMENTWISE_OUTPUT_SHAPE_MISMATCH, details={**asked, **details})


class _OutputIndex:
    """Rows by the element count of their first output, and by its rounded shape for padded matches."""

    def __init__(self, table: TensorTable) -> None:
        self._outputs: dict[int, TensorSpec] = {}
        self._by_size: dict[int, list[int]] = {}
        self._by_block: dict[Shape, list[int]] = {}
        for row in range(len(table)):
            outputs = table.row_outputs(row)
            if not outputs or not outputs[0].shape or not table.exact_latency.values[row] > 0:
                continue
            self._outputs[row] = outputs[0]
            self._by_size.setdefault(outputs[0].numel, []).append(row)
            for shape in {outputs[0].shape, strip_leading_one(outputs[0].shape)}:
                self._by_block.setdefault(_rounded(shape), []).append(row)

    def dtype(self, row: int) -> str:
        return self._outputs[row].dtype

    def find(self, target: Shape, dtype: str) -> RowMatch | None:
        flat = (target[0] * target[1], target[2]) if len(target) == 3 else target
        rows = set(self._by_size.get(TensorSpec(target, dtype).numel, ()))
        rows.update(self._by_block.get(_rounded(target), ()), self._by_block.get(_rounded(flat), ()))
        best: tuple[tuple[Rank, bool, int, int], RowMatch] | None = None
        for row in rows:
            held = self._outputs[row]
            rank = _output_rank(target, flat, held.shape)
            if rank is None or not self._comparable(row, dtype):
                continue
            added = abs(held.numel - math.prod(target)) if rank is Rank.PADDED else 0
            order = (rank, held.dtype != dtype, added, row)
            if best is None or order < best[0]:
                best = order, RowMatch(row, InputRule("elementwise", rank))
        return None if best is None else best[1]

    def _comparable(self, row: int, dtype: str) -> bool:
        held = self._outputs[row].dtype
        return held == dtype or (profile_dtype_bytes(held) > 0 and profile_dtype_bytes(dtype) > 0)


def _rounded(shape: Shape) -> Shape:
    return tuple(-(-dim // 64) * 64 for dim in shape)


def _output_rank(target: Shape, flat: Shape, row: Shape) -> Rank | None:
    row_bare = strip_leading_one(row)
    if target == row:
        return Rank.IDENTITY
    if target == row_bare or (len(target) == 3 and len(row) == 2 and flat == row):
        return Rank.RESHAPED
    if shape_is_padded(target, row) or shape_is_padded(target, row_bare):
        return Rank.PADDED
    if len(target) == 3 and len(row) == 2 and shape_is_padded(flat, row):
        return Rank.PADDED
    return None


def lookup_moe_fused(context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> QueryResult | Miss:
    """A fused dispatch-FFN-combine row on the inputs the entry counts, and on EP size where the table has it."""
    kernel = entry.kernel_type or ""
    table = context.tensor_table(kernel)
    if table is None:
        return csv_missing(context, (kernel,))
    ep_size = context.parallel.expert_parallel_size
    has_ep = "EP Size" in table.extra
    if has_ep and ep_size is None:
        details = {"attempted_kernel_types": [kernel], "hint": EP_SIZE_HINT}
        return Miss(MissReason.EP_SIZE_NOT_CONFIGURED, details=details)
    index = context.row_index(kernel, entry.tc_input_count)
    inputs = profile_inputs(leaf, entry.tc_input_count)
    if index is None or inputs is None:
        return _no_row(leaf, (kernel,), inputs)
    agrees = context.agreement(table, leaf)
    match = index.find(
        inputs,
        lambda row: (
            (not has_ep or parse_ep_size(table.cell(row, "EP Size")) == ep_size) and (agrees is None or agrees(row))
        ),
    )
    if match is None:
        return _no_row(leaf, (kernel,), inputs)
    return measured(context, table, match, leaf, ep_size=ep_size)
