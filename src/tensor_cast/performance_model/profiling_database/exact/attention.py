"""Exact lookup of dense attention: heads, head size, dtype and runtime columns equal, context within 16 tokens.

Source: docs/facts/exact-lookup.md, "Dense attention".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from tensor_cast.dtypes import profile_dtype
from tensor_cast.files.decimal_text import parse_whole
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason, QueryResult
from tensor_cast.performance_model.profiling_database.exact.agreement import (
    fact_names,
    leaf_facts,
    regime_form,
)
from tensor_cast.performance_model.profiling_database.exact.attention_evidence import (
    BATCH_AXIS_ABSENT,
    BATCH_AXIS_CONSTRAINED,
    attention_details,
)
from tensor_cast.performance_model.profiling_database.exact.context import (
    ExactContext,
    csv_missing,
    dtypes_lacking,
    measured,
)
from tensor_cast.performance_model.profiling_database.exact.low_precision import cache_precision
from tensor_cast.performance_model.profiling_database.exact.matching import InputRule, Rank
from tensor_cast.performance_model.profiling_database.exact.row_index import RowMatch
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import is_padded, to_nd

__all__ = [
    "SEQUENCE_COLUMNS",
    "SEQ_TOLERANCE",
    "AttentionParams",
    "AttentionTensors",
    "asked_batch",
    "asked_cache_precision",
    "attention_params",
    "attention_tensors",
    "average_context",
    "integer_cell",
    "kv_head_count",
    "lookup_attention",
    "normalise_query",
    "row_batch",
    "sequence_column",
    "tokens_match",
]

SEQ_TOLERANCE: Final = 16
SEQUENCE_COLUMNS: Final = ("Runtime avg_seq_len", "avg_seq_len")


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What dense attention is matched on.  None leaves a field unconstrained."""

    tokens: int
    heads: int
    head_dim: int
    dtype: str
    avg_seq_len: int
    sparse_mode: int | None = 3
    num_kv_heads: int | None = None
    input_layout: str | None = None
    kv_precision: str | None = None


def normalise_query(shape: Shape, head_dim: int) -> tuple[int, int, int] | None:
    """`(tokens, heads, head_dim)` of a query: rank 3 as is, `(B,N,1,D)` without the 1, `(T, heads*dim)` divided."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 4 and shape[2] == 1:
        return (shape[0], shape[1], shape[3])
    if len(shape) == 2 and head_dim > 0 and shape[1] % head_dim == 0 and shape[1]:
        return (shape[0], shape[1] // head_dim, head_dim)
    return None


def average_context(leaf: LeafOp) -> int | Miss:
    """The mean of the context lengths, truncated."""
    requests = leaf.requests
    if requests is not None and requests.kv_lens:
        return int(sum(requests.kv_lens) / len(requests.kv_lens))
    if leaf.role("seq_lens") is not None:
        return Miss(MissReason.INVALID_SEQ_LENS, details={"hint": "seq_lens has no values (a meta tensor?)"})
    return Miss(MissReason.MISSING_SEQ_LENS, details={"hint": "give the context length of each request (kv_lens)"})


@dataclass(frozen=True, slots=True)
class AttentionTensors:
    """What every dense attention must show: query and key, `(tokens, heads, head_dim)`, the query's dtype in the
    database, and the mean context length.
    """

    query: TensorSpec
    key: TensorSpec
    shape: tuple[int, int, int]
    dtype: str
    context: int


def attention_tensors(leaf: LeafOp, *, strict: bool = False) -> AttentionTensors | Miss:
    """The tensors of an attention operator, or the miss that names what is missing."""
    query, key = leaf.role("query"), leaf.role("key")
    if query is None:
        return Miss(MissReason.QUERY_NOT_TENSOR, details={"hint": "give the tensor query"})
    dtype = profile_dtype(query.dtype, strict=strict)
    if dtype is None:
        return Miss(MissReason.DTYPE_UNMAPPED, query.dtype, {"hint": dtypes_lacking((query,), strict=strict)})
    if key is None or key.rank < 2:
        hint = "attention needs query, key and value, the key as (blocks, block, heads, head_dim)"
        return Miss(MissReason.INSUFFICIENT_ARGS, details={"hint": hint})
    normal = normalise_query(query.shape, key.shape[-1])
    if normal is None:
        hint = f"query {query.shape} does not divide into heads of {key.shape[-1]}, the last size of key {key.shape}"
        return Miss(MissReason.Q_SHAPE_NORMALIZE_FAILED, details={"query_shape": list(query.shape), "hint": hint})
    context_length = average_context(leaf)
    if isinstance(context_length, Miss):
        return context_length
    return AttentionTensors(query, key, normal, dtype, context_length)


def attention_params(leaf: LeafOp) -> AttentionParams | Miss:
    """The match fields of an attention operator, or the miss that names what is missing."""
    found = attention_tensors(leaf)
    if isinstance(found, Miss):
        return found
    given = leaf.attributes.get("sparse_mode")
    sparse_mode = given if isinstance(given, int) else 3
    layout = {3: "TND", 4: "BNSD_NBSD"}.get(found.query.rank)
    kv_heads = kv_head_count(found.query, found.key, sparse_mode)
    precision = asked_cache_precision(found.key)
    return AttentionParams(*found.shape, found.dtype, found.context, sparse_mode, kv_heads, layout, precision)


def asked_cache_precision(key: TensorSpec) -> str:
    """The precision of a question's KV cache, as a row tells its own."""
    return cache_precision(profile_dtype(key.dtype) or key.dtype.upper())


