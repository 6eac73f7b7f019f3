"""Every operator of attention and its caches with sizes of a model, worked out by hand."""

from __future__ import annotations

from operator_calls import Call
from tensor_cast import Requests
from tensor_cast.operators import build
from tensor_cast.operators.build import AttentionSizes, LatentSizes
from tensor_cast.operators.leaf import AttrValue

TEN_PREFILLS = Requests((4104,) * 10, (4104,) * 10)
TWO_DECODES = Requests((1, 1), (500, 500))
CHUNK = Requests((4096,), (8192,))
QWEN3 = AttentionSizes(4, 1, 128, blocks=321)  # Qwen3-32B at TP16
DEEPSEEK_V3 = LatentSizes(8, 128, 64, 512, 128, 1536)  # at TP16
GLM5 = LatentSizes(4, 192, 64, 512, 256, 2048)  # at TP16
VECTORS = "block_table 2,4 i32; query_start_loc 3 i32; seq_lens 2 i32; query_lens 2 i32"
CONTEXTS = "seq_lens 2 i32; query_lens 2 i32"
V3_WIDTHS: dict[str, AttrValue] = {
    "num_heads": 8,
    "qk_head_dim": 192,
    "qk_nope_dim": 128,
    "qk_rope_dim": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
}
INDEX: dict[str, AttrValue] = {"num_heads": 32, "head_dim": 128, "qk_rope_dim": 64, "topk_limit": 2048}

ATTENTION = (
    Call(
        build.attention(41040, QWEN3, TEN_PREFILLS),
        "tensor_cast.attention.default",
        "query 41040,512 bf16; key 321,128,1,128 bf16; value 321,128,1,128 bf16; "
        "block_table 10,33 i32; query_start_loc 11 i32; seq_lens 10 i32; query_lens 10 i32",
        "41040,512 bf16",
    ),
    Call(
        build.attention(8, AttentionSizes(4, 2, 64, layout="TND"), mask=(1, 1, 8, 8), dtype="fp16"),
        "tensor_cast.attention.default",
        "query 8,4,64 f16; key 8,2,64 f16; value 8,2,64 f16; attention_mask 1,1,8,8 bool",
        "8,4,64 f16",
    ),
    Call(
        build.attention(2, AttentionSizes(8, 1, 512, 9, layout="BNSD"), TWO_DECODES, kv_dtype="fp8"),
        "tensor_cast.attention.default",
        f"query 2,8,1,512 bf16; key 9,1,128,512 fp8; value 9,1,128,512 fp8; {VECTORS}",
        "2,8,1,512 bf16",
    ),
    Call(
        build.attention_quant(2, AttentionSizes(8, 2, 128, 8), TWO_DECODES, offsets=True, out_dtype="bf16"),
        "tensor_cast.attention_quant.default",
        f"query 2,1024 i8; key 8,128,2,128 i8; value 8,128,2,128 i8; {VECTORS}; "
        "query_scale () f32; query_offset () i32; kv_scale () f32; kv_offset () i32; "
        "attention_prob_scale () f32; attention_prob_offset () i32",
        "2,1024 bf16",
        {"out_dtype": "bfloat16"},
    ),
    Call(
        build.attention_quant(3, AttentionSizes(2, 2, 64), Requests((3,), (3,)), dtype="fp8"),
        "tensor_cast.attention_quant.default",
        "query 3,128 fp8; key 3,2,64 fp8; value 3,2,64 fp8; query_start_loc 2 i32; seq_lens 1 i32; query_lens 1 i32; "
        "query_scale () f32; kv_scale () f32; attention_prob_scale () f32",
        "3,128 fp8",
    ),
    Call(
        build.reshape_and_cache(41040, 1, 128, blocks=321),
        "tensor_cast.reshape_and_cache.default",
        "key 41040,128 bf16; value 41040,128 bf16; kv_cache 2,321,128,1,128 bf16; slot_mapping 41040 i64",
        "",
    ),
    Call(
        build.concat_and_cache_mla(8, 512, 64, blocks=257, cache_dtype="int8"),
        "tensor_cast.concat_and_cache_mla.default",
        "kv_c 8,512 bf16; k_rot 8,64 bf16; kv_cache 257,128,576 i8; slot_mapping 8 i64",
        "",
    ),
    Call(
        build.kv_rmsnorm_rope_cache(8, 512, 64, blocks=257),
        "tensor_cast.kv_rmsnorm_rope_cache.default",
        "kv 8,576 bf16; gamma 512 bf16; cos 1,8,64 bf16; sin 1,8,64 bf16; kv_cache 257,128,576 bf16; "
        "slot_mapping 8 i64",
        "8,64 bf16; 8,512 bf16",
        {"kv_lora_rank": 512, "qk_rope_dim": 64, "epsilon": 1e-6},
    ),
    Call(
        build.apply_rope(16, 4, 1, 128),
        "tensor_cast.apply_rope.default",
        "query 1,1,16,128 bf16; key 1,4,16,128 bf16; cos 1,16,128 bf16; sin 1,16,128 bf16",
        "1,16,1,128 bf16; 1,16,4,128 bf16",
        {"is_neox": True},
    ),
    Call(
        build.apply_rope(5, 8, 2, 64, batch=3, key_first=False, is_neox=False),
        "tensor_cast.apply_rope.default",
        "query 3,8,5,64 bf16; key 3,2,5,64 bf16; cos 3,5,64 bf16; sin 3,5,64 bf16",
        "3,5,8,64 bf16; 3,5,2,64 bf16",
        {"is_neox": False},
    ),
    Call(
        build.apply_rope_single(5, 8, 64),
        "tensor_cast.apply_rope_single.default",
        "x 1,8,5,64 bf16; cos 1,5,64 bf16; sin 1,5,64 bf16",
        "1,5,8,64 bf16",
        {"is_neox": True, "transpose_output": True},
    ),
    Call(
        build.apply_rope_single(5, 8, 64, batch=2, transpose_output=False),
        "tensor_cast.apply_rope_single.default",
        "x 2,8,5,64 bf16; cos 2,5,64 bf16; sin 2,5,64 bf16",
        "2,8,5,64 bf16",
        {"is_neox": True, "transpose_output": False},
    ),
    Call(
        build.apply_rope_inplace(3, 64, 512, rope_head_dim=64, inverse=True),
        "tensor_cast.apply_rope_inplace.default",
        "x 1,3,64,512 bf16; cos 1,3,64 bf16; sin 1,3,64 bf16",
        "1,3,64,512 bf16",
        {"is_neox": True, "inverse": True, "rope_head_dim": 64},
    ),
    Call(
        build.apply_rope_inplace(3, None, 512),
        "tensor_cast.apply_rope_inplace.default",
        "x 1,3,512 bf16; cos 1,3,512 bf16; sin 1,3,512 bf16",
        "1,3,512 bf16",
        {"is_neox": True, "inverse": False, "rope_head_dim": -1},
    ),
    Call(
        build.fused_rope(7, 8, 2, 128, rotary_dim=64),
        "tensor_cast.fused_rope.default",
        "query 7,8,128 bf16; key 7,2,128 bf16; cos_sin 7,128 bf16",
        "7,8,128 bf16; 7,2,128 bf16",
        {"rotary_dim": 64, "is_neox_style": True},
    ),
)

