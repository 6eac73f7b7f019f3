"""What a path tells the interpolation engine, and the tensor views shared by targets and rows."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, profile_dtypes
from tensor_cast.performance_model.profiling_database.geometry.sweep_filter import (
    BlockPairs,
    block_of,
    possible_rows,
)
from tensor_cast.performance_model.profiling_database.interpolation_index import (
    AxisMatcher,
    CandidateGroup,
)
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import immovable
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    BoolArray = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["AlikeRows", "Candidate", "OperatorPath", "Target", "leaf_tensors", "row_tensors"]

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a question lies: continuous axes, exact regime, facts worth showing, and the view of the rows it needs.

    `roots` are the axes that hold the square root of what was asked.
    """

    axes: Mapping[str, float]
    regime: RegimeKey
    variant: str | None = None
    notes: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    view: str = ""
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Where a row lies.

    Rows of equal coordinates but different `identity` make the coordinate ambiguous; so do latencies whose highest
    exceeds the lowest by more than the factor `agree_within`.
    """

    axes: Mapping[str, float]
    regime: RegimeKey
    identity: Hashable = None
    agree_within: float | None = None


@dataclass(frozen=True)
class AlikeRows:
    """Rows of one regime: their numbers, and each one's place on every axis."""

    rows: IntArray
    axes: Mapping[str, FloatArray]


class OperatorPath(ABC):
    """One way to interpolate.  `candidate` and `target` describe rows and questions by the same extractors.

    `strict` paths keep dtypes apart that compatible matching takes for one.
    """

    name: ClassVar[str]
    final_reason: ClassVar[MissReason]
    table_missing: ClassVar[MissReason] = MissReason.CSV_NOT_FOUND
    owns_exact: ClassVar[bool] = False
    checks_exact: ClassVar[bool] = False
    source_pure: ClassVar[bool] = False
    allow_extra: ClassVar[frozenset[str]] = frozenset()
    needed_column: ClassVar[tuple[str, ...]] = ()  # spellings of a column without which no row of a table answers

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    def exact_coordinates(self, target: Target) -> bool:
        """Whether a measured row at the target's coordinates is the very operator, so that this path may return it."""
        return self.checks_exact or self.strict

    def kernels(self, entry: OperatorEntry) -> tuple[str, ...]:
        """Kernels to try, in order."""
        return entry.kernels

    def refuses(self, context: ExactContext, leaf: LeafOp, entry: OperatorEntry) -> Miss | None:
        """A reason not to look at any table, or None."""
        return None

    def owns(self, leaf: LeafOp) -> bool:
        """Whether this path, not the base, decides exact matches of this call."""
        return self.owns_exact

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        """What the candidates depend on besides the kernel."""
        return (self.name, entry.tc_input_count)

    @abstractmethod
    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        """Axis groups in the order they are tried: low dimension first."""

    @abstractmethod
    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        """The question's place among the table's rows: one reading, or several tried in order."""

    @abstractmethod
    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        """A row's place under a view, or the reason why it cannot be used."""

    def many(self, table: TensorTable, rows: Sequence[int], entry: OperatorEntry, view: str) -> list[AlikeRows]:
        """Rows whose places can be read together, each set with the regime that `candidate` gives any one of it.

        Rows that are in none of the sets are described by `candidate` one by one.
        """
        return []

    def required(self, target: Target, table: TensorTable | ColumnTable) -> frozenset[str]:
        """Regime fields that must exist on both sides."""
        return frozenset()

    def ordered(self, groups: Sequence[CandidateGroup]) -> Sequence[CandidateGroup]:
        """The matching groups in the order they are tried."""
        return groups

    def fit(self, target: Target, group: CandidateGroup) -> tuple[Target, CandidateGroup] | MissReason:
        """The target as this group sees it, and the part of the group that may answer."""
        return target, group

    def matchers(self) -> Mapping[str, AxisMatcher]:
        """Axes that are filtered by a rule other than equality."""
        return {}

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """The same operator at other coordinates.  Raises InvalidValueError for an axis it cannot be moved along."""
        raise immovable(leaf, axes)

    def uniform(self, leaf: LeafOp, axes: Collection[str]) -> bool:
        """Whether descriptions along these axes depend on comparisons of sizes only, not on their quotients."""
        return True

    def coordinates(self, varied: Mapping[str, IntArray], policy: KernelPolicy) -> Mapping[str, FloatArray]:
        """A sweep's values as coordinates of this path's axes."""
        return {axis: values.astype("float64") for axis, values in varied.items()}

    def base_places(self, leaf: LeafOp, varied: Mapping[str, IntArray], context: ExactContext) -> BoolArray:
        """At which points of a sweep the base might hold a row; a point left out surely has none there.

        A dimension that the base accepts equals or pads a measured one, by itself or flattened with its neighbours.
        Ones, which the base may drop, are not promised: ask at sizes of at least 2.
        """
        kernels = context.database.mapping.operators[leaf.name].kernels
        known = context.cached(("dimensions", kernels), lambda: _dimensions(context, kernels))
        factors = {1} | {dim for spec in leaf.tensors if spec.rank > 2 for dim in spec.shape}
        if any(spec.rank == 1 for spec in leaf.tensors[:1]):
            factors.add(2)  # two vectors recorded as one
        possible = possible_rows(varied, known, factors)
        if len(varied) > 1 and factors == {1}:
            pairs = context.cached(("dimension_pairs", kernels), lambda: _block_pairs(context, kernels))
            possible &= pairs.hold(varied)
        return possible

    def evidence(self, entry: OperatorEntry, target: Target, group: CandidateGroup) -> dict[str, object]:
        """What an answer from this group says of its question besides the facts that every answer states."""
        return {}

    def path_name(self, dim: int) -> str:
        """The name recorded as `interpolation_path`."""
        return f"{self.name}_{dim}d" if dim else self.name


