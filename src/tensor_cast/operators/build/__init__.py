"""A constructor for every operator of the signature table: sizes in, a leaf operator out.

Sizes are enough to call one; wrong ones raise InvalidValueError with the argument, what was got and what is allowed.
Attributes that only some tables ask for (`model`, `phase`) are added with `records.with_attrs`.
"""

from __future__ import annotations

from tensor_cast.operators.build.activations import add, div, gelu, mul, silu, swiglu, v4_clamped_swiglu
from tensor_cast.operators.build.attention import AttentionSizes, attention, attention_quant
from tensor_cast.operators.build.batch import block_table_shape, cache_blocks
from tensor_cast.operators.build.caches import concat_and_cache_mla, kv_rmsnorm_rope_cache, reshape_and_cache
from tensor_cast.operators.build.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from tensor_cast.operators.build.experts import ExpertSizes, dispatch_ffn_combine, fused_experts, grouped_matmul
from tensor_cast.operators.build.hyper_connections import hc_head, hc_post, hc_pre_inv_rms, hc_pre_sinkhorn
from tensor_cast.operators.build.latent import (
    LatentSizes,
    latent_attention_block,
    latent_bmm,
    mla_sparse_attention,
    mla_sparse_attention_quant,
    mlapo,
    mlapo_quant,
    multihead_latent_attention,
    multihead_latent_attention_quant,
)
from tensor_cast.operators.build.moves import cast, cat, embedding
from tensor_cast.operators.build.norms import (
    add_rms_norm,
    add_rms_norm_dynamic_quant,
    add_rms_norm_quant,
    layer_norm,
    rms_norm,
    rms_norm_dynamic_quant,
    rms_norm_quant,
)
from tensor_cast.operators.build.products import (
    addmm,
    bmm,
    fp8_linear,
    matmul_all_reduce,
    mm,
    mxfp4_linear,
    nvfp4_linear,
    static_quant_linear,
)
from tensor_cast.operators.build.quantise import dynamic_quantize, quantize
from tensor_cast.operators.build.rope import apply_rope, apply_rope_inplace, apply_rope_single, fused_rope
from tensor_cast.operators.build.routing import (
    init_routing_v2,
    moe_gating_top_k,
    moe_gating_top_k_hash,
    moe_gating_top_k_sigmoid,
    moe_gating_top_k_softmax,
    unpermute_tokens,
)
from tensor_cast.operators.build.selection import (
    compressor,
    dsa_indexer,
    quant_lightning_indexer,
    scatter_nd_update_mla,
    sparse_attn_sharedkv,
)

__all__ = [
    "AttentionSizes",
    "ExpertSizes",
    "LatentSizes",
    "add",
    "add_rms_norm",
    "add_rms_norm_dynamic_quant",
    "add_rms_norm_quant",
    "addmm",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "apply_rope",
    "apply_rope_inplace",
    "apply_rope_single",
    "attention",
    "attention_quant",
    "block_table_shape",
    "bmm",
    "cache_blocks",
    "cast",
    "cat",
    "compressor",
    "concat_and_cache_mla",
    "dispatch_ffn_combine",
    "div",
    "dsa_indexer",
    "dynamic_quantize",
    "embedding",
    "fp8_linear",
    "fused_experts",
    "fused_rope",
    "gelu",
    "grouped_matmul",
    "hc_head",
    "hc_post",
    "hc_pre_inv_rms",
    "hc_pre_sinkhorn",
    "init_routing_v2",
    "kv_rmsnorm_rope_cache",
    "latent_attention_block",
    "latent_bmm",
    "layer_norm",
    "matmul_all_reduce",
    "mla_sparse_attention",
    "mla_sparse_attention_quant",
    "mlapo",
    "mlapo_quant",
    "mm",
    "moe_gating_top_k",
    "moe_gating_top_k_hash",
    "moe_gating_top_k_sigmoid",
    "moe_gating_top_k_softmax",
    "mul",
    "multihead_latent_attention",
    "multihead_latent_attention_quant",
    "mxfp4_linear",
    "nvfp4_linear",
    "quant_lightning_indexer",
    "quantize",
    "reduce_scatter",
    "reshape_and_cache",
    "rms_norm",
    "rms_norm_dynamic_quant",
    "rms_norm_quant",
    "scatter_nd_update_mla",
    "silu",
    "sparse_attn_sharedkv",
    "static_quant_linear",
    "swiglu",
    "unpermute_tokens",
    "v4_clamped_swiglu",
]
