"""Exact lookup, rule by rule.  Expected latencies are the literals written into the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import attention, base_source, mm, row, write_database, write_table
from tensor_cast import LeafOp, Miss, QueryResult, QuerySource, Requests
from tensor_cast.performance_model.profiling_database.exact.matching import (
    InputRule,
    Rank,
    combine_rules,
    match_input,
)
from tensor_cast.performance_model.profiling_database.shapes import is_padded, restore_nd, strip_leading_one

MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
BF16 = "DT_BF16;DT_BF16"


def hit(answer: QueryResult | Miss) -> QueryResult:
    assert isinstance(answer, QueryResult), str(answer)
    return answer


def miss(answer: QueryResult | Miss) -> Miss:
    assert isinstance(answer, Miss), str(answer)
    return answer


# --- numbers to test against (exact-lookup facts, section 12) --------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "measured", "expected"),
    [(72, 70, True), (8, 7, False), (16, 7, True), (7, 7, False), (64, 33, True), (70, 72, False), (65, 64, False)],
)
def test_padding_is_16_32_64_always_and_8_from_64_upward(target: int, measured: int, expected: bool) -> None:
    assert is_padded(target, measured) is expected


def test_batch_strip_never_touches_rank_1() -> None:
    assert strip_leading_one((1,)) == (1,)
    assert strip_leading_one((1, 5120)) == (5120,)
    assert strip_leading_one((2, 5120)) == (2, 5120)


def test_fractal_nz_restores_to_n_k() -> None:
    assert restore_nd((66, 448, 16, 32)) == (2112, 7168)
    assert restore_nd((16, 66, 448, 16, 32)) == (16, 2112, 7168)
    assert restore_nd((16, 7168, 4096)) == (16, 7168, 4096)


# --- per-input rules (section 4.4) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "held", "kernel", "position", "rule"),
    [
        ((4, 8), (4, 8), "Cast", 0, "identity"),
        ((1, 4, 8), (4, 8), "Cast", 0, "batch_strip"),
        ((4, 8), (1, 4, 8), "Cast", 0, "batch_strip"),
        ((8, 3), (3, 8), "MatMulV2", 1, "transpose"),
        ((16, 8), (7, 8), "Cast", 0, "padding"),
        ((1, 16, 8), (1, 7, 8), "Cast", 0, "batch_strip+padding"),
        ((2, 3, 8), (6, 8), "RmsNorm", 0, "flatten_3d"),
        ((2, 8, 8), (15, 8), "RmsNorm", 0, "flatten_3d+padding"),
        ((6, 2, 4), (6, 8), "DynamicQuant", 0, "merge_last_dims"),
        ((16, 2, 4), (15, 8), "AscendQuantV2", 0, "merge_last_dims+padding"),
    ],
)
def test_each_rule_fires_and_is_named(
    target: tuple[int, ...], held: tuple[int, ...], kernel: str, position: int, rule: str
) -> None:
    found = match_input(target, held, kernel, position)
    assert found is not None
    assert found.name == rule


@pytest.mark.parametrize(
    ("target", "held", "kernel", "position"),
    [
        ((8, 3), (3, 8), "MatMulV2", 0),  # the activation is never transposed
        ((8, 3), (3, 8), "Cast", 1),  # only matrix kernels transpose
        ((2, 3, 8), (6, 8), "Cast", 0),  # only the flatten set flattens
        ((6, 2, 4), (6, 8), "RmsNorm", 0),
        ((7, 8), (16, 8), "Cast", 0),  # padding goes one way
    ],
)
def test_rules_do_not_fire_elsewhere(
    target: tuple[int, ...], held: tuple[int, ...], kernel: str, position: int
) -> None:
    assert match_input(target, held, kernel, position) is None


def test_a_padded_activation_before_a_transposed_weight_reports_transpose_but_ranks_as_padded() -> None:
    padding, transpose = InputRule("padding", Rank.PADDED), InputRule("transpose", Rank.RESHAPED)
    assert combine_rules([padding, transpose]).name == "transpose"
    assert combine_rules([padding, transpose]).rank is Rank.PADDED


# --- compute (section 4) ----------------------------------------------------------------------------------------------


def test_identity_returns_the_row_bit_for_bit(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [row("4,8;8,3", BF16, 0.1 + 0.2)]}, MM)
    answer = hit(base_source(folder).query(mm(4, 8, 3)))
    assert answer.latency_us == 0.1 + 0.2
    assert answer.confidence == 1.0
    assert answer.source is QuerySource.MEASURED
    assert answer.details["kernel_type"] == "MatMulV2"
    assert answer.details["matched_row_meta"][0]["line"] == 2
    assert answer.shape_match_info is not None
    assert answer.shape_match_info.shape_match_rule == "identity"


def test_an_nz_weight_matches_transposed(tmp_path: Path) -> None:
    rows = [row("4,7168;66,448,16,32", "INT8;INT8", 37.5, formats="ND;FRACTAL_NZ")]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(base_source(folder).query(mm(4, 7168, 2112, "int8")))
    assert answer.latency_us == 37.5
    assert answer.shape_match_info is not None
    assert answer.shape_match_info.shape_match_rule == "transpose"


def test_the_best_rule_wins_over_file_order_and_ties_go_to_the_first_row(tmp_path: Path) -> None:
    """Ruling 4: identity before transposes before padding; never averaged."""
    rows = [
        row("7,8;8,3", BF16, 1.0),
        row("16,8;3,8", BF16, 2.0),
        row("16,8;8,3", BF16, 3.0),
        row("16,8;8,3", BF16, 4.0),
    ]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    assert hit(base_source(folder).query(mm(16, 8, 3))).latency_us == 3.0
    write_table(folder, "MatMulV2", rows[:2])
    assert hit(base_source(folder).query(mm(16, 8, 3))).latency_us == 2.0
    write_table(folder, "MatMulV2", rows[:1])
    assert hit(base_source(folder).query(mm(16, 8, 3))).latency_us == 1.0


def test_alternates_are_tried_after_the_primary_misses(tmp_path: Path) -> None:
    mapping = {"aten.mm.default": {"kernel_type": "MatMulV2", "alternate_kernel_types": ["MatMulV3"]}}
    tables = {"MatMulV2": [row("4,8;8,3", BF16, 1.0)], "MatMulV3": [row("4,8;8,5", BF16, 2.0)]}
    folder = write_database(tmp_path, tables, mapping)
    answer = hit(base_source(folder).query(mm(4, 8, 5)))
    assert (answer.latency_us, answer.details["kernel_type"]) == (2.0, "MatMulV3")


def test_relaxed_dtypes_join_bf16_and_float_for_matmulv2_only(tmp_path: Path) -> None:
    rows = [row("4,8;8,3", "FLOAT;FLOAT", 1.0)]
    mapping = {"aten.mm.default": {"kernel_type": "MatMulV2"}, "aten.bmm.default": {"kernel_type": "MatMulV3"}}
    folder = write_database(tmp_path, {"MatMulV2": rows, "MatMulV3": rows}, mapping)
    assert hit(base_source(folder).query(mm(4, 8, 3))).latency_us == 1.0
    bmm = LeafOp.build("aten.bmm.default", [((4, 8), "bf16"), ((8, 3), "bf16")])
    assert miss(base_source(folder).query(bmm)).code == "shape_mismatch"


def test_an_unnamed_dtype_never_matches(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [row("4,8;8,3", BF16, 1.0)]}, MM)
    answer = miss(base_source(folder).query(mm(4, 8, 3, "uint8")))
    assert answer.code == "shape_mismatch"
    assert answer.details["dtypes_without_a_database_name"] == ["uint8"]


def test_input_counts_must_agree_and_tc_input_count_cuts_both_sides(tmp_path: Path) -> None:
    rows = [row("4,8;8,3;3", "DT_BF16;DT_BF16;DT_BF16", 5.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    assert miss(base_source(folder).query(mm(4, 8, 3))).code == "shape_mismatch"
    folder = write_database(
        tmp_path, {"MatMulV2": rows}, {"aten.mm.default": {"kernel_type": "MatMulV2", "tc_input_count": 2}}
    )
    assert hit(base_source(folder).query(mm(4, 8, 3))).latency_us == 5.0


def test_scalar_tensors_are_dropped_on_both_sides(tmp_path: Path) -> None:
    rows = [row("4,8;();()", "DT_BF16;FLOAT;FLOAT", 5.0)]
    folder = write_database(tmp_path, {"Cast": rows}, {"aten.to.dtype": {"kernel_type": "Cast"}})
    leaf = LeafOp.build("aten.to.dtype", [((4, 8), "bf16"), ((), "float32")])
    assert hit(base_source(folder).query(leaf)).latency_us == 5.0


def test_swiglu_joins_two_halves_into_the_recorded_tensor(tmp_path: Path) -> None:
    rows = [row("6,16", "DT_BF16", 9.0)]
    folder = write_database(tmp_path, {"SwiGlu": rows}, {"tensor_cast.swiglu.default": {"kernel_type": "SwiGlu"}})
    leaf = LeafOp.build("tensor_cast.swiglu.default", [((1, 6, 8), "bf16"), ((6, 8), "bf16")])
    assert hit(base_source(folder).query(leaf)).latency_us == 9.0


def test_rope_rows_hold_key_first_and_sequence_before_heads(tmp_path: Path) -> None:
    rows = [row("1,5,1,64;1,5,4,64;1,5,1,64;1,5,1,64", ";".join(["DT_BF16"] * 4), 7.0)]
    mapping = {"tensor_cast.apply_rope.default": {"kernel_type": "ApplyRotaryPosEmb"}}
    folder = write_database(tmp_path, {"ApplyRotaryPosEmb": rows}, mapping)
    shapes: list[Any] = [((1, 4, 5, 64), "bf16"), ((1, 1, 5, 64), "bf16"), ((1, 5, 64), "bf16"), ((1, 5, 64), "bf16")]
    leaf = LeafOp.build("tensor_cast.apply_rope.default", shapes)
    assert hit(base_source(folder).query(leaf)).latency_us == 7.0


def test_a_cache_write_splits_the_merged_cache(tmp_path: Path) -> None:
    rows = [row("6,1,64;6,1,64;33,128,1,64;33,128,1,64;6", "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64", 4.0)]
    mapping = {"tensor_cast.reshape_and_cache.default": {"kernel_type": "ReshapeAndCacheNdKernel"}}
    folder = write_database(tmp_path, {"ReshapeAndCacheNdKernel": rows}, mapping)
    shapes: list[Any] = [
        ((6, 64), "bf16"),
        ((6, 64), "bf16"),
        ((2, 33, 128, 1, 64), "bf16"),
        ((6,), "int64"),
    ]
    leaf = LeafOp.build("tensor_cast.reshape_and_cache.default", shapes)
    assert hit(base_source(folder).query(leaf)).latency_us == 4.0


# --- latency columns (database facts, section 2.4) ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "expected", "column"),
    [
        ({"Average Duration(us)": 3, "Profiling Average Duration(us)": 5, "Duration(us)": 7}, 3.0, "Average"),
        ({"Average Duration(us)": "", "Profiling Average Duration(us)": 5, "Duration(us)": 7}, 5.0, "Profiling"),
        ({"Average Duration(us)": 0, "Profiling Average Duration(us)": "nan", "Duration(us)": 7}, 7.0, "Duration"),
        ({"Average Duration(us)": -1, "Profiling Average Duration(us)": "x", "Duration(us)": 7}, 7.0, "Duration"),
    ],
)
def test_the_first_usable_latency_column_is_taken(
    tmp_path: Path, cells: dict[str, Any], expected: float, column: str
) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [row("4,8;8,3", BF16, **cells)]}, MM)
    answer = hit(base_source(folder).query(mm(4, 8, 3)))
    assert answer.latency_us == expected
    assert answer.details["matched_row_meta"][0]["latency_column"].startswith(column)


@pytest.mark.parametrize("latency", [0, "", "nan", "inf", -3, "abc"])
def test_a_row_without_usable_latency_is_never_a_hit(tmp_path: Path, latency: Any) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [row("4,8;8,3", BF16, latency)]}, MM)
    assert miss(base_source(folder).query(mm(4, 8, 3))).code == "shape_mismatch"


# --- dispatch (section 2) -------------------------------------------------------------------------------------------


def test_dispatch_order_and_accounted_zeros(tmp_path: Path) -> None:
    mapping = {
        "a.zero.x": {"zero_cost": True, "kernel_type": "Cast"},
        "a.accepted.x": {"accepted_miss": "fused into KvRmsNormRopeCache"},
        "a.mode.x": {"zero_cost": True, "kernel_type": "Cast", "query_mode": "elementwise"},
        "a.nothing.x": {"notes": "no kernel"},
    }
    folder = write_database(tmp_path, {"Cast": [row("4", "FLOAT", 1.0, outputs="4", output_dtypes="FLOAT")]}, mapping)
    base = base_source(folder)
    zero = hit(base.query(LeafOp.build("a.zero.x", [((4,), "float32")])))
    assert (zero.latency_us, zero.confidence, zero.details["zero_cost"]) == (0.0, 1.0, True)
    accepted = hit(base.query(LeafOp.build("a.accepted.x", [((4,), "float32")])))
    assert (accepted.latency_us, accepted.details["note"]) == (0.0, "fused into KvRmsNormRopeCache")
    moded = LeafOp.build("a.mode.x", [((4,), "float32")], [((4,), "float32")])
    assert hit(base.query(moded)).latency_us == 1.0
    assert miss(base.query(LeafOp.build("a.other.x", []))).code == "unmapped:a.other.x"
    assert miss(base.query(LeafOp.build("a.nothing.x", []))).code == "compute_kernel_type_missing:a.nothing.x"


def test_a_kernel_without_a_table_is_csv_not_found(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, MM)
    assert miss(base_source(folder).query(mm(4, 8, 3))).code == "csv_not_found"


# --- elementwise (section 5) ----------------------------------------------------------------------------------------

ADD = {"aten.add.Tensor": {"kernel_type": "Add", "query_mode": "elementwise", "alternate_kernel_types": ["AddAiCore"]}}


def add(shape: tuple[int, ...], dtype: str = "bfloat16") -> LeafOp:
    return LeafOp.build("aten.add.Tensor", [(shape, dtype), (shape, dtype)], [(shape, dtype)])


def out(shape: str, dtype: str, latency: float) -> dict[str, Any]:
    return row(f"{shape};{shape}", f"{dtype};{dtype}", latency, outputs=shape, output_dtypes=dtype)


def test_elementwise_matches_the_output_and_scales_dtype_by_bytes(tmp_path: Path) -> None:
    folder = write_database(
        tmp_path, {"Add": [out("4,8", "FLOAT", 10.0)], "AddAiCore": [out("9,9", "FLOAT", 1.0)]}, ADD
    )
    base = base_source(folder)
    same = hit(base.query(add((4, 8), "float32")))
    assert (same.latency_us, same.confidence) == (10.0, 1.0)
    scaled = hit(base.query(add((1, 4, 8))))
    assert (scaled.latency_us, scaled.confidence, scaled.details["dtype_scale"]) == (5.0, 0.9, 0.5)
    assert hit(base.query(add((2, 2, 8), "float32"))).latency_us == 10.0  # flattened
    assert hit(base.query(add((16, 8), "float32"))).latency_us == 10.0  # 4 pads to 16
    assert miss(base.query(add((9, 9), "float32"))).code == "elementwise_output_shape_mismatch"  # no alternates here
    assert miss(base.query(add((4, 8), "bool"))).code == "elementwise_output_shape_mismatch"


def test_elementwise_with_scalar_output_is_ordinary_compute(tmp_path: Path) -> None:
    folder = write_database(
        tmp_path, {"Add": [row("4;4", "FLOAT;FLOAT", 3.0, outputs="4", output_dtypes="FLOAT")]}, ADD
    )
    leaf = LeafOp.build("aten.add.Tensor", [((4,), "float32"), ((4,), "float32")], [((), "float32")])
    assert hit(base_source(folder).query(leaf)).latency_us == 3.0


# --- fused MoE (section 6) ------------------------------------------------------------------------------------------


def test_fused_moe_needs_a_configured_ep_size_and_an_equal_one(tmp_path: Path) -> None:
    rows = [row("4,8", "DT_BF16", 1.0, **{"EP Size": ""}), row("4,8", "DT_BF16", 2.0, **{"EP Size": "16"})]
    op = "tensor_cast.dispatch_ffn_combine_quant.default"
    mapping = {op: {"kernel_type": "DispatchFFNCombine", "query_mode": "moe_fused", "tc_input_count": 1}}
    folder = write_database(tmp_path, {"DispatchFFNCombine": rows}, mapping)
    leaf = LeafOp.build(op, [((4, 8), "bf16")])
    assert miss(base_source(folder).query(leaf)).code == "ep_size_not_configured"
    assert hit(base_source(folder, expert_parallel_size=16).query(leaf)).latency_us == 2.0
    assert miss(base_source(folder, expert_parallel_size=8).query(leaf)).code == "shape_mismatch"


def test_fused_moe_without_an_ep_column_does_not_check_it(tmp_path: Path) -> None:
    op = "tensor_cast.dispatch_ffn_combine_quant.default"
    mapping = {op: {"kernel_type": "DispatchFFNCombine", "query_mode": "moe_fused", "tc_input_count": 1}}
    folder = write_database(tmp_path, {"DispatchFFNCombine": [row("4,8", "DT_BF16", 2.0)]}, mapping)
    assert hit(base_source(folder).query(LeafOp.build(op, [((4, 8), "bf16")]))).latency_us == 2.0


# --- attention (section 7) ------------------------------------------------------------------------------------------

ATTENTION = {
    "tensor_cast.attention.default": {"kernel_type": "FusedInferAttentionScore", "query_mode": "attention_special"}
}


def fia(tokens: int, seq: int, latency: float, **columns: Any) -> dict[str, Any]:
    return row(
        f"{tokens},4,128;99,128,128;99,128,128;;2048,2048",
        "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED;INT8",
        latency,
        formats="ND;ND;ND;NULL;ND",
        **{"Runtime avg_seq_len": seq, "Runtime sparse_mode": 3, "Runtime num_key_value_heads": 1, **columns},
    )


def test_attention_takes_the_nearest_context_within_16(tmp_path: Path) -> None:
    rows = [fia(8, 1000, 1.0), fia(8, 1010, 2.0), fia(8, 1024, 3.0)]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, ATTENTION)
    base = base_source(folder)
    nearest = hit(base.query(attention(8, 4, 128, [1008] * 8)))
    assert (nearest.latency_us, nearest.confidence, nearest.details["avg_seq_len"]) == (2.0, 0.9, 1010)
    assert hit(base.query(attention(8, 4, 128, [1040] * 8))).latency_us == 3.0  # 16 is inclusive
    assert miss(base.query(attention(8, 4, 128, [1041] * 8))).code == "shape_mismatch"
    assert hit(base.query(attention(8, 4, 128, [1000, 1001]))).latency_us == 1.0  # the mean is truncated
    tie = hit(base.query(attention(8, 4, 128, [1005])))
    assert tie.latency_us == 1.0  # equal gaps: the earlier row


def test_attention_tokens_may_be_padded_either_way(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"FusedInferAttentionScore": [fia(30, 500, 1.0)]}, ATTENTION)
    base = base_source(folder)
    assert hit(base.query(attention(32, 4, 128, [500]))).latency_us == 1.0
    assert miss(base.query(attention(29, 4, 128, [500]))).code == "shape_mismatch"
    folder = write_database(tmp_path, {"FusedInferAttentionScore": [fia(32, 500, 1.0)]}, ATTENTION)
    assert hit(base_source(folder).query(attention(30, 4, 128, [500]))).latency_us == 1.0


@pytest.mark.parametrize(
    "columns",
    [
        {"Runtime sparse_mode": 0},
        {"Runtime num_key_value_heads": 2},
        {"Runtime num_key_value_heads": ""},
        {"Runtime avg_seq_len": -1},
        {"Runtime avg_seq_len": ""},
    ],
)
def test_attention_runtime_columns_must_agree(tmp_path: Path, columns: dict[str, Any]) -> None:
    folder = write_database(tmp_path, {"FusedInferAttentionScore": [fia(8, 500, 1.0, **columns)]}, ATTENTION)
    assert miss(base_source(folder).query(attention(8, 4, 128, [500]))).code == "shape_mismatch"


def test_attention_layout_constrains_only_queries_that_show_it(tmp_path: Path) -> None:
    rows = [fia(8, 500, 1.0, **{"Runtime input_layout": "BNSD_NBSD"})]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, ATTENTION)
    base = base_source(folder)
    assert hit(base.query(attention(8, 4, 128, [500]))).latency_us == 1.0  # rank 2: unconstrained
    rank3 = attention(8, 4, 128, [500], query_shape=(8, 4, 128))
    assert miss(base.query(rank3)).code == "shape_mismatch"  # rank 3 is TND


def test_attention_reports_what_is_missing(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"FusedInferAttentionScore": [fia(8, 500, 1.0)]}, ATTENTION)
    base = base_source(folder)
    name = "tensor_cast.attention.default"
    cache = ((9, 128, 1, 128), "bf16")
    lengths = Requests(None, (500,))
    assert miss(base.query(LeafOp.build(name, []))).code == "query_not_tensor"
    assert miss(base.query(LeafOp.build(name, [((8, 512), "uint8"), cache, cache]))).code == "dtype_unmapped:uint8"
    assert miss(base.query(LeafOp.build(name, [((8, 512), "bf16")]))).code == "insufficient_args"
    odd = LeafOp.build(name, [((8, 500), "bf16"), cache, cache], requests=lengths)
    assert miss(base.query(odd)).code == "q_shape_normalize_failed"
    assert miss(base.query(LeafOp.build(name, [((8, 512), "bf16"), cache, cache]))).code == "missing_seq_lens"


# --- communication (section 8) --------------------------------------------------------------------------------------

COMM = {
    "tensor_cast.all_reduce.default": {"kernel_type": "hcom_allReduce_", "category": "communication"},
    "tensor_cast.reduce_scatter.default": {"kernel_type": "hcom_reduceScatter_", "category": "communication"},
    "tensor_cast.all_gather.default": {"kernel_type": "hcom_allGather_", "category": "communication"},
}


def comm_table(folder: Path, kernel: str, rows: list[tuple[int, int, int, float]]) -> None:
    lines = ["message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps"]
    lines += [f"{size},{devices},DT_BF16,{tier},{latency},1.0" for size, devices, tier, latency in rows]
    (folder / f"{kernel}.csv").write_text("\n".join(lines) + "\n")


def collective(op: str, numel: int, group: tuple[int, ...]) -> LeafOp:
    return LeafOp.build(f"tensor_cast.{op}.default", [((numel,), "bf16")], attrs={"rank": 0, "rank_group": group})


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


# --- composites (section 9) -----------------------------------------------------------------------------------------


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
    attention_row = row("2,4,512;9,128,512", BF16, 20.0, **{"Runtime avg_seq_len": 500, "Runtime sparse_mode": 0})
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
            row("600,4,128;600,4,128", BF16, 30.0, **{"Runtime avg_seq_len": 300, "Runtime sparse_mode": 3})
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


def test_lookup_reports_the_reason_and_store_refuses(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, MM)
    base = base_source(folder)
    assert base.lookup(mm(4, 8, 3)) is None
    assert base.last_miss_reason == "csv_not_found"
    with pytest.raises(NotImplementedError, match="read-only"):
        base.store(mm(4, 8, 3), 1.0)
