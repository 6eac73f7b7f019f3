"""Dense attention: context length, batch, heads and head size, singly, in pairs and in threes.

Source: Phase 1 facts, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

from tensor_cast.dtypes import profile_dtype
from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.attention import (
    average_context,
    integer_cell,
    normalise_query,
    sequence_column,
    sequence_length,
    tokens_match,
)
from tensor_cast.performance_model.profiling_database.exact.context import ExactContext
from tensor_cast.performance_model.profiling_database.interpolation_index import (
    AxisMatcher,
    CandidateGroup,
)
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, OperatorPath, Target
from tensor_cast.performance_model.profiling_database.points import RegimeKey
from tensor_cast.performance_model.profiling_database.shapes import to_nd

__all__ = ["DenseAttentionPath"]

_AXES: Final = ("seq", "batch", "heads", "head_dim")
_GROUPS: Final = tuple(group for size in (1, 2, 3) for group in combinations(_AXES, size))
_UNKNOWN: Final = -1


class DenseAttentionPath(OperatorPath):
    """`q_tokens` is never interpolated: it filters, equal or block-padded in either direction."""

    name = "multidim"
    final_reason = MissReason.ATTENTION_CANDIDATE_GROUP_FAILED

    def index_key(self, entry: OperatorEntry, policy: KernelPolicy) -> tuple[Hashable, ...]:
        return ("attention", policy.axis_transform)

    def axis_groups(self, target: Target, table: TensorTable | ColumnTable) -> Sequence[tuple[str, ...]]:
        return _GROUPS

    def matchers(self) -> Mapping[str, AxisMatcher]:
        return {"q_tokens": lambda asked, held: tokens_match(int(asked), int(held))}

    def moved(self, leaf: LeafOp, axes: Mapping[str, int]) -> LeafOp:
        """Along `seq`: every request at that context length."""
        requests = leaf.requests
        if set(axes) != {"seq"} or requests is None or requests.count is None:
            return super().moved(leaf, axes)
        return replace(leaf, requests=replace(requests, kv_lens=(axes["seq"],) * requests.count))

    def coordinates(self, varied: Mapping[str, Any], policy: KernelPolicy) -> Mapping[str, Any]:
        if policy.axis_transform == "sqrt_seq" and "seq" in varied:
            return {**varied, "seq": varied["seq"] ** 0.5}
        return varied

    def base_questions(
        self, leaf: LeafOp, varied: Mapping[str, Any], context: ExactContext
    ) -> Iterator[tuple[int, LeafOp]]:
        """Every point: the base accepts a range of context lengths around each row."""
        for i, place in enumerate(zip(*(values.tolist() for values in varied.values()), strict=True)):
            yield i, self.moved(leaf, {axis: int(value) for axis, value in zip(varied, place, strict=True)})

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
                notes = {**target.notes, "batch_axis_status": "batch_axis_filtered"}
                return replace(target, notes=notes), without
            values = set(group.points.axes["batch"].tolist())
            if len(values) > 1:
                return MissReason.BATCH_AXIS_UNCONSTRAINED
            batch = values.pop()
        return replace(target, axes={**target.axes, "batch": float(batch)}), group

    def targets(
        self,
        context: ExactContext,
        leaf: LeafOp,
        entry: OperatorEntry,
        table: TensorTable | ColumnTable,
        policy: KernelPolicy,
    ) -> tuple[Target, ...] | Miss:
        if not isinstance(table, TensorTable) or sequence_column(table) is None:
            return Miss(MissReason.ATTENTION_INDEX_UNAVAILABLE, table.kernel, {"hint": "no avg_seq_len column"})
        target = _target(leaf, entry, table, policy)
        return target if isinstance(target, Miss) else (target,)

    def candidate(
        self, table: TensorTable, row: int, entry: OperatorEntry, policy: KernelPolicy, view: str = ""
    ) -> Candidate | str:
        return _candidate(table, row, policy)


def _target(leaf: LeafOp, entry: OperatorEntry, table: TensorTable, policy: KernelPolicy) -> Target | Miss:
    query, key = leaf.role("query"), leaf.role("key")
    dtype = None if query is None else profile_dtype(query.dtype)
    normal = None if query is None or key is None else normalise_query(query.shape, key.shape[-1])
    if query is None or key is None or dtype is None or normal is None:
        return Miss(MissReason.ATTENTION_TARGET_UNAVAILABLE, table.kernel, {"hint": "query and key needed"})
    length = average_context(leaf)
    if isinstance(length, Miss):
        return Miss(MissReason.ATTENTION_TARGET_UNAVAILABLE, table.kernel, {**length.details, "cause": length.code})
    layout = "BNSD_NBSD" if query.rank == 4 else "TND"
    sparse_mode = _sparse_mode(leaf, layout)
    if sparse_mode is None:
        return Miss(MissReason.ATTENTION_SPARSE_MODE_UNKNOWN, table.kernel)
    kv_heads = key.shape[1] if layout == "BNSD_NBSD" and key.rank == 4 and query.rank == 4 else key.shape[-2]
    regime: list[tuple[str, Any]] = [
        ("kernel_type", table.kernel),
        ("dtype", dtype),
        ("sparse_mode", sparse_mode),
        ("kv_heads", kv_heads),
        ("input_layout", layout),
    ]
    quant_mode = policy.quant_mode or entry.quant_mode or leaf.attributes.get("quant_mode")
    notes: dict[str, Any] = {"batch": _batch(leaf, query)}
    if quant_mode is not None:
        regime.append(("quant_mode", str(quant_mode)))
        if "Runtime quant_mode" not in table.extra:
            notes |= {"quant_mode_unknown_in_csv": True, "target_quant_mode": str(quant_mode)}
    tokens, heads, head_dim = normal
    axes = _axes(tokens, heads, head_dim, length, policy)
    return Target(axes, tuple(regime), notes=notes)


def _sparse_mode(leaf: LeafOp, layout: str) -> int | None:
    given = leaf.attributes.get("sparse_mode")
    if isinstance(given, int):
        return given
    return 0 if layout == "BNSD_NBSD" else 3


def _batch(leaf: LeafOp, query: TensorSpec) -> int | None:
    if query.rank == 4:
        return query.shape[0]
    return None if leaf.requests is None else leaf.requests.count


def _axes(tokens: int, heads: int, head_dim: int, seq: int, policy: KernelPolicy) -> dict[str, float]:
    length = math.sqrt(seq) if policy.axis_transform == "sqrt_seq" else float(seq)
    return {"q_tokens": float(tokens), "seq": length, "heads": float(heads), "head_dim": float(head_dim)}


def _candidate(table: TensorTable, row: int, policy: KernelPolicy) -> Candidate | str:
    seq = sequence_length(table, row)
    if seq is None:
        return "avg_seq_len_unknown"
    inputs = table.row_inputs(row)
    query = inputs[0]
    shape = to_nd(query.shape, query.format)
    normal = normalise_query(shape, inputs[1].shape[-1] if len(inputs) > 1 and inputs[1].shape else 0)
    if normal is None:
        return "q_shape_normalize_failed"
    tokens, heads, head_dim = normal
    axes = _axes(tokens, heads, head_dim, seq, policy)
    batch = integer_cell(table, row, "Runtime batch_size")
    if batch is None and len(shape) == 4:
        batch = shape[0]
    if batch is not None:
        axes["batch"] = float(batch)
    return Candidate(axes, _row_regime(table, row, query.dtype))


def _row_regime(table: TensorTable, row: int, dtype: str) -> RegimeKey:
    regime: list[tuple[str, Any]] = [("kernel_type", table.kernel), ("dtype", dtype)]
    for name, column in (("sparse_mode", "Runtime sparse_mode"), ("kv_heads", "Runtime num_key_value_heads")):
        if column in table.extra:
            value = integer_cell(table, row, column)
            regime.append((name, _UNKNOWN if value is None else value))
    for name, column in (("input_layout", "Runtime input_layout"), ("quant_mode", "Runtime quant_mode")):
        if (text := table.cell(row, column)) is not None:
            regime.append((name, text))
    return tuple(regime)
