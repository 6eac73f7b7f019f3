"""Quantised matrix products (RFC 4.4.2): M, K, N up to 3D; dtype, layout, packing and outputs isolate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specialized_rows import QBMM, QBMM_ENTRY, QBMM_OP, data, differs_in, qbmm, qbmm_row, rejected
from support import hit, miss, named
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource

INT4 = "tensor_cast.static_quant_linear_int4.default"
FP8 = "tensor_cast.fp8_linear.default"
FP4 = "tensor_cast.mxfp4_linear.default"
ENTRIES = dict.fromkeys((INT4, FP8, FP4), QBMM_ENTRY)
PAIR = [qbmm_row(100, 64, 128, 10.0), qbmm_row(200, 64, 128, 20.0)]


def test_rows_interpolate(tmp_path: Path) -> None:
    """RFC 6.1: success details with subcategory and packing."""
    answer = hit(data(tmp_path, {QBMM: PAIR}).query(qbmm(150, 64, 128)))
    assert (answer.latency_us, answer.source) == (15.0, QuerySource.INTERPOLATED)
    details = answer.details
    assert (details["kernel_type"], details["compute_subcategory"]) == (QBMM, "quantized_matmul")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["M"])
    assert details["axis_boundary"] == {"M": [100.0, 200.0]}
    assert (details["candidate_count"], [meta["line"] for meta in details["matched_row_meta"]]) == (2, [2, 3])
    assert (details["fallback_from"], details["interpolation_path"]) == (
        "specialized_exact_miss",
        "quantized_matmul_1d",
    )
    assert details["packed"] == "none"
    assert details["effective_filters"] == ["K", "N"]


@pytest.mark.parametrize(("asked", "axis", "expected"), [((100, 96, 128), "K", 20.0), ((100, 64, 160), "N", 30.0)])
def test_k_and_n_interpolate(tmp_path: Path, asked: tuple[int, int, int], axis: str, expected: float) -> None:
    """RFC 3.4.1: M; K; N."""
    rows = [qbmm_row(100, 64, 128, 10.0), qbmm_row(100, 128, 128, 30.0), qbmm_row(100, 64, 192, 50.0)]
    answer = hit(data(tmp_path, {QBMM: rows}).query(qbmm(*asked)))
    assert (answer.latency_us, answer.details["axes"]) == (expected, [axis])


def plane(m: int, k: int, n: int) -> float:
    return 1.0 + m + 2 * k + 3 * n


@pytest.mark.parametrize(
    ("corners", "asked", "axes"),
    [
        ([(m, k, 128) for m in (100, 200) for k in (64, 128)], (150, 96, 128), ["M", "K"]),
        ([(m, 64, n) for m in (100, 200) for n in (128, 192)], (150, 64, 160), ["M", "N"]),
        ([(100, k, n) for k in (64, 128) for n in (128, 192)], (100, 96, 160), ["K", "N"]),
        ([(m, k, n) for m in (100, 200) for k in (64, 128) for n in (128, 192)], (150, 96, 160), ["M", "K", "N"]),
    ],
)
def test_pairs_and_all_three(
    tmp_path: Path, corners: list[tuple[int, int, int]], asked: tuple[int, int, int], axes: list[str]
) -> None:
    """RFC 7.2 Quantized matrix compute: QuantBatchMatmul 3D, and the three 2D pairs before it."""
    source = data(tmp_path, {QBMM: [qbmm_row(*corner, plane(*corner)) for corner in corners]})
    answer = hit(source.query(qbmm(*asked)))
    expected = {
        (150, 96, 128): 727.0,  # 1 + 150 + 192 + 384
        (150, 64, 160): 759.0,  # 1 + 150 + 128 + 480
        (100, 96, 160): 773.0,  # 1 + 100 + 192 + 480
        (150, 96, 160): 823.0,  # 1 + 150 + 192 + 480
    }[asked]
    assert answer.latency_us == pytest.approx(expected, rel=1e-12)
    assert answer.details["axes"] == axes
    assert answer.details["interpolation_path"] == f"quantized_matmul_{len(axes)}d"
    order = [["M"], ["K"], ["N"], ["M", "K"], ["M", "N"], ["K", "N"], ["M", "K", "N"]]
    assert [attempt["axes"] for attempt in answer.details["attempts"]] == order[: order.index(axes)]


@pytest.mark.parametrize("ceiling", [0, 1, 2])
def test_the_ceiling_blocks_what_is_above_it(tmp_path: Path, ceiling: int) -> None:
    """RFC 7.3.3: max_interpolation_dim blocks dimensions above the ceiling without changing the order."""
    corners = [(m, k, n) for m in (100, 200) for k in (64, 128) for n in (128, 192)]
    rows = [qbmm_row(*corner, plane(*corner)) for corner in corners]
    source = data(tmp_path, {QBMM: rows}, policies={QBMM: {"max_interpolation_dim": ceiling}})
    attempts = miss(source.query(qbmm(150, 96, 160))).details["attempts"][0]["axis_attempts"]
    order = [["M"], ["K"], ["N"], ["M", "K"], ["M", "N"], ["K", "N"], ["M", "K", "N"]]
    assert [attempt["axes"] for attempt in attempts] == order
    blocked = [attempt["axes"] for attempt in attempts if attempt["status"] == "interpolation_dim_disabled"]
    assert blocked == [axes for axes in order if len(axes) > ceiling]


def test_only_the_two_matrices_are_compared(tmp_path: Path) -> None:
    """RFC 7.2 Quantized matrix compute: tc_input_count aligns (x, weight, scale, ...) with the row's two matrices."""
    rows = [
        {**qbmm_row(100, 64, 128, 10.0), "Input Shapes": "100,64;64,128;128;100"},
        {**qbmm_row(200, 64, 128, 20.0), "Input Shapes": "200,64;64,128;128;1"},
    ]
    source = data(tmp_path, {QBMM: rows})
    assert hit(source.query(qbmm(150, 64, 128))).latency_us == 15.0


