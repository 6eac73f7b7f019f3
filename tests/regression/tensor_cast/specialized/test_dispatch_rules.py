"""Which path an entry leads to, and who decides exact matches (RFC 3.1, 3.3 and 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specialized_rows import (
    ADD,
    ADD_OP,
    DFC,
    DFC_OP,
    INDEXER,
    QBMM,
    QUANT,
    SCATTER,
    SPARSE,
    binary,
    binary_row,
    data,
    dfc,
    dfc_row,
    quant,
    quant_row,
)
from support import attention, hit, miss, mm, named, row
from tensor_cast import LeafOp, QuerySource
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

SHAPE = ((100, 64), "bf16")


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ({"query_mode": "moe_fused"}, "moe_fused"),
        ({"query_mode": "elementwise"}, "elementwise"),
        ({"query_mode": "attention_lightning_indexer"}, "lightning_indexer"),
        ({"query_mode": "attention_sparse_sharedkv"}, "sparse_attention"),
        ({"query_mode": "scatter_nd_update_mla"}, "scatter_nd_update_mla"),
        ({"query_mode": "attention_special"}, "multidim"),
        ({"compute_subcategory": "compute_scale"}, "compute_scale"),
        ({"compute_subcategory": "quantized_matmul"}, "quantized_matmul"),
        ({}, "compute"),
    ],
)
def test_each_selector_leads_to_its_path(selector: dict[str, Any], name: str) -> None:
    """RFC 5: the selector table."""
    path = path_for(OperatorEntry("a.b.c", kernel_type="Kernel", **selector))
    assert isinstance(path, OperatorPath)
    assert path.name == name


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"compute_subcategory": "nonsense"}, "compute_subcategory_unknown:nonsense"),
        ({"compute_subcategory": "scale_matrix"}, "compute_subcategory_unknown:scale_matrix"),
        ({"query_mode": "nonsense"}, "query_mode_unknown:nonsense"),
        ({"query_mode": "compute_scale"}, "query_mode_unknown:compute_scale"),
        ({"query_mode": "tabulated"}, "query_mode_unknown:tabulated"),
        ({"query_mode": "generic"}, "query_mode_unknown:generic"),
    ],
)
def test_unknown_selectors_fail_closed(tmp_path: Path, entry: dict[str, Any], code: str) -> None:
    """RFC 3.1: unknown compute_subcategory fails closed; an unknown query_mode never means generic compute."""
    rows = [row(f"{m},64", "DT_BF16", float(m)) for m in (100, 200)]
    source = data(tmp_path, {"Cast": rows}, {"a.b.c": {"kernel_type": "Cast", **entry}})
    assert hit(source.query(LeafOp.build("a.b.c", [SHAPE]))).latency_us == 100.0  # decision 002.12: exact is allowed
    assert miss(source.query(LeafOp.build("a.b.c", [((150, 64), "bf16")]))).code == code


def test_a_missing_mapping_and_a_missing_kernel_are_told_apart(tmp_path: Path) -> None:
    """RFC 6.2: missing mapping or kernel."""
    source = data(tmp_path, {}, {"a.b.c": {"notes": "no kernel"}})
    assert miss(source.query(LeafOp.build("a.b.d", [SHAPE]))).code == "wrapper_unmapped:a.b.d"
    assert miss(source.query(LeafOp.build("a.b.c", [SHAPE]))).code == "compute_kernel_type_missing:a.b.c"


@pytest.mark.parametrize(
    ("name", "owned"),
    [(DFC, True), (QUANT, True), (QBMM, True), (ADD, True), (INDEXER, False), (SPARSE, False), (SCATTER, False)],
)
def test_who_owns_exact_matches(name: str, owned: bool) -> None:
    """RFC 3.1: moe_fused, compute_scale, quantized_matmul and non-scalar elementwise use specialized ownership."""
    selectors: dict[str, dict[str, Any]] = {
        DFC: {"query_mode": "moe_fused"},
        QUANT: {"compute_subcategory": "compute_scale"},
        QBMM: {"compute_subcategory": "quantized_matmul"},
        ADD: {"query_mode": "elementwise"},
        INDEXER: {"query_mode": "attention_lightning_indexer"},
        SPARSE: {"query_mode": "attention_sparse_sharedkv"},
        SCATTER: {"query_mode": "scatter_nd_update_mla"},
    }
    path = path_for(OperatorEntry("a.b.c", kernel_type=name, **selectors[name]))
    assert isinstance(path, OperatorPath)
    assert path.owns(binary((4, 8), (4, 8), (4, 8))) is owned


@pytest.mark.parametrize("outputs", [[], [((), "bf16")]])
def test_elementwise_without_a_real_output_belongs_to_the_base(outputs: list[Any]) -> None:
    """RFC 3.3: only a valid non-scalar output bypasses the base."""
    path = path_for(OperatorEntry(ADD_OP, kernel_type=ADD, query_mode="elementwise"))
    assert isinstance(path, OperatorPath)
    assert not path.owns(LeafOp.build(ADD_OP, [SHAPE, SHAPE], outputs))


@pytest.mark.parametrize("documented", [{"zero_cost": True}, {"accepted_miss": "absorbed by another kernel"}])
@pytest.mark.parametrize(
    "selector", [{"query_mode": "moe_fused"}, {"query_mode": "elementwise"}, {"compute_subcategory": "compute_scale"}]
)
def test_documented_zeros_come_before_ownership(
    tmp_path: Path, documented: dict[str, Any], selector: dict[str, Any]
) -> None:
    """RFC 6.3: zero only from zero_cost or accepted_miss; decision 002.3: before any path."""
    source = data(tmp_path, {}, {"a.b.c": {"kernel_type": "Kernel", **selector, **documented}})
    answer = hit(source.query(LeafOp.build("a.b.c", [SHAPE], [SHAPE])))
    assert (answer.latency_us, answer.source) == (0.0, QuerySource.MEASURED)


def test_other_leaves_ask_the_base_first(tmp_path: Path) -> None:
    """RFC 3.1: a semantically complete base exact result is returned, interpolation follows a miss."""
    rows = [row(f"{m},64;64,32", "DT_BF16;DT_BF16", float(m)) for m in (100, 200)]
    source = data(tmp_path, {"MatMulV2": rows}, {"aten.mm.default": {"kernel_type": "MatMulV2"}})
    assert source.query(mm(100, 64, 32)) == source.base.query(mm(100, 64, 32))
    between = hit(source.query(mm(151, 64, 32)))
    assert (between.latency_us, between.details["fallback_from"]) == (151.0, "exact_miss")


def test_dense_attention_keeps_the_phase_1_path(tmp_path: Path) -> None:
    """RFC 5: attention_special continues to use Phase 1 paths."""
    entry = {
        "tensor_cast.attention.default": {"kernel_type": "FusedInferAttentionScore", "query_mode": "attention_special"}
    }
    columns = {"Runtime sparse_mode": 3, "Runtime num_key_value_heads": 1, "Runtime input_layout": "TND"}
    rows = [
        row(
            "8,4,128;99,128,128;99,128,128",
            "DT_BF16;DT_BF16;DT_BF16",
            lat,
            **named({"Runtime avg_seq_len": seq, **columns}),
        )
        for seq, lat in ((1000, 100.0), (4000, 400.0))
    ]
    source = data(tmp_path, {"FusedInferAttentionScore": rows}, entry)
    answer = hit(source.query(attention(8, 4, 128, [2500] * 8)))
    assert (answer.latency_us, answer.details["query_mode"]) == (250.0, "attention_special")
    assert answer.details["axes"] == ["seq"]


def test_communication_stays_with_the_base(tmp_path: Path) -> None:
    """RFC 3.1: category communication; base owns the path and the wrapper misses."""
    entry = {"tensor_cast.all_reduce.default": {"kernel_type": "hcom_allReduce_", "category": "communication"}}
    source = data(tmp_path, {}, entry)
    leaf = LeafOp.build("tensor_cast.all_reduce.default", [SHAPE], [SHAPE], {"rank": 0, "rank_group": (0, 1)})
    answer = miss(source.query(leaf))
    assert answer.reason == miss(source.base.query(leaf)).reason
    assert answer.details["wrapper_reason"] == "wrapper_communication_owned_by_base"


def test_composites_are_never_decomposed_here(tmp_path: Path) -> None:
    """RFC 3.1: Phase 2 neither derives one operator's shape from another nor aggregates several."""
    entry = {"a.b.c": {"composite": True, "sub_kernels": ["Cast", "Add"]}}
    rows = [row(f"{m},64", "DT_BF16", float(m)) for m in (100, 200)]
    source = data(tmp_path, {"Cast": rows}, entry)
    leaf = LeafOp.build("a.b.c", [((150, 64), "bf16")], [((150, 64), "bf16")])
    answer = miss(source.query(leaf))
    assert answer.details["wrapper_reason"] == "wrapper_composite_owned_upstream:a.b.c"


