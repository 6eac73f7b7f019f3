"""Every operator of experts and every collective with sizes of a model, worked out by hand."""

from __future__ import annotations

from operator_calls import GROUP, PAIR, Call
from tensor_cast.operators import build
from tensor_cast.operators.build import ExpertSizes
from tensor_cast.operators.leaf import AttrValue

SMALL = ExpertSizes(2, 64, 32, 3)  # two experts of (64, 64) and (32, 64), three for each token
V3 = ExpertSizes(16, 7168, 2048, 8)  # DeepSeek-V3 at EP16
ROUTED: dict[str, AttrValue] = {"top_k": 8, "normalize_weights": True, "route_scale": 1.0}

EXPERTS = (
    Call(
        build.init_routing_v2(512, 2048, 8),
        "tensor_cast.init_routing_v2.default",
        "x 512,2048 bf16; topk_indices 512,8 i64",
        "4096,2048 bf16",
    ),
    Call(
        build.unpermute_tokens(512, 2048, 8),
        "tensor_cast.unpermute_tokens.default",
        "x 4096,2048 bf16; topk_indices 512,8 i64",
        "512,8,2048 bf16",
    ),
    Call(
        build.moe_gating_top_k_softmax(512, 128, 8),
        "tensor_cast.moe_gating_top_k_softmax.default",
        "x 512,128 bf16",
        "512,8 bf16; 512,8 i64",
        {"top_k": 8},
    ),
    Call(
        build.moe_gating_top_k_sigmoid(512, 256, 8, routed_scaling_factor=2.5, correction_bias=True, dtype="fp32"),
        "tensor_cast.moe_gating_top_k_sigmoid.default",
        "x 512,256 f32; correction_bias 256 f32",
        "512,8 f32; 512,8 i64",
        {"top_k": 8, "routed_scaling_factor": 2.5},
    ),
    Call(
        build.moe_gating_top_k(512, 256, 8, bias=True),
        "tensor_cast.moe_gating_top_k.default",
        "scores 512,256 f32; bias 256 f32",
        "512,8 f32; 512,8 i64",
        ROUTED,
    ),
    Call(
        build.moe_gating_top_k_hash(512, 256, 8, vocabulary=129280),
        "tensor_cast.moe_gating_top_k_hash.default",
        "scores 512,256 f32; input_ids 512 i64; tid2eid 129280,8 i64",
        "512,8 f32; 512,8 i64",
        ROUTED,
    ),
    Call(
        build.grouped_matmul((3, 0), 64, 32, experts=2, bias=True),
        "tensor_cast.grouped_matmul.default",
        "x 3,64 bf16; x 0,64 bf16; weight*2 64,32 bf16; bias*2 32 bf16",
        "3,32 bf16",
    ),
    Call(
        build.grouped_matmul(3, 64, 32, experts=2, swiglu=True, dtype="fp16"),
        "tensor_cast.grouped_matmul_swiglu.default",
        "x*2 3,64 f16; weight*2 64,32 f16",
        "6,16 f16",
    ),
    Call(
        build.grouped_matmul(512, 2048, 1536, experts=8, quant="w8a8", out_dtype="bf16"),
        "tensor_cast.grouped_matmul_quant.default",
        "x*8 512,2048 i8; weight*8 2048,1536 i8; w_scale*8 1536 f32; x_scale*8 512,1 f32",
        "4096,1536 bf16",
        {"out_dtype": "bfloat16"},
    ),
    Call(
        build.grouped_matmul(3, 64, 32, experts=2, quant="w8a8", swiglu=True, stacked=True, offsets=True),
        "tensor_cast.grouped_matmul_quant_swiglu.default",
        "x 6,64 i8; weight 2,64,32 i8; w_scale 2,32 f32; w_offset 2,32 i32; x_scale 6,1 f32; x_offset 6,1 i32",
        "6,16 i8",
    ),
    Call(
        build.grouped_matmul(3, 64, 32, experts=2, quant="int4"),
        "tensor_cast.grouped_matmul_quant_int4.default",
        "x*2 3,64 i8; weight*2 32,32 i8; w_scale*2 32 f32; x_scale*2 3,1 f32",
        "6,32 i8",
    ),
    Call(
        build.grouped_matmul(3, 64, 32, experts=2, quant="int4", swiglu=True, stacked=True, bias=True),
        "tensor_cast.grouped_matmul_quant_int4_swiglu.default",
        "x 6,64 i8; weight 2,32,32 i8; w_scale 2,32 f32; x_scale 6,1 f32; bias 2,32 i8",
        "6,16 i8",
    ),
    Call(
        build.grouped_matmul(3, 64, 32, experts=2, quant="fp8"),
        "tensor_cast.grouped_matmul_fp8.default",
        "x*2 3,64 fp8; weight*2 64,32 fp8; w_scale*2 32 f32; x_scale*2 3,1 f32",
        "6,32 f16",
    ),
    Call(
        build.grouped_matmul(3, 64, 32, experts=2, quant="fp8", swiglu=True, out_dtype="bf16"),
        "tensor_cast.grouped_matmul_fp8_swiglu.default",
        "x*2 3,64 fp8; weight*2 64,32 fp8; w_scale*2 32 f32; x_scale*2 3,1 f32",
        "6,16 bf16",
        {"out_dtype": "bfloat16"},
    ),
    Call(
        build.grouped_matmul(3, 64, 48, experts=2, quant="mxfp4"),
        "tensor_cast.grouped_matmul_mxfp4.default",
        "x*2 3,64 f4; weight*2 64,48 f4; w_scale*2 48,2 e8m0; x_scale*2 3,2 e8m0",
        "6,48 f16",
    ),
    Call(
        build.grouped_matmul(3, 64, 48, experts=2, quant="mxfp4", swiglu=True, stacked=True),
        "tensor_cast.grouped_matmul_mxfp4_swiglu.default",
        "x 6,64 f4; weight 2,64,48 f4; w_scale 2,48,2 e8m0; x_scale 6,2 e8m0",
        "6,24 f16",
    ),
    Call(
        build.dispatch_ffn_combine((2, 5), SMALL, rank_group=PAIR),
        "tensor_cast.dispatch_ffn_combine.default",
        "x 2,5,64 bf16; expert_indices 2,5,3 i64; gmm1_weight*2 64,64 bf16; gmm2_weight*2 32,64 bf16",
        "2,5,3,64 bf16",
        GROUP,
    ),
    Call(
        build.dispatch_ffn_combine(256, V3, rank_group=range(16), rank=3, quant="w8a8"),
        "tensor_cast.dispatch_ffn_combine_quant.default",
        "x 256,7168 bf16; expert_indices 256,8 i64; gmm1_weight*16 7168,4096 i8; gmm1_scale*16 4096 f32; "
        "gmm2_weight*16 2048,7168 i8; gmm2_scale*16 7168 f32",
        "256,8,7168 bf16",
        {"rank": 3, "rank_group": tuple(range(16))},
    ),
    Call(
        build.dispatch_ffn_combine(5, SMALL, rank_group=PAIR, quant="int4", stacked=True, gmm2_out_dtype="bfloat16"),
        "tensor_cast.dispatch_ffn_combine_quant_int4.default",
        "x 5,64 bf16; expert_indices 5,3 i64; gmm1_weight 2,32,64 i8; gmm1_scale 2,64 f32; gmm2_weight 2,16,64 i8; "
        "gmm2_scale 2,64 f32",
        "5,3,64 bf16",
        {**GROUP, "gmm2_out_dtype": "bfloat16"},
    ),
    Call(
        build.dispatch_ffn_combine(5, SMALL, rank_group=PAIR, quant="fp8", scales=False),
        "tensor_cast.dispatch_ffn_combine_fp8.default",
        "x 5,64 bf16; expert_indices 5,3 i64; gmm1_weight*2 64,64 fp8; gmm2_weight*2 32,64 fp8",
        "5,3,64 bf16",
        GROUP,
    ),
    Call(  # 64 / 32 = 2 groups of the hidden size, 32 / 32 = 1 of the inner one
        build.dispatch_ffn_combine(5, SMALL, rank_group=PAIR, quant="mxfp4"),
        "tensor_cast.dispatch_ffn_combine_mxfp4.default",
        "x 5,64 bf16; expert_indices 5,3 i64; gmm1_weight*2 64,64 f4; gmm1_scale*2 64,2 e8m0; gmm2_weight*2 32,64 f4; "
        "gmm2_scale*2 64,1 e8m0",
        "5,3,64 bf16",
        GROUP,
    ),
    Call(
        build.fused_experts(64, ExpertSizes(16, 2048, 768, 8), weight_dtype="fp8"),
        "tensor_cast.fused_experts.default",
        "x 64,2048 bf16; topk_indices 64,8 i64; gmm1_weight 16,2048,1536 fp8; gmm2_weight 16,768,2048 fp8",
        "64,2048 bf16",
    ),
)

