"""The latent-attention cache update (RFC 4.4.3): tokens over rows of one complete cache shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specialized_rows import SCATTER, SCATTER_OP, data, differs_in, rejected, scatter, scatter_row
from support import hit, miss, named
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource

PAIR = [scatter_row(100, 10.0), scatter_row(200, 20.0)]
AICORE = "ScatterNdUpdateAiCore"


def test_tokens_interpolate_after_reordering(tmp_path: Path) -> None:
    """RFC 7.2 MLA cache update: argument reordering, 1D interpolation; RFC 6.1 success details."""
    answer = hit(data(tmp_path, {SCATTER: PAIR}).query(scatter(150)))
    assert (answer.latency_us, answer.source) == (15.0, QuerySource.INTERPOLATED)
    details = answer.details
    assert (details["kernel_type"], details["query_mode"]) == (SCATTER, "scatter_nd_update_mla")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["tokens"])
    assert details["axis_boundary"] == {"tokens": [100.0, 200.0]}
    assert (details["candidate_count"], [meta["line"] for meta in details["matched_row_meta"]]) == (2, [2, 3])
    assert (details["fallback_from"], details["interpolation_path"]) == ("exact_miss", "scatter_nd_update_mla_1d")
    assert details["exact_fields"]["cache_shape"] == [226048, 128]


def test_a_single_row_at_the_coordinate_is_measured(tmp_path: Path) -> None:
    """RFC 7.2 MLA cache update: specialized exact."""
    answer = hit(data(tmp_path, {SCATTER: PAIR[:1]}).query(scatter(100)))
    assert (answer.latency_us, answer.source) == (10.0, QuerySource.MEASURED)
    assert (answer.details["method"], answer.details["interpolation_dim"]) == ("exact_coordinate", 0)
    assert answer.details["matched_row_meta"][0]["line"] == 2
    assert answer.details["fallback_from"] == "exact_miss"


@pytest.mark.parametrize("index", ["int64", "int32"])
def test_the_slot_mapping_is_the_kernels_int32(tmp_path: Path, index: str) -> None:
    """Decision 002.8: the simulator's int64 indices are canonicalised once; the comparison stays strict."""
    assert hit(data(tmp_path, {SCATTER: PAIR}).query(scatter(150, index=index))).latency_us == 15.0


def test_rows_of_another_index_dtype_do_not_answer(tmp_path: Path) -> None:
    """Decision 002.8: strict after canonicalisation, also towards rows that record INT64."""
    rows = [scatter_row(n, 1.0, dtypes="DT_BF16;INT64;DT_BF16") for n in (100, 200)]
    assert differs_in(data(tmp_path, {SCATTER: rows}).query(scatter(150))) == ["index_dtype"]
    assert differs_in(data(tmp_path / "int16", {SCATTER: PAIR}).query(scatter(150, index="int16"))) == ["index_dtype"]


def test_blocks_and_slots_are_one_cache_shape(tmp_path: Path) -> None:
    """Decision 002.9: (blocks, block, D) is (blocks * block, D)."""
    source = data(tmp_path, {SCATTER: PAIR})
    assert hit(source.query(scatter(150, cache=(1766, 128, 128)))).latency_us == 15.0  # 1766 * 128 = 226048
    assert hit(source.query(scatter(150, cache=(1766, 128, 1, 128)))).latency_us == 15.0
    paged = [scatter_row(n, float(n), cache=(1766, 128, 128)) for n in (100, 200)]
    assert hit(data(tmp_path / "paged", {SCATTER: paged}).query(scatter(150))).latency_us == 150.0


