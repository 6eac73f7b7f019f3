"""Canonical leaves of the sparse-attention indexer: key and norm, weights, query, cache write, selection.

The rotary embedding of query and key is no leaf.
Source: docs/facts/leaf-operators.md, "Attention", "Leaves of a composite".
"""

from __future__ import annotations

from tensor_cast.operators.build import cast, layer_norm
from tensor_cast.operators.composites.descriptor import indexer_leaf, scatter_leaf
from tensor_cast.operators.composites.latent_leaves import local_requests
from tensor_cast.operators.composites.leaf_parts import (
    LackingError,
    integer,
    layers_of,
    numbered,
    optional_integer,
    product,
    rows_of,
    tensor,
)
from tensor_cast.operators.composites.phase import attention_form
from tensor_cast.operators.composites.sequence_parallel import local_tokens, splits_tokens
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.parallel import ParallelConfig

__all__ = ["indexer_leaves"]


def indexer_leaves(leaf: LeafOp, parallel: ParallelConfig) -> tuple[LeafOp, ...]:
    """Eight leaves, nine with an INT8 `wq_b` (its activation is quantised first)."""
    hidden, cache = tensor(leaf, "hidden"), tensor(leaf, "indexer_cache")
    heads, dim = integer(leaf, "num_heads"), integer(leaf, "head_dim")
    tokens, width = rows_of(hidden)
    key, score = tensor(leaf, "wk", 2), tensor(leaf, "weights_proj", 2)
    _expect(key.shape == (dim, width), f"wk ({dim}, {width})")
    _expect(score.shape == (heads, width), f"weights_proj ({heads}, {width})")
    _expect(tensor(leaf, "k_norm").shape == (dim,), f"k_norm ({dim},)")
    _expect(layers_of(cache)[-1] == dim, f"indexer_cache (blocks, block, {dim})")
    return numbered(
        leaf,
        (
            product((tokens, width), (width, dim), key.dtype, hidden.dtype),
            *_key_norm(tokens, dim, hidden.dtype),
            product((tokens, width), (width, heads), score.dtype, hidden.dtype),
            *_query_projection(leaf, tokens, heads * dim, hidden.dtype),
            scatter_leaf(TensorSpec((tokens, dim), cache.dtype), cache),
            _selection(leaf, parallel, tokens, TensorSpec((tokens, heads, dim), hidden.dtype)),
        ),
    )


def _key_norm(tokens: int, dim: int, dtype: str) -> tuple[LeafOp, ...]:
    """Cast up, layer norm in float32, cast down, each on `(T, head_dim)`."""
    norm = layer_norm(tokens, dim, dtype="float32")
    return cast((tokens, dim), dtype, "float32"), norm, cast((tokens, dim), "float32", dtype)


def _query_projection(leaf: LeafOp, tokens: int, columns: int, dtype: str) -> tuple[LeafOp, ...]:
    normed, weight = tensor(leaf, "qa_normed"), tensor(leaf, "wq_b", 2)
    _, q_lora = rows_of(normed)
    _expect(weight.shape == (columns, q_lora), f"wq_b ({columns}, {q_lora})")
    linear = product((tokens, q_lora), (q_lora, columns), weight.dtype, dtype)
    if weight.dtype != "int8" or normed.dtype == "int8":
        return (linear,)
    source, target = TensorSpec((tokens, q_lora), normed.dtype, role="x"), TensorSpec((tokens, q_lora), "int8")
    return LeafOp("tensor_cast.quantize.default", (source,), (target,), (("out_dtype", "int8"),)), linear


def _selection(leaf: LeafOp, parallel: ParallelConfig, tokens: int, query: TensorSpec) -> LeafOp:
    """The phase matters only where sequence parallelism may spread the tokens."""
    may_split = splits_tokens(parallel, "prefill")
    form = attention_form(leaf) if may_split else "decode"
    requests = local_requests(leaf, parallel, form, tokens)
    if splits_tokens(parallel, form):
        share = local_tokens(tokens, parallel.tensor_parallel_size)
        query = TensorSpec((share, *query.shape[1:]), query.dtype)
    return indexer_leaf(query, tensor(leaf, "indexer_cache"), _selected(leaf), requests)


def _selected(leaf: LeafOp) -> int:
    """Positions selected per token: the width of the output, else the configured limit."""
    if leaf.outputs and leaf.outputs[0].shape:
        return leaf.outputs[0].shape[-1]
    limit = optional_integer(leaf, "topk_limit")
    if limit is None:
        raise LackingError("topk_limit")
    return limit


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise LackingError(what)