COLLECTIVES = (
    Call(
        build.all_reduce((16, 5120), rank_group=PAIR),
        "tensor_cast.all_reduce.default",
        "x 16,5120 bf16",
        "16,5120 bf16",
        GROUP,
    ),
    Call(
        build.all_gather((1, 16, 9496), rank_group=range(4, 20), dim=-1, rank=5),
        "tensor_cast.all_gather.default",
        "x 1,16,9496 bf16",
        "1,16,151936 bf16",
        {"dim": -1, "rank": 5, "rank_group": tuple(range(4, 20))},
    ),
    Call(
        build.reduce_scatter((16, 5120), rank_group=PAIR, dtype="fp32"),
        "tensor_cast.reduce_scatter.default",
        "x 16,5120 f32",
        "8,5120 f32",
        {"dim": 0, **GROUP},
    ),
    Call(
        build.all_to_all((4096, 2048), rank_group=PAIR),
        "tensor_cast.all_to_all.default",
        "x 4096,2048 bf16",
        "4096,2048 bf16",
        {"output_split_sizes": (2048, 2048), "input_split_sizes": (2048, 2048), **GROUP},
    ),
    Call(
        build.all_to_all((5, 64), rank_group=PAIR, input_splits=(2, 3), output_splits=(0, 7)),
        "tensor_cast.all_to_all.default",
        "x 5,64 bf16",
        "7,64 bf16",
        {"output_split_sizes": (0, 7), "input_split_sizes": (2, 3), **GROUP},
    ),
)
CALLS = (*EXPERTS, *COLLECTIVES)