def test_updates_above_rank_2_are_flattened(tmp_path: Path) -> None:
    """RFC 4.4.3: tokens are the product of all dimensions except the final one."""
    source = data(tmp_path, {SCATTER: PAIR})
    assert hit(source.query(scatter(150, update=(3, 50, 128)))).latency_us == 15.0
    assert hit(source.query(scatter(150, update=(1, 150, 1, 128)))).latency_us == 15.0


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"dtypes": "DT_FLOAT16;INT32;DT_BF16"}, ["cache_dtype"]),
        ({"dtypes": "DT_BF16;INT64;DT_BF16"}, ["index_dtype"]),
        ({"dtypes": "DT_BF16;INT32;FLOAT"}, ["update_dtype"]),
        ({"cache": (226176, 128)}, ["cache_shape"]),  # one block more
        ({"tail": 64}, ["update_tail"]),
        ({"formats": "FRACTAL_NZ;ND;ND"}, ["formats"]),
        ({"formats": "ND;NCHW;ND"}, ["formats"]),
        ({"formats": "ND;ND;FRACTAL_NZ"}, ["formats"]),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, changed: dict[str, Any], fields: list[str]) -> None:
    """RFC 7.2 MLA cache update: complete-cache-shape isolation; cache, index and update dtype, tail and formats."""
    rows = [scatter_row(n, 1.0, **changed) for n in (100, 150, 200)]
    assert differs_in(data(tmp_path, {SCATTER: rows}).query(scatter(150))) == fields


def test_capacity_is_no_axis_and_pools_never_merge(tmp_path: Path) -> None:
    """RFC 7.2 MLA cache update: real-CSV duplicate-coordinate protection."""
    pools = [scatter_row(100, 900.0, cache=(1280, 128)), scatter_row(200, 950.0, cache=(1280, 128))]
    source = data(tmp_path, {SCATTER: [*pools, *PAIR, scatter_row(100, 14.0)]})
    answer = hit(source.query(scatter(150)))
    assert answer.latency_us == 16.0  # the median of 10 and 14 is 12, halfway to 20
    assert answer.details["matched_row_meta"][0]["duplicate_count"] == 2
    assert hit(source.query(scatter(150, cache=(1280, 128)))).latency_us == 925.0
    assert differs_in(source.query(scatter(150, cache=(6400, 128)))) == ["cache_shape"]


def test_the_alternate_kernel_is_tried_after_the_primary(tmp_path: Path) -> None:
    """RFC 7.2 MLA cache update: alternate kernel."""
    answer = hit(data(tmp_path / "only", {AICORE: PAIR}).query(scatter(150)))
    assert (answer.latency_us, answer.details["kernel_type"]) == (15.0, AICORE)
    both = data(tmp_path / "both", {SCATTER: PAIR, AICORE: [scatter_row(150, 1.0), scatter_row(300, 2.0)]})
    assert hit(both.query(scatter(150))).latency_us == 15.0  # decision 002.16: the primary's interpolation comes first
    assert hit(both.query(scatter(225))).details["kernel_type"] == AICORE
    refused = miss(both.query(scatter(500)))
    assert [(item["kernel_type"], item["status"]) for item in refused.details["attempts"]] == [
        (SCATTER, "outside_axis_boundary"),
        (AICORE, "outside_axis_boundary"),
    ]


def test_the_ceiling_blocks_the_only_axis(tmp_path: Path) -> None:
    """RFC 7.3.3: max_interpolation_dim; the primary's own ceiling is not the alternate's."""
    source = data(tmp_path, {SCATTER: PAIR, AICORE: PAIR}, policies={SCATTER: {"max_interpolation_dim": 0}})
    assert hit(source.query(scatter(150))).details["kernel_type"] == AICORE
    assert hit(source.query(scatter(100))).details["kernel_type"] == SCATTER  # exact is no interpolation
    alone = data(tmp_path / "alone", {SCATTER: PAIR}, policies={SCATTER: {"max_interpolation_dim": 0}})
    assert miss(alone.query(scatter(150))).code == "interpolation_dim_disabled"


