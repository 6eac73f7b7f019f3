"""The shipped mappings: readable, dispatchable, and wiring every row of RFC tables 3.4.1 and 3.4.2 as stated."""

from __future__ import annotations

from typing import Any

import pytest

from tensor_cast.operators.signatures import signature
from tensor_cast.performance_model.profiling_database.data_source import Miss
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.mapping import op_mapping
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import (
    COMPUTE_SUBCATEGORIES,
    QUERY_MODES,
    OperatorEntry,
    OpMapping,
    load_op_mapping,
)
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

DATA = op_mapping.SHIPPED_MAPPINGS / "ATLAS_800_A3_752T_128G_DIE"
FOLDERS = {
    "0.13": "vllm0.13.0_torch2.8.0_cann8.3",
    "0.15": "vllm0.15.0_torch2.9.0_cann8.5",
    "0.18": "vllm0.18.0_torch2.9.0_cann8.5",
}
ALL = tuple(FOLDERS)
MAPPINGS = {
    version: load_op_mapping(DATA / "vllm_ascend" / folder / "op_mapping.yaml") for version, folder in FOLDERS.items()
}

DFC: dict[str, Any] = {
    "kernels": ("DispatchFFNCombine",),
    "query_mode": "moe_fused",
    "tc_input_count": 1,
    "path": "moe_fused",
}
SCALE: dict[str, Any] = {"kernels": ("DynamicQuant",), "compute_subcategory": "compute_scale", "path": "compute_scale"}
BLOCK_SCALE: dict[str, Any] = {**SCALE, "kernels": ("DynamicBlockQuant",)}
PRODUCT: dict[str, Any] = {
    "kernels": ("QuantBatchMatmulV3",),
    "compute_subcategory": "quantized_matmul",
    "tc_input_count": 2,
    "path": "quantized_matmul",
}
GENERIC: dict[str, Any] = {"query_mode": None, "compute_subcategory": None, "path": "compute"}
ELEMENTWISE: dict[str, Any] = {"query_mode": "elementwise", "path": "elementwise"}

# RFC 3.4.1: operator -> version -> what the row states
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    **{
        f"tensor_cast.dispatch_ffn_combine{suffix}.default": dict.fromkeys(("0.15", "0.18"), DFC)
        for suffix in ("", "_quant", "_quant_int4", "_fp8", "_mxfp4")
    },
    "aten.add.Tensor": {
        "0.13": {**ELEMENTWISE, "kernels": ("Add",)},
        "0.15": {**ELEMENTWISE, "kernels": ("Add", "AddAiCore")},
        "0.18": {**ELEMENTWISE, "kernels": ("Add", "AddAiCore")},
    },
    "aten.mul.Tensor": {
        "0.13": {**GENERIC, "kernels": ("Mul",)},
        "0.15": {**ELEMENTWISE, "kernels": ("Mul", "MulAiCore")},
        "0.18": {**ELEMENTWISE, "kernels": ("Mul", "MulAiCore")},
    },
    "aten.div.Tensor": {
        "0.13": {**GENERIC, "kernels": ("Div", "RealDiv")},
        "0.15": {**ELEMENTWISE, "kernels": ("Div", "RealDiv")},
        "0.18": {"zero_cost": True},
    },
    "tensor_cast.quant_lightning_indexer.default": {
        "0.18": {
            "kernels": ("LightningIndexer",),
            "query_mode": "attention_lightning_indexer",
            "path": "lightning_indexer",
        }
    },
    "tensor_cast.sparse_attn_sharedkv.default": {
        "0.18": {
            "kernels": ("SparseFlashAttention",),
            "query_mode": "attention_sparse_sharedkv",
            "path": "sparse_attention",
        }
    },
    **{
        f"{namespace}.cat.default": {
            "0.13": {**GENERIC, "kernels": ("ConcatD",)},
            "0.15": {"zero_cost": True},
            "0.18": {**GENERIC, "kernels": ("ConcatD",)},
        }
        for namespace in ("aten", "tensor_cast")
    },
    "aten.embedding.default": {
        "0.13": {**GENERIC, "kernels": ("GatherV2", "GatherV3")},
        "0.15": {**GENERIC, "kernels": ("GatherV2", "GatherV3", "GatherV2AiCore")},
        "0.18": {**GENERIC, "kernels": ("GatherV2", "GatherV3", "GatherV2AiCore")},
    },
    "aten.to.dtype": {
        "0.13": {**GENERIC, "kernels": ("Cast", "TensorMove")},
        "0.15": {**GENERIC, "kernels": ("Cast", "TensorMove", "CastAiCore")},
        "0.18": {**GENERIC, "kernels": ("Cast", "TensorMove", "CastAiCore", "TensorMoveAiCore")},
    },
    "aten.native_layer_norm.default": {
        "0.18": {**GENERIC, "kernels": ("LayerNormV3", "LayerNormV3WithImplMode"), "tc_input_count": 3}
    },
    "tensor_cast.dynamic_quantize_symmetric.default": dict.fromkeys(ALL, SCALE),
    "tensor_cast.dynamic_quantize_asymmetric.default": dict.fromkeys(ALL, SCALE),
    "tensor_cast.dynamic_quantize_mxfp4.default": dict.fromkeys(ALL, BLOCK_SCALE),
    **{
        f"tensor_cast.{name}.default": dict.fromkeys(ALL, PRODUCT)
        for name in ("static_quant_linear", "static_quant_linear_int4", "fp8_linear", "mxfp4_linear")
    },
    "tensor_cast.scatter_nd_update_mla.default": {
        "0.18": {
            "kernels": ("ScatterNdUpdate", "ScatterNdUpdateAiCore"),
            "query_mode": "scatter_nd_update_mla",
            "path": "scatter_nd_update_mla",
        }
    },
}
STATED = [(operator, version) for operator, versions in ROWS.items() for version in versions]


