"""Operators as GPU tables know them: builders, and rows of the real tables that answer them."""

from __future__ import annotations

from functools import cache
from typing import Any

from support import SHARED
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.records import leaf_from_json
from tensor_cast.performance_model.profiling_database.columns.facts import ColumnFacts, describe
from tensor_cast.performance_model.profiling_database.data_source import Miss
from tensor_cast.performance_model.profiling_database.mapping import op_mapping
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

REAL = SHARED / "data" / "aiconfigurator"


def tensors(*pairs: tuple[list[int], str]) -> list[dict[str, Any]]:
    return [{"shape": shape, "dtype": dtype} for shape, dtype in pairs]


def leaf(op: str, inputs: list[dict[str, Any]], **more: Any) -> LeafOp:
    return leaf_from_json({"op": op, "inputs": inputs, **more})


@cache
def shipped() -> dict[str, OperatorEntry]:
    """The entries of every framework's mapping; what they say of an operator's operands is the same in all."""
    data = op_mapping.SHIPPED_MAPPINGS / "gpu"
    return {
        name: entry
        for framework in ("trtllm", "vllm", "sglang")
        for name, entry in op_mapping.load_op_mapping(data / f"{framework}.yaml").operators.items()
    }


def operands(op: str) -> Any:
    return shipped()[op].facts["operands"]


def facts(op: LeafOp, family: str, **constants: Any) -> ColumnFacts:
    found = describe(op, OperatorEntry(op.name, facts={"family": family, **constants}))
    assert isinstance(found, ColumnFacts), found
    return found


def code(op: LeafOp, family: str, **constants: Any) -> str:
    found = describe(op, OperatorEntry(op.name, facts={"family": family, **constants}))
    assert isinstance(found, Miss), found
    assert found.details["hint"]
    return found.code


MM = "aten.mm.default"
FP8 = "tensor_cast.fp8_linear.default"
NVFP4 = "tensor_cast.nvfp4_linear.default"
INT4 = "tensor_cast.static_quant_linear_int4.default"
PACKED = "float4_e2m1fn_x2"


def linear(op: str, x: list[int], weight: list[int], dtype: str, **attrs: Any) -> LeafOp:
    pairs = [(x, dtype), (weight, dtype)]
    if op.startswith("tensor_cast"):
        pairs += [([], "float32"), ([], "float32")]
    return leaf(op, tensors(*pairs), attrs=attrs)


QUANT = "tensor_cast.dynamic_quantize_symmetric.default"


def quantize(scale: list[int] | None, **attrs: Any) -> LeafOp:
    outputs = [] if scale is None else tensors(([2, 4, 128], "float8_e4m3fn"), (scale, "float32"))
    return leaf(QUANT, tensors(([2, 4, 128], "bfloat16")), outputs=outputs, attrs=attrs)


ATTENTION = "tensor_cast.attention.default"


def attend(query: list[int], lens: Any = None, kv: Any = None, key_heads: int = 8, **attrs: Any) -> LeafOp:
    cache = ([513, 128, key_heads, 128], "bfloat16")
    requests = {} if lens is None else {"requests": {"query_lens": lens, "kv_lens": kv}}
    return leaf(ATTENTION, tensors((query, "bfloat16"), cache, cache), attrs=attrs, **requests)


MLA = "tensor_cast.multihead_latent_attention.default"


def latent(batch: int, isl: int, kv: int) -> LeafOp:
    query = {"shape": [batch * isl, 16, 192], "dtype": "bfloat16", "role": "query"}
    cache = {"shape": [513, 128, 576], "dtype": "bfloat16", "role": "kv_cache"}
    return leaf(MLA, [query, cache], requests={"query_lens": [isl] * batch, "kv_lens": [kv] * batch})


BMM = "tensor_cast.latent_bmm.default"


BLOCK = "tensor_cast.latent_attention_block.default"


def block(**attrs: Any) -> LeafOp:
    inputs = tensors(([16, 7168], "bfloat16"), ([513, 128, 576], "bfloat16"))
    return leaf(BLOCK, inputs, attrs=attrs, requests={"query_lens": [1] * 16, "kv_lens": [4097] * 16})


EXPERTS = "tensor_cast.fused_experts.default"


def experts(gmm1: list[int], gmm2: list[int], dtype: str = "bfloat16", **attrs: Any) -> LeafOp:
    inputs = tensors(([64, 2048], "bfloat16"), ([64, 8], "int32"), (gmm1, dtype), (gmm2, dtype))
    return leaf(EXPERTS, inputs, attrs=attrs)


DISPATCH = "tensor_cast.dispatch_ffn_combine_mxfp4.default"


