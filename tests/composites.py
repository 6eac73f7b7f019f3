"""Composite operators as models emit them, for the decomposition tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensor_cast import LeafOp, ParallelConfig, Requests, TensorSpec
from tensor_cast.operators import build
from tensor_cast.operators.composites import NotDecomposable, canonical_leaves

BF16 = "bfloat16"
ONE_RANK = ParallelConfig()
Sizes = tuple[int, ...]


def children(op: LeafOp, parallel: ParallelConfig = ONE_RANK) -> tuple[LeafOp, ...]:
    found = canonical_leaves(op, parallel)
    assert isinstance(found, tuple), str(found)
    return found


def lacking(op: LeafOp, parallel: ParallelConfig = ONE_RANK) -> tuple[str, ...]:
    found = canonical_leaves(op, parallel)
    assert isinstance(found, NotDecomposable), str(found)
    assert found.operator == op.name
    return found.missing


def names(leaves: tuple[LeafOp, ...]) -> list[str]:
    return [leaf.name for leaf in leaves]


def latent(
    name: str,
    tokens: int,
    requests: Requests | None,
    *,
    heads: int = 4,
    nope: int = 128,
    value: int = 128,
    blocks: int = 9,
    table: Sizes = (2, 8),
    weights: str = BF16,
    without: tuple[str, ...] = (),
    topk: int | None = None,
    **attrs: Any,
) -> LeafOp:
    """Latent attention of width 512 + 64 rotary: query (T, h, nope+64), cache (blocks, 128, 576)."""
    tensors: dict[str, tuple[Sizes, str]] = {
        "query": ((tokens, heads, nope + 64), BF16),
        "kv_cache": ((blocks, 128, 576), BF16),
        "block_table": (table, "int32"),
        "query_start_loc": ((table[0] + 1,), "int32"),
        "seq_lens": (table[:1], "int32"),
        "query_lens": (table[:1], "int32"),
        "w_uk_t": ((heads, nope, 512), weights),
        "w_uv": ((heads, 512, value), weights),
        "kv_b_proj": ((512, heads * (nope + value)), weights),
    }
    if topk is not None:
        tensors["topk_indices"] = ((1, tokens, topk), "int64")
    return _operator(name, tensors, [((tokens, heads, value), BF16)], attrs, requests, without)


def preprocess(
    name: str = "mlapo", tokens: int = 16, *, weights: str = BF16, without: tuple[str, ...] = (), **attrs: Any
) -> LeafOp:
    """8 heads of 192 over hidden 7168, q_lora 1536, latent 512 + 64; the second weight is recorded sliced."""
    tensors: dict[str, tuple[Sizes, str]] = {
        "hidden": ((tokens, 7168), BF16),
        "cos": ((1, tokens, 64), BF16),
        "sin": ((1, tokens, 64), BF16),
        "q_a_weight": ((1536, 7168), weights),
        "q_a_norm": ((1536,), BF16),
        "q_b_weight": ((384, 1536), weights),
        "kv_a_weight": ((576, 7168), weights),
        "kv_a_norm": ((512,), BF16),
    }
    widths = {"num_heads": 8, "qk_head_dim": 192, "qk_nope_dim": 128}
    widths |= {"qk_rope_dim": 64, "kv_lora_rank": 512, "q_lora_rank": 1536, **attrs}
    kept = {key: size for key, size in widths.items() if size is not None}
    return _operator(name, tensors, [((tokens, 8, 192), BF16)], kept, None, without)


def indexer(
    tokens: int,
    requests: Requests | None,
    *,
    wq_b: str = BF16,
    blocks: int = 1766,
    table: Sizes = (2, 64),
    without: tuple[str, ...] = (),
    **attrs: Any,
) -> LeafOp:
    """32 index heads of 128 over hidden 6144 and q_lora 2048, top-k 2048."""
    asked = requests and replace(requests, block_table_shape=table)
    leaf = build.dsa_indexer(
        tokens, 6144, q_lora_rank=2048, index_heads=32, topk_limit=2048, blocks=blocks, requests=asked, wq_b_dtype=wq_b
    )
    kept = tuple(spec for spec in leaf.inputs if spec.role not in without)
    return LeafOp(leaf.name, kept, leaf.outputs, tuple({**leaf.attributes, **attrs}.items()), requests)


def _operator(
    name: str,
    tensors: dict[str, tuple[Sizes, str]],
    outputs: list[tuple[Sizes, str]],
    attrs: dict[str, Any],
    requests: Requests | None,
    without: tuple[str, ...],
) -> LeafOp:
    inputs = [TensorSpec(shape, dtype, role=role) for role, (shape, dtype) in tensors.items() if role not in without]
    return LeafOp.build(f"tensor_cast.{name}.default", inputs, outputs, attrs, requests)
