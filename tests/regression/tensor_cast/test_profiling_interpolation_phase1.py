"""Phase 1 interpolation, rule by rule.  Expected values are worked by hand in the comments.

Source: docs/facts/interpolation.md.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from support import attention, hit, miss, mm, named, row, source, write_database
from tensor_cast import LeafOp, QuerySource

MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
BF16 = "DT_BF16;DT_BF16"


def product(m: int, k: int, n: int, latency: float | str | None = None, **columns: Any) -> dict[str, Any]:
    return row(f"{m},{k};{k},{n}", BF16, latency, **columns)


# --- matrix products ------------------------------------------------------------------------------------------------


def test_1d_over_m_between_adjacent_rows(tmp_path: Path) -> None:
    rows = [product(100, 8, 4, 10.0), product(200, 8, 4, 30.0), product(400, 8, 4, 90.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(150, 8, 4)))
    assert answer.latency_us == 20.0  # halfway between 10 and 30
    assert answer.source is QuerySource.INTERPOLATED
    assert answer.confidence == 0.70
    details = answer.details
    assert details["method"] == "linear_1d"
    assert details["axes"] == ["M"]
    assert details["interpolation_dim"] == 1
    assert details["target"] == {"M": 150.0}
    assert details["axis_boundary"] == {"M": [100.0, 200.0]}
    assert details["candidate_count"] == 3
    assert details["fallback_from"] == "exact_miss"
    assert details["interpolation_path"] == "multidim"
    assert details["effective_filters"] == ["K", "N"]
    assert [meta["line"] for meta in details["matched_row_meta"]] == [2, 3]
    assert answer.shape_match_info is not None
    assert answer.shape_match_info.shape_match_rule == "interpolated_1d_linear"


@pytest.mark.parametrize(("target", "axis"), [((8, 12, 4), "K"), ((8, 8, 6), "N")])
def test_1d_over_k_and_over_n(tmp_path: Path, target: tuple[int, int, int], axis: str) -> None:
    rows = [product(8, 8, 4, 10.0), product(8, 16, 4, 20.0), product(8, 8, 8, 40.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(*target)))
    assert answer.details["axes"] == [axis]
    assert answer.latency_us == {"K": 15.0, "N": 25.0}[axis]


def test_2d_only_after_every_1d_group_failed(tmp_path: Path) -> None:
    # latency = 1 + M + 2K is a plane: at M=150, K=12: 1 + 150 + 24
    rows = [product(m, k, 4, 1 + m + 2 * k) for m in (100, 200) for k in (8, 16)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(150, 12, 4)))
    assert answer.latency_us == pytest.approx(175.0, rel=1e-12)
    assert answer.details["axes"] == ["M", "K"]
    assert answer.confidence == 0.65
    assert [attempt["axes"] for attempt in answer.details["attempts"]] == [["M"], ["K"], ["N"]]
    assert answer.shape_match_info is not None
    assert answer.shape_match_info.shape_match_rule == "interpolated_2d_griddata_linear"
    assert sum(answer.details["simplex"]["barycentric_weights"]) == pytest.approx(1.0)


def test_3d_reproduces_a_linear_function(tmp_path: Path) -> None:
    rows = [product(m, k, n, 1 + m + 2 * k + 3 * n) for m in (100, 200) for k in (8, 16) for n in (4, 10)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(150, 12, 7)))
    assert answer.latency_us == pytest.approx(1 + 150 + 24 + 21, rel=1e-12)
    assert answer.details["axes"] == ["M", "K", "N"]
    assert answer.confidence == 0.60


@pytest.mark.parametrize("target", [(50, 8, 4), (500, 8, 4)])
def test_nothing_is_extrapolated(tmp_path: Path, target: tuple[int, int, int]) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [product(100, 8, 4, 10.0), product(200, 8, 4, 30.0)]}, MM)
    wrapper = source(folder)
    answer = miss(wrapper.query(mm(*target)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["measured_range"] == {"M": (100.0, 200.0)}
    assert answer.details["target_axes"]["M"] == float(target[0])
    assert wrapper.lookup(mm(*target)) is None
    assert wrapper.last_miss_reason == "compute_multidim_interpolation_failed"
    assert wrapper.last_miss_details["miss_code"] == "outside_axis_boundary"


def test_a_point_outside_the_hull_but_inside_the_box_is_refused(tmp_path: Path) -> None:
    rows = [product(100, 8, 4, 10.0), product(200, 8, 4, 20.0), product(100, 16, 4, 30.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = miss(source(folder).query(mm(190, 15, 4)))
    tried = answer.details["attempts"][0]["axis_attempts"]
    assert {"axes": ["M", "K"], "status": "outside_convex_hull"}.items() <= tried[3].items()


def test_a_line_of_points_has_no_2d_structure(tmp_path: Path) -> None:
    rows = [product(100, 8, 4, 10.0), product(200, 16, 4, 20.0), product(300, 24, 4, 30.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    tried = miss(source(folder).query(mm(150, 12, 4))).details["attempts"][0]["axis_attempts"]
    assert tried[3]["status"] == "degenerate_point_cloud"


def test_two_points_are_too_few_for_2d(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [product(100, 8, 4, 10.0), product(200, 16, 4, 20.0)]}, MM)
    tried = miss(source(folder).query(mm(150, 12, 4))).details["attempts"][0]["axis_attempts"]
    assert (tried[3]["status"], tried[3]["note"]) == ("grid_structure_rejected", "unique_point_count_lt_min")


def test_one_row_is_no_line(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": [product(100, 8, 4, 10.0)]}, MM)
    answer = miss(source(folder).query(mm(150, 8, 4)))
    assert answer.code == "insufficient_filtered_candidates"


def test_max_interpolation_dim_skips_larger_groups_without_reordering(tmp_path: Path) -> None:
    rows = [product(m, k, 4, 1 + m + 2 * k) for m in (100, 200) for k in (8, 16)]
    for ceiling, answered in ((0, ()), (1, ("1d",)), (2, ("1d", "2d"))):
        policy = {"MatMulV2": {"max_interpolation_dim": ceiling}}
        folder = write_database(tmp_path / str(ceiling), {"MatMulV2": rows}, MM, policy)
        wrapper = source(folder)
        one, two = wrapper.query(mm(150, 8, 4)), wrapper.query(mm(150, 12, 4))
        assert bool(one) == ("1d" in answered)
        assert bool(two) == ("2d" in answered)
        if not two:
            statuses = [a["status"] for a in two.details["attempts"][0]["axis_attempts"]]
            assert "interpolation_dim_disabled" in statuses
        if not one:
            assert miss(one).code == "interpolation_dim_disabled"


def test_repeated_rows_merge_by_median_with_count_and_spread(tmp_path: Path) -> None:
    rows = [product(100, 8, 4, latency) for latency in (10.0, 11.0, 30.0)] + [product(200, 8, 4, 21.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(150, 8, 4)))
    assert answer.latency_us == 16.0  # median 11, halfway to 21
    meta = answer.details["matched_row_meta"][0]
    assert meta["aggregation"] == "median"
    assert meta["duplicate_count"] == 3
    assert (meta["duplicate_latency_min_us"], meta["duplicate_latency_max_us"]) == (10.0, 30.0)
    # population standard deviation of 10, 11, 30: mean 17, squares 49 + 36 + 169 = 254, 254 / 3
    assert meta["duplicate_latency_std_us"] == pytest.approx(math.sqrt(254 / 3))


def test_nd_groups_answer_before_nz_groups_and_never_mix(tmp_path: Path) -> None:
    nz = {"formats": "ND;FRACTAL_NZ"}
    rows = [
        row("100,64;2,4,16,32", "INT8;INT8", 1.0, **nz),
        row("200,64;2,4,16,32", "INT8;INT8", 3.0, **nz),
        row("100,64;64,64", "INT8;INT8", 100.0),
        row("200,64;64,64", "INT8;INT8", 300.0),
    ]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(150, 64, 64, "int8")))
    assert answer.latency_us == 200.0
    assert answer.details["exact_fields"]["input_formats"] == ["ND", "ND"]


def test_nz_weights_give_m_k_n(tmp_path: Path) -> None:
    nz = {"formats": "ND;FRACTAL_NZ"}
    rows = [
        row("100,7168;66,448,16,32", "INT8;INT8", 10.0, **nz),
        row("200,7168;66,448,16,32", "INT8;INT8", 20.0, **nz),
    ]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    answer = hit(source(folder).query(mm(150, 7168, 2112, "int8")))
    assert answer.latency_us == 15.0


def test_dtypes_and_batch_dims_isolate(tmp_path: Path) -> None:
    rows = [product(100, 8, 4, 10.0), product(200, 8, 4, 30.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    wrapper = source(folder)
    assert miss(wrapper.query(mm(150, 8, 4, "int8"))).code == "regime_key_unmatched"
    batched = LeafOp.build("aten.mm.default", [((3, 150, 8), "bf16"), ((3, 8, 4), "bf16")])
    answer = miss(wrapper.query(batched))
    assert answer.code == "regime_key_unmatched"
    assert list(answer.details["attempts"][0]["nearest_regime_differs_in"]) == ["batch_dims"]


def test_a_leading_one_is_one_row_at_rank_2_and_a_batch_at_rank_3(tmp_path: Path) -> None:
    rows = [product(1, 8, 4, 10.0), product(3, 8, 4, 30.0)]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    leaf = LeafOp.build("aten.mm.default", [((1, 2, 8), "bf16"), ((8, 4), "bf16")])
    assert hit(source(folder).query(leaf)).latency_us == 20.0


def test_alternate_kernels_are_tried_in_order_and_all_are_reported(tmp_path: Path) -> None:
    mapping = {"aten.mm.default": {"kernel_type": "MatMulV2", "alternate_kernel_types": ["MatMulV3", "MatMulCommon"]}}
    tables = {"MatMulV3": [product(100, 8, 4, 10.0), product(200, 8, 4, 30.0)]}
    folder = write_database(tmp_path, tables, mapping)
    answer = hit(source(folder).query(mm(150, 8, 4)))
    assert (answer.latency_us, answer.details["kernel_type"]) == (20.0, "MatMulV3")
    refused = miss(source(folder).query(mm(500, 8, 4)))
    statuses = {a["kernel_type"]: a["status"] for a in refused.details["attempts"]}
    assert statuses == {
        "MatMulV2": "compute_csv_not_found",
        "MatMulV3": "outside_axis_boundary",
        "MatMulCommon": "compute_csv_not_found",
    }
    assert refused.code == "outside_axis_boundary"


def test_an_interpolation_in_the_primary_beats_an_exact_row_in_an_alternate(tmp_path: Path) -> None:
    """Decision 002.16, for a path that owns exact matches."""
    mapping = {
        "aten.add.Tensor": {"kernel_type": "Add", "alternate_kernel_types": ["AddAiCore"], "query_mode": "elementwise"}
    }

    def add_row(tokens: int, latency: float) -> dict[str, Any]:
        return row(f"{tokens},8;{tokens},8", BF16, latency, outputs=f"{tokens},8", output_dtypes="DT_BF16")

    tables = {"Add": [add_row(100, 10.0), add_row(200, 20.0)], "AddAiCore": [add_row(150, 99.0)]}
    folder = write_database(tmp_path, tables, mapping)
    shape = ((150, 8), "bf16")
    leaf = LeafOp.build("aten.add.Tensor", [shape, shape], [shape])
    assert hit(source(folder).query(leaf)).latency_us == 15.0


# --- latency source purity ------------------------------------------------------------------------------------------


def test_one_interpolation_never_mixes_latency_columns(tmp_path: Path) -> None:
    average, profiling = "Average Duration(us)", "Profiling Average Duration(us)"
    rows = [
        product(100, 8, 4, **named({average: 10, profiling: ""})),
        product(150, 8, 4, **named({average: "", profiling: 1000})),
        product(200, 8, 4, **named({average: 30, profiling: ""})),
        product(250, 8, 4, **named({average: "", profiling: 3000})),
    ]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    wrapper = source(folder)
    pure = hit(wrapper.query(mm(151, 8, 4)))
    assert pure.latency_us == pytest.approx(20.2)  # 10 + 20 * 51/100, the profiler row at 150 is left out
    assert pure.details["latency_source_attempt"] == "selected_only"
    fallback = hit(wrapper.query(mm(225, 8, 4)))
    assert fallback.latency_us == pytest.approx(2500.0)  # 1000 + 2000 * 75/100
    assert fallback.details["latency_source_attempt"] == "fallback_only"
    columns = {meta["latency_column"] for meta in fallback.details["matched_row_meta"]}
    assert columns == {profiling}


def test_the_candidate_column_list_is_longer_than_the_exact_one(tmp_path: Path) -> None:
    median = "Profiling Median Duration(us)"
    rows = [product(100, 8, 4, "", **{median: 10}), product(200, 8, 4, "", **{median: 30})]
    folder = write_database(tmp_path, {"MatMulV2": rows}, MM)
    wrapper = source(folder)
    assert not wrapper.base.query(mm(100, 8, 4))
    assert hit(wrapper.query(mm(150, 8, 4))).latency_us == 20.0


# --- generic compute ------------------------------------------------------------------------------------------------

CAST = {"aten.to.dtype": {"kernel_type": "Cast"}}


def cast(*shape: int, dtype: str = "float32") -> LeafOp:
    return LeafOp.build("aten.to.dtype", [(shape, dtype)], [(shape, "bf16")])


def test_axis_0_with_the_tail_fixed(tmp_path: Path) -> None:
    rows = [row("100,8", "FLOAT", 10.0), row("200,8", "FLOAT", 30.0)]
    folder = write_database(tmp_path, {"Cast": rows}, CAST)
    wrapper = source(folder)
    answer = hit(wrapper.query(cast(150, 8)))
    assert (answer.latency_us, answer.details["axes"]) == (20.0, ["axis_0"])
    assert answer.details["interpolation_path"] == "compute_1d"
    assert hit(wrapper.query(cast(1, 150, 8))).latency_us == 20.0
    assert miss(wrapper.query(cast(150, 9))).code == "regime_key_unmatched"
    assert miss(wrapper.query(cast(150, 8, dtype="uint8"))).code == "compute_target_unavailable:Cast"


def test_other_inputs_are_fixed_in_full(tmp_path: Path) -> None:
    mapping = {"tensor_cast.rms_norm.default": {"kernel_type": "RmsNorm"}}
    rows = [row("100,8;8", BF16, 10.0), row("200,8;8", BF16, 30.0)]
    folder = write_database(tmp_path, {"RmsNorm": rows}, mapping)
    norm = LeafOp.build("tensor_cast.rms_norm.default", [((150, 8), "bf16"), ((8,), "bf16")])
    assert hit(source(folder).query(norm)).latency_us == 20.0
    other = LeafOp.build("tensor_cast.rms_norm.default", [((150, 8), "bf16"), ((1,), "bf16")])
    assert miss(source(folder).query(other)).code == "regime_key_unmatched"


def gather(indices: int, width: int = 8) -> LeafOp:
    shapes: list[Any] = [((1000, width), "bf16"), ((1, indices), "int64")]
    return LeafOp.build("aten.embedding.default", shapes, [((1, indices, width), "bf16")])


def test_output_numel_and_its_inheritance_by_alternates(tmp_path: Path) -> None:
    mapping = {
        "aten.embedding.default": {
            "kernel_type": "GatherV2",
            "alternate_kernel_types": ["GatherV3"],
            "tc_input_count": 2,
        }
    }
    rows = [
        row(f"1000,8;{n};1", "DT_BF16;INT64;INT64", latency, outputs=f"{n},8", output_dtypes="DT_BF16")
        for n, latency in ((10, 10.0), (30, 50.0))
    ]
    policy = {"GatherV2": {"generic_compute": {"axis": "output_numel"}}}
    for kernel in ("GatherV2", "GatherV3"):
        folder = write_database(tmp_path / kernel, {kernel: rows}, mapping, policy)
        answer = hit(source(folder).query(gather(20)))
        assert answer.latency_us == 30.0  # 160 elements, halfway from 80 to 240
        assert answer.details["axes"] == ["output_numel"]
        assert answer.details["target"] == {"output_numel": 160.0}
    assert miss(source(folder).query(gather(20, 16))).code == "regime_key_unmatched"


@pytest.mark.parametrize(
    ("outputs", "cause"),
    [
        ([], "generic_compute_output_shape_unavailable"),
        ([((4, 8), "bf16"), ((4,), "bf16")], "generic_compute_output_numel_multi_output_unsupported"),
        ([((), "bf16")], "generic_compute_output_shape_invalid"),
    ],
)
def test_output_numel_needs_one_output(tmp_path: Path, outputs: list[Any], cause: str) -> None:
    mapping = {"aten.index.Tensor": {"kernel_type": "Index", "tc_input_count": 1}}
    rows = [row("10,8", "DT_BF16", 1.0, outputs="10,8", output_dtypes="DT_BF16")]
    policy = {"Index": {"generic_compute": {"axis": "output_numel"}}}
    folder = write_database(tmp_path, {"Index": rows}, mapping, policy)
    answer = miss(source(folder).query(LeafOp.build("aten.index.Tensor", [((9, 8), "bf16")], outputs)))
    assert answer.code == "compute_target_unavailable:Index"
    assert answer.details["attempts"][0]["cause"] == cause


# --- dense attention ------------------------------------------------------------------------------------------------

FIA = {"tensor_cast.attention.default": {"kernel_type": "FusedInferAttentionScore", "query_mode": "attention_special"}}
SQRT = {"FusedInferAttentionScore": {"axis_transform": "sqrt_seq"}}


def fia(tokens: int, seq: int, latency: float, heads: int = 4, **columns: Any) -> dict[str, Any]:
    runtime = {
        "Runtime avg_seq_len": seq,
        "Runtime sparse_mode": 3,
        "Runtime num_key_value_heads": 1,
        "Runtime input_layout": "TND",
    }
    cells = f"{tokens},{heads},128;99,128,128;99,128,128"
    return row(cells, "DT_BF16;DT_BF16;DT_BF16", latency, **(named(runtime | columns)))


def test_context_length_linear_and_square_root(tmp_path: Path) -> None:
    rows = [fia(8, 1000, 100.0), fia(8, 4000, 1600.0)]
    linear = write_database(tmp_path / "linear", {"FusedInferAttentionScore": rows}, FIA)
    leaf = attention(8, 4, 128, [2000] * 8, query_lens=[1] * 8)
    answer = hit(source(linear).query(leaf))
    assert answer.latency_us == pytest.approx(600.0)  # 100 + 1500 / 3
    root = write_database(tmp_path / "root", {"FusedInferAttentionScore": rows}, FIA, SQRT)
    answer = hit(source(root).query(leaf))
    expected = 100 + (math.sqrt(2000) - math.sqrt(1000)) / (math.sqrt(4000) - math.sqrt(1000)) * 1500
    assert answer.latency_us == pytest.approx(expected, rel=1e-12)  # about 721.3
    assert round(expected, 1) == 721.3
    assert answer.details["method"] == "linear_1d_sqrt"
    assert answer.details["axis_transform"] == "sqrt(seq)"
    assert answer.details["target_pre_transform"] == {"seq": 2000}
    assert answer.details["axis_boundary_pre_transform"] == {"seq": [1000, 4000]}
    assert answer.shape_match_info is not None
    assert answer.shape_match_info.shape_match_rule == "interpolated_1d_linear_sqrt"


def test_heads_interpolate_after_the_context_length(tmp_path: Path) -> None:
    rows = [fia(8, 1000, 100.0, heads=4), fia(8, 1000, 300.0, heads=8)]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, FIA)
    answer = hit(source(folder).query(attention(8, 6, 128, [1000] * 8)))
    assert (answer.latency_us, answer.details["axes"]) == (200.0, ["heads"])


def test_query_tokens_filter_equal_or_padded_and_are_never_interpolated(tmp_path: Path) -> None:
    rows = [fia(30, 1000, 100.0), fia(30, 3000, 300.0), fia(200, 1000, 1.0)]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, FIA)
    wrapper = source(folder)
    assert hit(wrapper.query(attention(30, 4, 128, [2000]))).latency_us == 200.0
    assert hit(wrapper.query(attention(32, 4, 128, [2000]))).latency_us == 200.0  # 30 pads to 32
    assert miss(wrapper.query(attention(40, 4, 128, [2000]))).code == "insufficient_filtered_candidates"


@pytest.mark.parametrize(
    ("columns", "field"),
    [({"Runtime sparse_mode": 0}, "sparse_mode"), ({"Runtime num_key_value_heads": 2}, "kv_heads")],
)
def test_attention_regime_fields_isolate(tmp_path: Path, columns: dict[str, Any], field: str) -> None:
    rows = [fia(8, 1000, 100.0, **columns), fia(8, 4000, 400.0, **columns)]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, FIA)
    answer = miss(source(folder).query(attention(8, 4, 128, [2000])))
    assert answer.code == "regime_key_unmatched"
    assert list(answer.details["attempts"][0]["nearest_regime_differs_in"]) == [field]


def test_files_without_runtime_columns_never_interpolate(tmp_path: Path) -> None:
    rows = [
        row("8,4,128;99,128,128", BF16, latency, avg_seq_len=seq) for seq, latency in ((1000, 100.0), (4000, 400.0))
    ]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, FIA)
    assert miss(source(folder).query(attention(8, 4, 128, [2000]))).code == "regime_key_unmatched"
    without = [row("8,4,128;99,128,128", BF16, 100.0)]
    folder = write_database(tmp_path / "w", {"FusedInferAttentionScore": without}, FIA)
    code = miss(source(folder).query(attention(8, 4, 128, [2000]))).code
    assert code == "attention_index_unavailable:FusedInferAttentionScore"


def test_the_batch_axis_is_constrained_by_the_requests(tmp_path: Path) -> None:
    rows = [
        fia(8, seq, latency, **{"Runtime batch_size": batch})
        for batch, seq, latency in ((2, 1000, 10.0), (2, 3000, 30.0), (4, 1000, 100.0), (4, 3000, 300.0))
    ]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, FIA)
    wrapper = source(folder)
    assert hit(wrapper.query(attention(8, 4, 128, [2000] * 2))).latency_us == 20.0
    assert hit(wrapper.query(attention(8, 4, 128, [2000] * 4))).latency_us == 200.0


@pytest.mark.parametrize(("count", "seq"), [(8, 1000), (8, 2000), (1, 1000)])
def test_a_batch_beyond_the_measured_ones_is_named(tmp_path: Path, count: int, seq: int) -> None:
    rows = [
        fia(8, length, 10.0, **{"Runtime batch_size": batch}) for batch, length in ((2, 1000), (4, 1000), (4, 3000))
    ]
    folder = write_database(tmp_path, {"FusedInferAttentionScore": rows}, FIA)
    answer = miss(source(folder).query(attention(8, 4, 128, [seq] * count)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["measured_range"]["batch"] == (2.0, 4.0)
    assert answer.details["target_axes"]["batch"] == count


def test_quant_mode_isolates_when_the_file_has_it_and_is_noted_when_not(tmp_path: Path) -> None:
    entry = {"tensor_cast.attention.default": {**FIA["tensor_cast.attention.default"], "quant_mode": "c8"}}
    rows = [fia(8, 1000, 100.0), fia(8, 3000, 300.0)]
    folder = write_database(tmp_path / "a", {"FusedInferAttentionScore": rows}, entry)
    noted = hit(source(folder).query(attention(8, 4, 128, [2000])))
    assert noted.details["quant_mode_unknown_in_csv"] is True
    assert noted.details["target_quant_mode"] == "c8"
    rows = [fia(8, seq, 1.0, **named({"Runtime quant_mode": "none"})) for seq in (1000, 3000)]
    folder = write_database(tmp_path / "b", {"FusedInferAttentionScore": rows}, entry)
    assert miss(source(folder).query(attention(8, 4, 128, [2000]))).code == "regime_key_unmatched"


def test_without_scipy_a_2d_question_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [product(m, k, 4, 1 + m + 2 * k) for m in (100, 200) for k in (8, 16)]
    wrapper = source(write_database(tmp_path, {"MatMulV2": rows}, MM))
    monkeypatch.setitem(__import__("sys").modules, "scipy.spatial", None)
    assert hit(wrapper.query(mm(150, 8, 4))).latency_us == 1 + 150 + 16
    answer = miss(wrapper.query(mm(150, 12, 4)))
    assert answer.code == "scipy_unavailable"
    assert "pip install '.[simplex]'" in str(answer)
