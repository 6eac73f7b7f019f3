"""Exact lookup of collectives by message bytes and topology tier, and composites with their children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import base_source, collective, comm_table, hit, miss, named, row, write_database
from tensor_cast import LeafOp, ProfilingDataSource, QuerySource, Requests

MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
BF16 = "DT_BF16;DT_BF16"


# --- communication --------------------------------------------------------------------------------------------------

COMM = {
    "tensor_cast.all_reduce.default": {"kernel_type": "hcom_allReduce_", "category": "communication"},
    "tensor_cast.reduce_scatter.default": {"kernel_type": "hcom_reduceScatter_", "category": "communication"},
    "tensor_cast.all_gather.default": {"kernel_type": "hcom_allGather_", "category": "communication"},
}


def test_communication_exact_then_alpha_beta_clamped(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, COMM)
    comm_table(folder, "hcom_allReduce_", [(100_000, 2, 2, 100.0), (200_000, 2, 2, 200.0), (400_000, 2, 2, 400.0)])
    base = base_source(folder)
    exact = hit(base.query(collective("all_reduce", 100_000, (0, 1))))
    assert (exact.latency_us, exact.confidence, exact.source) == (200.0, 0.9, QuerySource.MEASURED)
    between = hit(base.query(collective("all_reduce", 75_000, (0, 1))))
    assert between.latency_us == pytest.approx(150.0, rel=1e-12)  # alpha = 0, beta = 0.001 us/byte
    assert (between.confidence, between.source) == (0.8, QuerySource.INTERPOLATED)
    assert miss(base.query(collective("all_reduce", 300_000, (0, 1)))).code == "shape_mismatch"  # no extrapolation
    assert miss(base.query(collective("all_reduce", 100, (0, 1)))).code == "shape_mismatch"


def test_the_fitted_line_is_clamped_to_the_bracketing_rows(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, COMM)
    # bytes 0..: mean (200, 40) -> slope from (100,10), (200,10), (300,100): beta = 0.45, alpha = -50; at 250: 62.5
    comm_table(folder, "hcom_allReduce_", [(100, 2, 2, 10.0), (200, 2, 2, 10.0), (300, 2, 2, 100.0)])
    base = base_source(folder)
    assert hit(base.query(collective("all_reduce", 125, (0, 1)))).latency_us == pytest.approx(62.5, rel=1e-12)
    assert hit(base.query(collective("all_reduce", 75, (0, 1)))).latency_us == 10.0  # the line says 17.5


def test_reduce_scatter_divides_bytes_and_all_gather_does_not(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, COMM)
    comm_table(folder, "hcom_reduceScatter_", [(1000, 2, 2, 5.0)])
    comm_table(folder, "hcom_allGather_", [(2000, 2, 2, 7.0)])
    base = base_source(folder)
    assert hit(base.query(collective("reduce_scatter", 1000, (0, 1)))).latency_us == 5.0
    assert hit(base.query(collective("all_gather", 1000, (0, 1)))).latency_us == 7.0


@pytest.mark.parametrize(("group", "tier"), [((0, 1), 2), ((0, 2), 1), ((0, 16), 0), ((0, 1, 2, 3), 1), ((5,), 2)])
def test_topology_tier_of_the_48_8_2_grid(tmp_path: Path, group: tuple[int, ...], tier: int) -> None:
    folder = write_database(tmp_path, {}, COMM)
    comm_table(folder, "hcom_allReduce_", [(2000, len(group), t, float(10 + t)) for t in (0, 1, 2)])
    answer = hit(base_source(folder).query(collective("all_reduce", 1000, group)))
    assert (answer.latency_us, answer.details["topology_tier"]) == (10.0 + tier, tier)


def test_communication_misuse_and_missing_tables(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, COMM)
    base = base_source(folder)
    assert miss(base.query(LeafOp.build("tensor_cast.all_reduce.default", [((4,), "bf16")]))).code == "invalid_args"
    assert miss(base.query(collective("all_reduce", 4, (0, 1)))).code == "csv_not_found"
    (folder / "hcom_allGather_.csv").write_text("a,b\n1,2\n")
    assert miss(base_source(folder).query(collective("all_gather", 4, (0, 1)))).code == "csv_format_raw"


def test_the_referenced_communication_folder_is_read_first(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "dev" / "fw" / "v", {}, COMM, communication_data_ref="../../hccl/v1")
    shared = tmp_path / "dev" / "hccl" / "v1"
    shared.mkdir(parents=True)
    comm_table(shared, "hcom_allReduce_", [(2000, 2, 2, 1.0)])
    comm_table(folder, "hcom_allReduce_", [(2000, 2, 2, 9.0)])
    assert hit(base_source(folder).query(collective("all_reduce", 1000, (0, 1)))).latency_us == 1.0


# --- composites -----------------------------------------------------------------------------------------------------


def test_a_static_composite_adds_its_collective(tmp_path: Path) -> None:
    op = "tensor_cast.matmul_all_reduce.default"
    mapping = {op: {"composite": True, "sub_kernels": ["MatMulV2", "MatMulV3", "hcom_allReduce_"]}}
    folder = write_database(tmp_path, {"MatMulV3": [row("4,8;8,10", BF16, 3.0)]}, mapping)
    comm_table(folder, "hcom_allReduce_", [(80, 2, 2, 5.0)])  # 4 * 10 * 2 bytes
    leaf = LeafOp.build(op, [((4, 8), "bf16"), ((8, 10), "bf16")], attrs={"rank": 0, "rank_group": (0, 1)})
    base = base_source(folder)
    answer = hit(base.query(leaf))
    assert (answer.latency_us, answer.confidence, answer.source) == (8.0, 0.9, QuerySource.MEASURED)
    assert answer.details["sub_kernel_durations"] == [("MatMulV3", 3.0), ("hcom_allReduce_", 5.0)]
    (folder / "hcom_allReduce_.csv").unlink()
    assert miss(base_source(folder).query(leaf)).code == "comm_sub_kernel_miss:hcom_allReduce_"


def test_an_int8_static_composite_counts_two_bytes(tmp_path: Path) -> None:
    op = "tensor_cast.static_quant_linear_all_reduce.default"
    mapping = {op: {"composite": True, "tc_input_count": 2, "sub_kernels": ["QuantBatchMatmulV3", "hcom_allReduce_"]}}
    folder = write_database(tmp_path, {"QuantBatchMatmulV3": [row("4,8;8,10", "INT8;INT8", 3.0)]}, mapping)
    comm_table(folder, "hcom_allReduce_", [(80, 2, 2, 5.0)])
    shapes: list[Any] = [((4, 8), "int8"), ((8, 10), "int8"), ((10,), "float32")]
    leaf = LeafOp.build(op, shapes, attrs={"rank": 0, "rank_group": (0, 1)})
    assert hit(base_source(folder).query(leaf)).latency_us == 8.0


@pytest.mark.parametrize("shapes", [[(4, 8), (8, 10)], [(4, 8), (10, 8)], [(2, 2, 8), (8, 10)]])
def test_a_collective_adds_up_the_product_whatever_its_form(tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    """4 x 10 values of two bytes: 3 us of product and 5 us for 80 bytes, not the 9 us of 64 or of 40 bytes."""
    op = "tensor_cast.matmul_all_reduce.default"
    mapping = {op: {"composite": True, "sub_kernels": ["MatMulV2", "hcom_allReduce_"]}}
    recorded = ";".join(",".join(map(str, shape)) for shape in shapes)
    folder = write_database(tmp_path, {"MatMulV2": [row(recorded, BF16, 3.0)]}, mapping)
    comm_table(folder, "hcom_allReduce_", [(40, 2, 2, 9.0), (64, 2, 2, 9.0), (80, 2, 2, 5.0)])
    leaf = LeafOp.build(op, [(shape, "bf16") for shape in shapes], attrs={"rank": 0, "rank_group": (0, 1)})
    assert hit(base_source(folder).query(leaf)).latency_us == 8.0


def test_strict_matching_refuses_a_product_of_foreign_matrices(tmp_path: Path) -> None:
    op = "tensor_cast.fp8_linear_all_reduce.default"
    mapping = {op: {"composite": True, "tc_input_count": 2, "sub_kernels": ["QuantBatchMatmulV3", "hcom_allReduce_"]}}
    folder = write_database(tmp_path, {"QuantBatchMatmulV3": [row("4,8;8,10", "INT8;INT8", 3.0)]}, mapping)
    comm_table(folder, "hcom_allReduce_", [(80, 2, 2, 5.0)])
    leaf = LeafOp.build(op, [((4, 8), "int8"), ((8, 10), "int8")], attrs={"rank": 0, "rank_group": (0, 1)})
    refused = miss(ProfilingDataSource(folder, exact_match="strict").query(leaf))
    assert refused.details["hint"] == f"{op} does not multiply INT8 by INT8"


def test_sub_kernels_without_a_collective_are_alternatives(tmp_path: Path) -> None:
    op = "tensor_cast.rms_norm_dynamic_quant_symmetric.default"
    mapping = {
        op: {"composite": True, "sub_kernels": ["RmsNorm", "DynamicQuant"]},
        "a.empty.x": {"composite": True, "sub_kernels": []},
    }
    tables = {"RmsNorm": [row("4,8;8", BF16, 3.0)], "DynamicQuant": [row("4,8;8", BF16, 4.0)]}
    folder = write_database(tmp_path, tables, mapping)
    answer = hit(base_source(folder).query(LeafOp.build(op, [((4, 8), "bf16"), ((8,), "bf16")])))
    assert (answer.latency_us, answer.confidence) == (3.0, 0.8)
    assert miss(base_source(folder).query(LeafOp.build("a.empty.x", []))).code == "no_sub_kernels"


def mla_decode() -> LeafOp:
    shapes: list[Any] = [
        ((2, 4, 192), "bf16"),  # query: 2 tokens, 4 heads, nope 128 + rope 64
        ((9, 128, 576), "bf16"),
        ((2, 8), "int32"),
        ((3,), "int32"),
        ((2,), "int32"),
        ((2,), "int32"),
        ((4, 128, 512), "bf16"),
        ((4, 512, 128), "bf16"),
        ((512, 1024), "bf16"),
    ]
    lengths = Requests((1, 1), (500, 500))
    return LeafOp.build("tensor_cast.multihead_latent_attention.default", shapes, requests=lengths)


def mla_tables() -> dict[str, list[dict[str, Any]]]:
    attention_row = row(
        "2,4,512;9,128,512", BF16, 20.0, **named({"Runtime avg_seq_len": 500, "Runtime sparse_mode": 0})
    )
    return {
        "BatchMatMulV2": [row("4,2,128;4,128,512", BF16, 1.0)],
        "FusedInferAttentionScore": [attention_row],
        "TransposeBatchMatMul": [row("4,2,512;4,512,128", BF16, 3.0)],
    }


MLA = {"tensor_cast.multihead_latent_attention.default": {"composite": True, "decomposer": True}}


def test_a_decomposed_composite_sums_its_children(tmp_path: Path) -> None:
    folder = write_database(tmp_path, mla_tables(), MLA)
    answer = hit(base_source(folder).query(mla_decode()))
    assert (answer.latency_us, answer.confidence, answer.source) == (24.0, 0.8, QuerySource.MEASURED)
    assert answer.details["kernel_type"] == "BatchMatMulV2,FusedInferAttentionScore,TransposeBatchMatMul"


def test_a_missing_compute_child_leaves_a_partial_sum(tmp_path: Path) -> None:
    tables = mla_tables()
    del tables["TransposeBatchMatMul"]
    folder = write_database(tmp_path, tables, MLA)
    base = base_source(folder)
    answer = base.lookup(mla_decode())
    assert answer is not None
    assert (answer.latency_us, answer.source) == (21.0, QuerySource.PARTIAL)
    assert answer.confidence == pytest.approx(2 / 3)
    assert answer.details["missed_kernels"] == ["TransposeBatchMatMul"]
    assert base.last_miss_reason == "sub_kernel_miss:TransposeBatchMatMul"


def test_require_all_sub_kernels_turns_partial_into_a_miss(tmp_path: Path) -> None:
    tables = mla_tables()
    del tables["TransposeBatchMatMul"]
    op = "tensor_cast.multihead_latent_attention.default"
    folder = write_database(tmp_path, tables, {op: {**MLA[op], "require_all_sub_kernels": True}})
    assert miss(base_source(folder).query(mla_decode())).code == "sub_kernel_miss:TransposeBatchMatMul"


def test_a_missing_attention_child_is_a_miss_at_once(tmp_path: Path) -> None:
    tables = mla_tables()
    del tables["FusedInferAttentionScore"]
    folder = write_database(tmp_path, tables, MLA)
    code = miss(base_source(folder).query(mla_decode())).code
    assert code == "attention_sub_kernel_miss:FusedInferAttentionScore"


def test_prefill_expands_keys_and_values_instead(tmp_path: Path) -> None:
    tables = {
        "MatMulV2": [row("600,512;512,1024", BF16, 7.0)],
        "FusedInferAttentionScore": [
            row("600,4,128;600,4,128", BF16, 30.0, **named({"Runtime avg_seq_len": 300, "Runtime sparse_mode": 3}))
        ],
    }
    folder = write_database(tmp_path, tables, MLA)
    decode = mla_decode()
    inputs = [(600, 4, 192), *(spec.shape for spec in decode.inputs[1:])]
    shapes: list[Any] = [(shape, spec.dtype) for shape, spec in zip(inputs, decode.inputs, strict=True)]
    leaf = LeafOp.build(decode.name, shapes, requests=Requests((300, 300), (300, 300)))
    assert hit(base_source(folder).query(leaf)).latency_us == 37.0


def test_a_call_without_weights_cannot_be_decomposed(tmp_path: Path) -> None:
    folder = write_database(tmp_path, mla_tables(), MLA)
    shapes: list[Any] = [(spec.shape, spec.dtype) for spec in mla_decode().inputs[:5]]
    leaf = LeafOp.build("tensor_cast.multihead_latent_attention.default", shapes, requests=Requests((1, 1), (5, 5)))
    assert miss(base_source(folder).query(leaf)).code == "decompose_failed"