def test_one_table_serves_two_paths_without_sharing_candidates(tmp_path: Path) -> None:
    """RFC 8.4: specialized targets do not fall into generic compute, nor the other way round."""
    entries = {"a.plain.x": {"kernel_type": QUANT}}
    rows = [quant_row(100, 64, 10.0), quant_row(200, 64, 20.0, scales=("200", "200"))]
    source = data(tmp_path, {QUANT: rows}, entries)
    plain = LeafOp.build("a.plain.x", [((150, 64), "bf16")])
    assert hit(source.query(plain)).details["interpolation_path"] == "compute_1d"
    assert miss(source.query(quant(150, 64))).code == "insufficient_filtered_candidates"
    assert hit(source.query(plain)).latency_us == 15.0


def test_lookup_reports_the_reason_and_the_history(tmp_path: Path) -> None:
    """RFC 6.2: a failure records more than None."""
    source = data(tmp_path, {DFC: [dfc_row(120, 10.0), dfc_row(240, 20.0)]})
    assert source.lookup(dfc(500)) is None
    assert source.last_miss_reason == "outside_axis_boundary"
    details = source.last_miss_details
    assert details["miss_code"] == "outside_axis_boundary"
    assert [item["kernel_type"] for item in details["miss_history"]] == [DFC]
    assert source.lookup(dfc(180)) is not None
    assert source.last_miss_details == {}


def test_the_answer_names_no_selector_it_did_not_use(tmp_path: Path) -> None:
    """RFC 6.1: query_mode or compute_subcategory, whichever selected the path."""
    source = data(
        tmp_path,
        {DFC: [dfc_row(120, 10.0)], ADD: [binary_row((4, 8), (4, 8), (4, 8), 1.0)], QUANT: [quant_row(4, 8, 1.0)]},
    )
    assert hit(source.query(dfc(120))).details.get("compute_subcategory") is None
    assert hit(source.query(binary((4, 8), (4, 8), (4, 8)))).details["query_mode"] == "elementwise"
    assert hit(source.query(quant(4, 8))).details.get("query_mode") is None
    assert source.base.entry(dfc(1)) is not None
    assert source.base.entry(dfc(1)).name == DFC_OP  # type: ignore[union-attr]