def dispatch(tokens: int, **attrs: Any) -> LeafOp:
    roles = [
        ([tokens, 7168], "bfloat16", "x"),
        ([tokens, 6], "int64", "expert_indices"),
        ([24, 7168, 6144], "float4", "gmm1_weight"),
        ([24, 3072, 7168], "float4", "gmm2_weight"),
    ]
    inputs = [{"shape": shape, "dtype": dtype, "role": role} for shape, dtype, role in roles]
    return leaf(DISPATCH, inputs, attrs=attrs)


INDEXER = "tensor_cast.quant_lightning_indexer.default"


def indexer(batch: int, isl: int, step: int, **attrs: Any) -> LeafOp:
    inputs = tensors(
        ([batch, isl, 64, 128], "float8_e4m3fn"),
        ([batch, isl, 64], "float32"),
        ([64, 128, 128], "float8_e4m3fn"),
    )
    lens = {"query_lens": [isl] * batch, "kv_lens": [step + isl] * batch}
    return leaf(INDEXER, inputs, attrs=attrs, requests=lens)


SPARSE = "tensor_cast.sparse_attn_sharedkv.default"


def sparse(width: int = 512, selected: int = 168, **more: Any) -> LeafOp:
    """1024 tokens after 4096; DeepSeek-V4's indices hold a window of 128 and one of every 128 tokens, GLM-5's 2048."""
    roles = [
        ([1, 1024, 64, width], "bfloat16", "query"),
        ([1, 1024, width], "bfloat16", "kv"),
        ([1, 1024, selected], "int32", "topk_indices"),
        ([48, 128, width], "float8_e4m3fn", "kv_dependency"),
    ]
    inputs = [{"shape": shape, "dtype": dtype, "role": role} for shape, dtype, role in roles]
    return leaf(SPARSE, inputs, **more)


VLLM = "h200_sxm/vllm/0.24.0"
SGLANG = "h200_sxm/sglang/0.5.14"
GLM5: dict[str, Any] = {"model": "zai-org/GLM-5"}
V4: dict[str, Any] = {"model": "sgl-project/DeepSeek-V4-Flash-FP8"}
V3: dict[str, Any] = {"num_heads": 16, "model": "deepseek-ai/DeepSeek-V3", "gemm_type": "fp8_block"}

# database, operator, kernel, row and latency in milliseconds as they stand in the files, read apart from the reader
REAL_ROWS = [
    (VLLM, linear(MM, [64, 4096], [4096, 6144], "bfloat16"), "QuantMatmul", 75826, 0.017793777916166518),
    (VLLM, linear(FP8, [64, 4096], [4096, 4096], "float8_e4m3fn"), "QuantMatmul", 75959, 0.010786666638321347),
    (
        VLLM,
        leaf(
            QUANT,
            tensors(([64, 4096], "bfloat16")),
            outputs=tensors(([64, 4096], "float8_e4m3fn"), ([64, 1], "float32")),
        ),
        "DynamicQuant",
        1148,
        0.0007178667932748795 + 0.0020682666450738906,
    ),
    (VLLM, attend([4096, 4096], [1024] * 4, [1024] * 4), "PrefillAttention", 29072, 0.1206666628519694),
    (VLLM, attend([16, 4096], [1] * 16, [4096] * 16), "DecodeAttention", 33490, 0.08225599924723308),
    (VLLM, block(**V3), "DecodeLatentBlock", 3575, 0.1253),
    (
        VLLM,
        experts([16, 2048, 1536], [16, 768, 2048], moe_ep_size=8, num_experts=128),
        "FusedExperts",
        23380,
        0.08038400113582611,
    ),
    (VLLM, indexer(1, 1024, 4096, compress_ratio=4, **V4), "LightningIndexerPaged", 240, 0.0291),
    (
        VLLM,
        sparse(attrs={"compress_ratio": 128, **V4}, requests={"query_lens": [1024], "kv_lens": [5120]}),
        "SparseFlashAttentionHca",
        240,
        0.1124,
    ),
    (SGLANG, latent(4, 1024, 1024), "PrefillLatentAttention", 1021, 0.1680351972579956),
    (SGLANG, latent(16, 1, 4096), "DecodeLatentAttention", 2021, 0.03716799914836884),
    (SGLANG, indexer(1, 1024, 4096, **GLM5), "LightningIndexer", 1045, 0.04369),
    (
        SGLANG,
        sparse(576, 2048, attrs=GLM5, requests={"query_lens": [1024], "kv_lens": [5120]}),
        "SparseFlashAttention",
        467,
        0.486326,
    ),
    (
        "gb300/sglang/0.5.10",
        dispatch(128, moe_ep_size=16, phase="decode"),
        "DispatchFFNCombine",
        80,
        0.209755,
    ),
]
