"""Where a dense-attention question or row lies: tokens, context, heads, head size, batch.

Source: Phase 1 facts, section 6.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tensor_cast.dtypes import profile_dtype
from tensor_cast.leaf import LeafOp, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.attention import (
    average_context,
    integer_cell,
    kv_head_count,
    normalise_query,
    sequence_length,
)
from tensor_cast.performance_model.profiling_database.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, Target
from tensor_cast.performance_model.profiling_database.points import RegimeKey
from tensor_cast.performance_model.profiling_database.shapes import to_nd

__all__ = ["dense_candidate", "dense_target"]

_UNKNOWN: Final = -1


def dense_target(leaf: LeafOp, entry: OperatorEntry, table: TensorTable, policy: KernelPolicy) -> Target | Miss:
    """Where a question lies."""
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
    kv_heads = kv_head_count(query, key, sparse_mode)
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
    roots = ("seq",) if policy.axis_transform == "sqrt_seq" else ()
    return Target(axes, tuple(regime), notes=notes, roots=roots)


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


def dense_candidate(table: TensorTable, row: int, policy: KernelPolicy) -> Candidate | str:
    """Where a row lies, or why it cannot be used."""
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