@pytest.fixture(params=ALL)
def mapping(request: pytest.FixtureRequest) -> OpMapping:
    return MAPPINGS[request.param]


def entries(mapping: OpMapping) -> list[OperatorEntry]:
    return list(mapping.operators.values())


# --- RFC 3.4.1 and 5 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operator", "version"), STATED)
def test_every_row_is_wired_as_stated(operator: str, version: str) -> None:
    """RFC 3.4.1: operator entry, versions and selector; RFC 5: the selector leads to the row's path."""
    entry = MAPPINGS[version].operators[operator]
    stated = dict(ROWS[operator][version])
    path = stated.pop("path", None)
    assert {name: getattr(entry, name) for name in stated} == stated
    if path is not None:
        found = path_for(entry)
        assert isinstance(found, OperatorPath)
        assert found.name == path
        assert not entry.zero_cost
        assert entry.accepted_miss is None


def test_no_other_entry_declares_a_phase_2_selector(mapping: OpMapping) -> None:
    """RFC 3.4.1: the table lists only operator entries implemented, extended or adjusted; nothing else is selected."""
    version = next(name for name, item in MAPPINGS.items() if item is mapping)
    selected = {
        entry.name
        for entry in entries(mapping)
        if entry.compute_subcategory or (entry.query_mode and entry.query_mode != "attention_special")
    }
    stated = {
        operator
        for operator, versions in ROWS.items()
        if versions.get(version, {}).get("query_mode") or versions.get(version, {}).get("compute_subcategory")
    }
    assert selected == stated


@pytest.mark.parametrize(
    "operator",
    [
        "tensor_cast.quant_lightning_indexer.default",
        "tensor_cast.sparse_attn_sharedkv.default",
        "tensor_cast.scatter_nd_update_mla.default",
        "aten.native_layer_norm.default",
    ],
)
def test_rows_of_018_are_not_wired_elsewhere(operator: str) -> None:
    """RFC 3.4.1: listed for v0.18 only; RFC 4.3.2: v0.13 and v0.15 have no measured data."""
    for version in ("0.13", "0.15"):
        entry = MAPPINGS[version].operators.get(operator)
        assert entry is None or not entry.kernels


