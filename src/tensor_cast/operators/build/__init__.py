"""A typed constructor for every operator: sizes in, a leaf with roles, outputs and attributes out."""

from tensor_cast.operators.build.attention import attention, attention_quant
from tensor_cast.operators.build.caches import concat_and_cache_mla, kv_rmsnorm_rope_cache, reshape_and_cache
from tensor_cast.operators.build.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from tensor_cast.operators.build.deepseek_v4 import (
    compressor,
    hc_head,
    hc_post,
    hc_pre_inv_rms,
    hc_pre_sinkhorn,
    quant_lightning_indexer,
    scatter_nd_update_mla,
    sparse_attn_sharedkv,
    v4_clamped_swiglu,
)
from tensor_cast.operators.build.elementwise import activation, cat, elementwise, embedding, swiglu
from tensor_cast.operators.build.experts import (
    dispatch_ffn_combine,
    grouped_matmul,
    init_routing_v2,
    moe_gating,
    unpermute_tokens,
)
from tensor_cast.operators.build.latent import (
    LatentSizes,
    dsa_indexer,
    mla_sparse_attention,
    mlapo,
    multihead_latent_attention,
)
from tensor_cast.operators.build.norms import (
    add_rms_norm,
    dynamic_quantize,
    native_layer_norm,
    quantize,
    rms_norm,
    rms_norm_dynamic_quant,
    rms_norm_quant,
)
from tensor_cast.operators.build.products import addmm, bmm, linear, matmul_all_reduce, mm
from tensor_cast.operators.build.rope import apply_rope, apply_rope_inplace, apply_rope_single, fused_rope

__all__ = [
    "LatentSizes",
    "activation",
    "add_rms_norm",
    "addmm",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "apply_rope",
    "apply_rope_inplace",
    "apply_rope_single",
    "attention",
    "attention_quant",
    "bmm",
    "cat",
    "compressor",
    "concat_and_cache_mla",
    "dispatch_ffn_combine",
    "dsa_indexer",
    "dynamic_quantize",
    "elementwise",
    "embedding",
    "fused_rope",
    "grouped_matmul",
    "hc_head",
    "hc_post",
    "hc_pre_inv_rms",
    "hc_pre_sinkhorn",
    "init_routing_v2",
    "kv_rmsnorm_rope_cache",
    "linear",
    "matmul_all_reduce",
    "mla_sparse_attention",
    "mlapo",
    "mm",
    "moe_gating",
    "multihead_latent_attention",
    "native_layer_norm",
    "quant_lightning_indexer",
    "quantize",
    "reduce_scatter",
    "reshape_and_cache",
    "rms_norm",
    "rms_norm_dynamic_quant",
    "rms_norm_quant",
    "scatter_nd_update_mla",
    "sparse_attn_sharedkv",
    "swiglu",
    "unpermute_tokens",
    "v4_clamped_swiglu",
]
