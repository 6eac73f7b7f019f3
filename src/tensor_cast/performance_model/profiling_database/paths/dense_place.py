"""Where a dense-attention question or row lies: tokens, context, heads, head size, batch.

Source: docs/facts/interpolation.md, "Dense attention".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.evidence import RegimeKey
from tensor_cast.performance_model.profiling_database.exact.attention import (
    asked_batch,
    asked_cache_precision,
    attention_tensors,
    integer_cell,
    kv_head_count,
    normalise_query,
    row_batch,
    sequence_length,
)
from tensor_cast.performance_model.profiling_database.exact.low_precision import cache_precision
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import KernelPolicy, OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import Candidate, Target
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import to_nd

__all__ = ["PER_REQUEST", "dense_candidate", "dense_target", "per_request_candidate", "per_request_target"]

PER_REQUEST: Final = "per_request"

_UNKNOWN: Final = -1


def dense_target(
    leaf: LeafOp, entry: OperatorEntry, table: TensorTable, policy: KernelPolicy, *, strict: bool = False
) -> Target | Miss:
    """Where a question lies."""
    found = attention_tensors(leaf, strict=strict)
    if isinstance(found, Miss):
        return Miss(MissReason.ATTENTION_TARGET_UNAVAILABLE, table.kernel, {**found.details, "cause": found.code})
    layout = "BNSD_NBSD" if found.query.rank == 4 else "TND"
    sparse_mode = _sparse_mode(leaf, layout)
    regime: list[tuple[str, object]] = [
        ("kernel_type", table.kernel),
        ("dtype", found.dtype),
        ("sparse_mode", sparse_mode),
        ("kv_heads", kv_head_count(found.query, found.key, sparse_mode)),
        ("input_layout", layout),
        ("kv_precision", asked_cache_precision(found.key)),
    ]
    quant_mode = policy.quant_mode or entry.quant_mode or leaf.attributes.get("quant_mode")
    notes: dict[str, object] = {"batch": asked_batch(leaf)}
    if quant_mode is not None:
        regime.append(("quant_mode", str(quant_mode)))
        if "Runtime quant_mode" not in table.extra:
            notes |= {"quant_mode_unknown_in_csv": True, "target_quant_mode": str(quant_mode)}
    axes = _axes(*found.shape, found.context, policy)
    roots = ("seq",) if policy.axis_transform == "sqrt_seq" else ()
    return Target(axes, tuple(regime), notes=notes, roots=roots)


def _sparse_mode(leaf: LeafOp, layout: str) -> int:
    given = leaf.attributes.get("sparse_mode")
    if isinstance(given, int):
        return given
    return 0 if layout == "BNSD_NBSD" else 3


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
    if (batch := row_batch(table, row)) is not None:
        axes["batch"] = float(batch)
    return Candidate(axes, _row_regime(table, row, inputs))


def _row_regime(table: TensorTable, row: int, inputs: tuple[TensorSpec, ...]) -> RegimeKey:
    regime: list[tuple[str, object]] = [("kernel_type", table.kernel), ("dtype", inputs[0].dtype)]
    if len(inputs) > 1:
        regime.append(("kv_precision", cache_precision(inputs[1].dtype)))
    for name, column in (("sparse_mode", "Runtime sparse_mode"), ("kv_heads", "Runtime num_key_value_heads")):
        if column in table.extra:
            value = integer_cell(table, row, column)
            regime.append((name, _UNKNOWN if value is None else value))
    for name, column in (("input_layout", "Runtime input_layout"), ("quant_mode", "Runtime quant_mode")):
        if (text := table.cell(row, column)) is not None:
            regime.append((name, text))
    return tuple(regime)


def per_request_target(leaf: LeafOp, target: Target) -> Target | Miss | None:
    """The same place told by what each request asks, where all requests ask alike; None where that is not known.

    A decode of batch 3 lies between decodes of batch 2 and 4: tokens follow from the batch, and from the context too
    where every request is new.
    """
    requests = leaf.requests
    if requests is None or requests.query_lens is None or not requests.kv_lens:
        return None
    if len(set(requests.query_lens)) > 1 or len(set(requests.kv_lens)) > 1:
        name = "query_lens" if len(set(requests.query_lens)) > 1 else "kv_lens"
        lengths = requests.query_lens if name == "query_lens" else requests.kv_lens
        hint = f"{name} {min(lengths)}..{max(lengths)}: ask once for each group of equal requests"
        return Miss(MissReason.REQUEST_LENGTHS_NOT_UNIFORM, name, {"hint": hint})
    query, context, count = requests.query_lens[0], requests.kv_lens[0], len(requests.kv_lens)
    if target.axes["q_tokens"] not in (query * count, count):
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "query_lens", {"hint": "they do not add up to the query tokens"})
    axes = {**target.axes, "batch": float(count)}
    del axes["q_tokens"]
    regime = (*target.regime, ("new_tokens", _new_tokens(query, context)))
    return Target(axes, regime, notes=target.notes, view=PER_REQUEST, roots=target.roots)


def per_request_candidate(candidate: Candidate, length: int) -> Candidate | None:
    """A row told by what each request asks; None where its batch is not known or does not divide its tokens."""
    batch = candidate.axes.get("batch")
    if not batch or candidate.axes["q_tokens"] % batch:
        return None
    axes = {axis: value for axis, value in candidate.axes.items() if axis != "q_tokens"}
    query = int(candidate.axes["q_tokens"] // batch)
    return replace(candidate, axes=axes, regime=(*candidate.regime, ("new_tokens", _new_tokens(query, length))))


def _new_tokens(query: int, context: int) -> int | str:
    """How many tokens each request adds, or `all` of its context."""
    return "all" if query == context > 1 else query