def test_v013_has_no_fused_experts() -> None:
    """RFC 3.4.1: DispatchFFNCombine in v0.15 and v0.18."""
    assert [name for name in MAPPINGS["0.13"].operators if "dispatch_ffn_combine" in name] == []


def test_static_quantisation_is_no_dynamic_quantisation(mapping: OpMapping) -> None:
    """RFC 4.4.2: tensor_cast.quantize.default applies an existing scale through AscendQuantV2 on generic compute."""
    entry = mapping.operators["tensor_cast.quantize.default"]
    assert (entry.kernel_type, entry.compute_subcategory, entry.query_mode) == ("AscendQuantV2", None, None)
    path = path_for(entry)
    assert isinstance(path, OperatorPath)
    assert path.name == "compute"


def test_policies_are_the_rfc_defaults(mapping: OpMapping) -> None:
    """RFC 3.4.1: ceilings of 3D for quantised products and 2D elsewhere are not narrowed; RFC 5: minimal policy."""
    for kernel in ("MatMulV2", "MatMulV3", "MatMulCommon"):
        assert mapping.policy(kernel).max_interpolation_dim == 1
    phase_2 = ("QuantBatchMatmulV3", "DynamicQuant", "DynamicBlockQuant", "Add", "Mul", "LightningIndexer")
    for kernel in (*phase_2, "SparseFlashAttention", "DispatchFFNCombine", "ScatterNdUpdate"):
        assert mapping.policy(kernel).max_interpolation_dim is None
    assert mapping.policy("FusedInferAttentionScore").axis_transform == "sqrt_seq"
    assert mapping.policy("GatherV2").generic_axis == mapping.policy("Index").generic_axis == "output_numel"
    for kernel in ("ConcatD", "Cast", "LayerNormV3"):
        assert mapping.policy(kernel).generic_axis == "axis_0"
    assert {policy.method for policy in mapping.policies.values()} == {"simplex"}
    assert {policy.axis_order for policy in mapping.policies.values()} == {"listed"}


@pytest.mark.parametrize("alternate", ["GatherV3", "GatherV2AiCore"])
def test_gather_alternates_inherit_the_axis(mapping: OpMapping, alternate: str) -> None:
    """RFC 3.4.1: alternates inherit the axis."""
    assert mapping.policy(alternate, "GatherV2").generic_axis == "output_numel"


# --- RFC 3.4.2 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["matmul", "static_quant_linear", "static_quant_linear_int4", "fp8_linear", "mxfp4_linear"]
)
def test_products_with_a_collective_are_outside(mapping: OpMapping, name: str) -> None:
    """RFC 3.4.2: operators with communication children are not interpolated here."""
    entry = mapping.operators[f"tensor_cast.{name}_all_reduce.default"]
    assert entry.composite
    assert any(child.startswith("hcom_") for child in entry.sub_kernels)
    found = path_for(entry)
    assert isinstance(found, Miss)
    assert found.code == f"wrapper_composite_owned_upstream:{entry.name}"


def test_documented_zeros_of_018() -> None:
    """RFC 3.4.2: the cache write absorbed by KvRmsNormRopeCache, and the rotary-cache lookup, with their reasons."""
    operators = MAPPINGS["0.18"].operators
    assert "KvRmsNormRopeCache" in (operators["tensor_cast.concat_and_cache_mla.default"].accepted_miss or "")
    assert "rotary" in (operators["aten.index.Tensor"].accepted_miss or "")
    for version in ("0.13", "0.15"):
        assert MAPPINGS[version].operators["aten.index.Tensor"].accepted_miss is None


# --- schema rules ------------------------------------------------------------------------------------------------


def test_the_three_versions_ship() -> None:
    """RFC 3.4: versions v0.13, v0.15 and v0.18, each naming itself and its device."""
    found = sorted(path.parent.name for path in DATA.glob("vllm_ascend/*/op_mapping.yaml"))
    assert found == sorted(FOLDERS.values())
    for item in MAPPINGS.values():
        assert item.path is not None
        assert item.header["version"] == item.path.parent.name
        assert item.header["device"] == "ATLAS_800_A3_752T_128G_DIE"
        assert item.communication_data_ref is not None


