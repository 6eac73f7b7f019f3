"""Fused dispatch + FFN + combine: one axis, everything else in the regime (RFC 4.1.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specialized_rows import DFC, DFC_ENTRY, DFC_OP, data, dfc, dfc_row, differs_in, rejected
from support import hit, miss
from tensor_cast import LeafOp, QuerySource

PAIR = [dfc_row(120, 10.0), dfc_row(240, 20.0)]
OTHER_SUBTYPES = {
    "plain": "tensor_cast.dispatch_ffn_combine.default",
    "int4": "tensor_cast.dispatch_ffn_combine_quant_int4.default",
    "fp8": "tensor_cast.dispatch_ffn_combine_fp8.default",
    "mxfp4": "tensor_cast.dispatch_ffn_combine_mxfp4.default",
}
OTHERS = dict.fromkeys(OTHER_SUBTYPES.values(), DFC_ENTRY)


def test_w8a8_tokens_interpolate(tmp_path: Path) -> None:
    """RFC 7.2 DispatchFFNCombine: v0.18 W8A8 1D token interpolation."""
    answer = hit(data(tmp_path, {DFC: PAIR}).query(dfc(180)))
    assert answer.latency_us == 15.0  # halfway between 120 -> 10 and 240 -> 20
    assert answer.source is QuerySource.INTERPOLATED
    details = answer.details
    assert (details["kernel_type"], details["query_mode"]) == (DFC, "moe_fused")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["tokens"])
    assert details["axis_boundary"] == {"tokens": [120.0, 240.0]}
    assert details["candidate_count"] == 2
    assert [meta["line"] for meta in details["matched_row_meta"]] == [2, 3]
    assert (details["fallback_from"], details["interpolation_path"]) == ("specialized_exact_miss", "moe_fused_1d")
    assert (details["ep_size"], details["quant_subtype"]) == (16, "w8a8")
    assert details["exact_fields"]["gmm1_shape"] == [16, 7168, 4096]
    assert details["exact_fields"]["gmm2_shape"] == [16, 2048, 7168]


def test_tokens_are_the_product_of_the_leading_dimensions(tmp_path: Path) -> None:
    """RFC 4.1.1: [2, 4, 72, 7168] is 576 tokens; no other axis is synthesised from the runtime shape."""
    source = data(tmp_path, {DFC: [dfc_row(512, 10.0), dfc_row(640, 30.0)]})
    leaf = dfc(576, x=((2, 4, 72, 7168), "bf16"))
    answer = hit(source.query(leaf))
    assert answer.latency_us == 20.0  # 576 is halfway
    assert answer.details["target"] == {"tokens": 576.0}
    assert answer.details["axes"] == ["tokens"]


def test_an_exact_coordinate_is_measured(tmp_path: Path) -> None:
    """RFC 3.3: all continuous axes equal a measured point of the regime; one row is enough."""
    answer = hit(data(tmp_path, {DFC: [dfc_row(120, 10.0)]}).query(dfc(120)))
    assert (answer.latency_us, answer.source) == (10.0, QuerySource.MEASURED)
    assert (answer.details["method"], answer.details["interpolation_dim"]) == ("exact_coordinate", 0)
    assert answer.details["matched_row_meta"][0]["line"] == 2


def test_the_base_match_on_the_activation_alone_is_bypassed(tmp_path: Path) -> None:
    """RFC 3.1: the DFC base mapping consumes only the activation and cannot validate complete GMM weight shapes."""
    source = data(tmp_path, {DFC: [dfc_row(120, 10.0, gmm1=(16, 7168, 2048))]})
    leaf = dfc(120)
    assert hit(source.base.query(leaf)).latency_us == 10.0
    assert differs_in(source.query(leaf)) == ["gmm1_shape"]


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"activation": "DT_FLOAT16"}, ["activation_dtype"]),
        ({"formats": "FRACTAL_NZ;FRACTAL_NZ;FRACTAL_NZ;ND;ND;ND;ND"}, ["activation_format"]),
        ({"formats": "ND;ND;ND;ND;ND;ND;ND"}, ["weight_format"]),
        ({"weight": "INT4"}, ["quant_subtype", "weight_dtypes"]),
        ({"weight": "FLOAT8_E4M3FN"}, ["quant_subtype", "weight_dtypes"]),
        ({"weight": "FLOAT4_E2M1"}, ["quant_subtype", "weight_dtypes"]),
        ({"weight": "DT_BF16"}, ["quant_subtype", "weight_dtypes"]),
        ({"gmm1": (16, 7168, 2048)}, ["gmm1_shape"]),
        ({"gmm2": (16, 1024, 7168)}, ["gmm2_shape"]),
        ({"gmm1": (8, 7168, 4096), "gmm2": (8, 2048, 7168)}, ["gmm1_shape", "gmm2_shape"]),
        ({"topk": 8}, ["topk"]),
        ({"ep": 8}, ["ep_size"]),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, changed: dict[str, Any], fields: list[str]) -> None:
    """RFC 7.2 DispatchFFNCombine: GMM1/GMM2 weight-shape, topk / EP / local-expert, dtype and layout isolation."""
    rows = [dfc_row(tokens, latency, **changed) for tokens, latency in ((120, 10.0), (180, 15.0), (240, 20.0))]
    assert differs_in(data(tmp_path, {DFC: rows}).query(dfc(180))) == fields


def test_the_hidden_size_isolates(tmp_path: Path) -> None:
    """RFC 4.1.1: hidden size is an exact regime field."""
    rows = [dfc_row(tokens, 1.0, x=(tokens, 6144)) for tokens in (120, 240)]
    assert differs_in(data(tmp_path, {DFC: rows}).query(dfc(180))) == ["hidden_size"]


@pytest.mark.parametrize("subtype", OTHER_SUBTYPES)
def test_other_subtypes_never_borrow_w8a8_rows_of_equal_tensors(tmp_path: Path, subtype: str) -> None:
    """RFC 7.2 DispatchFFNCombine: strict plain / W8A8 / INT4 / FP8 / MXFP4 subtype isolation.

    The tensors are those of the W8A8 rows, so nothing but the operator tells the subtypes apart.
    """
    source = data(tmp_path, {DFC: PAIR}, OTHERS)
    for tokens in (120, 180):
        assert "quant_subtype" in differs_in(source.query(dfc(tokens, OTHER_SUBTYPES[subtype])))


@pytest.mark.parametrize(
    ("subtype", "weight", "gmm1", "code"),
    [
        ("plain", "bf16", (7168, 4096), "regime_key_unmatched"),
        ("int4", "int8", (3584, 4096), "moe_fused_target_unextractable"),  # GMM2 is not halved beside it
        ("fp8", "fp8_e4m3", (7168, 4096), "regime_key_unmatched"),
        ("mxfp4", "float4", (7168, 4096), "regime_key_unmatched"),
        ("mxfp4", "float4_e2m1fn_x2", (7168, 4096), "moe_fused_target_unextractable:mxfp4"),
    ],
)
def test_other_subtypes_miss_with_their_own_dtypes(
    tmp_path: Path, subtype: str, weight: str, gmm1: tuple[int, int], code: str
) -> None:
    """RFC 7.2 DispatchFFNCombine: stable misses when matching subtype data is unavailable."""
    source = data(tmp_path, {DFC: PAIR}, OTHERS)
    for _ in range(2):
        assert miss(source.query(dfc(180, OTHER_SUBTYPES[subtype], weight=weight, gmm1=gmm1))).code == code


def test_plain_rows_answer_the_plain_operator(tmp_path: Path) -> None:
    """RFC 4.1.1: the subtype of a row follows from its weight dtypes, so plain rows would serve when collected."""
    formats = "ND;ND;ND;ND;ND;ND;ND"
    rows = [
        dfc_row(tokens, latency, weight="DT_BF16", formats=formats) for tokens, latency in ((120, 30.0), (240, 50.0))
    ]
    answer = hit(data(tmp_path, {DFC: rows}, OTHERS).query(dfc(180, OTHER_SUBTYPES["plain"], weight="bf16")))
    assert (answer.latency_us, answer.details["quant_subtype"]) == (40.0, "plain")


def test_without_the_ep_column_nothing_matches(tmp_path: Path) -> None:
    """RFC 7.2 DispatchFFNCombine: missing EP rejection (the v0.15 table has no such column)."""
    rows = [dfc_row(120, 10.0, ep=None), dfc_row(240, 20.0, ep=None)]
    source = data(tmp_path, {DFC: rows})
    for tokens in (120, 180):
        answer = miss(source.query(dfc(tokens)))
        assert answer.code == "regime_key_unmatched"
        assert rejected(answer) == {"ep_size_missing": 2}


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("", "ep_size_missing"),
        (" ", "ep_size_missing"),
        (16.5, "ep_size_invalid"),
        (0, "ep_size_invalid"),
        (-1, "ep_size_invalid"),
        ("sixteen", "ep_size_invalid"),
        ("nan", "ep_size_invalid"),
        ("inf", "ep_size_invalid"),
    ],
)
def test_blank_and_invalid_ep_sizes_match_no_target(tmp_path: Path, cell: object, reason: str) -> None:
    """RFC 7.2 DispatchFFNCombine: blank/invalid EP rejection."""
    rows = [dfc_row(120, 10.0), dfc_row(180, 15.0, ep=cell), dfc_row(200, 99.0)]
    source = data(tmp_path, {DFC: rows})
    answer = hit(source.query(dfc(180)))
    assert answer.latency_us == pytest.approx(10 + 89 * 60 / 80)
    assert answer.source is QuerySource.INTERPOLATED
    assert rejected(source.query(dfc(500))) == {reason: 1}


def test_an_integral_float_is_a_valid_ep_size(tmp_path: Path) -> None:
    """RFC 4.1.1: every row provides a valid positive integer; spreadsheets write it as 16.0."""
    rows = [dfc_row(120, 10.0, ep=16.0), dfc_row(240, 20.0, ep="16")]
    assert hit(data(tmp_path, {DFC: rows}).query(dfc(180))).latency_us == 15.0


def test_an_unconfigured_ep_size_refuses_before_any_table(tmp_path: Path) -> None:
    """RFC 4.1.1: if runtime EP is not configured, the path returns ep_size_not_configured."""
    source = data(tmp_path, {}, expert_parallel_size=None)
    assert miss(source.query(dfc(180))).code == "ep_size_not_configured"


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """RFC 6.2: missing CSV."""
    answer = miss(data(tmp_path, {}).query(dfc(180)))
    assert answer.code == "csv_not_found"
    assert answer.details["attempted_kernel_types"] == [DFC]


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ([((7168,), "bf16"), ((180, 4), "int64")], "moe_fused_target_unextractable"),  # rank 1
        ([((180, 7168), "bf16")], "topk_unextractable"),
        ([((180, 7168), "bf16"), ((4,), "int64")], "topk_unextractable"),
        ([((180, 7168), "bf16"), ((90, 4), "int64")], "topk_unextractable"),  # not one line of ids per token
        ([((180, 7168), "bf16"), ((180, 0), "int64")], "topk_unextractable"),
        ([((180, 7168), "bf16"), ((180, 4), "int64")], "moe_fused_target_unextractable"),  # no weights
    ],
)
def test_target_construction_failures(tmp_path: Path, inputs: list[Any], code: str) -> None:
    """RFC 4.1.1: the path misses when topk cannot be extracted or weight shapes are missing."""
    source = data(tmp_path, {DFC: PAIR})
    assert miss(source.query(LeafOp.build(DFC_OP, inputs))).code == code


@pytest.mark.parametrize("gmm1", [(3584, 4096), (7168, 7168, 7168, 2)])
def test_weights_that_do_not_fit_the_hidden_size_are_unextractable(tmp_path: Path, gmm1: tuple[int, ...]) -> None:
    """RFC 4.1.1: missing weight shapes reject."""
    source = data(tmp_path, {DFC: PAIR})
    assert miss(source.query(dfc(180, gmm1=gmm1))).code == "moe_fused_target_unextractable"


def test_stacked_and_transposed_weights_are_one_form(tmp_path: Path) -> None:
    """RFC 4.1.1: complete GMM1/GMM2 shapes come from the operator signature, however it passes them."""
    source = data(tmp_path, {DFC: PAIR})
    stacked = [((180, 7168), "bf16"), ((180, 4), "int64"), ((16, 7168, 4096), "int8"), ((16, 2048, 7168), "int8")]
    assert hit(source.query(LeafOp.build(DFC_OP, stacked))).latency_us == 15.0
    assert hit(source.query(dfc(180, gmm1=(4096, 7168), gmm2=(7168, 2048)))).latency_us == 15.0


def test_repeats_merge_only_inside_one_regime(tmp_path: Path) -> None:
    """RFC 7.2 DispatchFFNCombine: real-CSV duplicate-coordinate protection; decision 002.5."""
    rows = [
        dfc_row(120, 10.0),
        dfc_row(120, 14.0),
        dfc_row(120, 900.0, gmm1=(16, 7168, 2048), gmm2=(16, 1024, 7168)),
        dfc_row(120, 800.0, topk=8),
        dfc_row(120, 700.0, ep=8),
        dfc_row(240, 20.0),
    ]
    answer = hit(data(tmp_path, {DFC: rows}).query(dfc(180)))
    assert answer.latency_us == 16.0  # the median of 10 and 14 is 12, halfway to 20
    meta = answer.details["matched_row_meta"][0]
    assert (meta["aggregation"], meta["duplicate_count"]) == ("median", 2)
    assert (meta["duplicate_latency_min_us"], meta["duplicate_latency_max_us"]) == (10.0, 14.0)


@pytest.mark.parametrize("tokens", [60, 480])
def test_out_of_range_targets_fall_back(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2 DispatchFFNCombine: out-of-range fallback; nothing is extrapolated."""
    answer = miss(data(tmp_path, {DFC: PAIR}).query(dfc(tokens)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["measured_range"] == {"tokens": (120.0, 240.0)}
    assert answer.details["target_axes"] == {"tokens": float(tokens)}
    assert answer.details["target_regime"]["ep_size"] == 16


def test_one_candidate_is_insufficient(tmp_path: Path) -> None:
    """RFC 7.2 DispatchFFNCombine: insufficient-candidate fallback."""
    answer = miss(data(tmp_path, {DFC: PAIR[:1]}).query(dfc(180)))
    assert answer.code == "insufficient_filtered_candidates"


@pytest.mark.parametrize("latency", [0, -1, "nan", "inf", "fast", ""])
def test_invalid_latency_is_no_candidate(tmp_path: Path, latency: object) -> None:
    """RFC 6.3: candidate latency must be positive and finite."""
    rows = [dfc_row(120, 10.0), dfc_row(240, str(latency))]
    answer = miss(data(tmp_path, {DFC: rows}).query(dfc(180)))
    assert answer.code == "insufficient_filtered_candidates"
    assert sum(rejected(answer).values()) == 1


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"Input Shapes": "180,7168"}, "dtype_count_mismatch"),
        ({"Input Shapes": "180,7168;4096;2048;180,4;65536;114688;180,4"}, "moe_weight_shapes_unextractable"),
        ({"Input Shapes": "180,7168;16,7168,4096;16,2048,7168;90,4;65536;114688;180,4"}, "topk_unextractable"),
        ({"Input Data Types": "DT_BF16;INT8;INT8;INT64;INT64;INT64;FLOAT"}, "topk_unextractable"),
        ({"Input Data Types": "DT_BF16;UINT8;UINT8;INT32;INT64;INT64;FLOAT"}, "quant_subtype_unknown"),
        ({"Input Data Types": "DT_BF16;INT8;INT4;INT32;INT64;INT64;FLOAT"}, "quant_subtype_unknown"),
        ({"Input Data Types": "INT8;INT8;INT8;INT32;INT64;INT64;FLOAT"}, "quant_subtype_unknown"),
        ({"Input Formats": "ND;FRACTAL_NZ;ND;ND;ND;ND;ND"}, "weight_formats_differ"),
        (
            {"Input Shapes": "180,7168;;16,7168,4096;16,2048,7168;180,4;65536;114688;180,4"},
            "moe_physical_signature_incomplete",
        ),
    ],
)
def test_rows_without_the_fields_are_rejected_with_a_reason(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    """RFC 4.1.1: missing weight shapes, an unknown subtype, or a mismatch rejects the candidate."""
    rows = [dfc_row(120, 10.0), dfc_row(240, 20.0), {**dfc_row(180, 999.0), **cells}]
    source = data(tmp_path, {DFC: rows})
    assert hit(source.query(dfc(180))).latency_us == 15.0
    assert rejected(source.query(dfc(500))) == {reason: 1}


def test_alternates_are_not_tried_and_ordinary_compute_never_answers(tmp_path: Path) -> None:
    """RFC 4.1.1: the path does not fall through to ordinary compute interpolation."""
    entry = {**DFC_ENTRY, "alternate_kernel_types": ["Other"]}
    answer = miss(data(tmp_path, {"Other": PAIR}, {DFC_OP: entry}).query(dfc(180)))
    assert answer.code == "csv_not_found"
    assert answer.details["interpolation_path"] == "moe_fused"
