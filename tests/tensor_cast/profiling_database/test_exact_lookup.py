"""Exact lookup, rule by rule.  Expected latencies are the literals written into the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import attention, base_source, hit, miss, mm, row, write_database, write_table
from tensor_cast import LeafOp, QuerySource, Requests
from tensor_cast.performance_model.profiling_database.exact.matching import (
    InputRule,
    Rank,
    combine_rules,
    match_input,
)
from tensor_cast.performance_model.profiling_database.tables.shapes import is_padded, restore_nd, strip_leading_one

MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
BF16 = "DT_BF16;DT_BF16"


# --- padding (docs/facts/exact-lookup.md, "Padding") -----------------------------------------------------------------


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


# --- per-input rules --------------------------------------------------------------------------------------------------


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


# --- compute ----------------------------------------------------------------------------------------------------------


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
    """Decision 002.4: identity before transposes before padding; never averaged."""
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


# --- latency columns (docs/facts/database-layout.md, "Latency columns") ---------------------------------------------


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


# --- dispatch (docs/facts/exact-lookup.md, "Order of dispatch") -----------------------------------------------------


def test_dispatch_order_and_accounted_zeros(tmp_path: Path) -> None:
    mapping: dict[str, dict[str, Any]] = {
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


# --- elementwise ----------------------------------------------------------------------------------------------------

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


# --- fused MoE ------------------------------------------------------------------------------------------------------


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


# --- attention ------------------------------------------------------------------------------------------------------

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


def test_lookup_reports_the_reason_and_store_refuses(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {}, MM)
    base = base_source(folder)
    assert base.lookup(mm(4, 8, 3)) is None
    assert base.last_miss_reason == "csv_not_found"
    with pytest.raises(NotImplementedError, match="read-only"):
        base.store(mm(4, 8, 3), 1.0)
