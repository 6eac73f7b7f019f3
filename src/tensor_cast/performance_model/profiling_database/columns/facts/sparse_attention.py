"""Lightning indexer and sparse attention.  How tokens are grouped into requests is part of the regime, never an axis.

At equal token counts the grouping alone changes the indexer's latency by a median factor of 5.7, so a lookup fixes
`batch_size` and moves along isl and step.  Source: docs/facts/gpu-tables.md, "Sparse attention".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    base_name,
    count_attr,
    missing,
    refuse,
    required_role,
    shaped,
    table_dtype,
    text_attr,
)
from tensor_cast.performance_model.profiling_database.columns.facts.operands import settle_operands
from tensor_cast.performance_model.profiling_database.columns.facts.request_lengths import uniform_lengths
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["describe_sparse_attention"]


def describe_sparse_attention(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Axes isl, step, kv, tokens; facts phase, batch_size, num_heads, model, compress_ratio, dtype, kv_dtype, topk.

    Phase is decode where each request brings one token.  The tables list the model's attention heads, also for its
    indexer: a leaf that gives `num_heads` beside an indexer's own heads asks for `index_heads` as well.
    `compress_ratio` is 1 unless given.  `topk` is "all" where the indices hold the window and every compressed token,
    None where the leaf does not say.
    """
    query = required_role(leaf, "query")
    settle_operands(leaf, constants)
    indexer = base_name(leaf) == "quant_lightning_indexer"
    cache = required_role(leaf, "indexer_cache") if indexer else _kv(leaf)
    tokens, heads = _tokens_and_heads(query)
    _per_token(leaf, tokens, heads)
    lengths = uniform_lengths(leaf, tokens)
    ratio = count_attr(leaf, constants, "compress_ratio")
    given = count_attr(leaf, constants, "num_heads")
    if given not in (None, heads) and not indexer:
        hint = f"num_heads {given} and a query of {heads} heads contradict each other"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "num_heads", hint)
    regime = {
        "phase": "decode" if lengths.isl == 1 else "prefill",
        "batch_size": lengths.batch_size,
        "num_heads": heads if given is None else given,
        "model": text_attr(leaf, constants, "model", "give attrs.model, such as zai-org/GLM-5"),
        "compress_ratio": 1 if ratio is None else ratio,
        "dtype": table_dtype(query),
        "kv_dtype": table_dtype(cache),
        "topk": _selected(leaf, constants, lengths.kv, ratio or 1),
        "window": count_attr(leaf, constants, "sliding_window"),
        "query_width": query.shape[-1],
        "cache_width": cache.shape[-1],
        "index_heads": heads if indexer and given not in (None, heads) else None,
    }
    axes = {
        "isl": float(lengths.isl),
        "step": float(lengths.step),
        "kv": float(lengths.kv),
        "tokens": float(tokens),
    }
    return ColumnFacts(axes, regime)


def _per_token(leaf: LeafOp, tokens: int, heads: int) -> None:
    """Refuses inputs that belong to other tokens or heads than the query's."""
    fresh = leaf.role("kv") if leaf.role("kv_dependency") is not None else None
    width = None if fresh is None else required_role(leaf, "kv_dependency").shape[-1]
    for name, spec, size in (
        ("weights", leaf.role("weights"), heads),
        ("topk_indices", leaf.role("topk_indices"), None),
        ("kv", fresh, width),
    ):
        if spec is None:
            continue
        rows = math.prod(shaped(spec, name).shape[:-1])
        if rows != tokens or size not in (None, spec.shape[-1]):
            hint = f"{name} {spec.shape} does not belong to a query of {tokens} tokens and {heads} heads"
            raise refuse(MissReason.TARGET_UNAVAILABLE, name, hint)


def _kv(leaf: LeafOp) -> TensorSpec:
    """The cache: in a prefill `kv` holds the fresh values and `kv_dependency` the cache, if it is passed."""
    return required_role(leaf, "kv_dependency", "kv", "kv_cache")


def _tokens_and_heads(query: TensorSpec) -> tuple[int, int]:
    """From `(T, h, d)` or `(B, S, h, d)`."""
    if query.rank == 4:
        return query.shape[0] * query.shape[1], query.shape[2]
    if query.rank == 3:
        return query.shape[0], query.shape[1]
    raise missing(
        "query", f"query {query.shape} does not show its heads: expected (T, heads, size) or (B, S, heads, size)"
    )


def _selected(leaf: LeafOp, constants: Mapping[str, object], kv: int, ratio: int) -> int | str | None:
    """Tokens selected per query token: the width of the index tensor, else the configured limit; None if neither."""
    indices = leaf.role("topk_indices")
    if indices is None or not indices.shape:
        return count_attr(leaf, constants, "topk_limit")
    window = count_attr(leaf, constants, "sliding_window")
    everything = ratio > 1 and window is not None and indices.shape[-1] == window + -(-kv // ratio)
    return "all" if everything else indices.shape[-1]