LATENT = (
    Call(
        build.mlapo(2, 6144, GLM5),
        "tensor_cast.mlapo.default",
        "hidden 2,6144 bf16; cos 1,2,64 bf16; sin 1,2,64 bf16; q_a_weight 2048,6144 bf16; q_a_norm 2048 bf16; "
        "q_b_weight 1024,2048 bf16; kv_a_weight 576,6144 bf16; kv_a_norm 512 bf16",
        "2,4,256 bf16; 2,512 bf16; 2,64 bf16; 2,2048 bf16",
        {
            "num_heads": 4,
            "qk_head_dim": 256,
            "qk_nope_dim": 192,
            "qk_rope_dim": 64,
            "kv_lora_rank": 512,
            "q_lora_rank": 2048,
        },
    ),
    Call(
        build.mlapo(2, 2048, LatentSizes(16, 128, 64, 512, 128)),
        "tensor_cast.mlapo.default",
        "hidden 2,2048 bf16; cos 1,2,64 bf16; sin 1,2,64 bf16; kv_a_weight 576,2048 bf16; kv_a_norm 512 bf16",
        "2,16,192 bf16; 2,512 bf16; 2,64 bf16; 2,0 bf16",
        V3_WIDTHS | {"num_heads": 16, "q_lora_rank": 0},
    ),
    Call(
        build.mlapo_quant(4096, 7168, DEEPSEEK_V3),
        "tensor_cast.mlapo_quant.default",
        "hidden 4096,7168 bf16; cos 1,4096,64 bf16; sin 1,4096,64 bf16; q_a_weight 1536,7168 i8; q_a_norm 1536 bf16; "
        "q_b_weight 1536,1536 i8; kv_a_weight 576,7168 i8; kv_a_norm 512 bf16; "
        "q_a_scale 1536 f32; q_b_scale 1536 f32; kv_a_scale 576 f32",
        "4096,8,192 bf16; 4096,512 bf16; 4096,64 bf16; 4096,1536 bf16",
        V3_WIDTHS,
    ),
    Call(
        build.mlapo_quant(1, 64, LatentSizes(2, 4, 2, 8, 4, 16), offsets=True),
        "tensor_cast.mlapo_quant.default",
        "hidden 1,64 bf16; cos 1,1,2 bf16; sin 1,1,2 bf16; q_a_weight 16,64 i8; q_a_norm 16 bf16; q_b_weight 12,16 i8; "
        "kv_a_weight 10,64 i8; kv_a_norm 8 bf16; q_a_scale 16 f32; q_a_offset 16 i32; q_b_scale 12 f32; "
        "q_b_offset 12 i32; kv_a_scale 10 f32; kv_a_offset 10 i32",
        "1,2,6 bf16; 1,8 bf16; 1,2 bf16; 1,16 bf16",
        {
            "num_heads": 2,
            "qk_head_dim": 6,
            "qk_nope_dim": 4,
            "qk_rope_dim": 2,
            "kv_lora_rank": 8,
            "q_lora_rank": 16,
        },
    ),
    Call(
        build.multihead_latent_attention(2, DEEPSEEK_V3, TWO_DECODES, blocks=8),
        "tensor_cast.multihead_latent_attention.default",
        f"query 2,8,192 bf16; kv_cache 8,128,576 bf16; {VECTORS}; "
        "w_uk_t 8,128,512 bf16; w_uv 8,512,128 bf16; kv_b_proj 512,2048 bf16",
        "2,8,128 bf16",
        {"v_head_dim": 128},
    ),
    Call(
        build.multihead_latent_attention_quant(
            2, DEEPSEEK_V3, TWO_DECODES, blocks=8, offsets=True, out_scale=True, out_dtype="bf16"
        ),
        "tensor_cast.multihead_latent_attention_quant.default",
        f"query 2,8,192 i8; kv_cache 8,128,576 i8; {VECTORS}; "
        "w_uk_t 8,128,512 i8; w_uv 8,512,128 i8; kv_b_proj 512,2048 i8; "
        "query_scale () f32; query_offset () i32; kv_scale () f32; kv_offset () i32; "
        "kv_projected_scale () f32; kv_projected_offset () i32; qk_scale () f32; qk_offset () i32; "
        "v_scale () f32; v_offset () i32; attention_prob_scale () f32; attention_prob_offset () i32; "
        "kv_b_proj_scale () f32; kv_b_proj_offset () i32; out_scale () f32; out_offset () i32",
        "2,8,128 bf16",
        {"v_head_dim": 128, "out_dtype": "bfloat16"},
    ),
    Call(
        build.mla_sparse_attention(4096, GLM5, CHUNK, topk_limit=2048, blocks=65, is_decode_values=[False]),
        "tensor_cast.mla_sparse_attention.default",
        "query 4096,4,256 bf16; kv_cache 65,128,576 bf16; "
        "block_table 1,64 i32; query_start_loc 2 i32; seq_lens 1 i32; query_lens 1 i32; "
        "w_uk_t 4,192,512 bf16; w_uv 4,512,256 bf16; kv_b_proj 512,1792 bf16; topk_indices 1,4096,2048 i64",
        "4096,4,256 bf16",
        {"v_head_dim": 256, "topk_limit": 2048, "is_decode_values": ("False",)},
    ),
    Call(
        build.mla_sparse_attention_quant(2, GLM5, TWO_DECODES, topk_limit=2048, blocks=8),
        "tensor_cast.mla_sparse_attention_quant.default",
        f"query 2,4,256 i8; kv_cache 8,128,576 i8; {VECTORS}; "
        "w_uk_t 4,192,512 i8; w_uv 4,512,256 i8; kv_b_proj 512,1792 i8; topk_indices 1,2,2048 i64; "
        "query_scale () f32; kv_scale () f32; kv_projected_scale () f32; qk_scale () f32; v_scale () f32; "
        "attention_prob_scale () f32; kv_b_proj_scale () f32",
        "2,4,256 i8",
        {"v_head_dim": 256, "topk_limit": 2048},
    ),
    Call(
        build.latent_bmm(8, 2, 128, 512, stage="pre"),
        "tensor_cast.latent_bmm.default",
        "x 8,2,128 bf16; weight 8,128,512 bf16",
        "8,2,512 bf16",
        {"stage": "pre"},
    ),
    Call(
        build.latent_attention_block(
            2,
            7168,
            TWO_DECODES,
            num_heads=128,
            cache_width=576,
            blocks=8,
            model="deepseek-ai/DeepSeek-V3",
            gemm_type="bfloat16",
        ),
        "tensor_cast.latent_attention_block.default",
        f"hidden 2,7168 bf16; kv_cache 8,128,576 bf16; {CONTEXTS}",
        "2,7168 bf16",
        {"num_heads": 128, "model": "deepseek-ai/DeepSeek-V3", "gemm_type": "bfloat16"},
    ),
)

