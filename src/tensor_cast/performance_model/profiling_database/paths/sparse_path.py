"""What the lightning indexer and sparse flash attention share: views by request grouping (ruling 6)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Final

from tensor_cast.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.paths.sparse_place import SparsePlace
from tensor_cast.performance_model.profiling_database.points import RegimeKey

__all__ = ["SparsePath"]

VALUES: Final = "runtime_values"
SHAPES: Final = "shapes"
SHAPES_WITHOUT_VALUES: Final = "shapes_of_rows_without_values"


class SparsePath(OperatorPath):
    """Request values where both sides have them, shapes otherwise; the details say which (`grouping_source`)."""

    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    checks_exact = True
    source_pure = True
    allow_extra = frozenset({"api_path"})

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return (self.name,)

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        place = self.leaf_place(leaf, entry)
        if isinstance(place, Miss):
            return place
        regime = self.regime(table.kernel, place)
        values = place.grouping.values
        if values is None:
            return (self._target(place, regime, SHAPES),)
        by_values = self._target(place, (*regime, ("request_values", values)), VALUES)
        key = ("rows_without_values", self.name, table.kernel)
        if not context.cached(key, lambda: self._lacks_values(table)):
            return (by_values,)
        return by_values, self._target(place, regime, SHAPES_WITHOUT_VALUES)

    def _lacks_values(self, table: TensorTable | ColumnTable) -> bool:
        """Whether some usable row records its requests as shapes only.  O(rows), once per table."""
        if not isinstance(table, TensorTable):
            return False
        places = (self.row_place(table, row) for row in range(len(table)))
        return any(isinstance(place, SparsePlace) and place.grouping.values is None for place in places)

    def _target(self, place: SparsePlace, regime: RegimeKey, view: str) -> Target:
        notes = {"grouping_source": view, "phase": place.phase, "api_path": place.api_path, "topk": place.topk}
        return Target(self.axes(place), regime, notes=notes, view=view)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        place = self.row_place(table, row)
        if isinstance(place, str):
            return place
        regime = self.regime(table.kernel, place)
        values = place.grouping.values
        if view == VALUES:
            if values is None:
                return "runtime_metadata_incomplete"
            regime = (*regime, ("request_values", values))
        elif view == SHAPES_WITHOUT_VALUES and values is not None:
            return "runtime_values_differ"
        return Candidate(self.axes(place), regime, place.identity)

    @abstractmethod
    def axes(self, place: SparsePlace) -> dict[str, float]:
        """Continuous axes."""

    @abstractmethod
    def regime(self, kernel: str, place: SparsePlace) -> RegimeKey:
        """Regime fields without the request values."""

    @abstractmethod
    def leaf_place(self, leaf: LeafOp, entry: OperatorEntry) -> SparsePlace | Miss:
        """Where the question lies."""

    @abstractmethod
    def row_place(self, table: TensorTable, row: int) -> SparsePlace | str:
        """Where a row lies, or why it cannot be used."""
