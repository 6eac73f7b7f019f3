"""Mapping refinements that keep to generic compute (RFC 4.4.1): concatenation, gather, cast, layer norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specialized_rows import data, differs_in
from support import hit, miss, row
from tensor_cast import LeafOp, QuerySource

CAT = {"tensor_cast.cat.default": {"kernel_type": "ConcatD"}, "aten.cat.default": {"kernel_type": "ConcatD"}}
GATHER = {
    "aten.embedding.default": {
        "kernel_type": "GatherV2",
        "alternate_kernel_types": ["GatherV3", "GatherV2AiCore"],
        "tc_input_count": 2,
    }
}
GATHER_POLICY = {"GatherV2": {"generic_compute": {"axis": "output_numel"}}}
CAST = {
    "aten.to.dtype": {"kernel_type": "Cast", "alternate_kernel_types": ["TensorMove", "CastAiCore", "TensorMoveAiCore"]}
}
NORM = {
    "aten.native_layer_norm.default": {
        "kernel_type": "LayerNormV3",
        "alternate_kernel_types": ["LayerNormV3WithImplMode"],
        "tc_input_count": 3,
    }
}


# --- ConcatD ---------------------------------------------------------------------------------------------------------


def cat_row(left: int, right: int, latency: float) -> dict[str, Any]:
    shapes, output = f"{left},64;{right},64", f"{left + right},64"
    return row(shapes, "DT_BF16;DT_BF16", latency, outputs=output, output_dtypes="DT_BF16")


def cat(left: int, right: int, operator: str = "tensor_cast.cat.default") -> LeafOp:
    return LeafOp.build(operator, [((left, 64), "bf16"), ((right, 64), "bf16")], [((left + right, 64), "bf16")])


@pytest.mark.parametrize("operator", CAT)
def test_concatenation_is_answered_where_its_table_exists(tmp_path: Path, operator: str) -> None:
    """RFC 7.2 Generic compute: ConcatD data presence; without the CSV a stable miss."""
    source = data(tmp_path / "with", {"ConcatD": [cat_row(100, 100, 10.0)]}, CAT)
    answer = hit(source.query(cat(100, 100, operator)))
    assert (answer.latency_us, answer.source) == (10.0, QuerySource.MEASURED)
    without = miss(data(tmp_path / "without", {}, CAT).query(cat(100, 100, operator)))
    assert without.code == "compute_csv_not_found"


def test_axis_0_of_a_concatenation_needs_the_other_inputs_in_full(tmp_path: Path) -> None:
    """RFC 3.4.1: ConcatD interpolates on axis_0, 1D.

    Where both inputs grow with the tokens no two rows share a regime, so real workloads are exact or a miss.
    """
    growing = [cat_row(100, 100, 10.0), cat_row(200, 200, 20.0)]
    source = data(tmp_path / "growing", {"ConcatD": growing}, CAT)
    assert differs_in(source.query(cat(150, 150))) == ["shape_signature"]
    fixed = [cat_row(100, 32, 10.0), cat_row(200, 32, 20.0)]
    answer = hit(data(tmp_path / "fixed", {"ConcatD": fixed}, CAT).query(cat(150, 32)))
    assert (answer.latency_us, answer.details["axes"]) == (15.0, ["axis_0"])
    assert answer.details["interpolation_path"] == "compute_1d"


def test_the_number_of_pieces_isolates(tmp_path: Path) -> None:
    """RFC 4.4.1: the Phase 1 generic regime keeps the input count."""
    source = data(tmp_path, {"ConcatD": [cat_row(100, 32, 10.0), cat_row(200, 32, 20.0)]}, CAT)
    three = LeafOp.build("tensor_cast.cat.default", [((150, 64), "bf16"), ((32, 64), "bf16"), ((32, 64), "bf16")])
    assert "input_count" in differs_in(source.query(three))


# --- Gather ----------------------------------------------------------------------------------------------------------


def gather_rows(*points: tuple[int, float], width: int = 64) -> list[dict[str, Any]]:
    return [
        row(f"1000,{width};{n};1", "DT_BF16;INT64;INT64", latency, outputs=f"{n},{width}", output_dtypes="DT_BF16")
        for n, latency in points
    ]


def gather(indices: int, width: int = 64) -> LeafOp:
    inputs: list[Any] = [((1000, width), "bf16"), ((1, indices), "int64")]
    return LeafOp.build("aten.embedding.default", inputs, [((1, indices, width), "bf16")])


@pytest.mark.parametrize("kernel", ["GatherV2", "GatherV3", "GatherV2AiCore"])
def test_gather_alternates_inherit_the_axis(tmp_path: Path, kernel: str) -> None:
    """RFC 3.4.1: Gather policy uses the output element count; alternates inherit the axis."""
    source = data(tmp_path, {kernel: gather_rows((10, 10.0), (30, 50.0))}, GATHER, GATHER_POLICY)
    answer = hit(source.query(gather(20)))
    assert (answer.latency_us, answer.details["kernel_type"]) == (30.0, kernel)
    assert answer.details["target"] == {"output_numel": 1280.0}
    assert miss(source.query(gather(20, 32))).code == "regime_key_unmatched"


def test_gather_alternates_are_tried_in_mapping_order(tmp_path: Path) -> None:
    """RFC 7.2 Generic compute: Gather alternate order."""
    tables = {
        "GatherV2": gather_rows((10, 10.0), (20, 20.0)),
        "GatherV3": gather_rows((10, 100.0), (40, 400.0)),
        "GatherV2AiCore": gather_rows((10, 1000.0), (80, 8000.0)),
    }
    source = data(tmp_path, tables, GATHER, GATHER_POLICY)
    assert [hit(source.query(gather(n))).details["kernel_type"] for n in (15, 30, 60)] == list(tables)
    assert [hit(source.query(gather(n))).latency_us for n in (15, 30, 60)] == [15.0, 300.0, 6000.0]
    refused = miss(source.query(gather(90)))
    assert [attempt["kernel_type"] for attempt in refused.details["attempts"]] == list(tables)
    assert {attempt["status"] for attempt in refused.details["attempts"]} == {"outside_axis_boundary"}


def test_an_alternates_ceiling_is_its_own(tmp_path: Path) -> None:
    """RFC 5: max_interpolation_dim narrows one kernel; the axis is inherited, the ceiling is not."""
    policies = {"GatherV2": {"max_interpolation_dim": 0, "generic_compute": {"axis": "output_numel"}}}
    tables = {"GatherV2": gather_rows((10, 10.0), (30, 30.0)), "GatherV3": gather_rows((10, 100.0), (30, 300.0))}
    answer = hit(data(tmp_path, tables, GATHER, policies).query(gather(20)))
    assert (answer.latency_us, answer.details["kernel_type"]) == (200.0, "GatherV3")


# --- Cast ------------------------------------------------------------------------------------------------------------


def cast_rows(*points: tuple[int, float], dtype: str = "FLOAT") -> list[dict[str, Any]]:
    return [row(f"{n},64", dtype, latency, outputs=f"{n},64", output_dtypes="DT_BF16") for n, latency in points]


def cast(tokens: int, dtype: str = "float32") -> LeafOp:
    return LeafOp.build("aten.to.dtype", [((tokens, 64), dtype)], [((tokens, 64), "bf16")])


def test_cast_alternates_are_tried_in_mapping_order(tmp_path: Path) -> None:
    """RFC 7.2 Generic compute: Cast alternate order."""
    tables = {
        "Cast": cast_rows((10, 10.0), (20, 20.0)),
        "TensorMove": cast_rows((10, 100.0), (40, 400.0)),
        "CastAiCore": cast_rows((10, 1000.0), (80, 8000.0)),
        "TensorMoveAiCore": cast_rows((10, 10000.0), (160, 160000.0)),
    }
    source = data(tmp_path, tables, CAST)
    answers = [hit(source.query(cast(n))) for n in (13, 29, 61, 121)]
    assert [answer.details["kernel_type"] for answer in answers] == list(tables)
    assert [answer.latency_us for answer in answers] == [13.0, 290.0, 6100.0, 121000.0]
    assert miss(source.query(cast(500))).details["attempted_kernel_types"] == list(tables)


def test_cast_directions_differ_by_input_dtype(tmp_path: Path) -> None:
    """RFC 4.4.1: no new regime field; the input dtype is the direction generic compute knows."""
    source = data(tmp_path, {"Cast": cast_rows((10, 10.0), (20, 20.0))}, CAST)
    assert differs_in(source.query(cast(13, "bf16"))) == ["input_dtypes"]
    assert miss(source.query(cast(13, "uint8"))).code == "compute_target_unavailable:Cast"


# --- LayerNorm -------------------------------------------------------------------------------------------------------


def norm_row(tokens: int, latency: float, metadata: str = "") -> dict[str, Any]:
    dtypes = "FLOAT;FLOAT;FLOAT" + ";INT64" * bool(metadata)
    return row(f"{tokens},64;64;64{metadata}", dtypes, latency, outputs=f"{tokens},64", output_dtypes="FLOAT")


def norm(tokens: int, dtype: str = "float32") -> LeafOp:
    inputs = [((tokens, 64), dtype), ((64,), dtype), ((64,), dtype)]
    return LeafOp.build("aten.native_layer_norm.default", inputs, [((tokens, 64), dtype)])


def test_layer_norm_ignores_the_metadata_slots(tmp_path: Path) -> None:
    """RFC 7.2 Generic compute: LayerNorm metadata exclusion, tc_input_count."""
    rows = [norm_row(100, 10.0, ";1"), norm_row(200, 20.0)]
    source = data(tmp_path, {"LayerNormV3": rows}, NORM)
    assert hit(source.query(norm(100))).latency_us == 10.0
    answer = hit(source.query(norm(150)))
    assert (answer.latency_us, answer.details["axes"]) == (15.0, ["axis_0"])
    assert answer.details["exact_fields"]["input_count"] == 3
    uncounted = {"aten.native_layer_norm.default": {"kernel_type": "LayerNormV3"}}
    strict = data(tmp_path / "strict", {"LayerNormV3": [norm_row(t, float(t), ";1") for t in (100, 200)]}, uncounted)
    assert "input_count" in differs_in(strict.query(norm(150)))


def test_layer_norm_alternate_and_dtype(tmp_path: Path) -> None:
    """RFC 4.4.1: LayerNormV3WithImplMode after LayerNormV3; the rows are FLOAT and serve no other dtype."""
    rows = [norm_row(100, 10.0), norm_row(200, 20.0)]
    source = data(tmp_path, {"LayerNormV3WithImplMode": rows}, NORM)
    assert hit(source.query(norm(150))).details["kernel_type"] == "LayerNormV3WithImplMode"
    assert differs_in(source.query(norm(150, "float16")), attempt=1) == ["input_dtypes"]


@pytest.mark.parametrize("tokens", [50, 300])
def test_out_of_range_targets_fall_back(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2: out-of-range targets and miss details on the generic path."""
    source = data(tmp_path, {"LayerNormV3": [norm_row(100, 10.0), norm_row(200, 20.0)]}, NORM)
    answer = miss(source.query(norm(tokens)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["target_axes"] == {"axis_0": float(tokens)}
    assert answer.details["measured_range"] == {"axis_0": (100.0, 200.0)}


def test_insufficient_candidates(tmp_path: Path) -> None:
    """RFC 7.2: insufficient candidates on the generic path."""
    source = data(tmp_path, {"LayerNormV3": [norm_row(100, 10.0)]}, NORM)
    assert miss(source.query(norm(151))).code == "insufficient_filtered_candidates"


def test_static_quantisation_stays_on_generic_compute(tmp_path: Path) -> None:
    """RFC 4.4.2: tensor_cast.quantize.default applies an existing scale and does not enter compute_scale."""
    entry = {"tensor_cast.quantize.default": {"kernel_type": "AscendQuantV2", "tc_input_count": 1}}
    rows = [row(f"{t},64;64;64", "DT_BF16;DT_BF16;DT_BF16", float(t)) for t in (100, 200)]
    leaf = LeafOp.build("tensor_cast.quantize.default", [((150, 64), "bf16"), ((64,), "bf16")], [((150, 64), "int8")])
    answer = hit(data(tmp_path, {"AscendQuantV2": rows}, entry).query(leaf))
    assert (answer.latency_us, answer.details["interpolation_path"]) == (150.0, "compute_1d")