SELECTION = (
    Call(
        build.dsa_indexer(
            2,
            6144,
            q_lora_rank=2048,
            index_heads=32,
            topk_limit=2048,
            blocks=8,
            requests=Requests((1, 1), (500, 500), block_table_shape=(2, 4)),
            is_decode_values=(True, True),
            wq_b_dtype="int8",
        ),
        "tensor_cast.dsa_indexer.default",
        "hidden 1,2,6144 bf16; qa_normed 1,2,2048 bf16; cos 1,2,64 bf16; sin 1,2,64 bf16; "
        "indexer_cache 8,128,128 bf16; "
        "slot_mapping 2 i64; block_table 2,4 i32; seq_lens 2 i32; wq_b 4096,2048 i8; wk 128,6144 bf16; "
        "weights_proj 32,6144 bf16; k_norm 128 bf16; query_lens 2 i32",
        "1,2,2048 i64",
        INDEX | {"is_decode_values": ("True", "True")},
    ),
    Call(
        build.dsa_indexer(4, 7168, q_lora_rank=1536, index_heads=64, topk_limit=2048, blocks=8, cache_dtype="fp8"),
        "tensor_cast.dsa_indexer.default",
        "hidden 1,4,7168 bf16; qa_normed 1,4,1536 bf16; cos 1,4,64 bf16; sin 1,4,64 bf16; "
        "indexer_cache 8,128,128 fp8; "
        "slot_mapping 4 i64; wq_b 8192,1536 bf16; wk 128,7168 bf16; weights_proj 64,7168 bf16; k_norm 128 bf16",
        "1,4,2048 i64",
        INDEX | {"num_heads": 64},
    ),
    Call(  # 8192 // 4 = 2048 entries, of which 512 are asked for
        build.quant_lightning_indexer(4096, 64, topk_limit=512, blocks=65, requests=CHUNK, weights_dtype="fp32"),
        "tensor_cast.quant_lightning_indexer.default",
        "query 1,4096,64,128 bf16; weights 1,4096,64 f32; indexer_cache 65,128,128 bf16; seq_lens 1 i32; "
        "query_lens 1 i32",
        "1,4096,512 i64",
        {"topk_limit": 512, "tp_world_size": 1},
    ),
    Call(  # 500 // 4 = 125
        build.quant_lightning_indexer(1, 4, topk_limit=512, blocks=8, requests=TWO_DECODES, batch=2, tp_world_size=16),
        "tensor_cast.quant_lightning_indexer.default",
        f"query 2,1,4,128 bf16; weights 2,1,4 bf16; indexer_cache 8,128,128 bf16; {CONTEXTS}",
        "2,1,125 i64",
        {"topk_limit": 512, "tp_world_size": 16},
    ),
    Call(  # three tokens hold no whole four
        build.quant_lightning_indexer(3, 4, topk_limit=512, blocks=8),
        "tensor_cast.quant_lightning_indexer.default",
        "query 1,3,4,128 bf16; weights 1,3,4 bf16; indexer_cache 8,128,128 bf16",
        "1,3,1 i64",
        {"topk_limit": 512, "tp_world_size": 1},
    ),
    Call(  # 1022 // 4 = 255 compressed keys behind the fresh ones; 128 of the window and 255 selected
        build.sparse_attn_sharedkv(
            1022, 4, index_width=383, blocks=8, prefill=True, compress_ratio=4, cache_dtype="fp8", softmax_scale=0.125
        ),
        "tensor_cast.sparse_attn_sharedkv.default",
        "query 1,1022,4,512 bf16; kv 1,1277,512 bf16; attn_sink 4 f32; topk_indices 1,1022,383 i32; "
        "kv_dependency 8,128,512 fp8",
        "1,1022,4,512 bf16",
        {"softmax_scale": 0.125, "head_dim": 512},
    ),
    Call(
        build.sparse_attn_sharedkv(
            1, 4, index_width=128, blocks=8, prefill=False, batch=2, head_dim=256, cache_dtype="fp8", sink=False
        ),
        "tensor_cast.sparse_attn_sharedkv.default",
        "query 2,1,4,256 bf16; kv 8,128,256 fp8; attn_sink 0 f32; topk_indices 2,1,128 i32",
        "2,1,4,256 fp8",
        {"softmax_scale": 0.0625, "head_dim": 256},
    ),
    Call(
        build.scatter_nd_update_mla(104, blocks=8, slots=1000, window_size=104, requests=Requests((1000,), (1000,))),
        "tensor_cast.scatter_nd_update_mla.default",
        "update 1,104,512 bf16; cache 8,128,512 bf16; index 1000 i64; seq_lens 1 i32",
        "8,128,512 bf16",
        {"window_size": 104},
    ),
    Call(
        build.scatter_nd_update_mla(1, 128, blocks=1766, batch=2, cache_dtype="int8"),
        "tensor_cast.scatter_nd_update_mla.default",
        "update 2,1,128 bf16; cache 1766,128,128 i8; index 2 i64",
        "1766,128,128 i8",
    ),
    Call(
        build.compressor(1022, 4096, compress_ratio=4, head_dim=128, blocks=8, rotate=True),
        "tensor_cast.compressor.default",
        "hidden 1,1022,4096 bf16; kv_cache 8,128,128 bf16",
        "1,255,128 bf16; 8,128,128 bf16",
        {"compress_ratio": 4, "head_dim": 128, "rope_head_dim": 64, "rotate": True},
    ),
    Call(
        build.compressor(
            1, 4096, compress_ratio=128, head_dim=512, blocks=8, rotate=False, batch=2, requests=TWO_DECODES
        ),
        "tensor_cast.compressor.default",
        f"hidden 2,1,4096 bf16; kv_cache 8,128,512 bf16; {CONTEXTS}",
        "2,1,512 bf16; 8,128,512 bf16",
        {"compress_ratio": 128, "head_dim": 512, "rope_head_dim": 64, "rotate": False},
    ),
    Call(
        build.compressor(127, 4096, compress_ratio=128, head_dim=512, blocks=8, rotate=False),
        "tensor_cast.compressor.default",
        "hidden 1,127,4096 bf16; kv_cache 8,128,512 bf16",
        "1,0,512 bf16; 8,128,512 bf16",
        {"compress_ratio": 128, "head_dim": 512, "rope_head_dim": 64, "rotate": False},
    ),
    Call(
        build.hc_pre_inv_rms(6, 4096, hc_mult=4),
        "tensor_cast.hc_pre_inv_rms.default",
        "x 1,6,4,4096 bf16",
        "1,6,1 f32",
        {"hc_mult": 4},
    ),
    Call(  # (2 + 4) * 4 = 24
        build.hc_pre_sinkhorn(6, 4096, hc_mult=4, sinkhorn_iters=20, batch=2),
        "tensor_cast.hc_pre_sinkhorn.default",
        "x 2,6,24 f32; hidden 2,6,4,4096 bf16; hc_scale 3 f32; hc_base 24 f32",
        "2,6,4096 bf16; 2,6,4 f32; 2,6,4,4 f32",
        {"hc_mult": 4, "sinkhorn_iters": 20, "hc_eps": 1e-6},
    ),
    Call(
        build.hc_post(6, 4096, hc_mult=4),
        "tensor_cast.hc_post.default",
        "x 1,6,4096 bf16; residual 1,6,4,4096 bf16; hc_weight 1,6,4 f32; hc_combine 1,6,4,4 f32",
        "1,6,4,4096 bf16",
        {"hc_mult": 4},
    ),
    Call(
        build.hc_post(6, 4096, hc_mult=2, weighted=False),
        "tensor_cast.hc_post.default",
        "x 1,6,4096 bf16; residual 1,6,2,4096 bf16",
        "1,6,2,4096 bf16",
        {"hc_mult": 2},
    ),
    Call(
        build.hc_head(6, 4096, hc_mult=4),
        "tensor_cast.hc_head.default",
        "x 1,6,4,4096 bf16; fn 4,16384 f32; scale 1 f32; base 4 f32",
        "1,6,4096 bf16",
        {"hc_mult": 4, "hc_eps": 1e-6},
    ),
)
CALLS = (*ATTENTION, *LATENT, *SELECTION)