def asked_batch(leaf: LeafOp) -> int | None:
    """How many requests a question holds: the first dimension of a query `(B, N, 1, D)`, else what its lengths say."""
    query = leaf.role("query")
    if query is not None and query.rank == 4:
        return query.shape[0]
    return None if leaf.requests is None else leaf.requests.count


def row_batch(table: TensorTable, row: int) -> int | None:
    """How many requests a row holds: `Runtime batch_size`, else the first dimension of a query `(B, N, 1, D)`."""
    recorded = integer_cell(table, row, "Runtime batch_size")
    query = table.row_inputs(row)[0]
    shape = to_nd(query.shape, query.format)
    return shape[0] if recorded is None and len(shape) == 4 else recorded


def kv_head_count(query: TensorSpec, key: TensorSpec, sparse_mode: int) -> int:
    """KV heads of a paged `(blocks, block, heads, dim)` key, or of a BNSD key beside an unmasked BNSD query."""
    return key.shape[1] if sparse_mode == 0 and query.rank == 4 and key.rank == 4 else key.shape[-2]


def lookup_attention(
    context: ExactContext, leaf: LeafOp, kernels: tuple[str, ...], params: AttentionParams
) -> QueryResult | Miss:
    """The row nearest in context length, then in tokens; ties go to the earliest row."""
    tables = [table for kernel in kernels if (table := context.tensor_table(kernel)) is not None]
    if not tables:
        return csv_missing(context, kernels)
    best: tuple[tuple[int, int], TensorTable, int] | None = None
    for table in tables:
        index = context.cached(("attention", table.kernel), lambda table=table: _ContextIndex(table))  # type: ignore[misc]
        agrees = context.agreement(table, leaf)
        for gaps, row in index.near(params):
            if context.strict and gaps != (0, 0):
                continue
            if (best is None or gaps < best[0]) and (agrees is None or agrees(row)):
                best = (gaps, table, row)
    if best is None:
        return Miss(MissReason.SHAPE_MISMATCH, details=_asked(kernels, params))
    gaps, table, row = best
    return measured(
        context,
        table,
        RowMatch(row, InputRule("attention", Rank.RESHAPED)),
        leaf,
        confidence=0.9,
        noted_later=lambda: {
            "avg_seq_len": sequence_length(table, row),
            "sparse_mode": params.sparse_mode,
            "num_kv_heads": params.num_kv_heads,
            **_inexact(params, gaps, table, row),
            **_place(context, leaf, params, table, row),
        },
    )


def _place(
    context: ExactContext, leaf: LeafOp, params: AttentionParams, table: TensorTable, row: int
) -> dict[str, object]:
    """Where the question lies, told as an interpolated answer tells it; the batch is what the row knows of it."""
    known = leaf_facts(leaf, context.parallel)
    facts = {name: regime_form(name, known[name]) for name in sorted(known) if name in fact_names(table)}
    facts.pop("batch", None)
    axes: dict[str, float] = {
        "q_tokens": params.tokens,
        "seq": params.avg_seq_len,
        "heads": params.heads,
        "head_dim": params.head_dim,
    }
    batch, measured_batch = asked_batch(leaf), row_batch(table, row)
    if batch is not None and measured_batch is not None:
        axes["batch"] = batch
    compared = {
        "kernel_type": table.kernel,
        "dtype": params.dtype,
        "sparse_mode": params.sparse_mode,
        "kv_heads": params.num_kv_heads,
        "input_layout": params.input_layout,
        "kv_precision": params.kv_precision,
        **facts,
    }
    regime = tuple((name, value) for name, value in compared.items() if value is not None)
    status = BATCH_AXIS_CONSTRAINED if "batch" in axes else BATCH_AXIS_ABSENT
    return {**attention_details(axes, regime), "batch_axis_status": status}


