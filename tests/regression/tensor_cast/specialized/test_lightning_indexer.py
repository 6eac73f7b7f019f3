"""The lightning indexer as an independent leaf (RFC 4.3.1): tokens, cache blocks, both."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specialized_rows import (
    INDEXER,
    INDEXER_ENTRY,
    INDEXER_OP,
    SPARSE,
    data,
    differs_in,
    even,
    indexer,
    indexer_row,
    rejected,
    request_columns,
)
from support import hit, miss, named, source, write_table
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource, Requests
from tensor_cast.performance_model import profiling_database

SHIPPED = Path(profiling_database.__file__).parent / "data" / "ATLAS_800_A3_752T_128G_DIE" / "vllm_ascend"
PAIR = [indexer_row(4, 1000, 10.0), indexer_row(16, 1000, 40.0)]


def values(tokens: int, query: int, context: int, latency: float, blocks: int = 1000, **shape: Any) -> dict[str, Any]:
    """A row of two equal requests, completely recorded."""
    return indexer_row(tokens, blocks, latency, **request_columns((query,) * 2, (context,) * 2), **shape)


def test_tokens_interpolate(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: 1D tokens; RFC 6.1 success details with kernel and attention fields."""
    answer = hit(data(tmp_path, {INDEXER: PAIR}).query(indexer(8, 1000)))
    assert answer.latency_us == 20.0  # a third of the way from 10 to 40
    assert answer.source is QuerySource.INTERPOLATED
    details = answer.details
    assert (details["kernel_type"], details["query_mode"]) == (INDEXER, "attention_lightning_indexer")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["tokens"])
    assert details["axis_boundary"] == {"tokens": [4.0, 16.0]}
    assert (details["candidate_count"], [meta["line"] for meta in details["matched_row_meta"]]) == (2, [2, 3])
    assert (details["fallback_from"], details["interpolation_path"]) == ("exact_miss", "lightning_indexer_1d")
    assert (details["topk"], details["grouping_source"]) == (2048, "shapes")
    assert "api_path" not in details  # neither side names one


