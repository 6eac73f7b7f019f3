"""What a path tells the engine, and the tensor views shared by targets and rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext, profile_dtypes
from tensor_cast.performance_model.profiling_database.interpolation_index import (
    AxisMatcher,
    CandidateGroup,
)
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.points import RegimeKey
from tensor_cast.performance_model.profiling_database.sweep_filter import places_of, possible_rows

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.kernel_table import IntArray

__all__ = ["Candidate", "OperatorPath", "Target", "leaf_tensors", "row_tensors"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


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
    """Where a row lies.  Rows of equal coordinates but different `identity` make the coordinate ambiguous."""

    axes: Mapping[str, float]
    regime: RegimeKey
    identity: Hashable = None


class OperatorPath(ABC):
    """One way to interpolate.  `candidate` and `target` describe rows and questions by the same extractors."""

    name: ClassVar[str]
    final_reason: ClassVar[MissReason]
    table_missing: ClassVar[MissReason] = MissReason.CSV_NOT_FOUND
    owns_exact: ClassVar[bool] = False
    checks_exact: ClassVar[bool] = False
    source_pure: ClassVar[bool] = False
    allow_extra: ClassVar[frozenset[str]] = frozenset()

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

    def moved(self, leaf: LeafOp, axes: Mapping[str, int]) -> LeafOp:
        """The same operator at other coordinates.  Raises InvalidValueError for an axis it cannot be moved along."""
        raise InvalidValueError(f"query_many: {leaf.name} cannot be moved along {', '.join(axes)}")

    def coordinates(self, varied: Mapping[str, Any], policy: KernelPolicy) -> Mapping[str, Any]:
        """A sweep's values as coordinates of this path's axes."""
        return varied

    def base_questions(
        self, leaf: LeafOp, varied: Mapping[str, Any], context: ExactContext
    ) -> Iterator[tuple[IntArray, LeafOp]]:
        """Places of a sweep at which the base might hold a row: their positions, and the operator there.

        A dimension the base accepts equals a measured one or pads it, so it lies less than 64 above a measured one.
        """
        kernels = context.database.mapping.operators[leaf.name].kernels
        known = context.cached(("dimensions", kernels), lambda: _dimensions(context, kernels))
        names = tuple(varied)
        self.moved(leaf, {name: int(varied[name][0]) for name in names})
        for positions in places_of(varied, possible_rows(varied, known)):
            yield positions, self.moved(leaf, {name: int(varied[name][positions[0]]) for name in names})

    def path_name(self, dim: int) -> str:
        """The name recorded as `interpolation_path`."""
        return f"{self.name}_{dim}d" if dim else self.name


def _dimensions(context: ExactContext, kernels: tuple[str, ...]) -> frozenset[int]:
    """Every logical input dimension that the kernels' rows hold."""
    tables = [table for kernel in kernels if (table := context.tensor_table(kernel)) is not None]
    return frozenset(dim for table in tables for specs in table.logical_inputs for spec in specs for dim in spec.shape)


def leaf_tensors(leaf: LeafOp, count: int | None = None) -> tuple[TensorSpec, ...] | None:
    """The leaf's non-scalar inputs under database dtype names; None where a dtype has no name."""
    names = profile_dtypes(leaf.tensor_dtypes[:count])
    if names is None:
        return None
    pairs = zip(leaf.tensors, names, strict=False)
    return tuple([TensorSpec(spec.shape, name, spec.format) for spec, name in pairs])


def row_tensors(table: TensorTable, row: int, count: int | None = None) -> tuple[TensorSpec, ...]:
    """A row's non-scalar inputs with logical shapes; the storage format is kept."""
    return table.logical_inputs[row][:count]
