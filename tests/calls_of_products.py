"""Every operator of the products, norms and quantisations with sizes of a model, worked out by hand."""

from __future__ import annotations

from operator_calls import GROUP, PAIR, Call
from tensor_cast.operators import build
from tensor_cast.operators.build.quantise import DynamicForm
from tensor_cast.operators.leaf import AttrValue

STATIC: dict[str, AttrValue] = {"eps": 1e-6, "out_dtype": "int8"}
SCALED: dict[str, AttrValue] = {"eps": 1e-6, "dims": (-1,), "scale_dtype": "float32", "out_dtype": "int8"}

LINEAR = (
    Call(build.mm(16, 5120, 768), "aten.mm.default", "x 16,5120 bf16; weight 5120,768 bf16", "16,768 bf16"),
    Call(
        build.addmm(16, 64, 32, dtype="fp16"),
        "aten.addmm.default",
        "bias 32 f16; x 16,64 f16; weight 64,32 f16",
        "16,32 f16",
    ),
    Call(
        build.bmm(8, 2, 128, 512),
        "aten.bmm.default",
        "x 8,2,128 bf16; weight 8,128,512 bf16",
        "8,2,512 bf16",
    ),
    Call(
        build.matmul_all_reduce(16, 512, 5120, rank_group=range(16), bias=True),
        "tensor_cast.matmul_all_reduce.default",
        "x 16,512 bf16; weight 512,5120 bf16; bias 5120 bf16",
        "16,5120 bf16",
        {"rank": 0, "rank_group": tuple(range(16))},
    ),
    Call(
        build.static_quant_linear(16, 5120, 768, out_dtype="bf16"),
        "tensor_cast.static_quant_linear.default",
        "x 16,5120 i8; weight 5120,768 i8; w_scale 768 f32; x_scale 16,1 f32",
        "16,768 bf16",
        {"out_dtype": "bfloat16"},
    ),
    Call(
        build.static_quant_linear(16, 64, 32, w_scale="tensor", x_scale="tensor", offsets=True, bias=True),
        "tensor_cast.static_quant_linear.default",
        "x 16,64 i8; weight 64,32 i8; w_scale () f32; w_offset () i32; x_scale () f32; x_offset () i32; bias 32 i8",
        "16,32 i8",
    ),
    Call(
        build.static_quant_linear(16, 64, 32, x_scale=None, offsets=True, x_dtype="bf16"),
        "tensor_cast.static_quant_linear.default",
        "x 16,64 bf16; weight 64,32 i8; w_scale 32 f32; w_offset 32 i32",
        "16,32 bf16",
    ),
    Call(
        build.static_quant_linear(16, 64, 32, packed=True, out_dtype="fp16"),
        "tensor_cast.static_quant_linear_int4.default",
        "x 16,64 i8; weight 32,32 i8; w_scale 32 f32; x_scale 16,1 f32",
        "16,32 f16",
        {"out_dtype": "float16"},
    ),
    Call(
        build.static_quant_linear(16, 64, 32, rank_group=PAIR),
        "tensor_cast.static_quant_linear_all_reduce.default",
        "x 16,64 i8; weight 64,32 i8; w_scale 32 f32; x_scale 16,1 f32",
        "16,32 i8",
        GROUP,
    ),
    Call(
        build.static_quant_linear(16, 64, 32, packed=True, rank_group=PAIR, rank=1, out_dtype="bf16"),
        "tensor_cast.static_quant_linear_int4_all_reduce.default",
        "x 16,64 i8; weight 32,32 i8; w_scale 32 f32; x_scale 16,1 f32",
        "16,32 bf16",
        {"rank": 1, "rank_group": PAIR, "out_dtype": "bfloat16"},
    ),
    Call(
        build.fp8_linear(16, 64, 32),
        "tensor_cast.fp8_linear.default",
        "x 16,64 fp8; weight 64,32 fp8; x_scale 16,1 f32; w_scale 32 f32",
        "16,32 f16",
        {"out_dtype": "float16"},
    ),
    Call(
        build.fp8_linear(16, 64, 32, scale="tensor", bias=True, rank_group=PAIR),
        "tensor_cast.fp8_linear_all_reduce.default",
        "x 16,64 fp8; weight 64,32 fp8; x_scale () f32; w_scale () f32; bias 32 f16",
        "16,32 f16",
        {"out_dtype": "float16", **GROUP},
    ),
    Call(  # 7168 / 128 = 56 and 576 / 128 = 4.5
        build.fp8_linear(16, 7168, 576, scale=128, out_dtype="bf16"),
        "tensor_cast.fp8_linear.default",
        "x 16,7168 fp8; weight 7168,576 fp8; x_scale 16,56 f32; w_scale 56,5 f32",
        "16,576 bf16",
        {"out_dtype": "bfloat16"},
    ),
    Call(  # 80 / 32 = 2.5
        build.mxfp4_linear(16, 80, 48, bias=True),
        "tensor_cast.mxfp4_linear.default",
        "x 16,80 f4; weight 80,48 f4; x_scale 16,3 e8m0; w_scale 48,3 e8m0; bias 48 f16",
        "16,48 f16",
        {"out_dtype": "float16"},
    ),
    Call(
        build.mxfp4_linear(16, 64, 48, rank_group=PAIR),
        "tensor_cast.mxfp4_linear_all_reduce.default",
        "x 16,64 f4; weight 64,48 f4; x_scale 16,2 e8m0; w_scale 48,2 e8m0",
        "16,48 f16",
        {"out_dtype": "float16", **GROUP},
    ),
    Call(
        build.nvfp4_linear(16, 64, 48),
        "tensor_cast.nvfp4_linear.default",
        "x 16,64 f4; weight 64,48 f4; x_scale 16,4 fp8; w_scale 48,4 fp8",
        "16,48 bf16",
        {"out_dtype": "bfloat16"},
    ),
)