@pytest.mark.parametrize("tokens", [50, 300])
def test_out_of_range_targets_fall_back(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2: out-of-range targets; RFC 6.2: axes, regime, kernels, rejected rows."""
    short = {**scatter_row(150, 9.0), "Input Shapes": "226048,128;150,1", "Input Data Types": "DT_BF16;INT32"}
    short["Input Formats"] = "ND;ND"
    gap = {**scatter_row(150, 9.0), "Input Shapes": "226048,128;;150,1;150,128", "Input Formats": ""}
    scalar = {**scatter_row(150, 9.0), "Input Shapes": "226048,128;150,1;()"}
    source = data(tmp_path, {SCATTER: [*PAIR, scatter_row(150, 0), short, gap, scalar]})
    answer = miss(source.query(scatter(tokens)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["target_axes"] == {"tokens": float(tokens)}
    assert answer.details["target_regime"]["cache_shape"] == (226048, 128)
    assert answer.details["measured_range"] == {"tokens": (100.0, 200.0)}
    assert answer.details["attempted_kernel_types"] == [SCATTER, AICORE]
    assert rejected(answer) == {"latency_zero": 1, "input_shapes_missing": 2, "scatter_shape_unextractable": 1}


@pytest.mark.parametrize("latency", [0, -3, "nan", "slow"])
def test_one_usable_row_is_insufficient(tmp_path: Path, latency: object) -> None:
    """RFC 7.2: insufficient candidates, invalid latency."""
    source = data(tmp_path, {SCATTER: [PAIR[0], scatter_row(200, str(latency))]})
    assert miss(source.query(scatter(150))).code == "insufficient_filtered_candidates"


@pytest.mark.parametrize(
    "leaf",
    [
        LeafOp.build(SCATTER_OP, [((150, 128), "bf16"), ((226048, 128), "bf16")]),
        scatter(150, cache=(226048,), update=(150, 128)),
        scatter(150, dtype="uint8"),
        LeafOp.build(SCATTER_OP, [((), "bf16"), ((226048, 128), "bf16"), ((150,), "int64")]),
    ],
)
def test_target_construction_failures(tmp_path: Path, leaf: LeafOp) -> None:
    """RFC 7.2: target-construction failures."""
    answer = miss(data(tmp_path, {SCATTER: PAIR}).query(leaf))
    assert answer.code == f"target_unavailable:{SCATTER}"
    assert answer.details["attempts"][0]["cause"] == "scatter_target_unextractable"


def test_the_optional_arguments_are_ignored(tmp_path: Path) -> None:
    """RFC 4.4.3: TensorCast arguments are (update, cache, index)."""
    inputs = [((150, 128), "bf16"), ((226048, 128), "bf16"), ((150,), "int64"), ((4,), "int32")]
    assert hit(data(tmp_path, {SCATTER: PAIR}).query(LeafOp.build(SCATTER_OP, inputs))).latency_us == 15.0


def test_without_any_table_both_kernels_are_named(tmp_path: Path) -> None:
    """RFC 6.2: missing CSV."""
    answer = miss(data(tmp_path, {}).query(scatter(150)))
    assert answer.code == "csv_not_found"
    assert answer.details["attempted_kernel_types"] == [SCATTER, AICORE]
    assert answer.details["base_miss_reason"] == "csv_not_found"


def test_the_base_reads_the_rows_order_of_operands(tmp_path: Path) -> None:
    """RFC 3.1: the base owns exact matches of this leaf, so it reads (cache, index, update) itself."""
    source = data(tmp_path, {SCATTER: [scatter_row(100, 10.0, cache=(100, 128))]})
    for index in ("int32", "int64"):
        leaf = scatter(100, cache=(100, 128), index=index)
        measured = InterpolatingDataSource(source.base, disable_interpolation=True)
        assert hit(measured.query(leaf)) == replace(hit(source.query(leaf)), details=hit(measured.query(leaf)).details)
        assert hit(measured.query(leaf)).latency_us == 10.0
    elsewhere = InterpolatingDataSource(source.base, disable_interpolation=True).query(scatter(100))
    assert miss(elsewhere).code == "regime_key_unmatched"


def test_latency_columns_are_not_mixed(tmp_path: Path) -> None:
    """RFC 6.3: source-pure grouping."""
    average, profiling = "Average Duration(us)", "Profiling Average Duration(us)"
    rows = [
        scatter_row(100, None, **named({average: 10, profiling: ""})),
        scatter_row(150, None, **named({average: "", profiling: 999})),
        scatter_row(200, None, **named({average: 20, profiling: ""})),
    ]
    assert hit(data(tmp_path, {SCATTER: rows}).query(scatter(175))).latency_us == 17.5
