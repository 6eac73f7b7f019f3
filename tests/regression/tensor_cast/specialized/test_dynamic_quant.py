"""Dynamic quantisation (RFC 4.4.2, compute_scale): M, K, both; output signature and scale mode isolate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specialized_rows import QUANT, QUANT_ENTRY, data, differs_in, quant, quant_row, rejected
from support import hit, miss, named, row
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource
from tensor_cast.performance_model.profiling_database.paths.dynamic_quant import ScaleMode, scale_mode

ASYMMETRIC = "tensor_cast.dynamic_quantize_asymmetric.default"
BLOCK, MXFP4 = "DynamicBlockQuant", "tensor_cast.dynamic_quantize_mxfp4.default"
ENTRIES = {ASYMMETRIC: QUANT_ENTRY, MXFP4: {"kernel_type": BLOCK, "compute_subcategory": "compute_scale"}}
PAIR = [quant_row(100, 64, 10.0), quant_row(200, 64, 20.0)]
PLANE = [quant_row(m, k, 1.0 + m + 2 * k) for m in (100, 200) for k in (64, 128)]


def test_rows_interpolate(tmp_path: Path) -> None:
    """RFC 6.1: success details with the subcategory and the scale mode."""
    answer = hit(data(tmp_path, {QUANT: PAIR}).query(quant(150, 64)))
    assert (answer.latency_us, answer.source) == (15.0, QuerySource.INTERPOLATED)
    details = answer.details
    assert (details["kernel_type"], details["compute_subcategory"]) == (QUANT, "compute_scale")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["M"])
    assert details["axis_boundary"] == {"M": [100.0, 200.0]}
    assert (details["candidate_count"], [meta["line"] for meta in details["matched_row_meta"]]) == (2, [2, 3])
    assert (details["fallback_from"], details["interpolation_path"]) == ("specialized_exact_miss", "compute_scale_1d")
    assert details["scale_mode"] == "per_token"
    assert details["auxiliary_modes"] == [["per_token", None]]


def test_width_interpolates_with_the_rows_fixed(tmp_path: Path) -> None:
    """RFC 4.4.2: K after M."""
    rows = [quant_row(100, 64, 10.0), quant_row(100, 128, 30.0)]
    answer = hit(data(tmp_path, {QUANT: rows}).query(quant(100, 80)))
    assert (answer.latency_us, answer.details["axes"]) == (15.0, ["K"])


def test_both_axes(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: DynamicQuant 2D."""
    answer = hit(data(tmp_path, {QUANT: PLANE}).query(quant(150, 80)))
    assert answer.latency_us == pytest.approx(1 + 150 + 160, rel=1e-12)
    assert (answer.details["axes"], answer.details["interpolation_path"]) == (["M", "K"], "compute_scale_2d")


