"""Dense matrix products: axes M, K, N.  Source: docs/facts/interpolation.md, "Matrix products"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, dtypes_lacking
from tensor_cast.performance_model.profiling_database.exact.low_precision import spellings
from tensor_cast.performance_model.profiling_database.exact.matching import dtype_key
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import kernel_traits
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import (
    immovable,
    move_product,
    tensor_places,
)
from tensor_cast.performance_model.profiling_database.paths.path import (
    AlikeRows,
    Candidate,
    OperatorPath,
    Target,
    leaf_tensors,
    row_tensors,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import strip_leading_one

__all__ = ["MATMUL_AXIS_GROUPS", "PRODUCT_AXES", "MatmulPath", "MatrixProduct", "matrix_product", "nd_first"]

PRODUCT_AXES: Final = frozenset({"M", "K", "N"})
MATMUL_AXIS_GROUPS: Final = (("M",), ("K",), ("N",), ("M", "K"), ("M", "N"), ("K", "N"), ("M", "K", "N"))


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """M rows, K reduction, N columns, and the batch dimensions of both sides."""

    m: int
    k: int
    n: int
    batch: tuple[Shape, Shape]

    @property
    def axes(self) -> dict[str, float]:
        return {"M": float(self.m), "K": float(self.k), "N": float(self.n)}


def matrix_product(left: Shape, right: Shape, *, batched: bool) -> MatrixProduct | None:
    """The product of two shapes, the right one as `(K, N)` or `(N, K)`; None where they do not multiply.

    Kernels that are not `batched` drop a leading 1 at rank >= 3 only, so that `(1, K)` stays one row.
    """
    if not batched:
        left, right = strip_leading_one(left, 3), strip_leading_one(right, 3)
    if len(left) < 2 or len(right) < 2:
        return None
    m, k = left[-2:]
    if right[-2] == k:
        n = right[-1]
    elif right[-1] == k:
        n = right[-2]
    else:
        return None
    return MatrixProduct(m, k, n, (left[:-2], right[:-2]))


def nd_first(groups: Sequence[CandidateGroup]) -> Sequence[CandidateGroup]:
    """Groups whose inputs are all ND first, then the larger ones."""
    return sorted(groups, key=lambda group: (set(group.regime["input_formats"]) != {"ND"}, -len(group)))


def product_regime(
    kernel: str, tensors: tuple[TensorSpec, ...], count: int, product: MatrixProduct, *, strict: bool = False
) -> RegimeKey:
    """The regime fields that rows and targets share."""
    return (
        ("kernel_type", kernel),
        ("input_count", count),
        ("input_dtypes", tuple(dtype_key(kernel, spec.dtype, strict=strict) for spec in tensors)),
        ("batch_dims", product.batch),
    )


class MatmulPath(OperatorPath):
    """M, K, N over rows of equal dtypes and batch; ND and NZ weights in separate groups."""

    name = "multidim"
    final_reason = MissReason.COMPUTE_MULTIDIM_INTERPOLATION_FAILED
    table_missing = MissReason.COMPUTE_CSV_NOT_FOUND
    source_pure = True
    allow_extra = frozenset({"input_formats"})

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return MATMUL_AXIS_GROUPS

    def ordered(self, groups: Sequence[CandidateGroup]) -> Sequence[CandidateGroup]:
        return nd_first(groups)

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        places = tensor_places(leaf)[:2]
        shapes = [leaf.inputs[place].shape for place in places]
        product = matrix_product(*shapes, batched=False) if len(shapes) == 2 else None
        if product is None or not axes.keys() <= PRODUCT_AXES:
            raise immovable(leaf, axes, () if product is None else product.axes)
        m, k, n = axes.get("M", product.m), axes.get("K", product.k), axes.get("N", product.n)
        left, right = shapes
        weight = (k, n) if right[-2] == product.k else (n, k)
        rows = (*left[:-2], m, k)
        matrices = {places[0]: rows, places[1]: (*right[:-2], *weight)}
        return move_product(leaf, matrices, (product.m, product.n), (m, n), rows)

    def path_name(self, dim: int) -> str:
        return self.name

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        spelt = spellings(leaf)
        if isinstance(spelt, dict):
            return Miss(MissReason.TARGET_UNAVAILABLE, table.kernel, spelt)
        tensors = leaf_tensors(spelt[0], entry.tc_input_count, strict=self.strict)
        product = self._product(table.kernel, tensors)
        if tensors is None or product is None:
            shapes = " and ".join(str(spec.shape) for spec in leaf.tensors[:2]) or "no tensors"
            hint = dtypes_lacking(leaf.tensors[: entry.tc_input_count], strict=self.strict)
            hint = hint or f"{shapes} are not two matrices that multiply"
            return Miss(MissReason.TARGET_UNAVAILABLE, table.kernel, {"hint": hint})
        count = entry.tc_input_count or len(tensors)
        return (Target(product.axes, product_regime(table.kernel, tensors, count, product, strict=self.strict)),)

    @staticmethod
    def _product(kernel: str, tensors: tuple[TensorSpec, ...] | None) -> MatrixProduct | None:
        if tensors is None or len(tensors) < 2:
            return None
        return matrix_product(tensors[0].shape, tensors[1].shape, batched=kernel_traits(kernel).batched)

    def many(self, table: TensorTable, rows: Sequence[int], entry: OperatorEntry, view: str) -> list[AlikeRows]:
        from tensor_cast.performance_model.profiling_database.paths.product_places import product_places

        count = entry.tc_input_count
        inputs = table.logical_inputs
        return product_places(inputs if count is None else [specs[:count] for specs in inputs], rows)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        tensors = row_tensors(table, row, entry.tc_input_count)
        if len(tensors) < 2:
            return "input_shapes_lt_2"
        product = self._product(table.kernel, tensors)
        if product is None:
            return "matmul_axes_unextractable"
        count = entry.tc_input_count or len(tensors)
        regime = product_regime(table.kernel, tensors, count, product, strict=self.strict)
        formats = ("input_formats", tuple(spec.format for spec in tensors))
        return Candidate(product.axes, (*regime, formats))