def test_tiles_are_read_as_the_logical_weight(tmp_path: Path) -> None:
    """RFC 4.4.2: reuses the MatMul target; a FRACTAL_NZ tile (N/32, K/16, 16, 32) is (N, K)."""
    rows = [qbmm_row(m, 64, 128, latency, tiled=True) for m, latency in ((100, 10.0), (200, 20.0))]
    answer = hit(data(tmp_path, {QBMM: rows}).query(qbmm(150, 64, 128)))
    assert answer.latency_us == 15.0
    assert answer.details["exact_fields"]["input_formats"] == ["ND", "FRACTAL_NZ"]


def test_layouts_are_never_joined(tmp_path: Path) -> None:
    """RFC 3.4.1: layout isolated; ND rows are asked first."""
    mixed = [qbmm_row(100, 64, 128, 10.0), qbmm_row(200, 64, 128, 20.0, tiled=True)]
    assert miss(data(tmp_path, {QBMM: mixed}).query(qbmm(150, 64, 128))).code == "insufficient_filtered_candidates"
    tiled = [qbmm_row(m, 64, 128, 1.0, tiled=True) for m in (100, 150, 200)]
    answer = hit(data(tmp_path / "both", {QBMM: [*tiled[::2], *PAIR]}).query(qbmm(150, 64, 128)))
    assert (answer.latency_us, answer.details["exact_fields"]["input_formats"]) == (15.0, ["ND", "ND"])


@pytest.mark.parametrize(
    ("operator", "dtype", "weight", "code"),
    [
        (FP8, "fp8", None, "regime_key_unmatched"),
        (FP8, "int8", None, f"target_unavailable:{QBMM}"),
        (FP4, "mxfp4", None, "regime_key_unmatched"),
        (FP4, "int4", None, "regime_key_unmatched"),
        (FP4, "int8", None, f"target_unavailable:{QBMM}"),
        (INT4, "uint8", (32, 128), f"target_unavailable:{QBMM}"),
        (INT4, "int4", (32, 128), "regime_key_unmatched"),
        (INT4, "int8", (32, 128), "regime_key_unmatched"),
    ],
)
def test_int8_rows_never_serve_other_quantisations(
    tmp_path: Path, operator: str, dtype: str, weight: tuple[int, int] | None, code: str
) -> None:
    """RFC 7.2 Quantized matrix compute: no INT8 reuse for FP8 or MXFP4, nor for packed INT4 (decision 002.11)."""
    source = data(tmp_path, {QBMM: PAIR}, ENTRIES)
    for m in (100, 150):
        answer = miss(source.query(qbmm(m, 64, 128, operator=operator, dtype=dtype, weight=weight)))
        assert answer.code == code
    if code == "regime_key_unmatched":
        assert differs_in(answer) == ["input_dtypes", *(["packed"] if operator == INT4 else [])]