def _asked(kernels: tuple[str, ...], params: AttentionParams) -> dict[str, object]:
    axes = {
        "q_tokens": float(params.tokens),
        "seq": float(params.avg_seq_len),
        "heads": float(params.heads),
        "head_dim": float(params.head_dim),
    }
    hint = f"no row of {params.dtype} has this context within {SEQ_TOLERANCE} tokens and the rest alike"
    return {"attempted_kernel_types": list(kernels), "target_axes": axes, "hint": hint}


def _inexact(params: AttentionParams, gaps: tuple[int, int], table: TensorTable, row: int) -> dict[str, object]:
    """What the tolerances took for equal: the context, the tokens."""
    changes = []
    if gaps[0]:
        changes.append(f"seq {sequence_length(table, row)} -> {params.avg_seq_len}")
    query = table.inputs[row][0]
    if gaps[1] and query is not None:
        changes.append(f"q_tokens {to_nd(query.shape, query.format)[0]} -> {params.tokens}")
    return {"inexact_match": {"rule": "tolerance" if gaps[0] else "padding", "changes": changes}} if changes else {}


def sequence_column(table: TensorTable) -> str | None:
    """The column that holds the mean context length: the current or the legacy spelling."""
    return next((name for name in SEQUENCE_COLUMNS if name in table.extra), None)


def sequence_length(table: TensorTable, row: int) -> int | None:
    """The row's mean context length, or None where blank or negative (-1 means unknown)."""
    column = sequence_column(table)
    value = None if column is None else integer_cell(table, row, column)
    return value if value is not None and value >= 0 else None


def integer_cell(table: TensorTable, row: int, column: str) -> int | None:
    """An integer from an extra column, or None for blank, NaN and text."""
    text = table.cell(row, column)
    return None if text is None else parse_whole(text)


def tokens_match(target: int, measured_tokens: int) -> bool:
    """Equal, or block-padded in either direction."""
    return target == measured_tokens or is_padded(target, measured_tokens) or is_padded(measured_tokens, target)


class _ContextIndex:
    """Rows by (heads, head size, dtype), each list sorted by context length."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._groups: dict[tuple[int, int, str], list[tuple[int, int, int]]] = {}
        self._flat: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
        for row in range(len(table)):
            seq = sequence_length(table, row)
            query = table.inputs[row][0] if table.inputs[row] else None
            if seq is None or query is None or not table.exact_latency.values[row] > 0:
                continue
            shape = to_nd(query.shape, query.format)
            normal = normalise_query(shape, 0)
            if normal is not None:
                self._groups.setdefault((normal[1], normal[2], query.dtype), []).append((seq, row, normal[0]))
            elif len(shape) == 2:
                self._flat.setdefault((shape[1], query.dtype), []).append((seq, row, shape[0]))
        for rows in (*self._groups.values(), *self._flat.values()):
            rows.sort()

    def near(self, params: AttentionParams) -> list[tuple[tuple[int, int], int]]:
        """((context gap, token gap), row) within the tolerance: nearest context, then tokens, then file order."""
        rows = (
            *_window(self._groups.get((params.heads, params.head_dim, params.dtype), []), params.avg_seq_len),
            *_window(self._flat.get((params.heads * params.head_dim, params.dtype), []), params.avg_seq_len),
        )
        found = [
            ((abs(seq - params.avg_seq_len), abs(tokens - params.tokens)), row)
            for seq, row, tokens in rows
            if tokens_match(params.tokens, tokens) and self._runtime_equal(row, params)
        ]
        return sorted(found)

    def _runtime_equal(self, row: int, params: AttentionParams) -> bool:
        table = self._table
        for column, value in (
            ("Runtime sparse_mode", params.sparse_mode),
            ("Runtime num_key_value_heads", params.num_kv_heads),
        ):
            if value is not None and column in table.extra and integer_cell(table, row, column) != value:
                return False
        cache = table.row_inputs(row)[1:2]
        if params.kv_precision is not None and cache and cache_precision(cache[0].dtype) != params.kv_precision:
            return False
        layout = table.cell(row, "Runtime input_layout")
        return layout is None or params.input_layout is None or layout == params.input_layout


def _window(rows: list[tuple[int, int, int]], target: int) -> list[tuple[int, int, int]]:
    low = bisect_left(rows, (target - SEQ_TOLERANCE, -1, -1))
    high = bisect_right(rows, (target + SEQ_TOLERANCE, 2**62, 2**62))
    return rows[low:high]
