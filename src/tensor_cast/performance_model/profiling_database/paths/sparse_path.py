"""What the lightning indexer and sparse flash attention share: views by request grouping (decision 002.6)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.attention_evidence import attention_details
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.moving import (
    at_role,
    immovable,
    reshaped,
    with_rows,
)
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.paths.sparse_place import SparsePlace
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

__all__ = ["SparsePath"]

VALUES: Final = "runtime_values"
SHAPES: Final = "shapes"
ON_PURPOSE: Final = "shapes_on_request"
_REPEATS_AGREE: Final = 1.10


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
    """Request values where both sides have them, shapes where neither has; the details say which (`grouping_source`).

    Values on one side only are no answer: the miss names the field that the other side lacks.
    """

    final_reason = MissReason.CANDIDATE_GROUP_FAILED
    checks_exact = True
    source_pure = True
    allow_extra = frozenset({"api_path", "request_grouping"})
    shapes_on_purpose: ClassVar[bool] = False

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
        view = self._view(leaf, place)
        if isinstance(view, Miss):
            return view
        key = ("groupings", self.name, table.kernel)
        held = context.cached(key, lambda: self._views(table))
        wanted = VALUES if view == VALUES else SHAPES
        if held and wanted not in held:
            return _other_side_lacks(wanted, self.shapes_on_purpose)
        notes = {"grouping_source": view, "phase": place.phase, "api_path": place.api_path, "topk": place.topk}
        regime = (*self.regime(table.kernel, place), *_grouped(place, wanted))
        return (Target(self.axes(place), regime, notes=notes, view=wanted),)

    def _view(self, leaf: LeafOp, place: SparsePlace) -> str | Miss:
        asked = leaf.attributes.get("grouping")
        if asked is None:
            return SHAPES if place.grouping.values is None else VALUES
        if asked != "shapes" or not self.shapes_on_purpose:
            allowed = "shapes" if self.shapes_on_purpose else "left out only: this kernel is never grouped by shapes"
            return Miss(MissReason.SEMANTIC_FIELD_MISSING, "grouping", {"hint": f"grouping may be {allowed}"})
        if place.grouping.shapes is None:
            return Miss(MissReason.SEMANTIC_FIELD_MISSING, "block_table_shape", {"hint": "give (requests, blocks)"})
        return ON_PURPOSE

    def _views(self, table: TensorTable | ColumnTable) -> frozenset[str]:
        """The views that some usable row belongs to.  O(rows), once per table."""
        if not isinstance(table, TensorTable):
            return frozenset()
        places = (self.row_place(table, row) for row in range(len(table)))
        return frozenset(_row_view(place) for place in places if isinstance(place, SparsePlace))

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        place = self.row_place(table, row)
        if isinstance(place, str):
            return place
        if _row_view(place) != view:
            return "request_lengths_missing" if view == VALUES else "request_lengths_recorded"
        regime = (*self.regime(table.kernel, place), *_grouped(place, view))
        if view == VALUES:
            return Candidate(self.axes(place), regime, place.identity)
        return Candidate(self.axes(place), regime, agree_within=_REPEATS_AGREE)

    def evidence(self, entry: OperatorEntry, target: Target, group: CandidateGroup) -> dict[str, object]:
        return attention_details(target.axes, target.regime)

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


def _grouped(place: SparsePlace, view: str) -> RegimeKey:
    """The grouping as regime fields: the shapes where they are known, the values where the view is theirs."""
    grouping = place.grouping
    shapes: RegimeKey = () if grouping.shapes is None else (("request_grouping", grouping.shapes),)
    return (*shapes, ("request_values", grouping.values)) if view == VALUES else shapes


def _row_view(place: SparsePlace) -> str:
    return SHAPES if place.grouping.values is None else VALUES


def _other_side_lacks(wanted: str, on_purpose: bool) -> Miss:
    """Lengths on one side only: the field that is missing, and what to do."""
    if wanted == SHAPES:
        hint = "the rows record request lengths: give query and KV lengths"
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "kv_lens", {"hint": hint})
    hint = "the question gives request lengths, the rows record shapes only"
    more = "; the attribute grouping=shapes asks for these rows on purpose" if on_purpose else ""
    return Miss(MissReason.SEMANTIC_FIELD_MISSING, "actual_seq_lengths_kv_values", {"hint": hint + more})
