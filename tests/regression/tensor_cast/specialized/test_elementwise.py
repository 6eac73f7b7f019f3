"""Broadcast-aware and shared-token elementwise operators (RFC 4.2.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specialized_rows import ADD, ADD_ENTRY, ADD_OP, binary, binary_row, data, differs_in, rejected
from support import hit, miss, named, row
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource
from tensor_cast.performance_model.profiling_database.paths.elementwise import broadcast_pattern


def full(
    tokens: int, width: int, latency: float | str | None, dtype: str = "DT_BF16", **columns: Any
) -> dict[str, Any]:
    shape = (tokens, width)
    return binary_row(shape, shape, shape, latency, dtype, **columns)


def add(tokens: int, width: int, dtype: str = "bf16") -> LeafOp:
    shape = (tokens, width)
    return binary(shape, shape, shape, dtype)


def test_broadcast_and_full_operands_never_mix(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: broadcast signature."""
    rows = []
    for tokens, scale in ((128, 1.0), (256, 2.0)):
        shape = (tokens, 7168)
        rows += [binary_row(shape, (7168,), shape, 10 * scale), binary_row(shape, shape, shape, 100 * scale)]
    source = data(tmp_path, {ADD: rows})
    asked = (192, 7168)  # halfway between 128 and 256
    vector = hit(source.query(binary(asked, (7168,), asked)))
    assert vector.latency_us == 15.0
    assert vector.details["exact_fields"]["broadcast_pattern"] == [[2, ["same", "same"]], [1, ["missing", "same"]]]
    assert hit(source.query(binary(asked, asked, asked))).latency_us == 150.0


def test_axis_0_details(tmp_path: Path) -> None:
    """RFC 6.1: kernel, mode, method, dimension, axes, boundary, count, rows, fallback and path."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0), full(200, 64, 20.0)]})
    answer = hit(source.query(add(150, 64)))
    assert (answer.latency_us, answer.source, answer.confidence) == (15.0, QuerySource.INTERPOLATED, 0.70)
    details = answer.details
    assert (details["kernel_type"], details["query_mode"]) == (ADD, "elementwise")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["axis_0"])
    assert details["axis_boundary"] == {"axis_0": [100.0, 200.0]}
    assert details["effective_filters"] == ["axis_1"]
    assert details["candidate_count"] == 2
    assert [meta["line"] for meta in details["matched_row_meta"]] == [2, 3]
    assert (details["fallback_from"], details["interpolation_path"]) == ("specialized_exact_miss", "elementwise_1d")
    assert details["exact_fields"]["output_dtype"] == "DT_BF16"


def test_axis_1_with_axis_0_fixed(tmp_path: Path) -> None:
    """RFC 4.2.1: 1D axis_1 after axis_0."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0), full(100, 128, 30.0), full(200, 128, 90.0)]})
    answer = hit(source.query(add(100, 80)))
    assert answer.latency_us == 15.0  # a quarter of the way from 10 to 30
    assert answer.details["axes"] == ["axis_1"]
    assert [attempt["axes"] for attempt in answer.details["attempts"]] == [["axis_0"]]


