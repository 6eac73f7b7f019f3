"""What each operator family asks of a GPU table: facts worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from column_leaves import (
    ATTENTION,
    BMM,
    DISPATCH,
    EXPERTS,
    FP8,
    MM,
    attend,
    block,
    code,
    dispatch,
    experts,
    facts,
    indexer,
    latent,
    leaf,
    linear,
    operands,
    quantize,
    sparse,
    tensors,
)
from support import named
from tensor_cast.errors import InvalidValueError, UnknownNameError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.columns.facts import describe
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry


@pytest.mark.parametrize("x", [[64, 32], [1, 64, 32], [2, 32, 32]])
@pytest.mark.parametrize("weight", [[32, 48], [48, 32]])
def test_matmul_axes_in_either_weight_orientation(x: list[int], weight: list[int]) -> None:
    found = facts(linear(MM, x, weight, "bfloat16"), "matmul")
    assert found.axes == {"M": 64.0, "K": 32.0, "N": 48.0}
    assert found.regime == {"quant": "bfloat16"}
    assert found.variant is None


@pytest.mark.parametrize(
    ("op", "dtype", "attrs", "quant"),
    [
        (MM, "float16", {}, "float16"),
        (FP8, "float8_e4m3fn", {}, "fp8"),
        (FP8, "float8_e4m3fn", {"quant": "fp8_block"}, "fp8_block"),
        ("tensor_cast.mxfp4_linear.default", "float4", {}, "mxfp4"),
        ("tensor_cast.nvfp4_linear.default", "float4", {}, "nvfp4"),
    ],
)
def test_one_operator_is_one_quantisation(op: str, dtype: str, attrs: dict[str, Any], quant: str) -> None:
    lines = {} if op == MM else {"operands": operands(op)}
    assert facts(linear(op, [8, 32], [32, 16], dtype, **attrs), "matmul", **lines).regime == {"quant": quant}


def test_the_mapping_names_a_subtype_and_the_leaf_overrules_it() -> None:
    plain = linear(FP8, [8, 32], [32, 16], "float8_e4m3fn")
    asked = linear(FP8, [8, 32], [32, 16], "float8_e4m3fn", quant="fp8", kernel_source="cutlass")
    lines = {"operands": operands(FP8)}
    assert facts(plain, "matmul", quant="fp8_block", **lines).regime["quant"] == "fp8_block"
    assert facts(asked, "matmul", quant="fp8_block", **lines).regime["quant"] == "fp8"
    assert facts(asked, "matmul", **lines).variant == "cutlass"
    foreign = linear(FP8, [8, 32], [32, 16], "float8_e4m3fn", quant="nvfp4")
    assert code(foreign, "matmul", **lines) == "target_unavailable:quant"
    assert code(foreign, "matmul") == "target_unavailable:quant", "without a list the shared dtype is the subtype"


def test_mixed_operands_meet_no_row() -> None:
    op = leaf(MM, tensors(([8, 32], "bfloat16"), ([32, 16], "float32")))
    assert facts(op, "matmul").regime["quant"] == "bfloat16xfloat32"


def test_shapes_that_do_not_multiply_are_refused() -> None:
    assert code(linear(MM, [8, 32], [33, 16], "bfloat16"), "matmul") == "target_unavailable:weight"
    assert code(leaf(MM, tensors(([8, 32], "bfloat16"))), "matmul") == "semantic_field_missing:weight"


@pytest.mark.parametrize(
    ("op", "mode"),
    [
        (quantize([2, 4, 1]), "per_token"),
        (quantize([8]), "per_token"),
        (quantize([]), "per_tensor"),
        (quantize([2, 4, 2]), "other"),
        (quantize(None, dims=[-1], out_dtype="torch.float8_e4m3fn"), "per_token"),
        (quantize(None, dims=[], out_dtype="float8_e4m3fn"), "per_tensor"),
    ],
)
def test_quantisation_tells_its_scale(op: LeafOp, mode: str) -> None:
    found = facts(op, "quantize")
    assert found.axes == {"M": 8.0, "K": 128.0}
    assert found.regime == {"quant": "fp8", "scale_mode": mode, "input_dtype": "bfloat16"}


def test_quantisation_without_dtype_or_scale_is_refused() -> None:
    assert code(quantize(None, dims=[-1]), "quantize") == "semantic_field_missing:out_dtype"
    assert code(quantize(None, out_dtype="fp8"), "quantize") == "semantic_field_missing:scale"
    assert code(quantize(None, dims=[-1], out_dtype="fp7"), "quantize") == "dtype_unmapped:out_dtype"


def test_static_quantisation_reads_its_scale_input() -> None:
    op = leaf(
        "tensor_cast.quantize.default",
        tensors(([8, 128], "bfloat16"), ([], "float32")),
        attrs={"out_dtype": "float8_e4m3fn"},
    )
    assert facts(op, "quantize").regime == {"quant": "fp8", "scale_mode": "per_tensor", "input_dtype": "bfloat16"}


@pytest.mark.parametrize("query", [[4096, 4096], [1, 4096, 4096], [4096, 32, 128]])
def test_prefill_attention(query: list[int]) -> None:
    found = facts(attend(query, [1024] * 4, [1024] * 4), "attention")
    assert found.axes == {"isl": 1024, "kv": 1024, "step": 0, "batch_size": 4, "num_heads": 32}
    assert found.regime == {
        "phase": "prefill",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "head_dim": 128,
        "window": 0,
        "kv_heads": 8,
    }


@pytest.mark.parametrize("query", [[16, 1024], [16, 8, 1, 128]])
def test_decode_attention_counts_the_new_token(query: list[int]) -> None:
    found = facts(attend(query, [1] * 16, [4096] * 16, sliding_window=128), "attention")
    assert found.axes == {"isl": 1, "kv": 4096, "step": 4095, "batch_size": 16, "num_heads": 8}
    assert (found.regime["phase"], found.regime["window"], found.regime["kv_heads"]) == ("decode", 128, "MHA")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (attend([8, 1024]), "semantic_field_missing:requests"),
        (attend([9, 1024], [4, 5], [4, 5]), "request_lengths_not_uniform:query_lens"),
        (attend([2, 1024], [1, 1], [64, 65]), "request_lengths_not_uniform:kv_lens"),
        (attend([64, 1024], [32, 32], [64, 64]), "phase_not_measured:mixed"),
        (attend([9, 1024], [4, 4], [4, 4]), "invalid_seq_lens:query_lens"),
        (attend([8, 1000], [8], [8]), "target_unavailable:query"),
    ],
)
def test_attention_that_no_table_measured_is_refused(op: LeafOp, expected: str) -> None:
    assert code(op, "attention") == expected


def test_a_prefill_on_a_cached_prefix_was_not_measured() -> None:
    op = attend([32, 1024], [32], [64])
    explicit = {"query_lens": [32], "kv_lens": [64], "phase": "prefill"}
    op = leaf(ATTENTION, [{"shape": list(s.shape), "dtype": s.dtype} for s in op.inputs], requests=explicit)
    assert code(op, "attention") == "phase_not_measured:prefill"


def test_latent_attention_lists_its_sizes() -> None:
    found = facts(latent(16, 1, 4096), "latent_attention")
    assert found.axes == {"isl": 1, "kv": 4096, "step": 4095, "batch_size": 16, "num_heads": 16}
    assert found.regime == {
        "phase": "decode",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "query_width": 192,
        "cache_width": 576,
        "v_head_dim": None,
        "topk": None,
    }


@pytest.mark.parametrize("x", [[16, 64, 128], [64, 16, 128]])
def test_latent_projection(x: list[int]) -> None:
    op = leaf(BMM, tensors((x, "bfloat16"), ([16, 128, 512], "bfloat16")), attrs={"stage": "pre"})
    found = facts(op, "latent_attention")
    assert found.axes == {"num_tokens": 64, "num_heads": 16}
    assert found.regime == {"stage": "pre", "dtype": "bfloat16", "latent_rank": 512, "head_width": 128}


def test_latent_projection_needs_its_stage() -> None:
    op = leaf(BMM, tensors(([16, 64, 512], "bfloat16"), ([16, 512, 128], "bfloat16")))
    assert code(op, "latent_attention") == "semantic_field_missing:stage"


def test_latent_block_needs_model_gemm_type_and_heads() -> None:
    whole = {"num_heads": 16, "model": "deepseek-ai/DeepSeek-V3", "gemm_type": "fp8_block"}
    assert facts(block(**whole), "latent_attention").axes["kv"] == 4097
    for name in whole:
        partial = {key: value for key, value in whole.items() if key != name}
        assert code(block(**partial), "latent_attention") == f"semantic_field_missing:{name}"


@pytest.mark.parametrize("gmm1", [[16, 2048, 1536], [16, 1536, 2048]])
@pytest.mark.parametrize("gmm2", [[16, 768, 2048], [16, 2048, 768]])
def test_experts_in_either_orientation(gmm1: list[int], gmm2: list[int]) -> None:
    found = facts(experts(gmm1, gmm2, moe_ep_size=8, num_experts=128), "experts", distribution="balanced")
    assert found.axes == {"num_tokens": 64.0}
    assert found.regime == {
        "quant": "bfloat16",
        "hidden_size": 2048,
        "inter_size": 768,
        "topk": 8,
        "num_experts": 128,
        "moe_tp_size": 1,
        "moe_ep_size": 8,
        "distribution": "balanced",
    }


def test_the_inner_size_is_that_of_the_whole_layer() -> None:
    op = experts([128, 2048, 384], [128, 192, 2048], moe_tp_size=4, distribution="power_law_1.2")
    found = facts(op, "experts", distribution="balanced").regime
    assert (found["inter_size"], found["num_experts"], found["distribution"]) == (768, 128, "power_law_1.2")


def test_experts_that_do_not_fit_are_refused() -> None:
    good = ([16, 2048, 1536], [16, 768, 2048])
    assert code(experts(*good), "experts") == "semantic_field_missing:distribution"
    balanced = {"distribution": "balanced"}
    assert code(experts(*good, num_experts=256, moe_ep_size=8, **named(balanced)), "experts").endswith(":num_experts")
    assert code(experts([16, 2048, 1537], good[1], **balanced), "experts") == "target_unavailable:gmm1_weight"
    lines = {"operands": operands(EXPERTS)}
    assert (
        code(experts(*good, dtype="float4", **named(balanced)), "experts", **named(lines))
        == "semantic_field_missing:quant"
    )
    assert code(experts(*good, quant="nvfp4", **named(balanced)), "experts", **named(lines)) == "regime_key_unmatched"
    assert (
        code(experts(*good, quant="nvfp5", **named(balanced)), "experts", **named(lines)) == "target_unavailable:quant"
    )
    assert facts(experts(*good, dtype="float8_e4m3fn", quant="fp8_block", **named(balanced)), "experts", **named(lines))
    ungated = experts([16, 2048, 768], good[1], **balanced)
    assert code(ungated, "experts", **lines) == "target_unavailable:gmm1_weight"


def test_dispatch_counts_the_tokens_of_its_rank() -> None:
    op = dispatch(128, rank_group=list(range(16)), phase="decode", used_cuda_graph=False)
    found = facts(op, "experts", distribution="balanced", used_cuda_graph=True, operands=operands(DISPATCH))
    assert found.axes == {"tokens": 128.0}
    assert found.regime["quant"] == "w4a8_mxfp4_mxfp8"
    assert (found.regime["num_experts"], found.regime["moe_ep_size"], found.regime["phase"]) == (384, 16, "decode")
    assert found.regime["used_cuda_graph"] is False


def test_dispatch_needs_phase_and_ranks() -> None:
    assert code(dispatch(8, phase="decode"), "experts") == "semantic_field_missing:moe_ep_size"
    assert code(dispatch(8, moe_ep_size=16), "experts", distribution="balanced") == "semantic_field_missing:phase"


def test_the_indexer_keeps_its_request_grouping_in_the_regime() -> None:
    found = facts(indexer(2, 1024, 4096, model="zai-org/GLM-5", topk_limit=2048), "sparse_attention")
    assert found.axes == {"isl": 1024, "step": 4096, "kv": 5120, "tokens": 2048}
    assert found.regime == {
        "phase": "prefill",
        "batch_size": 2,
        "num_heads": 64,
        "model": "zai-org/GLM-5",
        "compress_ratio": 1,
        "dtype": "fp8",
        "kv_dtype": "fp8",
        "topk": 2048,
        "window": None,
        "query_width": 128,
        "cache_width": 128,
        "index_heads": None,
    }
    own_heads = indexer(2, 1024, 4096, model="m", num_heads=32)
    assert facts(own_heads, "sparse_attention").regime["index_heads"] == 64
    assert facts(indexer(2, 1, 4096, model="m"), "sparse_attention").regime["phase"] == "decode"
    assert code(indexer(2, 1, 4096), "sparse_attention") == "semantic_field_missing:model"


def test_sparse_attention_needs_its_request_lengths() -> None:
    attrs = {"model": "m", "compress_ratio": 128}
    assert code(sparse(attrs=attrs), "sparse_attention") == "semantic_field_missing:requests"
    found = facts(sparse(attrs=attrs, requests={"query_lens": [1024], "kv_lens": [5120]}), "sparse_attention")
    assert (found.regime["kv_dtype"], found.regime["topk"], found.regime["compress_ratio"]) == ("fp8", 168, 128)


def test_an_entry_without_a_known_family_is_an_error() -> None:
    op = linear(MM, [8, 32], [32, 16], "bfloat16")
    with pytest.raises(InvalidValueError, match="'family' is missing"):
        describe(op, OperatorEntry(MM))
    with pytest.raises(UnknownNameError, match="did you mean 'matmul'"):
        describe(op, OperatorEntry(MM, facts={"family": "matmull"}))