DYNAMIC: tuple[tuple[DynamicForm, str, dict[str, AttrValue]], ...] = (
    ("symmetric", "16,64 i8; 16,1 f32", SCALED),
    ("asymmetric", "16,64 i8; 16,1 f32; 16,1 i32", SCALED),
    ("mxfp4", "16,64 i4; 16,2 e8m0", {"eps": 1e-6, "group_size": 32}),
)
ROWS = (
    Call(
        build.quantize(16, 1536),
        "tensor_cast.quantize.default",
        "x 16,1536 bf16; scale () f32",
        "16,1536 i8",
        {"out_dtype": "int8"},
    ),
    Call(
        build.quantize((16, 8), 128, scale="channel", offset=True, out_dtype="fp8"),
        "tensor_cast.quantize.default",
        "x 16,8,128 bf16; scale 128 f32; offset 128 i32",
        "16,8,128 fp8",
        {"out_dtype": "float8_e4m3fn"},
    ),
    Call(
        build.dynamic_quantize((1, 16), 1600),
        "tensor_cast.dynamic_quantize_symmetric.default",
        "x 1,16,1600 bf16",
        "1,16,1600 i8; 1,16,1 f32",
        {"dims": (-1,), "scale_dtype": "float32", "out_dtype": "int8"},
    ),
    Call(
        build.dynamic_quantize(16, 512, dims=()),
        "tensor_cast.dynamic_quantize_symmetric.default",
        "x 16,512 bf16",
        "16,512 i8; () f32",
        {"dims": (), "scale_dtype": "float32", "out_dtype": "int8"},
    ),
    Call(
        build.dynamic_quantize(16, 512, form="asymmetric", dims=(0, 1), dtype="fp16"),
        "tensor_cast.dynamic_quantize_asymmetric.default",
        "x 16,512 f16",
        "16,512 i8; 1,1 f32; 1,1 i32",
        {"dims": (0, 1), "scale_dtype": "float32", "out_dtype": "int8"},
    ),
    Call(  # 80 / 32 = 2.5
        build.dynamic_quantize((2, 8), 80, form="mxfp4"),
        "tensor_cast.dynamic_quantize_mxfp4.default",
        "x 2,8,80 bf16",
        "2,8,80 i4; 2,8,3 e8m0",
        {"group_size": 32},
    ),
    Call(
        build.dynamic_quantize((2, 8), 64, form="mxfp4", group_size=16, scale_per_row=False),
        "tensor_cast.dynamic_quantize_mxfp4.default",
        "x 2,8,64 bf16",
        "2,8,64 i4; 4 e8m0",
        {"group_size": 16},
    ),
    Call(
        build.rms_norm((1, 16, 4), 128),
        "tensor_cast.rms_norm.default",
        "x 1,16,4,128 bf16; weight 128 bf16",
        "1,16,4,128 bf16",
        {"eps": 1e-6},
    ),
    Call(
        build.add_rms_norm(16, 5120, eps=1e-5),
        "tensor_cast.add_rms_norm.default",
        "x 16,5120 bf16; residual 16,5120 bf16; weight 5120 bf16",
        "16,5120 bf16",
        {"eps": 1e-5},
    ),
    Call(
        build.add_rms_norm((1, 16), 5120, residual_out=True, residual_tokens=16),
        "tensor_cast.add_rms_norm2.default",
        "x 1,16,5120 bf16; residual 16,5120 bf16; weight 5120 bf16",
        "1,16,5120 bf16; 1,16,5120 bf16",
        {"eps": 1e-6},
    ),
    Call(
        build.rms_norm_quant(16, 64),
        "tensor_cast.rms_norm_quant.default",
        "x 16,64 bf16; weight 64 bf16; quant_scale () f32; quant_offset () i32",
        "16,64 i8",
        STATIC,
    ),
    Call(
        build.add_rms_norm_quant(16, 64),
        "tensor_cast.add_rms_norm_quant.default",
        "x 16,64 bf16; residual 16,64 bf16; weight 64 bf16; quant_scale () f32; quant_offset () i32",
        "16,64 i8",
        STATIC,
    ),
    Call(
        build.add_rms_norm_quant((1, 16), 64, residual_out=True, residual_tokens=16),
        "tensor_cast.add_rms_norm_quant2.default",
        "x 1,16,64 bf16; residual 16,64 bf16; weight 64 bf16; quant_scale () f32; quant_offset () i32",
        "1,16,64 i8; 1,16,64 bf16",
        STATIC,
    ),
    Call(
        build.rms_norm_dynamic_quant(16, 64),
        "tensor_cast.rms_norm_dynamic_quant_symmetric.default",
        "x 16,64 bf16; weight 64 bf16",
        "16,64 i8; 16,1 f32",
        SCALED,
    ),
    Call(
        build.rms_norm_dynamic_quant(16, 64, form="asymmetric", dims=()),
        "tensor_cast.rms_norm_dynamic_quant_asymmetric.default",
        "x 16,64 bf16; weight 64 bf16",
        "16,64 i8; () f32; () i32",
        SCALED | {"dims": ()},
    ),
    Call(
        build.rms_norm_dynamic_quant(16, 64, form="mxfp4"),
        "tensor_cast.rms_norm_dynamic_quant_mxfp4.default",
        "x 16,64 bf16; weight 64 bf16",
        "16,64 i4; 16,2 e8m0",
        {"eps": 1e-6, "group_size": 32},
    ),
    *(
        Call(
            build.add_rms_norm_dynamic_quant(16, 64, form=form, residual_out=two),
            f"tensor_cast.add_rms_norm_dynamic_quant{'2' if two else ''}_{form}.default",
            "x 16,64 bf16; residual 16,64 bf16; weight 64 bf16",
            f"{made}; 16,64 bf16" if two else made,
            attrs,
        )
        for form, made, attrs in DYNAMIC
        for two in (False, True)
    ),
    Call(
        build.layer_norm(2, 128, dtype="fp32"),
        "aten.native_layer_norm.default",
        "x 2,128 f32; weight 128 f32; bias 128 f32",
        "2,128 f32; 2,1 f32; 2,1 f32",
        {"normalized_shape": (128,), "eps": 1e-6},
    ),
    Call(
        build.layer_norm((2, 3), 128, weight=False, bias=False),
        "aten.native_layer_norm.default",
        "x 2,3,128 bf16",
        "2,3,128 bf16; 2,3,1 f32; 2,3,1 f32",
        {"normalized_shape": (128,), "eps": 1e-6},
    ),
    Call(
        build.swiglu((1, 16), 1600),
        "tensor_cast.swiglu.default",
        "gate 1,16,1600 bf16; up 1,16,1600 bf16",
        "1,16,1600 bf16",
    ),
    Call(
        build.v4_clamped_swiglu(16, 2048, swiglu_limit=7.0),
        "tensor_cast.v4_clamped_swiglu.default",
        "gate 16,2048 bf16; up 16,2048 bf16",
        "16,2048 bf16",
        {"swiglu_limit": 7.0},
    ),
    Call(build.silu(16, 64), "tensor_cast.silu.default", "x 16,64 bf16", "16,64 bf16"),
    Call(build.gelu((2, 8), 64), "tensor_cast.gelu.default", "x 2,8,64 bf16", "2,8,64 bf16"),
    Call(build.add((16, 64), (64,)), "aten.add.Tensor", "x 16,64 bf16; other 64 bf16", "16,64 bf16"),
    Call(build.mul((1, 16, 64), 0.5), "aten.mul.Tensor", "x 1,16,64 bf16", "1,16,64 bf16", {"other": 0.5}),
    Call(  # the weights of eight experts a token
        build.mul((16, 8, 64), (16, 8, 1)), "aten.mul.Tensor", "x 16,8,64 bf16; other 16,8,1 bf16", "16,8,64 bf16"
    ),
    Call(build.div((16, 1), (1, 64), dtype="fp32"), "aten.div.Tensor", "x 16,1 f32; other 1,64 f32", "16,64 f32"),
    Call(build.div((4,), ()), "aten.div.Tensor", "x 4 bf16; other () bf16", "4 bf16"),
    Call(
        build.cat([(16, 512), (16, 64)], dim=-1),
        "tensor_cast.cat.default",
        "tensors 16,512 bf16; tensors 16,64 bf16",
        "16,576 bf16",
        {"dim": -1},
    ),
    Call(
        build.cat([(16, 64)] * 3, namespace="aten"),
        "aten.cat.default",
        "tensors*3 16,64 bf16",
        "48,64 bf16",
        {"dim": 0},
    ),
    Call(
        build.embedding(16, 151936, 5120),
        "aten.embedding.default",
        "weight 151936,5120 bf16; indices 1,16 i64",
        "1,16,5120 bf16",
    ),
    Call(build.cast((16, 64), "bf16", "fp32"), "aten.to.dtype", "16,64 bf16", "16,64 f32", {"dtype": "float32"}),
)

CALLS = (*LINEAR, *ROWS)
