"""Dense attention over uniform requests.

Source: docs/facts/gpu-tables.md, "Attention"; docs/facts/leaf-operators.md, "Attention".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    count_attr,
    missing,
    refuse,
    required_role,
    table_dtype,
)
from tensor_cast.performance_model.profiling_database.columns.facts.operands import settle_operands
from tensor_cast.performance_model.profiling_database.columns.facts.request_lengths import (
    measured_phase,
    uniform_lengths,
)
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["QueryHeads", "describe_attention", "length_axes"]


def describe_attention(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Axes isl, kv, step, batch_size, num_heads; facts phase, dtype, kv_dtype, head_dim, window, kv_heads.

    `kv_heads` is "MHA" where every query head has its own KV head.  Refuses mixed batches, unequal requests and a
    prefill on a cached prefix.
    """
    query, key = required_role(leaf, "query"), required_role(leaf, "key")
    settle_operands(leaf, constants)
    if key.rank < 3:
        raise missing(
            "key", f"key {key.shape} does not show heads and head size: expected (blocks, block, heads, size)"
        )
    _one_cache(key, leaf.role("value"))
    groups, head_dim = key.shape[-2:]
    heads = QueryHeads.of(query, head_dim)
    lengths = uniform_lengths(leaf, heads.tokens)
    regime = {
        "phase": measured_phase(lengths),
        "dtype": table_dtype(query),
        "kv_dtype": table_dtype(key),
        "head_dim": head_dim,
        "window": _window(leaf, constants),
        "kv_heads": "MHA" if groups == heads.count else groups,
    }
    axes = length_axes(lengths.isl, lengths.kv, lengths.batch_size, heads.count)
    return ColumnFacts(axes, regime)


def _one_cache(key: TensorSpec, value: TensorSpec | None) -> None:
    """Refuses a value unlike its key: the tables have one column for both."""
    if value is not None and (value.shape, value.dtype) != (key.shape, key.dtype):
        hint = f"value {value.shape} {value.dtype} and key {key.shape} {key.dtype} were never measured together"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "value", hint)


def length_axes(isl: int, kv: int, batch_size: int, heads: int) -> dict[str, float]:
    """The axes of an attention-like table; prefill tables use isl, decode tables kv."""
    return {
        "isl": float(isl),
        "kv": float(kv),
        "step": float(kv - isl),
        "batch_size": float(batch_size),
        "num_heads": float(heads),
    }


@dataclass(frozen=True, slots=True)
class QueryHeads:
    """Tokens and rank-local query heads of a query tensor."""

    tokens: int
    count: int

    @classmethod
    def of(cls, query: TensorSpec, head_dim: int) -> QueryHeads:
        """From `(T, h*d)`, `(1, T, h*d)`, `(T, h, d)` or `(B, h, S, d)`; refuses any other shape."""
        shape = query.shape
        if query.rank == 4 and shape[-1] == head_dim:
            return cls(shape[0] * shape[2], shape[1])
        if query.rank == 3 and shape[-1] == head_dim:
            return cls(shape[0], shape[1])
        flat = shape[1:] if query.rank == 3 and shape[0] == 1 else shape
        if len(flat) == 2 and head_dim > 0 and flat[1] % head_dim == 0 and flat[1]:
            return cls(flat[0], flat[1] // head_dim)
        hint = f"query {shape} does not divide into heads of size {head_dim}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "query", hint)


def _window(leaf: LeafOp, constants: Mapping[str, object]) -> int:
    """Tokens of the sliding window; 0 is full attention, and so is the -1 some frameworks use."""
    for name in ("sliding_window", "window_size", "window"):
        found = count_attr(leaf, constants, name)
        if found is not None:
            return max(found, 0)
    return 0