def test_the_ceiling_blocks_2d_only(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: max dimension."""
    source = data(tmp_path, {QUANT: PLANE}, policies={QUANT: {"max_interpolation_dim": 1}})
    assert hit(source.query(quant(150, 64))).details["axes"] == ["M"]
    attempts = miss(source.query(quant(150, 80))).details["attempts"][0]["axis_attempts"]
    assert attempts[-1]["status"] == "interpolation_dim_disabled"


def test_leading_dimensions_are_rows(tmp_path: Path) -> None:
    """RFC 4.4.2: M is the product of all input dimensions except the final one."""
    leaf = quant(150, 64, x=(3, 50, 64), scales=[(3, 50, 1)])
    assert hit(data(tmp_path, {QUANT: PAIR}).query(leaf)).latency_us == 15.0
    vector = quant(1, 64, x=(64,), scales=[(1,)])
    answer = hit(data(tmp_path / "vector", {QUANT: [quant_row(1, 64, 3.0), *PAIR]}).query(vector))
    assert miss(data(tmp_path, {QUANT: PAIR}).query(vector)).details["target_axes"] == {"M": 1.0, "K": 64.0}
    assert answer.latency_us == 3.0


def test_the_exact_coordinate_is_measured_by_this_path(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: specialized exact; the base cannot tell the rows apart and is bypassed."""
    asymmetric = quant_row(150, 64, 99.0, scales=("150", "150"))
    source = data(tmp_path, {QUANT: [asymmetric, quant_row(150, 64, 12.0)]}, ENTRIES)
    leaf = quant(150, 64)
    assert hit(source.base.query(leaf)).latency_us == 99.0  # the first row with that input
    answer = hit(source.query(leaf))
    assert (answer.latency_us, answer.source) == (12.0, QuerySource.MEASURED)
    assert (answer.details["method"], answer.details["axes"]) == ("exact_coordinate", ["M", "K"])
    assert hit(InterpolatingDataSource(source.base, disable_interpolation=True).query(leaf)).latency_us == 99.0


def test_symmetric_and_asymmetric_rows_never_mix(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: output signature; a two-output row cannot satisfy a three-output target."""
    offset = [quant_row(m, 64, float(m), scales=(str(m), str(m))) for m in (100, 200)]
    source = data(tmp_path, {QUANT: [*PAIR, *offset]}, ENTRIES)
    assert hit(source.query(quant(150, 64))).latency_us == 15.0
    leaf = quant(150, 64, scales=[(150, 1), (150, 1)], operator=ASYMMETRIC)
    answer = hit(source.query(leaf))
    assert answer.latency_us == 150.0
    assert answer.details["auxiliary_modes"] == [["per_token", None], ["per_token", None]]
    only = data(tmp_path / "only", {QUANT: PAIR}, ENTRIES)
    assert differs_in(only.query(leaf)) == ["auxiliary_modes", "output_count", "output_dtypes", "output_formats"]


def test_fp16_targets_see_fp16_rows_only(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: FP16; a local rule of this path."""
    rows = [*PAIR, *(quant_row(m, 64, float(m), dtype="DT_FLOAT16") for m in (100, 200))]
    source = data(tmp_path, {QUANT: rows})
    assert hit(source.query(quant(150, 64, dtype="fp16"))).latency_us == 150.0
    assert hit(source.query(quant(150, 64, dtype="bf16"))).latency_us == 15.0
    assert differs_in(data(tmp_path / "bf16", {QUANT: PAIR}).query(quant(150, 64, dtype="fp16"))) == ["input_dtype"]


def test_per_tensor_targets_miss_per_token_rows(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: scale mode; decision 002.10."""
    leaf = quant(150, 64, scales=[()])
    assert differs_in(data(tmp_path, {QUANT: PAIR}).query(leaf)) == ["auxiliary_modes", "scale_mode"]
    assert differs_in(data(tmp_path, {QUANT: PAIR}).query(quant(100, 64, scales=[()])))  # at a measured shape too
    per_tensor = [quant_row(m, 64, float(m), scales=("()",)) for m in (100, 200)]
    source = data(tmp_path / "scalar", {QUANT: per_tensor})
    answer = hit(source.query(leaf))
    assert (answer.latency_us, answer.details["scale_mode"]) == (150.0, "per_tensor")


def test_per_channel_is_another_mode(tmp_path: Path) -> None:
    """RFC 4.4.2: per_channel scales have K values."""
    rows = [quant_row(m, 64, float(m), scales=("64",)) for m in (100, 200)]
    source = data(tmp_path, {QUANT: rows})
    assert hit(source.query(quant(150, 64, scales=[(64,)]))).details["scale_mode"] == "per_channel"
    assert differs_in(source.query(quant(150, 64))) == ["auxiliary_modes", "scale_mode"]


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"dtype": "FLOAT"}, ["input_dtype"]),
        ({"formats": "NCHW"}, ["input_format"]),
        ({"output_dtypes": "INT4;FLOAT"}, ["output_dtypes"]),
        ({"output_dtypes": "INT8;DT_BF16"}, ["output_dtypes"]),
        ({"output_formats": "NCHW;ND"}, ["output_formats"]),
        ({"output_formats": "ND;NCHW"}, ["output_formats"]),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, changed: dict[str, Any], fields: list[str]) -> None:
    """RFC 4.4.2: input dtype and format, output count, every output dtype and format isolate."""
    rows = [quant_row(m, 64, 1.0, **changed) for m in (100, 150, 200)]
    assert differs_in(data(tmp_path, {QUANT: rows}).query(quant(150, 64))) == fields


@pytest.mark.parametrize(
    ("leaf", "cause"),
    [
        (quant(150, 64, scales=[]), "compute_scale_outputs_lt_2"),
        (quant(150, 64, scales=[(7,)]), "compute_scale_mode_unextractable"),
        (quant(150, 64, dtype="uint8"), "dtype_without_a_database_name"),
        (quant(150, 64, output_dtypes=("uint8", "float32")), "dtype_without_a_database_name"),
        (
            LeafOp.build(
                "tensor_cast.dynamic_quantize_symmetric.default",
                [((150, 64), "bf16")],
                [((150, 32), "int8"), ((150, 1), "float32")],
            ),
            "quant_output_shape_mismatch",
        ),
        (quant(1, 1, x=(), scales=[()]), "input_shape_empty"),
        (LeafOp.build("tensor_cast.dynamic_quantize_symmetric.default", []), "input_shape_missing"),
    ],
)
def test_target_construction_failures(tmp_path: Path, leaf: LeafOp, cause: str) -> None:
    """RFC 7.2: target-construction failures."""
    answer = miss(data(tmp_path, {QUANT: PAIR}).query(leaf))
    assert answer.code == f"target_unavailable:{QUANT}"
    assert answer.details["attempts"][0]["cause"] == cause


@pytest.mark.parametrize("m", [50, 300])
def test_out_of_range_targets_fall_back(tmp_path: Path, m: int) -> None:
    """RFC 7.2: out-of-range targets; RFC 6.2: axes, regime, kernels, rejected rows."""
    rows = [*PAIR, quant_row(150, 64, 0), quant_row(150, 64, 9.0, scales=()), quant_row(150, 64, 9.0, scales=("7",))]
    answer = miss(data(tmp_path, {QUANT: rows}).query(quant(m, 64)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["target_axes"] == {"M": float(m), "K": 64.0}
    assert answer.details["target_regime"]["scale_mode"] == "per_token"
    assert answer.details["compute_subcategory"] == "compute_scale"
    assert rejected(answer) == {
        "latency_zero": 1,
        "compute_scale_outputs_lt_2": 1,
        "compute_scale_mode_unextractable": 1,
    }


@pytest.mark.parametrize("latency", [0, -3, "nan", "slow"])
def test_one_usable_row_is_insufficient(tmp_path: Path, latency: object) -> None:
    """RFC 7.2: insufficient candidates, invalid latency."""
    rows = [PAIR[0], quant_row(200, 64, str(latency))]
    assert miss(data(tmp_path, {QUANT: rows}).query(quant(150, 64))).code == "insufficient_filtered_candidates"


def test_latency_columns_are_not_mixed(tmp_path: Path) -> None:
    """RFC 6.3: quant-scale groups are source-pure."""
    average, profiling = "Average Duration(us)", "Profiling Average Duration(us)"
    rows = [
        quant_row(100, 64, None, **named({average: 10, profiling: ""})),
        quant_row(150, 64, None, **named({average: "", profiling: 999})),
        quant_row(200, 64, None, **named({average: 20, profiling: ""})),
    ]
    assert hit(data(tmp_path, {QUANT: rows}).query(quant(175, 64))).latency_us == 17.5


def test_block_quantisation_without_a_table_is_a_stable_miss(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: DynamicBlockQuant mode; RFC 4.4.2: lookup stably misses without a CSV."""
    leaf = quant(128, 7168, scales=[(224,)], operator=MXFP4, output_dtypes=("int4", "float8_e8m0fnu"))
    source = data(tmp_path, {QUANT: PAIR}, ENTRIES)
    for _ in range(2):
        answer = miss(source.query(leaf))
        assert answer.code == "csv_not_found"
        assert answer.details["attempted_kernel_types"] == [BLOCK]


def block_row(m: int, k: int, values: int, latency: float) -> dict[str, Any]:
    return row(f"{m},{k}", "DT_BF16", latency, outputs=f"{m},{k};{values}", output_dtypes="INT8;FLOAT")


def test_block_quantisation_with_a_table(tmp_path: Path) -> None:
    """RFC 7.2 Dynamic quant: DynamicBlockQuant mode; the block size is part of the regime."""
    rows = [block_row(100, 64, 2, 10.0), block_row(200, 64, 2, 20.0)]
    source = data(tmp_path, {BLOCK: rows}, ENTRIES)
    answer = hit(source.query(quant(150, 64, scales=[(2,)], operator=MXFP4)))
    assert answer.latency_us == 15.0
    assert (answer.details["scale_mode"], answer.details["block_size"]) == ("per_block", 32)
    assert answer.details["auxiliary_modes"] == [["per_block", 32]]
    four = quant(150, 64, scales=[(4,)], operator=MXFP4)
    assert differs_in(source.query(four)) == ["auxiliary_modes", "block_size"]
    matrix = miss(source.query(quant(150, 64, scales=[(150, 2)], operator=MXFP4)))
    assert matrix.details["attempts"][0]["cause"] == "compute_scale_mode_unextractable"


def test_block_width_interpolates_inside_one_block_size(tmp_path: Path) -> None:
    """RFC 4.4.2: block size is a regime field, so K moves only with as many blocks as it needs."""
    rows = [block_row(100, 64, 2, 10.0), block_row(100, 128, 4, 30.0), block_row(100, 96, 2, 999.0)]
    source = data(tmp_path, {BLOCK: rows}, ENTRIES)
    assert hit(source.query(quant(100, 96, scales=[(3,)], operator=MXFP4))).latency_us == 20.0


@pytest.mark.parametrize(
    ("kernel", "shape", "m", "k", "mode"),
    [
        (QUANT, (), 8, 4, ("per_tensor", None)),
        (QUANT, (8,), 8, 4, ("per_token", None)),
        (QUANT, (8, 1), 8, 4, ("per_token", None)),
        (QUANT, (4,), 8, 4, ("per_channel", None)),
        (QUANT, (4,), 4, 4, ("per_token", None)),  # per_token wins where both have as many values
        (QUANT, (1,), 1, 4, ("per_token", None)),
        (QUANT, (3,), 8, 4, None),
        (BLOCK, (224,), 8, 7168, ("per_block", 32)),
        (BLOCK, (3,), 8, 64, ("per_block", 22)),  # rounded up
        (BLOCK, (65,), 8, 64, None),
        (BLOCK, (8, 2), 8, 64, None),
        (BLOCK, (), 8, 64, ("per_tensor", None)),
    ],
)
def test_scale_modes(kernel: str, shape: tuple[int, ...], m: int, k: int, mode: ScaleMode | None) -> None:
    """RFC 4.4.2: per_tensor, per_token, per_channel, and per_block for DynamicBlockQuant only."""
    assert scale_mode(kernel, shape, m, k) == mode