def test_both_axes_after_each_alone(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: direct-shape 2D, after the 1D fallbacks."""
    rows = [full(t, w, 1.0 + t + 2 * w) for t in (100, 200) for w in (64, 128)]  # a plane
    answer = hit(data(tmp_path, {ADD: rows}).query(add(150, 80)))
    assert answer.latency_us == pytest.approx(1 + 150 + 160, rel=1e-12)
    assert answer.details["axes"] == ["axis_0", "axis_1"]
    assert answer.details["interpolation_path"] == "elementwise_2d"
    assert [attempt["axes"] for attempt in answer.details["attempts"]] == [["axis_0"], ["axis_1"]]
    assert answer.confidence == 0.65


def test_1d_answers_although_2d_could(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: 1D before 2D."""
    rows = [
        full(t, w, latency) for t, w, latency in ((100, 64, 10.0), (200, 64, 20.0), (100, 128, 1.0), (200, 128, 2.0))
    ]
    answer = hit(data(tmp_path, {ADD: rows}).query(add(150, 64)))
    assert (answer.latency_us, answer.details["axes"]) == (15.0, ["axis_0"])


def test_the_ceiling_blocks_2d_only(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: max dimension."""
    rows = [full(t, w, 1.0 + t + 2 * w) for t in (100, 200) for w in (64, 128)]
    source = data(tmp_path, {ADD: rows}, policies={ADD: {"max_interpolation_dim": 1}})
    assert hit(source.query(add(150, 64))).latency_us == pytest.approx(1 + 150 + 128)
    answer = miss(source.query(add(150, 80)))
    attempts = answer.details["attempts"][0]["axis_attempts"]
    assert [(attempt["axes"], attempt["status"]) for attempt in attempts][-1] == (
        ["axis_0", "axis_1"],
        "interpolation_dim_disabled",
    )


@pytest.mark.parametrize("tokens", [50, 500])
def test_outside_the_rows_is_a_miss(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2: out-of-range targets."""
    answer = miss(data(tmp_path, {ADD: [full(100, 64, 10.0), full(200, 64, 20.0)]}).query(add(tokens, 64)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["measured_range"] == {"axis_0": (100.0, 200.0)}


def test_degenerate_points_span_no_plane(tmp_path: Path) -> None:
    """RFC 4.2.1: candidates must form a non-degenerate boundary."""
    rows = [full(t, t, float(t)) for t in (64, 128, 256)]  # one line in the plane
    answer = miss(data(tmp_path, {ADD: rows}).query(add(96, 100)))
    attempts = answer.details["attempts"][0]["axis_attempts"]
    assert attempts[-1]["axes"] == ["axis_0", "axis_1"]
    assert attempts[-1]["status"] == "degenerate_point_cloud"


def test_above_rank_2_the_whole_tail_is_fixed(tmp_path: Path) -> None:
    """RFC 4.2.1: outputs above rank 2 use only 1D axis_0 with the complete tail fixed."""

    def cube(*shape: int) -> LeafOp:
        return binary(shape, shape, shape)

    rows = [binary_row((t, 8, 64), (t, 8, 64), (t, 8, 64), latency) for t, latency in ((100, 10.0), (200, 20.0))]
    source = data(tmp_path, {ADD: rows})
    assert hit(source.query(cube(150, 8, 64))).latency_us == 15.0
    assert differs_in(source.query(cube(150, 8, 32))) == ["output_tail"]
    assert differs_in(source.query(cube(150, 4, 64))) == ["output_tail"]
    assert hit(source.query(cube(1, 150, 8, 64))).latency_us == 15.0  # a leading batch of 1 is dropped
    assert differs_in(source.query(cube(2, 150, 8, 64)))  # a batch of 2 is another rank
    assert miss(source.query(cube(250, 8, 64))).code == "outside_axis_boundary"


def test_a_single_token_lies_on_the_token_axis(tmp_path: Path) -> None:
    """Decision 002.2: (1, H) is one token; only rank 3 and above drop a leading 1."""
    source = data(tmp_path, {ADD: [full(1, 64, 10.0), full(5, 64, 18.0)]})
    assert hit(source.query(add(1, 64))).details["target"] == {"axis_0": 1.0, "axis_1": 64.0}
    assert hit(source.query(add(3, 64))).latency_us == 14.0
    batched = binary((1, 3, 64), (1, 3, 64), (1, 3, 64))
    assert hit(source.query(batched)).latency_us == 14.0
    assert hit(source.query(binary((1, 3, 64), (3, 64), (1, 3, 64)))).latency_us == 14.0


def test_rank_1_outputs_have_one_axis(tmp_path: Path) -> None:
    """RFC 4.2.1: axis_1 exists for rank-2 outputs only."""
    rows = [binary_row((n,), (n,), (n,), latency) for n, latency in ((64, 10.0), (128, 20.0))]
    answer = hit(data(tmp_path, {ADD: rows}).query(binary((96,), (96,), (96,))))
    assert (answer.latency_us, answer.details["axes"]) == (15.0, ["axis_0"])
    assert answer.details["effective_filters"] == []


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        ([full(t, 64, 1.0, "DT_FLOAT16") for t in (100, 200)], ["input_dtypes", "output_dtype"]),
        ([{**full(t, 64, 1.0), "Output Data Types": "FLOAT"} for t in (100, 200)], ["output_dtype"]),
        ([{**full(t, 64, 1.0), "Input Data Types": "DT_BF16;FLOAT"} for t in (100, 200)], ["input_dtypes"]),
        (
            [row(f"{t},64", "DT_BF16", 1.0, outputs=f"{t},64", output_dtypes="DT_BF16") for t in (100, 200)],
            ["broadcast_pattern", "input_count", "input_dtypes"],
        ),
        ([binary_row((t, 64), (64,), (t, 64), 1.0) for t in (100, 200)], ["broadcast_pattern"]),
        ([binary_row((t, 64), (t, 1), (t, 64), 1.0) for t in (100, 200)], ["broadcast_pattern"]),
        ([binary_row((t, 64), (1, 64), (t, 64), 1.0) for t in (100, 200)], ["broadcast_pattern"]),
        (
            [binary_row((t, 64), (64,), (t, 8, 8), 1.0) for t in (100, 200)],
            ["broadcast_pattern", "output_rank", "output_tail"],
        ),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, rows: list[dict[str, Any]], fields: list[str]) -> None:
    """RFC 4.2.1: output rank, input count, broadcast pattern, output dtype isolate; decision 002.15: input dtypes."""
    assert differs_in(data(tmp_path, {ADD: rows}).query(add(150, 64))) == fields


def test_kernels_isolate(tmp_path: Path) -> None:
    """RFC 4.2.1: kernel type isolates; one interpolation never joins rows of Add and AddAiCore."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0)], "AddAiCore": [full(200, 64, 20.0)]})
    answer = miss(source.query(add(150, 64)))
    assert [attempt["status"] for attempt in answer.details["attempts"]] == ["insufficient_filtered_candidates"] * 2


def test_the_base_would_scale_across_dtypes_and_is_bypassed(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: cross-dtype rejection."""
    rows = [full(tokens, 64, latency, "FLOAT") for tokens, latency in ((100, 10.0), (200, 20.0))]
    source = data(tmp_path, {ADD: rows})
    scaled = hit(source.base.query(add(100, 64)))
    assert (scaled.latency_us, scaled.details["dtype_scale"]) == (5.0, 0.5)  # two bytes of four
    for tokens in (100, 150):
        assert differs_in(source.query(add(tokens, 64))) == ["input_dtypes", "output_dtype"]
    assert hit(source.query(add(150, 64, "float32"))).latency_us == 15.0


def test_the_switch_restores_the_scaling_base(tmp_path: Path) -> None:
    """RFC 8.2: --disable-profiling-interpolation."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0, "FLOAT")]})
    disabled = InterpolatingDataSource(source.base, disable_interpolation=True)
    assert hit(disabled.query(add(100, 64))).latency_us == 5.0


def test_the_exact_output_shape_is_measured(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: full-output-shape exact coordinates."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0), full(150, 64, 99.0), full(200, 64, 20.0)]})
    answer = hit(source.query(add(150, 64)))
    assert (answer.latency_us, answer.source) == (99.0, QuerySource.MEASURED)
    assert (answer.details["method"], answer.details["axes"]) == ("exact_coordinate", ["axis_0", "axis_1"])
    assert answer.details["matched_row_meta"][0]["line"] == 3
    swapped = miss(source.query(add(64, 150)))  # as many elements, another shape
    assert swapped.code == "outside_axis_boundary"
    assert swapped.details["measured_range"] == {"axis_0": (100.0, 200.0), "axis_1": (64.0, 64.0)}


def test_alternates_are_tried_in_order_and_all_attempts_are_kept(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: alternate kernels."""
    entry = {**ADD_ENTRY, "alternate_kernel_types": ["AddAiCore", "AddV2"]}
    tables = {"AddAiCore": [full(100, 64, 10.0), full(200, 64, 20.0)], "AddV2": [full(150, 64, 1.0)]}
    source = data(tmp_path, tables, {ADD_OP: entry})
    answer = hit(source.query(add(150, 64)))
    assert (answer.latency_us, answer.details["kernel_type"]) == (15.0, "AddAiCore")
    refused = miss(source.query(add(500, 64)))
    assert refused.details["attempted_kernel_types"] == [ADD, "AddAiCore", "AddV2"]
    assert [attempt["status"] for attempt in refused.details["attempts"]] == [
        "csv_not_found",
        "outside_axis_boundary",
        "insufficient_filtered_candidates",
    ]


def test_one_interpolation_keeps_to_one_latency_column(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: latency-source purity."""
    average, profiling = "Average Duration(us)", "Profiling Average Duration(us)"
    rows = [
        full(100, 64, None, **named({average: 10, profiling: ""})),
        full(150, 64, None, **named({average: "", profiling: 1000})),
        full(200, 64, None, **named({average: 30, profiling: ""})),
        full(250, 64, None, **named({average: "", profiling: 3000})),
    ]
    source = data(tmp_path, {ADD: rows})
    pure = hit(source.query(add(175, 64)))
    assert pure.latency_us == 25.0  # between 10 at 100 and 30 at 200; 1000 at 150 is another column
    assert pure.details["latency_source_attempt"] == "selected_only"
    fallback = hit(source.query(add(225, 64)))
    assert fallback.latency_us == 2500.0
    assert fallback.details["latency_source_attempt"] == "fallback_only"
    exact = hit(source.query(add(150, 64)))
    assert (exact.latency_us, exact.source) == (1000.0, QuerySource.MEASURED)


def test_scalar_outputs_stay_with_the_base(tmp_path: Path) -> None:
    """RFC 3.1: only valid non-scalar outputs leave the base."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0), full(200, 64, 20.0)]})
    shape = ((100, 64), "bf16")
    leaf = LeafOp.build(ADD_OP, [shape, shape], [((), "bf16")])
    assert source.query(leaf) == source.base.query(leaf)
    assert hit(source.query(leaf)).latency_us == 10.0
    between = LeafOp.build(ADD_OP, [((150, 64), "bf16")] * 2, [((), "bf16")])
    answer = miss(source.query(between))
    assert answer.code == "elementwise_output_unavailable"
    assert answer.details["base_miss_reason"] == "shape_mismatch"


@pytest.mark.parametrize(
    ("outputs", "dtype", "code"),
    [
        ([], "bf16", "elementwise_output_unavailable"),
        ([((150, 64), "uint8")], "bf16", "elementwise_input_signature_unavailable"),
        ([((150, 64), "bf16")], "uint8", "elementwise_input_signature_unavailable"),
    ],
)
def test_target_construction_failures(tmp_path: Path, outputs: list[Any], dtype: str, code: str) -> None:
    """RFC 7.2: target-construction failures."""
    source = data(tmp_path, {ADD: [full(100, 64, 10.0), full(200, 64, 20.0)]})
    assert miss(source.query(LeafOp.build(ADD_OP, [((150, 64), dtype)] * 2, outputs))).code == code


def test_rows_without_an_output_are_rejected_with_a_reason(tmp_path: Path) -> None:
    """RFC 6.2: rejected-row counts."""
    blind = {**full(150, 64, 1.0), "Output Shapes": "", "Output Data Types": "", "Output Formats": ""}
    source = data(tmp_path, {ADD: [full(100, 64, 10.0), blind, full(200, 64, 20.0), full(300, 64, 0)]})
    assert hit(source.query(add(150, 64))).latency_us == 15.0
    assert rejected(source.query(add(500, 64))) == {"output_signature_missing": 1, "latency_zero": 1}


def test_a_python_scalar_is_no_second_input(tmp_path: Path) -> None:
    """RFC 4.2.1: input count isolates."""
    rows = [row(f"{t},64", "DT_BF16", float(t), outputs=f"{t},64", output_dtypes="DT_BF16") for t in (100, 200)]
    source = data(tmp_path, {ADD: rows})
    assert hit(source.query(binary((150, 64), None, (150, 64)))).latency_us == 150.0
    assert "input_count" in differs_in(source.query(add(150, 64)))


def test_without_the_selector_multiplication_is_generic_compute(tmp_path: Path) -> None:
    """RFC 7.2 Elementwise: v0.13 generic-compute compatibility."""
    entry = {"aten.mul.Tensor": {"kernel_type": "Mul"}}
    rows = [full(100, 64, 10.0), full(200, 64, 20.0)]
    source = data(tmp_path, {"Mul": rows}, entry)
    vector = LeafOp.build("aten.mul.Tensor", [((100, 64), "bf16"), ((100, 64), "bf16")], [((100, 64), "bf16")])
    exact = hit(source.query(vector))
    assert "query_mode" not in exact.details  # the base's own answer
    rows = [row(f"{t},64;64", "DT_BF16;DT_BF16", latency) for t, latency in ((100, 10.0), (200, 20.0))]
    source = data(tmp_path / "broadcast", {"Mul": rows}, entry)
    answer = hit(source.query(binary((150, 64), (64,), (150, 64), operator="aten.mul.Tensor")))
    assert (answer.latency_us, answer.details["interpolation_path"]) == (15.0, "compute_1d")
    assert answer.details["axes"] == ["axis_0"]


@pytest.mark.parametrize(
    ("inputs", "output", "pattern"),
    [
        ([(4, 8), (4, 8)], (4, 8), ((2, ("same", "same")), (2, ("same", "same")))),
        ([(4, 8), (8,)], (4, 8), ((2, ("same", "same")), (1, ("missing", "same")))),
        ([(4, 8), (4, 1)], (4, 8), ((2, ("same", "same")), (2, ("same", "broadcast")))),
        ([(4, 1), (1, 8)], (4, 8), ((2, ("same", "broadcast")), (2, ("broadcast", "same")))),
        ([(4, 8), (1,)], (4, 8), ((2, ("same", "same")), (1, ("missing", "broadcast")))),
        ([(4, 5)], (4, 8), ((2, ("same", "other")),)),
    ],
)
def test_broadcast_pattern(inputs: list[tuple[int, ...]], output: tuple[int, ...], pattern: object) -> None:
    """RFC 4.2.1: the broadcast pattern does not depend on sizes."""
    assert broadcast_pattern(inputs, output) == pattern
