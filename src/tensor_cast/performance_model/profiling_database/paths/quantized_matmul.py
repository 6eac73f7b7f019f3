"""Quantised matrix products: Phase 1's M, K, N with dtype, layout, packing and output signature isolated.

Source: RFC 4.4.2; docs/facts/interpolation.md, "Quantised products"; decisions 002.11 and 002.29.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tensor_cast.dtypes import profile_dtype
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, dtypes_lacking
from tensor_cast.performance_model.profiling_database.exact.low_precision import contradicts
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import kernel_traits
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.matmul import (
    MATMUL_AXIS_GROUPS,
    PRODUCT_AXES,
    matrix_product,
    nd_first,
    product_regime,
)
from tensor_cast.performance_model.profiling_database.paths.moving import (
    immovable,
    move_product,
    tensor_places,
)
from tensor_cast.performance_model.profiling_database.paths.packing import (
    packing,
    packing_of_row,
    whole_weight,
)
from tensor_cast.performance_model.profiling_database.paths.path import (
    Candidate,
    OperatorPath,
    Target,
    leaf_tensors,
    row_tensors,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["QuantizedMatmulPath"]


class QuantizedMatmulPath(OperatorPath):
    """Exact matches are this path's own: the base sees neither outputs nor packing."""

    name = "quantized_matmul"
    final_reason = MissReason.COMPUTE_MULTIDIM_INTERPOLATION_FAILED
    owns_exact = True
    checks_exact = True
    source_pure = True
    allow_extra = frozenset({"input_formats"})

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return (self.name, self._count(entry))

    @staticmethod
    def _count(entry: OperatorEntry) -> int:
        return entry.tc_input_count or 2

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return MATMUL_AXIS_GROUPS

    def ordered(self, groups: Sequence[CandidateGroup]) -> Sequence[CandidateGroup]:
        return nd_first(groups)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        places = tensor_places(leaf)[:2]
        packed = 1 if packing(leaf.name) == "none" else 2
        product = None
        if len(places) == 2 and leaf.inputs[places[1]].rank >= 2:
            left, right = (leaf.inputs[place].shape for place in places)
            product = matrix_product(left, (*right[:-2], packed * right[-2], right[-1]), batched=True)
        if product is None or not axes.keys() <= PRODUCT_AXES:
            raise immovable(leaf, axes, () if product is None else product.axes)
        m, k, n = axes.get("M", product.m), axes.get("K", product.k), axes.get("N", product.n)
        high, low = (k, n) if packed * right[-2] == product.k else (n, k)
        if high % packed:
            raise InvalidValueError(f"query_many: {leaf.name} packs two values in one, so K must be even, got {high}")
        rows = (*left[:-2], m, k)
        matrices = {places[0]: rows, places[1]: (*right[:-2], high // packed, low)}
        return move_product(leaf, matrices, (product.m, product.n), (m, n), rows)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        tensors = leaf_tensors(leaf, self._count(entry), strict=self.strict)
        outputs = _output_signature(leaf, self.strict)
        packed = packing(leaf.name)
        if tensors is None or outputs is None:
            named = (*leaf.tensors[: self._count(entry)], *leaf.outputs)
            return _unavailable(
                table.kernel, "dtype_without_a_database_name", dtypes_lacking(named, strict=self.strict)
            )
        if not outputs:
            return _unavailable(table.kernel, "output_signature_missing", "give the output's shape and dtype")
        if len(tensors) < 2:
            return _unavailable(table.kernel, "input_shapes_lt_2", "give x and weight")
        left, right = tensors[:2]
        if contradicts(leaf.name, left.dtype, right.dtype):
            hint = f"{leaf.name} does not multiply {left.dtype} by {right.dtype}"
            dtypes = {"input_dtypes": [left.dtype, right.dtype]}
            return _unavailable(table.kernel, "operand_dtypes_are_not_the_operators", hint, **dtypes)
        place = _place(table.kernel, tensors, self._count(entry), packed, outputs)
        if place is None:
            hint = f"x {left.shape} and weight {right.shape} do not multiply"
            return _unavailable(table.kernel, "matmul_axes_unextractable", hint)
        return (Target(*place, notes={"compute_subcategory": "quantized_matmul", "packed": packed}),)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        tensors = row_tensors(table, row, self._count(entry))
        outputs = table.row_outputs(row)
        if len(tensors) < 2:
            return "input_shapes_lt_2"
        if not outputs or any(not spec.dtype for spec in outputs):
            return "output_signature_missing"
        packed = packing_of_row(tensors[1].dtype)
        place = _place(table.kernel, tensors, self._count(entry), packed, outputs)
        if place is None:
            return "matmul_axes_unextractable"
        axes, regime = place
        return Candidate(axes, (*regime, ("input_formats", tuple(spec.format for spec in tensors))))


def _unavailable(kernel: str, cause: str, hint: str, **details: object) -> Miss:
    return Miss(MissReason.TARGET_UNAVAILABLE, kernel, {"cause": cause, "hint": hint, **details})


def _output_signature(leaf: LeafOp, strict: bool) -> tuple[TensorSpec, ...] | None:
    """The outputs under database names, or None where a dtype has none."""
    outputs = []
    for spec in leaf.outputs:
        name = profile_dtype(spec.dtype, strict=strict)
        if name is None:
            return None
        outputs.append(TensorSpec(spec.shape, name, spec.format))
    return tuple(outputs)


def _place(
    kernel: str,
    tensors: tuple[TensorSpec, ...],
    count: int,
    packed: str,
    outputs: tuple[TensorSpec, ...],
) -> tuple[dict[str, float], RegimeKey] | None:
    if packed != "none":
        whole = whole_weight(tensors[1].shape, tensors[0].shape[-1], outputs[0].shape[-1]) if outputs[0].shape else None
        if whole is None:
            return None
        tensors = (tensors[0], replace(tensors[1], shape=whole), *tensors[2:])
    product = matrix_product(tensors[0].shape, tensors[1].shape, batched=kernel_traits(kernel).batched)
    if product is None:
        return None
    regime: RegimeKey = (
        *product_regime(kernel, tensors, count, product),
        ("packed", packed),
        ("output_count", len(outputs)),
        ("output_dtypes", tuple(spec.dtype for spec in outputs)),
        ("output_formats", tuple(spec.format for spec in outputs)),
    )
    return product.axes, regime