def _dimensions(context: ExactContext, kernels: tuple[str, ...]) -> frozenset[int]:
    """Every logical input dimension that the kernels' rows hold, and what the leading ones multiply to."""
    tables = [table for kernel in kernels if (table := context.tensor_table(kernel)) is not None]
    shapes = {spec.shape for table in tables for specs in table.logical_inputs for spec in specs}
    return frozenset(n for shape in shapes for n in (*shape, *accumulate(shape, operator.mul)))


def _block_pairs(context: ExactContext, kernels: tuple[str, ...]) -> BlockPairs:
    """Every pair of blocks in which some row of the kernels has dimensions."""
    tables = [table for kernel in kernels if (table := context.tensor_table(kernel)) is not None]
    rows = {frozenset(_blocks_of(specs)) for table in tables for specs in table.logical_inputs}
    return BlockPairs.of({pair for blocks in rows for pair in product(blocks, blocks)})


def _blocks_of(specs: tuple[TensorSpec, ...]) -> Iterator[int]:
    for spec in specs:
        for size in (*spec.shape, *accumulate(spec.shape, operator.mul)):
            yield block_of(size)


def leaf_tensors(leaf: LeafOp, count: int | None = None, *, strict: bool = False) -> tuple[TensorSpec, ...] | None:
    """The leaf's non-scalar inputs under database dtype names; None where a dtype has no name."""
    names = profile_dtypes(leaf.tensor_dtypes[:count], strict)
    if names is None:
        return None
    pairs = zip(leaf.tensors, names, strict=False)
    return tuple([TensorSpec(spec.shape, name, spec.format) for spec, name in pairs])


def row_tensors(table: TensorTable, row: int, count: int | None = None) -> tuple[TensorSpec, ...]:
    """A row's non-scalar inputs with logical shapes; the storage format is kept."""
    return table.logical_inputs[row][:count]