def test_the_quant_operators_argument_order_is_followed(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: real quant mapping; the cache is argument 2 of the operator and input 1 of the row."""
    (folder,) = SHIPPED.glob("vllm0.18*")
    shutil.copy(folder / "op_mapping.yaml", tmp_path)
    write_table(tmp_path, INDEXER, PAIR)
    shipped = source(tmp_path)
    assert hit(shipped.query(indexer(8, 1000))).latency_us == 20.0
    inputs: list[Any] = [((8, 32, 128), "bf16"), ((8, 32), "bf16"), ((1000, 128, 128), "int8")]
    outputs = [((8, 2048), "int64")]
    quantised = LeafOp.build(INDEXER_OP, inputs, outputs, requests=Requests(block_table_shape=(2, 64)))
    assert differs_in(shipped.query(quantised)) == ["cache_dtype"]


def test_cache_blocks_interpolate_with_tokens_fixed(tmp_path: Path) -> None:
    """RFC 4.3.1: 1D cache_blocks after tokens."""
    rows = [indexer_row(4, 1000, 10.0), indexer_row(4, 2000, 30.0), indexer_row(16, 2000, 99.0)]
    answer = hit(data(tmp_path, {INDEXER: rows}).query(indexer(4, 1500)))
    assert (answer.latency_us, answer.details["axes"]) == (20.0, ["cache_blocks"])
    assert [attempt["axes"] for attempt in answer.details["attempts"]] == [["tokens"]]


PLANE = [indexer_row(t, b, 1.0 + t + b / 100) for t in (4, 16) for b in (1000, 2000)]


def test_both_axes_after_each_alone(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: guarded 2D."""
    wrapper = data(tmp_path, {INDEXER: PLANE})
    answer = hit(wrapper.query(indexer(8, 1500)))
    assert answer.latency_us == pytest.approx(1 + 8 + 15, rel=1e-12)
    assert answer.details["axes"] == ["tokens", "cache_blocks"]
    assert answer.details["interpolation_path"] == "lightning_indexer_2d"
    outside = miss(wrapper.query(indexer(8, 2500)))
    assert outside.code == "outside_axis_boundary"
    assert outside.details["measured_range"] == {"cache_blocks": (1000.0, 2000.0)}
    attempts = miss(wrapper.query(indexer(8, 2500))).details["attempts"][0]["axis_attempts"]
    assert attempts[-1]["status"] == "outside_axis_boundary"
    assert attempts[-1]["measured_range"] == {"tokens": [4.0, 16.0], "cache_blocks": [1000.0, 2000.0]}


def test_the_hull_guards_2d(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: guarded 2D; inside the box but outside the measured triangle."""
    wrapper = data(tmp_path, {INDEXER: PLANE[:3]})  # (4,1000) (4,2000) (16,1000)
    assert hit(wrapper.query(indexer(6, 1200))).latency_us == pytest.approx(1 + 6 + 12)
    attempts = miss(wrapper.query(indexer(15, 1900))).details["attempts"][0]["axis_attempts"]
    assert attempts[-1]["status"] == "outside_convex_hull"


@pytest.mark.parametrize(
    ("ceiling", "code"), [(0, "interpolation_dim_disabled"), (1, "insufficient_filtered_candidates")]
)
def test_the_ceiling_narrows(tmp_path: Path, ceiling: int, code: str) -> None:
    """RFC 7.2 LightningIndexer: max dimension."""
    wrapper = data(tmp_path, {INDEXER: PLANE}, policies={INDEXER: {"max_interpolation_dim": ceiling}})
    assert miss(wrapper.query(indexer(8, 1500))).code == code
    if ceiling:
        assert hit(wrapper.query(indexer(8, 1000))).latency_us == pytest.approx(15 + 4)  # 15 at 4, 27 at 16 tokens


def test_an_exact_coordinate_is_measured(tmp_path: Path) -> None:
    """RFC 4.3.1: a same-regime exact coordinate returns MEASURED."""
    answer = hit(data(tmp_path, {INDEXER: PAIR[:1]}).query(indexer(4, 1000)))
    assert (answer.latency_us, answer.source) == (10.0, QuerySource.MEASURED)
    assert answer.details["method"] == "exact_coordinate"
    assert answer.details["axes"] == ["tokens", "cache_blocks"]


def test_a_4d_query_is_flattened(tmp_path: Path) -> None:
    """RFC 4.3.1: a 4D query [B, S, H, D] uses B * S."""
    wrapper = data(tmp_path, {INDEXER: PAIR})
    assert hit(wrapper.query(indexer(8, 1000, query=(2, 4, 32, 128)))).latency_us == 20.0


def test_unit_dimensions_of_the_cache_tail_do_not_matter(tmp_path: Path) -> None:
    """Decision 002.9: (blocks, 128, 128) is (blocks, 128, 1, 128)."""
    wrapper = data(tmp_path, {INDEXER: PAIR})
    assert hit(wrapper.query(indexer(8, 1000, cache=(1000, 128, 1, 128)))).latency_us == 20.0


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"dtypes": "DT_FLOAT16;DT_BF16;DT_BF16;INT32;INT32;INT32"}, ["query_dtype"]),
        ({"dtypes": "DT_BF16;INT8;DT_BF16;INT32;INT32;INT32"}, ["cache_dtype"]),
        ({"formats": "NCHW;ND;ND;ND;ND;ND"}, ["input_formats"]),
        ({"formats": "ND;NCHW;ND;ND;ND;ND"}, ["input_formats"]),
        ({"tail": (64, 1, 128)}, ["cache_tail"]),
        ({"tail": (128, 2, 128)}, ["cache_tail"]),
        ({"heads": 64}, ["heads"]),
        ({"head_dim": 64}, ["head_dim"]),
        ({"topk": 1024}, ["topk"]),
        ({"requests": 4}, ["request_grouping"]),
        ({"width": 128}, ["request_grouping"]),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, changed: dict[str, Any], fields: list[str]) -> None:
    """RFC 7.2 LightningIndexer: query/cache dtype, cache-tail, topk and request/sequence grouping isolation."""
    rows = [indexer_row(tokens, 1000, 1.0, **changed) for tokens in (4, 8, 16)]
    assert differs_in(data(tmp_path, {INDEXER: rows}).query(indexer(8, 1000))) == fields


def test_other_formats_are_used_only_for_the_first_two_inputs(tmp_path: Path) -> None:
    """RFC 4.3.1: the first two input formats isolate, the others do not."""
    rows = [indexer_row(t, 1000, float(t), formats="ND;ND;NCHW;ND;ND;ND") for t in (4, 16)]
    assert hit(data(tmp_path, {INDEXER: rows}).query(indexer(8, 1000))).latency_us == 8.0


def test_api_paths_of_both_sides_must_agree(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: API-path mismatch."""
    rows = [
        indexer_row(t, 1000, lat, **named({"API Path": "torch_npu.npu_lightning_indexer"}))
        for t, lat in ((4, 10), (16, 40))
    ]
    same = {INDEXER_OP: {**INDEXER_ENTRY, "api_path": "torch_npu.npu_lightning_indexer"}}
    other = {INDEXER_OP: {**INDEXER_ENTRY, "api_path": "vllm.lightning_indexer"}}
    answer = hit(data(tmp_path / "same", {INDEXER: rows}, same).query(indexer(8, 1000)))
    assert (answer.latency_us, answer.details["api_path"]) == (20.0, "torch_npu.npu_lightning_indexer")
    assert differs_in(data(tmp_path / "other", {INDEXER: rows}, other).query(indexer(8, 1000))) == ["api_path"]
    assert hit(data(tmp_path / "none", {INDEXER: rows}).query(indexer(8, 1000))).latency_us == 20.0


def test_an_api_path_on_one_side_only_is_ignored(tmp_path: Path) -> None:
    """RFC 4.3.1: a CSV without that column uses the remaining fields and requires no synthetic value."""
    entry = {INDEXER_OP: {**INDEXER_ENTRY, "api_path": "vllm.lightning_indexer"}}
    answer = hit(data(tmp_path, {INDEXER: PAIR}, entry).query(indexer(8, 1000)))
    assert answer.details["api_path"] == "vllm.lightning_indexer"


def test_two_api_paths_in_one_table_never_mix(tmp_path: Path) -> None:
    """RFC 7.3.5: candidates do not cross API paths."""
    rows = [
        indexer_row(4, 1000, 10.0, **named({"Runtime api_path": "a"})),
        indexer_row(16, 1000, 40.0, **named({"Runtime api_path": "b"})),
    ]
    assert miss(data(tmp_path, {INDEXER: rows}).query(indexer(8, 1000))).code == "insufficient_filtered_candidates"


def test_runtime_values_group_where_both_sides_have_them(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: request/sequence grouping isolation by values; decision 002.6."""
    rows = [values(4, 2, 3000, 10.0), values(16, 8, 3000, 40.0), values(4, 2, 8000, 100.0), values(16, 8, 8000, 400.0)]
    wrapper = data(tmp_path, {INDEXER: rows})
    short = hit(wrapper.query(indexer(8, 1000, requests=even(2, 4, 3000))))
    assert (short.latency_us, short.details["grouping_source"]) == (20.0, "runtime_values")
    assert short.details["phase"] == "mixed"
    assert hit(wrapper.query(indexer(8, 1000, requests=even(2, 4, 8000)))).latency_us == 200.0
    assert differs_in(wrapper.query(indexer(8, 1000, requests=even(2, 4, 5000)))) == ["request_values"]


def test_phase_and_split_are_part_of_the_values(tmp_path: Path) -> None:
    """Decision 002.6: (phase, split pattern of the query lengths, KV lengths)."""
    rows = [values(4, 2, 3000, 10.0), values(16, 8, 3000, 40.0)]
    wrapper = data(tmp_path, {INDEXER: rows})
    decode = indexer(2, 1000, requests=even(2, 1, 3000))
    assert differs_in(wrapper.query(decode)) == ["request_values"]
    uneven = indexer(8, 1000, requests=Requests((3, 5), (3000, 3000), block_table_shape=(2, 64)))
    assert differs_in(wrapper.query(uneven)) == ["request_values"]


@pytest.mark.parametrize("tokens", [4, 8])  # a measured coordinate and one between
def test_lengths_of_the_rows_alone_are_no_answer(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2 LightningIndexer: lengths on one side only; the miss names the field that the question lacks."""
    rows = [values(4, 2, 3000, 10.0), values(16, 8, 3000, 40.0)]
    assert miss(data(tmp_path, {INDEXER: rows}).query(indexer(tokens, 1000))).code == "semantic_field_missing:kv_lens"


@pytest.mark.parametrize("tokens", [4, 8])
def test_lengths_of_the_question_alone_are_no_answer(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2 LightningIndexer: shapes on purpose, where the rows record nothing else; the answer says so."""
    wrapper = data(tmp_path, {INDEXER: PAIR})
    asked = indexer(tokens, 1000, requests=even(2, tokens // 2, 3000))
    refused = miss(wrapper.query(asked))
    assert refused.code == "semantic_field_missing:actual_seq_lengths_kv_values"
    assert "grouping=shapes" in str(refused)
    answer = hit(wrapper.query(replace(asked, attrs=(*asked.attrs, ("grouping", "shapes")))))
    assert (answer.latency_us, answer.details["grouping_source"]) == (tokens * 2.5, "shapes_on_request")
    wrong = miss(wrapper.query(replace(asked, attrs=(*asked.attrs, ("grouping", "values")))))
    assert wrong.code == "semantic_field_missing:grouping"


def test_the_views_never_mix(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: rows with lengths are no candidates of a question without, nor the other way round."""
    shapes = [{**item, "Runtime metadata_completeness": "profile_shapes_only"} for item in PAIR]
    wrapper = data(tmp_path, {INDEXER: [*shapes, values(8, 4, 3000, 999.0), values(32, 16, 3000, 3996.0)]})
    assert hit(wrapper.query(indexer(8, 1000))).latency_us == 20.0
    assert hit(wrapper.query(indexer(16, 1000, requests=even(2, 8, 3000)))).latency_us == 1998.0


def test_the_phase_separates_where_both_sides_know_it(tmp_path: Path) -> None:
    """Decision 002.6: the indexer compares the phase of the shape view only where both sides have it."""
    rows = [
        indexer_row(t, 1000, latency, **named({"Runtime phase": "decode"})) for t, latency in ((4, 10.0), (16, 40.0))
    ]
    wrapper = data(tmp_path, {INDEXER: rows})

    def asked(phase: Any) -> LeafOp:
        return indexer(8, 1000, requests=Requests(explicit_phase=phase, block_table_shape=(2, 64)))

    assert hit(wrapper.query(asked("decode"))).latency_us == 20.0
    assert hit(wrapper.query(asked(None))).latency_us == 20.0
    assert differs_in(wrapper.query(asked("prefill"))) == ["phase"]


@pytest.mark.parametrize("completeness", ["partial", "legacy", "runtime_values", "shape_grid_scene_generated", ""])
@pytest.mark.parametrize("known", [True, False])
def test_an_incomplete_record_is_unusable(tmp_path: Path, completeness: str, known: bool) -> None:
    """RFC 7.2 LightningIndexer: unusable records: every other word, and blank, in either view."""
    rows = [
        {**values(tokens, tokens // 2, 3000, latency), "Runtime metadata_completeness": completeness}
        for tokens, latency in ((4, 10.0), (16, 40.0))
    ]
    asked = indexer(8, 1000, requests=even(2, 4, 3000) if known else None)
    assert rejected(data(tmp_path, {INDEXER: rows}).query(asked)) == {"runtime_metadata_incomplete": 2}


def test_rows_marked_as_shapes_only_count_as_no_values(tmp_path: Path) -> None:
    """Decision 002.6: whatever their length cells say."""
    rows = [
        {**values(tokens, tokens // 2, 3000, latency), "Runtime metadata_completeness": "profile_shapes_only"}
        for tokens, latency in ((4, 10.0), (16, 40.0))
    ]
    assert hit(data(tmp_path, {INDEXER: rows}).query(indexer(8, 1000))).latency_us == 20.0


def test_a_phase_that_contradicts_the_lengths_is_unusable(tmp_path: Path) -> None:
    """Decision 002.6: contradictory on the row's side, and on the question's."""
    decode = [{**values(2, 1, 3000, 2.0), "Runtime phase": "decode"}]
    wrapper = data(tmp_path, {INDEXER: decode})
    assert hit(wrapper.query(indexer(2, 1000, requests=even(2, 1, 3000)))).latency_us == 2.0
    full = [{**values(8, 4, 4, 8.0), "Runtime phase": "decode"}]
    prefill = indexer(8, 1000, requests=even(2, 4, 4))
    assert rejected(data(tmp_path / "row", {INDEXER: full}).query(prefill)) == {"runtime_phase_contradicts_lengths": 1}
    stated = replace(prefill, requests=Requests((4, 4), (4, 4), "decode", (2, 64)))
    assert miss(wrapper.query(stated)).code == "semantic_field_missing:phase"


def test_lengths_suffice_without_a_block_table(tmp_path: Path) -> None:
    """Decision 002.6: the values are the grouping; a call without a block table is answered by rows with values."""
    rows = [values(4, 2, 3000, 10.0), values(16, 8, 3000, 40.0)]
    asked = indexer(8, 1000, requests=Requests((4, 4), (3000, 3000)))
    assert hit(data(tmp_path, {INDEXER: rows}).query(asked)).latency_us == 20.0


def test_different_lengths_at_one_coordinate_stay_apart(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: duplicate-coordinate rejection, between rows whose lengths are known."""
    rows = [values(4, 2, 3000, 10.0), values(8, 4, 3000, 20.0), values(8, 4, 8000, 200.0), values(16, 8, 3000, 40.0)]
    wrapper = data(tmp_path, {INDEXER: rows})
    assert hit(wrapper.query(indexer(8, 1000, requests=even(2, 4, 3000)))).latency_us == 20.0
    assert hit(wrapper.query(indexer(8, 1000, requests=even(2, 4, 8000)))).latency_us == 200.0


@pytest.mark.parametrize(("second", "answered"), [(22.0, 21.0), (22.1, None)])
def test_repeats_of_the_shape_view_agree_within_a_tenth(tmp_path: Path, second: float, answered: float | None) -> None:
    """RFC 7.2 LightningIndexer: duplicate-coordinate rejection; decision 002.6: shapes tell no more apart than 10 %."""
    wrapper = data(tmp_path, {INDEXER: [*PAIR, indexer_row(8, 1000, 20.0), indexer_row(8, 1000, second)]})
    if answered is not None:
        assert hit(wrapper.query(indexer(8, 1000))).latency_us == answered
        return
    assert miss(wrapper.query(indexer(8, 1000))).code == "ambiguous_duplicate_coordinate"
    # neighbours never use the ambiguous coordinate: 12 tokens lie between 4 and 16 alone
    assert hit(wrapper.query(indexer(12, 1000))).latency_us == 30.0


def test_true_repeats_merge(tmp_path: Path) -> None:
    """Decision 002.5: rows of equal coordinate and equal requests are repeats of one measurement."""
    rows = [values(8, 4, 3000, 20.0), values(8, 4, 3000, 24.0)]
    wrapper = data(tmp_path, {INDEXER: rows})
    answer = hit(wrapper.query(indexer(8, 1000, requests=even(2, 4, 3000))))
    assert (answer.latency_us, answer.source) == (22.0, QuerySource.MEASURED)
    assert answer.details["matched_row_meta"][0]["duplicate_count"] == 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"Runtime actual_seq_lengths_values": "4,9"}, "runtime_query_offsets_invalid"),  # nine of eight tokens
        ({"Runtime actual_seq_lengths_values": "9,8"}, "runtime_query_offsets_invalid"),  # decreasing
        ({"Runtime actual_seq_lengths_values": "-1,8"}, "runtime_query_offsets_invalid"),
        ({"Runtime actual_seq_lengths_values": "8"}, "runtime_query_offsets_invalid"),  # one of two requests
        ({"Runtime actual_seq_lengths_values": "4,8.5"}, "runtime_query_offsets_invalid"),
        ({"Runtime actual_seq_lengths_values": "four,8"}, "runtime_query_offsets_invalid"),
        ({"Runtime actual_seq_lengths_kv_values": "3000"}, "runtime_query_offsets_invalid"),
        ({"Runtime actual_seq_lengths_kv_values": "3000,long"}, "runtime_query_offsets_invalid"),
        ({"Runtime actual_seq_lengths_kv_values": "3000,0"}, "runtime_workload_unextractable"),
        ({"Runtime actual_seq_lengths_kv_values": "3000,-5"}, "runtime_workload_unextractable"),
        (
            {"Runtime actual_seq_lengths_values": "8,8", "Runtime actual_seq_lengths_kv_values": "3000,-5"},
            "runtime_workload_unextractable",
        ),
        ({"Runtime topk": 1024}, "topk_unextractable"),
        ({"Output Shapes": "", "Output Data Types": "", "Output Formats": ""}, "output_signature_missing"),
        ({"Input Shapes": "8,32,128;1000,128,1,128;8,32;2;2;3,64"}, "request_grouping_unextractable"),
        ({"Input Shapes": "8,32,128;1000,128,1,128;8,32;2;3;2,64"}, "request_grouping_unextractable"),
        ({"Input Shapes": "8,32,128;1000,128,1,128;8,32;2;2;128"}, "request_grouping_unextractable"),
        ({"Input Shapes": "8,4096;1000,128,1,128;8,32;2;2;2,64"}, "query_shape_unextractable"),
        (
            {
                "Input Shapes": "8,32,128;1000,128,1,128;8,32;2;2",
                "Input Data Types": "DT_BF16;DT_BF16;DT_BF16;INT32;INT32",
                "Input Formats": "",
            },
            "input_signature_missing",
        ),
        (
            {
                "Input Shapes": "8,32,128;1000,128,1,128;8,32;;2;2;2,64",
                "Input Data Types": "DT_BF16;DT_BF16;DT_BF16;;INT32;INT32;INT32",
                "Input Formats": "",
            },
            "input_signature_missing",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_rejected_with_a_reason(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    """RFC 4.3.1: a required semantic field that cannot be extracted fails closed."""
    rows = [values(4, 2, 3000, 10.0), values(16, 8, 3000, 40.0), {**values(8, 4, 3000, 999.0), **changed}]
    wrapper = data(tmp_path, {INDEXER: rows})
    assert hit(wrapper.query(indexer(8, 1000, requests=even(2, 4, 3000)))).latency_us == 20.0
    assert rejected(wrapper.query(indexer(80, 1000, requests=even(2, 40, 3000)))) == {reason: 1}


@pytest.mark.parametrize(
    ("leaf", "code"),
    [
        (indexer(8, 1000, requests=Requests()), "semantic_field_missing:block_table_shape"),
        (indexer(8, 1000, requests=Requests(block_table_shape=(2,))), "semantic_field_missing:block_table_shape"),
        (
            indexer(8, 1000, requests=Requests((4, 4), (9, 9), block_table_shape=(3, 64))),
            "semantic_field_missing:block_table_shape",
        ),
        (
            indexer(8, 1000, requests=Requests((4, 9), (3000, 3000), block_table_shape=(2, 64))),
            "semantic_field_missing:query_lens",
        ),
        (
            indexer(8, 1000, requests=Requests((4, 4), (3000, 0), block_table_shape=(2, 64))),
            "semantic_field_missing:query_lens",
        ),
        (indexer(8, 1000, query=(8, 4096)), "semantic_field_missing:query"),
        (indexer(8, 1000, cache=(1000,)), "semantic_field_missing:cache"),
        (indexer(8, 1000, dtype="uint8"), "dtype_unmapped:uint8"),
        (LeafOp.build(INDEXER_OP, [((8, 32, 128), "bf16")]), "topk_unextractable"),
    ],
)
def test_target_construction_failures(tmp_path: Path, leaf: LeafOp, code: str) -> None:
    """RFC 6.2: an upstream leaf missing required semantic fields."""
    wrapper = data(tmp_path, {INDEXER: PAIR})
    assert miss(wrapper.query(leaf)).code == code


@pytest.mark.parametrize("tokens", [2, 32])
def test_out_of_range_targets_fall_back(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2: out-of-range targets; RFC 4.3.1: failure details name kernel, axes and rejected rows."""
    rows = [*PAIR, indexer_row(8, 1000, 0)]
    answer = miss(data(tmp_path, {INDEXER: rows}).query(indexer(tokens, 1000)))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["attempted_kernel_types"] == [INDEXER]
    assert answer.details["target_axes"] == {"tokens": float(tokens), "cache_blocks": 1000.0}
    assert answer.details["target_regime"]["topk"] == 2048
    assert rejected(answer) == {"latency_zero": 1}


def test_one_row_and_no_row_at_the_coordinate_is_insufficient(tmp_path: Path) -> None:
    """RFC 7.2: insufficient candidates."""
    assert miss(data(tmp_path, {INDEXER: PAIR[:1]}).query(indexer(8, 1000))).code == "insufficient_filtered_candidates"


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: missing-CSV details."""
    answer = miss(data(tmp_path, {}).query(indexer(8, 1000)))
    assert answer.code == "csv_not_found"
    assert answer.details["attempted_kernel_types"] == [INDEXER]
    assert answer.details["interpolation_path"] == "lightning_indexer"
    assert answer.details["attempts"][0]["status"] == "csv_not_found"


def test_the_base_never_answers_through_generic_compute(tmp_path: Path) -> None:
    """RFC 7.2 LightningIndexer: base generic exact rejection, also with interpolation disabled.

    The row holds exactly the leaf's tensors, so that generic compute would match it.
    """
    leaf = indexer(8, 1000)
    twin = {
        **indexer_row(8, 1000, 5.0),
        "Input Shapes": "8,32,128;8,32;1000,128,128",
        "Input Data Types": "DT_BF16;DT_BF16;DT_BF16",
        "Input Formats": "ND;ND;ND",
    }
    plain = data(tmp_path / "plain", {INDEXER: [twin]}, {INDEXER_OP: {"kernel_type": INDEXER}})
    assert hit(plain.base.query(leaf)).latency_us == 5.0
    wrapper = data(tmp_path / "mode", {INDEXER: [twin]})
    disabled = InterpolatingDataSource(wrapper.base, disable_interpolation=True)
    assert miss(disabled.query(leaf)).code == "regime_key_unmatched"
    assert miss(wrapper.query(leaf)).details["base_miss_reason"] == "regime_key_unmatched"
    assert rejected(wrapper.query(leaf)) == {"input_signature_missing": 1}


def test_the_base_answers_its_own_exact_rows_and_nothing_between(tmp_path: Path) -> None:
    """RFC 4.3.2: with the wrapper disabled the specialised base performs exact lookup."""
    wrapper = data(tmp_path, {INDEXER: [indexer_row(8, 1000, 5.0), indexer_row(8, 3000, 9.0)]})
    disabled = InterpolatingDataSource(wrapper.base, disable_interpolation=True)
    assert (hit(disabled.query(indexer(8, 1000))).latency_us, hit(wrapper.query(indexer(8, 2000))).latency_us) == (
        5.0,
        7.0,
    )
    assert miss(disabled.query(indexer(8, 2000))).code == "shape_mismatch"


def test_sparse_attention_rows_are_not_candidates(tmp_path: Path) -> None:
    """RFC 4.3.2: SparseFlashAttention candidates are not mixed with LightningIndexer."""
    assert miss(data(tmp_path, {SPARSE: PAIR}).query(indexer(8, 1000))).code == "csv_not_found"
