"""Wrong sizes, each with what it says: the argument, what is allowed, what was got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensor_cast import LeafOp, Requests
from tensor_cast.errors import InvalidValueError, UnknownNameError
from tensor_cast.operators import build
from tensor_cast.operators.build import AttentionSizes, ExpertSizes, LatentSizes

SIZES = AttentionSizes(4, 1, 128, blocks=8)
LATENT = LatentSizes(8, 128, 64, 512, 128, 1536)
EXPERTS = ExpertSizes(2, 64, 32, 5)
WORD: Any = "w4a16"
Asked = Callable[[], object]

REFUSED: tuple[tuple[Asked, str], ...] = (
    (lambda: build.mm(0, 64, 32), "tokens: expected a whole number >= 1, got 0"),
    (lambda: build.mm(16, -64, 32), "k: expected a whole number >= 1, got -64"),
    (lambda: build.mm(16, 64, True), "n: expected a whole number >= 1, got True"),
    (lambda: build.mm(10**400, 64, 32), "tokens: expected a whole number >= 1, got more than 2**63 - 1"),
    (
        lambda: build.mm(2**62, 64, 32),
        "(4611686018427387904, 64): tensor shape has more than 2**63 - 1 elements",
    ),
    (lambda: build.rms_norm((1, 0), 64), "tokens: expected a whole number >= 1, got 0"),
    (lambda: build.rms_norm((), 64), "tokens: expected a whole number >= 1 or leading dimensions, got ()"),
    # heads, caches, requests
    (lambda: AttentionSizes(6, 4, 128), "heads: expected a multiple of 4 (kv_heads), got 6"),
    (lambda: AttentionSizes(4, 1, 128, blocks=0), "blocks: expected a whole number >= 1, got 0"),
    (lambda: AttentionSizes(4, 1, 128, layout=WORD), "layout: expected one of TH, TND, BNSD, got 'w4a16'"),
    (
        lambda: build.attention(3, SIZES, Requests((1, 1), (5, 5))),
        "tokens: expected the sum of query_lens, 2, got 3",
    ),
    (lambda: build.attention(3, SIZES, Requests((3,))), "requests: a paged cache needs kv_lens, got none"),
    (
        lambda: build.attention(2, SIZES, Requests((1, 1), (5, 5), block_table_shape=(3, 1))),
        "block_table_shape: expected (2, blocks), got (3, 1)",
    ),
    (
        lambda: build.attention(2, SIZES, Requests(block_table_shape=(3,))),
        "block_table_shape: expected (B, blocks), got (3,)",
    ),
    (
        lambda: build.attention(4, AttentionSizes(4, 1, 128, layout="BNSD"), Requests((2, 2), (5, 5))),
        "tokens: expected one for each of 2 requests (BNSD), got 4",
    ),
    (lambda: build.cache_blocks(Requests((1,))), "requests: a paged cache needs kv_lens, got none"),
    (
        lambda: build.apply_rope_inplace(3, 4, 64, rope_head_dim=65),
        "rope_head_dim: expected at most 64 (head_dim), got 65",
    ),
    (lambda: build.apply_rope_inplace(3, 0, 64), "heads: expected a whole number >= 1, got 0"),
    (lambda: build.fused_rope(3, 4, 1, 64, rotary_dim=128), "rotary_dim: expected at most 64 (head_dim), got 128"),
    # latent attention and its indexer
    (lambda: LatentSizes(8, 128, 64, 512, 128, -1), "q_lora_rank: expected a whole number >= 1, got -1"),
    (lambda: LatentSizes(8, 0, 64, 512, 128), "qk_nope_head_dim: expected a whole number >= 1, got 0"),
    (
        lambda: build.mlapo_quant(2, 64, LatentSizes(8, 128, 64, 512, 128)),
        "q_lora_rank: expected a whole number >= 1, got 0",
    ),
    (
        lambda: build.multihead_latent_attention(2, LATENT, Requests((1, 1)), blocks=8),
        "requests: a paged cache needs kv_lens, got none",
    ),
    (
        lambda: build.mla_sparse_attention(2, LATENT, Requests((1, 1), (5, 5)), topk_limit=0, blocks=8),
        "topk_limit: expected a whole number >= 1, got 0",
    ),
    (
        lambda: build.dsa_indexer(
            2, 64, q_lora_rank=8, index_heads=1, topk_limit=4, blocks=1, index_head_dim=32, qk_rope_head_dim=64
        ),
        "qk_rope_head_dim: expected at most 32 (index_head_dim), got 64",
    ),
    (lambda: build.latent_bmm(8, 2, 128, 512, stage=WORD), "stage: expected one of pre, post, got 'w4a16'"),
    # DeepSeek-V4
    (lambda: build.scatter_nd_update_mla(8, blocks=1, slots=7), "rows: expected at most 7 (slots), got 8"),
    (
        lambda: build.compressor(2, 64, compress_ratio=0, head_dim=128, blocks=1, rotate=True),
        "compress_ratio: expected a whole number >= 1, got 0",
    ),
    (lambda: build.hc_post(2, 64, hc_mult=0), "hc_mult: expected a whole number >= 1, got 0"),
    (
        lambda: build.v4_clamped_swiglu(2, 64, swiglu_limit=0.0),
        "swiglu_limit: expected a number above 0, got 0.0",
    ),
    # products and quantisation
    (
        lambda: build.static_quant_linear(16, 63, 32, packed=True),
        "k: expected a multiple of 2 (two values share an element), got 63",
    ),
    (
        lambda: build.static_quant_linear(16, 64, 32, w_scale=WORD),
        "w_scale: expected one of channel, tensor, got 'w4a16'",
    ),
    (lambda: build.fp8_linear(16, 64, 32, scale=0), "scale: expected a whole number >= 1, got 0"),
    (lambda: build.fp8_linear(16, 64, 32, scale=WORD), "scale: expected one of channel, tensor, got 'w4a16'"),
    (lambda: build.mxfp4_linear(16, 64, 32, group_size=0), "group_size: expected a whole number >= 1, got 0"),
    (lambda: build.dynamic_quantize(16, 64, dims=(2,)), "dims: expected -2 to 1, got (2,)"),
    (
        lambda: build.dynamic_quantize(16, 64, form=WORD),
        "form: expected one of symmetric, asymmetric, mxfp4, got 'w4a16'",
    ),
    (
        lambda: build.add_rms_norm((1, 16), 64, residual_tokens=15),
        "residual_tokens: expected 16 tokens as in x, got 15",
    ),
    # arithmetic and moves
    (lambda: build.add((16, 64), (63,)), "other: expected a shape that broadcasts with (16, 64), got (63,)"),
    (lambda: build.cat([]), "dim: expected 0 to -1 of at least one tensor, got 0"),
    (lambda: build.cat([(2, 3)], dim=2), "dim: expected -2 to 1 of at least one tensor, got 2"),
    (
        lambda: build.cat([(2, 3), (2, 4)]),
        "shapes: expected sizes that agree but for dim 0, got [(2, 3), (2, 4)]",
    ),
    (
        lambda: build.cat([(2, 3), (2,)]),
        "shapes: expected sizes that agree but for dim 0, got [(2, 3), (2,)]",
    ),
    # experts
    (lambda: build.moe_gating_top_k_softmax(4, 8, 9), "top_k: expected at most 8 (experts), got 9"),
    (
        lambda: build.dispatch_ffn_combine(4, EXPERTS, rank_group=(0, 1)),
        "top_k: expected at most 4 (the experts of all ranks), got 5",
    ),
    (
        lambda: build.grouped_matmul(4, 64, 32, experts=2, quant=WORD),
        "quant: expected one of plain, w8a8, int4, fp8, mxfp4, got 'w4a16'",
    ),
    (
        lambda: build.grouped_matmul(4, 64, 31, experts=2, swiglu=True),
        "n: expected a multiple of 2 (gate and up lie side by side), got 31",
    ),
    (
        lambda: build.grouped_matmul((4, 4, 4), 64, 32, experts=2),
        "rows: expected 2 whole numbers >= 0, one per expert, not all 0, got (4, 4, 4)",
    ),
    (
        lambda: build.grouped_matmul((0, 0), 64, 32, experts=2),
        "rows: expected 2 whole numbers >= 0, one per expert, not all 0, got (0, 0)",
    ),
    # groups of ranks
    (
        lambda: build.all_reduce((4,), rank_group=()),
        "rank_group: expected different ranks >= 0, at least one, got ()",
    ),
    (
        lambda: build.all_reduce((4,), rank_group=(0, 0)),
        "rank_group: expected different ranks >= 0, at least one, got (0, 0)",
    ),
    (lambda: build.all_reduce((4,), rank_group=(0, 1), rank=2), "rank: expected one of rank_group (0, 1), got 2"),
    (lambda: build.all_gather((4,), rank_group=(0, 1), dim=1), "dim: expected -1 to 0, got 1"),
    (
        lambda: build.reduce_scatter((5, 4), rank_group=(0, 1)),
        "shape[0]: expected a multiple of 2 (the ranks of rank_group), got 5",
    ),
    (
        lambda: build.all_to_all((5, 4), rank_group=(0, 1)),
        "shape[0]: expected a multiple of 2 (the ranks of rank_group), got 5",
    ),
    (
        lambda: build.all_to_all((5, 4), rank_group=(0, 1), input_splits=(5,)),
        "input_splits: expected 2 whole numbers >= 0, one per rank, got (5,)",
    ),
    (
        lambda: build.all_to_all((5, 4), rank_group=(0, 1), input_splits=(2, 2)),
        "input_splits: expected the 5 rows handed over in all, got 4",
    ),
)


@pytest.mark.parametrize(("asked", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_wrong_size_is_named(asked: Asked, words: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        asked()
    assert str(refusal.value) == words


def test_a_dtype_that_is_none_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown dtype 'bf17' \(did you mean 'bf16'\?\)"):
        build.mm(16, 64, 32, dtype="bf17")


# every constructor with the sizes it cannot do without
SIZED: tuple[tuple[Callable[..., LeafOp], dict[str, int], dict[str, Any]], ...] = (
    (build.mm, {"tokens": 2, "k": 2, "n": 2}, {}),
    (build.addmm, {"tokens": 2, "k": 2, "n": 2}, {}),
    (build.bmm, {"batch": 2, "m": 2, "k": 2, "n": 2}, {}),
    (build.matmul_all_reduce, {"tokens": 2, "k": 2, "n": 2}, {"rank_group": (0,)}),
    (build.static_quant_linear, {"tokens": 2, "k": 2, "n": 2}, {}),
    (build.fp8_linear, {"tokens": 2, "k": 2, "n": 2}, {}),
    (build.mxfp4_linear, {"tokens": 2, "k": 2, "n": 2, "group_size": 2}, {}),
    (build.nvfp4_linear, {"tokens": 2, "k": 2, "n": 2, "group_size": 2}, {}),
    (build.reshape_and_cache, {"tokens": 2, "kv_heads": 2, "head_dim": 2, "blocks": 2, "block_size": 2}, {}),
    (build.apply_rope, {"tokens": 2, "heads": 2, "kv_heads": 2, "head_dim": 2, "batch": 2}, {}),
    (build.apply_rope_single, {"tokens": 2, "heads": 2, "head_dim": 2, "batch": 2}, {}),
    (build.apply_rope_inplace, {"tokens": 2, "heads": 2, "head_dim": 2, "rope_head_dim": 2, "batch": 2}, {}),
    (build.fused_rope, {"tokens": 2, "heads": 2, "kv_heads": 2, "head_dim": 2, "rotary_dim": 2}, {}),
    (
        build.concat_and_cache_mla,
        {"tokens": 2, "kv_lora_rank": 2, "qk_rope_head_dim": 2, "blocks": 2, "block_size": 2},
        {},
    ),
    (
        build.kv_rmsnorm_rope_cache,
        {"tokens": 2, "kv_lora_rank": 2, "qk_rope_head_dim": 2, "blocks": 2, "block_size": 2},
        {},
    ),
    (build.mlapo, {"tokens": 2, "hidden": 2}, {"sizes": LATENT}),
    (build.latent_bmm, {"heads": 2, "tokens": 2, "k": 2, "n": 2}, {"stage": "pre"}),
    (
        build.latent_attention_block,
        {"tokens": 2, "hidden": 2, "num_heads": 2, "cache_width": 2, "blocks": 2, "block_size": 2},
        {"requests": Requests(kv_lens=(2,)), "model": "m", "gemm_type": "bfloat16"},
    ),
    (
        build.dsa_indexer,
        {"tokens": 2, "hidden": 2, "q_lora_rank": 2, "index_heads": 2, "topk_limit": 2, "blocks": 2, "block_size": 2}
        | {"index_head_dim": 2, "qk_rope_head_dim": 2},
        {},
    ),
    (
        build.quant_lightning_indexer,
        {"tokens": 2, "index_heads": 2, "topk_limit": 2, "blocks": 2, "batch": 2, "head_dim": 2, "block_size": 2}
        | {"tp_world_size": 2},
        {},
    ),
    (
        build.sparse_attn_sharedkv,
        {"tokens": 2, "heads": 2, "index_width": 2, "blocks": 2, "batch": 2, "head_dim": 2, "block_size": 2},
        {"prefill": True},
    ),
    (
        build.scatter_nd_update_mla,
        {"rows": 2, "head_dim": 2, "blocks": 2, "slots": 4, "window_size": 2, "batch": 2, "block_size": 2},
        {},
    ),
    (
        build.compressor,
        {"tokens": 2, "hidden": 2, "compress_ratio": 2, "head_dim": 2, "blocks": 2, "rope_head_dim": 2, "batch": 2}
        | {"block_size": 2},
        {"rotate": True},
    ),
    (build.hc_pre_inv_rms, {"tokens": 2, "hidden": 2, "hc_mult": 2, "batch": 2}, {}),
    (build.hc_pre_sinkhorn, {"tokens": 2, "hidden": 2, "hc_mult": 2, "sinkhorn_iters": 2, "batch": 2}, {}),
    (build.hc_post, {"tokens": 2, "hidden": 2, "hc_mult": 2, "batch": 2}, {}),
    (build.hc_head, {"tokens": 2, "hidden": 2, "hc_mult": 2, "batch": 2}, {}),
    (build.quantize, {"tokens": 2, "k": 2}, {}),
    (build.dynamic_quantize, {"tokens": 2, "k": 2}, {}),
    (build.dynamic_quantize, {"tokens": 2, "k": 2, "group_size": 2}, {"form": "mxfp4"}),
    (build.rms_norm, {"tokens": 2, "width": 2}, {}),
    (build.add_rms_norm, {"tokens": 2, "width": 2, "residual_tokens": 2}, {}),
    (build.rms_norm_quant, {"tokens": 2, "width": 2}, {}),
    (build.add_rms_norm_quant, {"tokens": 2, "width": 2, "residual_tokens": 2}, {}),
    (build.rms_norm_dynamic_quant, {"tokens": 2, "width": 2}, {}),
    (build.add_rms_norm_dynamic_quant, {"tokens": 2, "width": 2, "residual_tokens": 2}, {}),
    (build.layer_norm, {"tokens": 2, "width": 2}, {}),
    (build.swiglu, {"tokens": 2, "width": 2}, {}),
    (build.v4_clamped_swiglu, {"tokens": 2, "width": 2}, {"swiglu_limit": 7.0}),
    (build.silu, {"tokens": 2, "width": 2}, {}),
    (build.gelu, {"tokens": 2, "width": 2}, {}),
    (build.embedding, {"tokens": 2, "vocabulary": 2, "width": 2}, {}),
    (build.init_routing_v2, {"tokens": 2, "hidden": 2, "top_k": 2}, {}),
    (build.unpermute_tokens, {"tokens": 2, "hidden": 2, "top_k": 2}, {}),
    (build.moe_gating_top_k_softmax, {"tokens": 2, "experts": 2, "top_k": 2}, {}),
    (build.moe_gating_top_k_sigmoid, {"tokens": 2, "experts": 2, "top_k": 2}, {}),
    (build.moe_gating_top_k, {"tokens": 2, "experts": 2, "top_k": 2}, {}),
    (build.moe_gating_top_k_hash, {"tokens": 2, "experts": 2, "top_k": 2, "vocabulary": 2}, {}),
    (build.grouped_matmul, {"k": 2, "n": 2, "experts": 2}, {"rows": 2}),
    (build.fused_experts, {"tokens": 2}, {"sizes": EXPERTS}),
    (build.dispatch_ffn_combine, {"tokens": 2}, {"sizes": EXPERTS, "rank_group": range(4)}),
)
SPOILT = [
    pytest.param(make, {**sizes, **more, name: wrong}, f"{name}: expected ", id=f"{make.__name__}-{name}={wrong}")
    for make, sizes, more in SIZED
    for name in sizes
    for wrong in (0, -2)
]


@pytest.mark.parametrize(("make", "given", "words"), SPOILT)
def test_no_size_may_be_zero_or_negative(make: Callable[..., LeafOp], given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        make(**given)
    assert str(refusal.value).startswith(words)
