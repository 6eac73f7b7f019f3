"""Dense attention: context length, batch, heads and head size, singly, in pairs and in threes.

Source: docs/facts/interpolation.md, "Dense attention".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.attention import (
    SEQ_TOLERANCE,
    SEQUENCE_COLUMNS,
    average_context,
    sequence_column,
    sequence_length,
    tokens_match,
)
from tensor_cast.performance_model.profiling_database.exact.attention_evidence import (
    BATCH_AXIS_ABSENT,
    BATCH_AXIS_CONSTANT,
    BATCH_AXIS_CONSTRAINED,
    BATCH_AXIS_FILTERED,
    attention_details,
)
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.geometry.sweep_filter import near
from tensor_cast.performance_model.profiling_database.interpolation_index import (
    AxisMatcher,
    CandidateGroup,
)
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.dense_move import moved_attention
from tensor_cast.performance_model.profiling_database.paths.dense_place import (
    PER_REQUEST,
    dense_candidate,
    dense_target,
    per_request_candidate,
    per_request_target,
)
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, TensorTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    BoolArray = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["DenseAttentionPath"]

_AXES: Final = ("seq", "batch", "heads", "head_dim")
_GROUPS: Final = tuple(group for size in (1, 2, 3) for group in combinations(_AXES, size))


def _contexts(context: ExactContext, kernels: tuple[str, ...]) -> frozenset[int]:
    """Every context length that the kernels' rows hold."""
    tables = [table for kernel in kernels if (table := context.tensor_table(kernel)) is not None]
    lengths = (sequence_length(table, row) for table in tables for row in range(len(table)))
    return frozenset(length for length in lengths if length is not None)


class DenseAttentionPath(OperatorPath):
    """`q_tokens` is never interpolated: it filters, equal or block-padded in either direction.

    Strict: rows whose batch is known are told by the tokens that each request adds, and only equal tokens match.
    """

    name = "multidim"
    final_reason = MissReason.ATTENTION_CANDIDATE_GROUP_FAILED
    needed_column = SEQUENCE_COLUMNS

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return ("attention", policy.axis_transform)

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return _GROUPS

    def matchers(self) -> Mapping[str, AxisMatcher]:
        return {} if self.strict else {"q_tokens": lambda asked, held: tokens_match(int(asked), int(held))}

    def moved(self, leaf: LeafOp, axes: Mapping[str, int], entry: OperatorEntry) -> LeafOp:
        """Along `seq` and `batch` every request has one length; `heads` are those of the query."""
        return moved_attention(leaf, axes)

    def coordinates(self, varied: Mapping[str, IntArray], policy: KernelPolicy) -> Mapping[str, FloatArray]:
        columns = dict(super().coordinates(varied, policy))
        if policy.axis_transform == "sqrt_seq" and "seq" in columns:
            columns["seq"] = columns["seq"] ** 0.5
        return columns

    def base_places(self, leaf: LeafOp, varied: Mapping[str, IntArray], context: ExactContext) -> BoolArray:
        """The base accepts a range of context lengths around each row."""
        kernels = context.database.mapping.operators[leaf.name].kernels
        known = context.cached(("contexts", kernels), lambda: _contexts(context, kernels))
        length = average_context(leaf)
        if isinstance(length, Miss):
            length = 0
        asked = varied.get("seq", next(iter(varied.values())) * 0 + length)
        return near(asked, known, SEQ_TOLERANCE)

    def required(self, target: Target, table: TensorTable | ColumnTable) -> frozenset[str]:
        wanted = {"sparse_mode", "kv_heads"}
        regime = dict(target.regime)
        if "input_layout" in regime:
            wanted.add("input_layout")
        if "quant_mode" in regime and isinstance(table, TensorTable) and "Runtime quant_mode" in table.extra:
            wanted.add("quant_mode")
        return frozenset(wanted)

    def path_name(self, dim: int) -> str:
        return self.name

    def fit(self, target: Target, group: CandidateGroup) -> tuple[Target, CandidateGroup] | MissReason:
        """Settle the batch axis: constrain it, adopt the group's only batch, or keep to batch-less points."""
        if "batch" not in group.points.axes:
            return target, group
        batch = target.notes.get("batch")
        if batch is None:
            without = group.lacking("batch")
            if len(without):
                dropped = {"dropped_batched_candidates": len(group) - len(without)}
                notes = {**target.notes, "batch_axis_status": BATCH_AXIS_FILTERED, **dropped}
                return replace(target, notes=notes), without
            values = set(group.points.axes["batch"].tolist())
            if len(values) > 1:
                return MissReason.BATCH_AXIS_UNCONSTRAINED
            batch = values.pop()
        return replace(target, axes={**target.axes, "batch": float(batch)}), group

    def evidence(self, entry: OperatorEntry, target: Target, group: CandidateGroup) -> dict[str, Any]:
        status = BATCH_AXIS_CONSTANT if target.notes.get("batch") is None else BATCH_AXIS_CONSTRAINED
        known = "batch" in group.points.axes
        found = attention_details(target.axes, target.regime, target.roots)
        return found | {"batch_axis_status": status if known else BATCH_AXIS_ABSENT}

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        if not isinstance(table, TensorTable) or sequence_column(table) is None:
            hint = f"{table.report.source} has no column {SEQUENCE_COLUMNS[0]}"
            return Miss(MissReason.ATTENTION_INDEX_UNAVAILABLE, table.kernel, {"hint": hint})
        target = dense_target(leaf, entry, table, policy, strict=self.strict)
        if isinstance(target, Miss) or not self.strict:
            return target if isinstance(target, Miss) else (target,)
        told = per_request_target(leaf, target)
        if isinstance(told, Miss):
            return told
        return (target,) if told is None else (told, target)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        described = dense_candidate(table, row, policy)
        if isinstance(described, str) or not self.strict:
            return described
        told = per_request_candidate(described, sequence_length(table, row) or 0)
        if view == PER_REQUEST:
            return "batch_unknown" if told is None else told
        return described if told is None else "batch_known"
