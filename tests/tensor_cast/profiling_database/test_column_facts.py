"""What each operator family asks of a GPU table: facts worked out by hand, and exact rows of the real tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensor_cast.errors import InvalidValueError, UnknownNameError
from tensor_cast.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.column_facts import ColumnFacts, describe
from tensor_cast.performance_model.profiling_database.data_source import Miss
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable
from tensor_cast.performance_model.profiling_database.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.readers.aiconfigurator import open_gpu_database
from tensor_cast.records import leaf_from_json

REAL = Path(__file__).parents[3] / ".." / "shared" / "data" / "aiconfigurator"


def tensors(*pairs: tuple[list[int], str]) -> list[dict[str, Any]]:
    return [{"shape": shape, "dtype": dtype} for shape, dtype in pairs]


def leaf(op: str, inputs: list[dict[str, Any]], **more: Any) -> LeafOp:
    return leaf_from_json({"op": op, "inputs": inputs, **more})


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


def linear(op: str, x: list[int], weight: list[int], dtype: str, **attrs: Any) -> LeafOp:
    pairs = [(x, dtype), (weight, dtype)]
    if op.startswith("tensor_cast"):
        pairs += [([], "float32"), ([], "float32")]
    return leaf(op, tensors(*pairs), attrs=attrs)


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
        ("tensor_cast.static_quant_linear.default", "int8", {}, "int8"),
        ("tensor_cast.mxfp4_linear.default", "float4", {}, "mxfp4"),
        ("tensor_cast.nvfp4_linear.default", "float4", {}, "nvfp4"),
    ],
)
def test_one_operator_is_one_quantisation(op: str, dtype: str, attrs: dict[str, Any], quant: str) -> None:
    assert facts(linear(op, [8, 32], [32, 16], dtype, **attrs), "matmul").regime == {"quant": quant}


def test_the_mapping_names_a_subtype_and_the_leaf_overrules_it() -> None:
    plain = linear(FP8, [8, 32], [32, 16], "float8_e4m3fn")
    asked = linear(FP8, [8, 32], [32, 16], "float8_e4m3fn", quant="fp8", kernel_source="cutlass")
    assert facts(plain, "matmul", quant="fp8_block").regime["quant"] == "fp8_block"
    assert facts(asked, "matmul", quant="fp8_block").regime["quant"] == "fp8"
    assert facts(asked, "matmul").variant == "cutlass"
    foreign = linear(FP8, [8, 32], [32, 16], "float8_e4m3fn", quant="nvfp4")
    assert code(foreign, "matmul") == "target_unavailable:quant"


def test_packed_weights_hold_two_values_of_k() -> None:
    op = "tensor_cast.static_quant_linear_int4.default"
    found = facts(leaf(op, tensors(([8, 64], "int8"), ([32, 16], "int8"), ([16], "float32"))), "matmul")
    assert found.axes == {"M": 8.0, "K": 64.0, "N": 16.0}
    assert found.regime["quant"] == "int4_wo"


def test_mixed_operands_meet_no_row() -> None:
    op = leaf(MM, tensors(([8, 32], "bfloat16"), ([32, 16], "float32")))
    assert facts(op, "matmul").regime["quant"] == "bfloat16xfloat32"


def test_shapes_that_do_not_multiply_are_refused() -> None:
    assert code(linear(MM, [8, 32], [33, 16], "bfloat16"), "matmul") == "target_unavailable:weight"
    assert code(leaf(MM, tensors(([8, 32], "bfloat16"))), "matmul") == "semantic_field_missing:weight"


QUANT = "tensor_cast.dynamic_quantize_symmetric.default"


def quantize(scale: list[int] | None, **attrs: Any) -> LeafOp:
    outputs = [] if scale is None else tensors(([2, 4, 128], "float8_e4m3fn"), (scale, "float32"))
    return leaf(QUANT, tensors(([2, 4, 128], "bfloat16")), outputs=outputs, attrs=attrs)


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
    assert found.regime == {"quant": "fp8", "scale_mode": mode, "input_bytes": 2}


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
    assert facts(op, "quantize").regime == {"quant": "fp8", "scale_mode": "per_tensor", "input_bytes": 2}


ATTENTION = "tensor_cast.attention.default"


def attend(query: list[int], lens: Any = None, kv: Any = None, key_heads: int = 8, **attrs: Any) -> LeafOp:
    cache = ([513, 128, key_heads, 128], "bfloat16")
    requests = {} if lens is None else {"requests": {"query_lens": lens, "kv_lens": kv}}
    return leaf(ATTENTION, tensors((query, "bfloat16"), cache, cache), attrs=attrs, **requests)


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


MLA = "tensor_cast.multihead_latent_attention.default"


def latent(batch: int, isl: int, kv: int) -> LeafOp:
    query = {"shape": [batch * isl, 16, 192], "dtype": "bfloat16", "role": "query"}
    cache = {"shape": [513, 128, 576], "dtype": "bfloat16", "role": "kv_cache"}
    return leaf(MLA, [query, cache], requests={"query_lens": [isl] * batch, "kv_lens": [kv] * batch})


def test_latent_attention_lists_its_sizes() -> None:
    found = facts(latent(16, 1, 4096), "latent_attention")
    assert found.axes == {"isl": 1, "kv": 4096, "step": 4095, "batch_size": 16, "num_heads": 16}
    assert found.regime == {
        "phase": "decode",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "query_width": 192,
        "cache_width": 576,
    }


BMM = "tensor_cast.latent_bmm.default"


@pytest.mark.parametrize("x", [[16, 64, 128], [64, 16, 128]])
def test_latent_projection(x: list[int]) -> None:
    op = leaf(BMM, tensors((x, "bfloat16"), ([16, 128, 512], "bfloat16")), attrs={"stage": "pre"})
    found = facts(op, "latent_attention")
    assert found.axes == {"num_tokens": 64, "num_heads": 16}
    assert found.regime == {"stage": "pre", "dtype": "bfloat16", "latent_rank": 512, "head_width": 128}


def test_latent_projection_needs_its_stage() -> None:
    op = leaf(BMM, tensors(([16, 64, 512], "bfloat16"), ([16, 512, 128], "bfloat16")))
    assert code(op, "latent_attention") == "semantic_field_missing:stage"


BLOCK = "tensor_cast.latent_attention_block.default"


def block(**attrs: Any) -> LeafOp:
    inputs = tensors(([16, 7168], "bfloat16"), ([513, 128, 576], "bfloat16"))
    return leaf(BLOCK, inputs, attrs=attrs, requests={"query_lens": [1] * 16, "kv_lens": [4097] * 16})


def test_latent_block_needs_model_gemm_type_and_heads() -> None:
    whole = {"num_heads": 16, "model": "deepseek-ai/DeepSeek-V3", "gemm_type": "fp8_block"}
    assert facts(block(**whole), "latent_attention").axes["kv"] == 4097
    for name in whole:
        partial = {key: value for key, value in whole.items() if key != name}
        assert code(block(**partial), "latent_attention") == f"semantic_field_missing:{name}"


EXPERTS = "tensor_cast.fused_experts.default"


def experts(gmm1: list[int], gmm2: list[int], dtype: str = "bfloat16", **attrs: Any) -> LeafOp:
    inputs = tensors(([64, 2048], "bfloat16"), ([64, 8], "int32"), (gmm1, dtype), (gmm2, dtype))
    return leaf(EXPERTS, inputs, attrs=attrs)


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
    assert code(experts(*good, num_experts=256, moe_ep_size=8, **balanced), "experts").endswith(":num_experts")
    assert code(experts([16, 2048, 1537], good[1], **balanced), "experts") == "target_unavailable:gmm1_weight"
    assert code(experts(*good, dtype="float4", **balanced), "experts") == "semantic_field_missing:quant"
    assert code(experts(*good, quant="nvfp4", **balanced), "experts") == "target_unavailable:quant"
    assert facts(experts(*good, dtype="float8_e4m3fn", quant="fp8_block", **balanced), "experts")


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


def test_dispatch_counts_the_tokens_of_its_rank() -> None:
    op = dispatch(128, rank_group=list(range(16)), phase="decode", used_cuda_graph=False)
    found = facts(op, "experts", distribution="balanced", used_cuda_graph=True)
    assert found.axes == {"tokens": 128.0}
    assert found.regime["quant"] == "w4a8_mxfp4_mxfp8"
    assert (found.regime["num_experts"], found.regime["moe_ep_size"], found.regime["phase"]) == (384, 16, "decode")
    assert found.regime["used_cuda_graph"] is False


def test_dispatch_needs_phase_and_ranks() -> None:
    assert code(dispatch(8, phase="decode"), "experts") == "semantic_field_missing:moe_ep_size"
    assert code(dispatch(8, moe_ep_size=16), "experts", distribution="balanced") == "semantic_field_missing:phase"


INDEXER = "tensor_cast.quant_lightning_indexer.default"


def indexer(batch: int, isl: int, step: int, **attrs: Any) -> LeafOp:
    inputs = tensors(
        ([batch, isl, 64, 128], "float8_e4m3fn"),
        ([batch, isl, 64], "float32"),
        ([64, 128, 128], "float8_e4m3fn"),
    )
    lens = {"query_lens": [isl] * batch, "kv_lens": [step + isl] * batch}
    return leaf(INDEXER, inputs, attrs=attrs, requests=lens)


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
    }
    assert facts(indexer(2, 1, 4096, model="m"), "sparse_attention").regime["phase"] == "decode"
    assert code(indexer(2, 1, 4096), "sparse_attention") == "semantic_field_missing:model"


SPARSE = "tensor_cast.sparse_attn_sharedkv.default"


def sparse(**more: Any) -> LeafOp:
    roles = [
        ([1, 1024, 64, 512], "bfloat16", "query"),
        ([1, 1024, 512], "bfloat16", "kv"),
        ([1, 1024, 168], "int32", "topk_indices"),
        ([48, 128, 512], "float8_e4m3fn", "kv_dependency"),
    ]
    inputs = [{"shape": shape, "dtype": dtype, "role": role} for shape, dtype, role in roles]
    return leaf(SPARSE, inputs, **more)


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


def exact(database_name: str, op: LeafOp) -> dict[str, Any]:
    """The one point of the real tables whose regime, axes and variant are all those of the leaf."""
    if not REAL.is_dir():
        pytest.skip("the shared GPU tables (../shared/data/aiconfigurator) are not on this machine")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    database = open_gpu_database(database_name, REAL)
    entry = database.mapping.operators[op.name]
    asked = describe(op, entry)
    assert isinstance(asked, ColumnFacts), asked
    found = []
    for kernel in entry.kernels:
        table = database.table(kernel)
        if not isinstance(table, ColumnTable):
            continue
        key = tuple(asked.regime[name] for name in table.fact_names)
        for row in range(len(table)):
            same = all(values[row] == asked.axes[axis] for axis, values in table.axes.items())
            same &= all(asked.regime[name] == value for name, value in table.constants.items())
            if same and table.regime_keys[table.regime_codes[row]] == key:
                found.append({"kernel": kernel, **table.row_meta(row)})
    assert len(found) == 1, found
    return found[0]


VLLM = "h200_sxm/vllm/0.24.0"
SGLANG = "h200_sxm/sglang/0.5.14"
GLM5: dict[str, Any] = {"model": "zai-org/GLM-5"}
V4: dict[str, Any] = {"model": "sgl-project/DeepSeek-V4-Flash-FP8"}
V3: dict[str, Any] = {"num_heads": 16, "model": "deepseek-ai/DeepSeek-V3", "gemm_type": "fp8_block"}


# kernel, row and latency in milliseconds as they stand in the parquet files, read apart from the adapter
@pytest.mark.parametrize(
    ("database", "op", "kernel", "row", "latency_ms"),
    [
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
            sparse(attrs=GLM5, requests={"query_lens": [1024], "kv_lens": [5120]}),
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
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_real_row_answers(database: str, op: LeafOp, kernel: str, row: int, latency_ms: float) -> None:
    found = exact(database, op)
    assert (found["kernel"], found["row"]) == (kernel, row)
    assert found["latency_us"] == pytest.approx(latency_ms * 1000, rel=1e-12)
