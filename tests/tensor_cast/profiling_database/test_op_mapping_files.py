"""The shipped mappings: readable, complete, dispatchable, and saying what the RFC wants of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.performance_model.profiling_database import op_mapping
from tensor_cast.performance_model.profiling_database.op_mapping import OperatorEntry, OpMapping, load_op_mapping

FOLDER = Path(op_mapping.__file__).parent / "data" / "ATLAS_800_A3_752T_128G_DIE" / "vllm_ascend"
MODES = {
    "attention_special",
    "elementwise",
    "moe_fused",
    "attention_lightning_indexer",
    "attention_sparse_sharedkv",
    "scatter_nd_update_mla",
}
V13, V15, V18 = "vllm0.13.0_torch2.8.0_cann8.3", "vllm0.15.0_torch2.9.0_cann8.5", "vllm0.18.0_torch2.9.0_cann8.5"


@pytest.fixture(params=(V13, V15, V18))
def mapping(request: pytest.FixtureRequest) -> OpMapping:
    return load_op_mapping(FOLDER / request.param / "op_mapping.yaml")


def _entry(version: str, op: str) -> OperatorEntry:
    return load_op_mapping(FOLDER / version / "op_mapping.yaml").operators[op]


def _dispatchable(entry: OperatorEntry) -> bool:
    if entry.composite:
        return entry.decomposer or bool(entry.sub_kernels)
    if entry.query_mode is not None:
        return entry.query_mode in MODES and entry.kernel_type is not None
    return bool(entry.kernel_type or entry.zero_cost or entry.accepted_miss)


def test_the_three_versions_ship(mapping):
    assert sorted(path.parent.name for path in FOLDER.glob("*/op_mapping.yaml")) == [V13, V15, V18]
    assert mapping.header["device"] == "ATLAS_800_A3_752T_128G_DIE"
    assert mapping.header["version"] == mapping.path.parent.name


def test_no_unknown_and_no_inert_keys(mapping):
    assert mapping.unknown_keys == ()
    assert mapping.inert_policies == ()


def test_every_entry_is_dispatchable_and_explained(mapping):
    assert [name for name, entry in mapping.operators.items() if not _dispatchable(entry)] == []
    assert [name for name, entry in mapping.operators.items() if not entry.notes] == []


def test_entries_keep_the_schema_rules(mapping):
    for name, entry in mapping.operators.items():
        assert name.count(".") >= (1 if name.startswith("profiling.") else 2) or name == "aten.to.dtype", name
        assert entry.kernel_type not in entry.alternate_kernel_types, name
        if entry.query_mode == "elementwise":
            assert entry.tc_input_count is None, name
        if entry.category == "communication" and not name.startswith("profiling."):
            assert (entry.kernel_type or "").startswith("hcom_"), name
        assert not (entry.query_mode and entry.zero_cost), name


def test_policies_are_the_rfc_defaults(mapping):
    for kernel in ("MatMulV2", "MatMulV3", "MatMulCommon"):
        assert mapping.policy(kernel).max_interpolation_dim == 1
    assert mapping.policy("QuantBatchMatmulV3").max_interpolation_dim is None
    assert mapping.policy("FusedInferAttentionScore").axis_transform == "sqrt_seq"
    assert mapping.policy("GatherV2").generic_axis == mapping.policy("Index").generic_axis == "output_numel"
    assert mapping.policy("ConcatD").generic_axis == "axis_0"
    assert {policy.method for policy in mapping.policies.values()} == {"simplex"}


@pytest.mark.parametrize("version", [V13, V15, V18])
def test_quantisation_selects_its_subcategory(version):
    for kind in ("symmetric", "asymmetric", "mxfp4"):
        assert _entry(version, f"tensor_cast.dynamic_quantize_{kind}.default").compute_subcategory == "compute_scale"
    for kind in ("static_quant_linear", "static_quant_linear_int4", "fp8_linear", "mxfp4_linear"):
        entry = _entry(version, f"tensor_cast.{kind}.default")
        assert (entry.compute_subcategory, entry.tc_input_count) == ("quantized_matmul", 2)
    assert _entry(version, "tensor_cast.quantize.default").compute_subcategory is None


@pytest.mark.parametrize("suffix", ["", "_quant", "_quant_int4", "_fp8", "_mxfp4"])
@pytest.mark.parametrize("version", [V15, V18])
def test_fused_experts_take_their_own_path(version, suffix):
    entry = _entry(version, f"tensor_cast.dispatch_ffn_combine{suffix}.default")
    assert (entry.kernel_type, entry.query_mode, entry.tc_input_count) == ("DispatchFFNCombine", "moe_fused", 1)


def test_attention_and_cache_update_entries_of_018():
    indexer = _entry(V18, "tensor_cast.quant_lightning_indexer.default")
    assert (indexer.kernels, indexer.query_mode) == (("LightningIndexer",), "attention_lightning_indexer")
    sparse = _entry(V18, "tensor_cast.sparse_attn_sharedkv.default")
    assert (sparse.kernels, sparse.query_mode) == (("SparseFlashAttention",), "attention_sparse_sharedkv")
    update = _entry(V18, "tensor_cast.scatter_nd_update_mla.default")
    assert update.kernels == ("ScatterNdUpdate", "ScatterNdUpdateAiCore")
    assert update.query_mode == "scatter_nd_update_mla"


def test_elementwise_by_version():
    assert _entry(V13, "aten.add.Tensor").query_mode == "elementwise"
    assert _entry(V13, "aten.mul.Tensor").query_mode is None
    assert _entry(V15, "aten.div.Tensor").kernels == ("Div", "RealDiv")
    assert _entry(V15, "aten.mul.Tensor").kernels == ("Mul", "MulAiCore")
    assert _entry(V18, "aten.div.Tensor").zero_cost


def test_generic_refinements():
    for op in ("aten.cat.default", "tensor_cast.cat.default"):
        assert _entry(V13, op).kernels == _entry(V18, op).kernels == ("ConcatD",)
        assert _entry(V15, op).zero_cost
    assert _entry(V18, "aten.embedding.default").kernels == ("GatherV2", "GatherV3", "GatherV2AiCore")
    assert _entry(V18, "aten.to.dtype").kernels == ("Cast", "TensorMove", "CastAiCore", "TensorMoveAiCore")
    norm = _entry(V18, "aten.native_layer_norm.default")
    assert (norm.kernels, norm.tc_input_count) == (("LayerNormV3", "LayerNormV3WithImplMode"), 3)


def test_documented_zeros_of_018():
    cache = _entry(V18, "tensor_cast.concat_and_cache_mla.default").accepted_miss or ""
    assert "KvRmsNormRopeCache" in cache
    assert "rotary" in (_entry(V18, "aten.index.Tensor").accepted_miss or "")
    for version in (V13, V15):
        assert _entry(version, "aten.index.Tensor").accepted_miss is None
