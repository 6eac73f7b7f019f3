"""What the lightning indexer and sparse flash attention share: views by request grouping (ruling 6)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.leaf import LeafOp, Requests, Shape
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import (
    at_role,
    immovable,
    reshaped,
    with_rows,
)
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.paths.sparse_place import SparsePlace
from tensor_cast.performance_model.profiling_database.points import RegimeKey

__all__ = ["SparsePath"]

VALUES: Final = "runtime_values"
SHAPES: Final = "shapes"
SHAPES_WITHOUT_VALUES: Final = "shapes_of_rows_without_values"


_CACHES: Final = ("indexer_cache", "kv_dependency", "kv_cache", "block_table")


def _resized(shape: Shape, lead: Shape, tokens: int) -> Shape:
    """A shape with other tokens where it begins with the query's own dimensions of tokens."""
    return (*with_rows(lead, tokens, 0), *shape[len(lead) :]) if shape[: len(lead)] == lead else shape


def _spread(leaf: LeafOp, tokens: int) -> Requests | None:
    requests = leaf.requests
    if requests is None or not requests.query_lens:
        return requests
    if len(set(requests.query_lens)) > 1:
        raise InvalidValueError(f"query_many: {leaf.name} cannot be moved along tokens: its requests differ in length")
    each, more = divmod(tokens, len(requests.query_lens))
    return replace(requests, query_lens=tuple(each + (i < more) for i in range(len(requests.query_lens))))


class SparsePath(OperatorPath):
    """Request values where both sides have them, shapes otherwise; the details say which (`grouping_source`)."""

    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    checks_exact = True
    source_pure = True
    allow_extra = frozenset({"api_path"})

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return (self.name,)

    def uniform(self, leaf: LeafOp, axes: Collection[str]) -> bool:
        """Whole request lengths are quotients of the tokens."""
        return "tokens" not in axes or leaf.requests is None or leaf.requests.query_lens is None

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """Along the tokens equal requests stay as equal as they can be, on the contexts they have."""
        query, cache = at_role(leaf, "query"), at_role(leaf, "indexer_cache")
        allowed = ("tokens",) if cache is None else ("tokens", "cache_blocks")
        if query is None or leaf.inputs[query].rank < 3 or not set(axes) <= set(allowed):
            raise immovable(leaf, axes, allowed)
        requests, inputs, outputs = leaf.requests, {}, {}
        if "tokens" in axes:
            lead = leaf.inputs[query].shape[:-2]
            inputs = {at: _resized(spec.shape, lead, axes["tokens"]) for at, spec in enumerate(leaf.inputs)}
            inputs |= {at: spec.shape for at, spec in enumerate(leaf.inputs) if spec.role in _CACHES}
            outputs = {at: _resized(spec.shape, lead, axes["tokens"]) for at, spec in enumerate(leaf.outputs)}
            requests = _spread(leaf, axes["tokens"])
        if cache is not None and "cache_blocks" in axes:
            inputs[cache] = (axes["cache_blocks"], *leaf.inputs[cache].shape[1:])
        return reshaped(leaf, inputs, outputs, requests)

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