def test_packed_int4_is_recognised_although_n_equals_k(tmp_path: Path) -> None:
    """Decision 002.11: K is restored by doubling; where N = K the halved weight would read as another product."""
    square = [qbmm_row(m, 64, 32, 1.0) for m in (100, 200)]  # (64, 32): what (32, 64) reads as without the operator
    source = data(tmp_path, {QBMM: square}, ENTRIES)
    leaf = qbmm(150, 64, 64, operator=INT4, weight=(32, 64))
    answer = miss(source.query(leaf))
    assert answer.code == "regime_key_unmatched"
    assert answer.details["target_axes"] == {"M": 150.0, "K": 64.0, "N": 64.0}
    assert answer.details["target_regime"]["packed"] == "int4"
    plain = hit(source.query(qbmm(150, 64, 64, weight=(32, 64))))
    assert plain.details["effective_filters"] == ["K", "N"]


def test_a_weight_without_two_dimensions_is_no_target(tmp_path: Path) -> None:
    """RFC 7.2: target-construction failures."""
    source = data(tmp_path, {QBMM: PAIR}, ENTRIES)
    for operator in (QBMM_OP, INT4):
        answer = miss(source.query(qbmm(150, 64, 128, operator=operator, weight=(64,))))
        assert answer.details["attempts"][0]["cause"] == "matmul_axes_unextractable"


@pytest.mark.parametrize(
    ("inputs", "outputs", "cause"),
    [
        ([((150, 64), "int8")], [((150, 128), "bf16")], "input_shapes_lt_2"),
        ([((150, 64), "int8"), ((32, 128), "int8")], [((150, 128), "bf16")], "matmul_axes_unextractable"),
        ([((150, 64), "int8"), ((64, 128), "int8")], [], "output_signature_missing"),
        ([((150, 64), "int8"), ((64, 128), "int8")], [((150, 128), "uint8")], "dtype_without_a_database_name"),
    ],
)
def test_target_construction_failures(tmp_path: Path, inputs: list[Any], outputs: list[Any], cause: str) -> None:
    """RFC 7.2: target-construction failures."""
    answer = miss(data(tmp_path, {QBMM: PAIR}).query(LeafOp.build(QBMM_OP, inputs, outputs)))
    assert answer.code == f"target_unavailable:{QBMM}"
    assert answer.details["attempts"][0]["cause"] == cause


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"dtypes": "DT_BF16;INT8;DT_BF16;INT32"}, ["input_dtypes"]),
        ({"dtypes": "INT8;INT4;DT_BF16;INT32"}, ["input_dtypes", "packed"]),
        ({"output_dtype": "DT_FLOAT16"}, ["output_dtypes"]),
        ({"output_formats": "FRACTAL_NZ"}, ["output_formats"]),
        (
            {"outputs": "150,128;150", "output_dtype": "DT_BF16;FLOAT"},
            ["output_count", "output_dtypes", "output_formats"],
        ),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, changed: dict[str, Any], fields: list[str]) -> None:
    """RFC 3.4.1: INT8 dtype, layout, and output signature isolated."""
    rows = [qbmm_row(m, 64, 128, 1.0, **changed) for m in (100, 150, 200)]
    assert differs_in(data(tmp_path, {QBMM: rows}).query(qbmm(150, 64, 128))) == fields


