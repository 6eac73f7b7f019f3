"""Latent attention (MLA): the kernel, its two batched projections, and the whole block.

Source: docs/facts/gpu-tables.md, "Latent attention"; docs/facts/leaf-operators.md, "Attention".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.attention import length_axes
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    base_name,
    count_attr,
    missing,
    named_dtype,
    refuse,
    required_role,
    shared_dtype,
    table_dtype,
    text_attr,
)
from tensor_cast.performance_model.profiling_database.columns.facts.operands import settle_operands
from tensor_cast.performance_model.profiling_database.columns.facts.request_lengths import (
    measured_phase,
    uniform_lengths,
)
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["describe_latent_attention"]

_STAGES: Final = ("pre", "post")


def describe_latent_attention(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """The kernel, `latent_bmm` or `latent_attention_block`, by the operator's name."""
    settle_operands(leaf, constants)
    name = base_name(leaf)
    if name == "latent_bmm":
        return _projection(leaf, constants)
    if name == "latent_attention_block":
        return _block(leaf, constants)
    return _kernel(leaf)


def _kernel(leaf: LeafOp) -> ColumnFacts:
    """Facts phase, dtype, kv_dtype, query_width (per head), cache_width (latent plus rotary part), v_head_dim, topk.

    The last two are None where the leaf does not say.
    """
    query, cache = required_role(leaf, "query"), required_role(leaf, "kv_cache")
    if query.rank < 3:
        raise missing("query", f"query {query.shape} does not show its heads: expected (T, heads, size)")
    heads = query.shape[-2]
    lengths = uniform_lengths(leaf, math.prod(query.shape[:-2]))
    regime = {
        "phase": measured_phase(lengths),
        "dtype": table_dtype(query),
        "kv_dtype": table_dtype(cache),
        "query_width": query.shape[-1],
        "cache_width": cache.shape[-1],
        "v_head_dim": leaf.attributes.get("v_head_dim"),
        "topk": leaf.attributes.get("topk_limit"),
    }
    return ColumnFacts(length_axes(lengths.isl, lengths.kv, lengths.batch_size, heads), regime)


def _projection(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Axes num_tokens, num_heads; facts stage, dtype, latent_rank, head_width.

    `pre` takes a head's query into the latent space, `post` brings the result back.
    """
    x, weight = required_role(leaf, "x"), required_role(leaf, "weight")
    stage = text_attr(leaf, constants, "stage", "give attrs.stage: pre (into the latent space) or post (out of it)")
    if stage not in _STAGES:
        raise refuse(MissReason.TARGET_UNAVAILABLE, "stage", f"stage is pre or post, got {stage!r}")
    if x.rank != 3 or weight.rank != 3 or x.shape[-1] != weight.shape[1] or weight.shape[0] not in x.shape[:2]:
        hint = f"expected x (heads, T, K) and weight (heads, K, N), got {x.shape} and {weight.shape}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "x", hint)
    heads, reduced, columns = weight.shape
    tokens = x.shape[1] if x.shape[0] == heads else x.shape[0]
    latent, head = (columns, reduced) if stage == "pre" else (reduced, columns)
    regime = {"stage": stage, "dtype": shared_dtype(x, weight), "latent_rank": latent, "head_width": head}
    return ColumnFacts({"num_tokens": float(tokens), "num_heads": float(heads)}, regime)


def _block(leaf: LeafOp, constants: Mapping[str, object]) -> ColumnFacts:
    """Facts phase, model, gemm_type, dtype, kv_dtype, hidden_size, cache_width of a block with its projections.

    Hidden and latent sizes are no columns of the tables: `model` stands for them, and a layout may assume them.
    """
    hidden, cache = required_role(leaf, "hidden"), required_role(leaf, "kv_cache")
    heads = count_attr(leaf, constants, "num_heads")
    if heads is None:
        raise missing("num_heads", "give attrs.num_heads, the query heads of this rank")
    lengths = uniform_lengths(leaf, math.prod(hidden.shape[:-1]))
    regime = {
        "phase": measured_phase(lengths),
        "model": text_attr(leaf, constants, "model", "give attrs.model, such as deepseek-ai/DeepSeek-V3"),
        "gemm_type": text_attr(leaf, constants, "gemm_type", "give attrs.gemm_type: bfloat16, fp8_block or nvfp4"),
        "dtype": _attention_dtype(leaf, hidden),
        "kv_dtype": table_dtype(cache),
        "hidden_size": hidden.shape[-1],
        "cache_width": cache.shape[-1],
    }
    return ColumnFacts(length_axes(lengths.isl, lengths.kv, lengths.batch_size, heads), regime)


def _attention_dtype(leaf: LeafOp, hidden: TensorSpec) -> str:
    """The dtype the attention inside the block computes in: given, else that of the block's input."""
    given = leaf.attributes.get("attention_dtype")
    return table_dtype(hidden) if given is None else named_dtype(str(given), "attention_dtype")