def test_no_unknown_and_no_inert_keys(mapping: OpMapping) -> None:
    """RFC 5: existing fields only, no separate configuration."""
    assert mapping.unknown_keys == ()
    assert mapping.inert_policies == ()


def _dispatchable(entry: OperatorEntry) -> bool:
    if entry.composite:
        return entry.decomposer or bool(entry.sub_kernels)
    return bool(entry.kernel_type or entry.zero_cost or entry.accepted_miss)


def test_every_entry_is_dispatchable_and_explained(mapping: OpMapping) -> None:
    """RFC 5: composite with children, a kernel, or a documented zero; the evidence is in `notes`."""
    assert [entry.name for entry in entries(mapping) if not _dispatchable(entry)] == []
    assert [entry.name for entry in entries(mapping) if not entry.notes] == []


def test_selectors_are_known_and_alone(mapping: OpMapping) -> None:
    """RFC 5: one selector, a supported one, with a kernel and without a documented zero."""
    for entry in entries(mapping):
        assert entry.query_mode in (*QUERY_MODES, None), entry.name
        assert entry.compute_subcategory in (*COMPUTE_SUBCATEGORIES, None), entry.name
        assert not (entry.query_mode and entry.compute_subcategory), entry.name
        if entry.query_mode or entry.compute_subcategory:
            assert entry.kernel_type, entry.name
            assert not any((entry.zero_cost, entry.accepted_miss, entry.composite)), entry.name


def test_elementwise_entries_count_no_inputs(mapping: OpMapping) -> None:
    """RFC 4.2.1: the input count is part of the regime, so it is never cut."""
    assert [e.name for e in entries(mapping) if e.query_mode == "elementwise" and e.tc_input_count is not None] == []


def test_operator_names_are_namespace_operator_overload(mapping: OpMapping) -> None:
    """Operator keys as the simulator spells them; `profiling.*` are kernels no operator emits."""
    for name in mapping.operators:
        parts = name.split(".")
        assert len(parts) == (2 if parts[0] == "profiling" else 3), name
        assert parts[0] in ("aten", "tensor_cast", "prims", "profiling"), name


def test_kernels_stay_at_one_level(mapping: OpMapping) -> None:
    """Alternates stay at the primary's level: collectives with collectives, kernels with kernels, no repeats."""
    for entry in entries(mapping):
        assert entry.kernel_type not in entry.alternate_kernel_types, entry.name
        assert len(set(entry.alternate_kernel_types)) == len(entry.alternate_kernel_types), entry.name
        assert bool(entry.alternate_kernel_types) <= bool(entry.kernel_type), entry.name
        if entry.category == "communication":
            assert entry.name.startswith("profiling.") or (entry.kernel_type or "").startswith("hcom_"), entry.name
        else:
            assert not [kernel for kernel in entry.kernels if kernel.startswith("hcom_")], entry.name


def test_children_are_lists_of_kernels(mapping: OpMapping) -> None:
    """`sub_kernels` belong to composites, which have no kernel of their own."""
    for entry in entries(mapping):
        assert bool(entry.sub_kernels) <= entry.composite, entry.name
        assert not (entry.composite and entry.kernel_type), entry.name


def test_input_counts_are_positive_and_within_the_signature(mapping: OpMapping) -> None:
    """RFC 5: tc_input_count matches only the first N inputs, so N is at least 1 and at most what there is."""
    for entry in entries(mapping):
        if entry.tc_input_count is None:
            continue
        assert entry.tc_input_count >= 1, entry.name
        arguments = signature(entry.name)
        if arguments is not None and not any(argument.is_list for argument in arguments):
            tensors = [argument for argument in arguments if argument.is_tensor]
            assert entry.tc_input_count <= len(tensors), entry.name


@pytest.mark.parametrize("operator", sorted(ROWS))
def test_selected_operators_have_a_signature(operator: str) -> None:
    """RFC 7.3.1: a target builder finds the arguments by name, so they are in the signature table."""
    if operator.startswith("tensor_cast."):
        assert signature(operator) is not None