def test_batches_isolate(tmp_path: Path) -> None:
    """RFC 4.4.2: the MatMul target keeps batch dimensions in the regime."""
    leaf = LeafOp.build(QBMM_OP, [((3, 150, 64), "int8"), ((64, 128), "int8")], [((3, 150, 128), "bf16")])
    assert differs_in(data(tmp_path, {QBMM: PAIR}).query(leaf)) == ["batch_dims"]


def test_the_exact_coordinate_is_measured_while_the_base_is_bypassed(tmp_path: Path) -> None:
    """RFC 3.1: the base lacks complete quant semantics; the specialized index decides exact matches."""
    rows = [qbmm_row(150, 64, 128, 99.0, output_dtype="DT_FLOAT16"), qbmm_row(150, 64, 128, 12.0)]
    source = data(tmp_path, {QBMM: rows})
    leaf = qbmm(150, 64, 128)
    assert hit(source.base.query(leaf)).latency_us == 99.0
    answer = hit(source.query(leaf))
    assert (answer.latency_us, answer.source) == (12.0, QuerySource.MEASURED)
    assert (answer.details["method"], answer.details["axes"]) == ("exact_coordinate", ["M", "K", "N"])
    assert answer.details["matched_row_meta"][0]["line"] == 3
    assert hit(InterpolatingDataSource(source.base, disable_interpolation=True).query(leaf)).latency_us == 99.0


@pytest.mark.parametrize("m", [50, 300])
def test_out_of_range_targets_fall_back(tmp_path: Path, m: int) -> None:
    """RFC 7.2: out-of-range targets; RFC 6.2: axes, regime, kernels, rejected rows."""
    blind = {**qbmm_row(150, 64, 128, 1.0), "Output Shapes": "", "Output Data Types": "", "Output Formats": ""}
    single = {
        **qbmm_row(150, 64, 128, 1.0),
        "Input Shapes": "150,64",
        "Input Data Types": "INT8",
        "Input Formats": "ND",
    }
    apart = {**qbmm_row(150, 64, 128, 1.0), "Input Shapes": "150,64;32,32;128;128"}
    rows = [*PAIR, qbmm_row(150, 64, 128, 0), blind, single, apart]
    answer = miss(data(tmp_path, {QBMM: rows}).query(qbmm(m, 64, 128)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["target_axes"] == {"M": float(m), "K": 64.0, "N": 128.0}
    assert answer.details["attempted_kernel_types"] == [QBMM]
    assert answer.details["path_reason"] == "compute_multidim_interpolation_failed"
    assert rejected(answer) == {
        "latency_zero": 1,
        "output_signature_missing": 1,
        "input_shapes_lt_2": 1,
        "matmul_axes_unextractable": 1,
    }


@pytest.mark.parametrize("latency", [0, -3, "inf", "slow"])
def test_one_usable_row_is_insufficient(tmp_path: Path, latency: object) -> None:
    """RFC 7.2: insufficient candidates, invalid latency."""
    rows = [PAIR[0], qbmm_row(200, 64, 128, str(latency))]
    assert miss(data(tmp_path, {QBMM: rows}).query(qbmm(150, 64, 128))).code == "insufficient_filtered_candidates"


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """RFC 6.2: missing CSV, whatever the dtype of the target."""
    source = data(tmp_path, {}, ENTRIES)
    assert miss(source.query(qbmm(150, 64, 128))).code == "csv_not_found"
    assert miss(source.query(qbmm(150, 64, 128, operator=FP8, dtype="fp8"))).code == "csv_not_found"


def test_latency_columns_are_not_mixed(tmp_path: Path) -> None:
    """RFC 6.3: source-pure grouping."""
    average, profiling = "Average Duration(us)", "Profiling Average Duration(us)"
    rows = [
        qbmm_row(100, 64, 128, None, **named({average: 10, profiling: ""})),
        qbmm_row(150, 64, 128, None, **named({average: "", profiling: 999})),
        qbmm_row(200, 64, 128, None, **named({average: 20, profiling: ""})),
    ]
    assert hit(data(tmp_path, {QBMM: rows}).query(qbmm(175, 64, 128))).latency_us == 17.5
