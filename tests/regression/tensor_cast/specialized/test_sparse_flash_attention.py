"""Sparse flash attention as an independent leaf (RFC 4.3.2): tokens only, and closed where a field is unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specialized_rows import (
    INDEXER,
    SPARSE,
    SPARSE_OP,
    data,
    differs_in,
    even,
    rejected,
    request_columns,
    sparse,
    sparse_row,
)
from support import hit, miss, named
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource, Requests

MIXED = even(2, 4, 3000)


def recorded(query: int, latency: float | str, context: int = 3000, count: int = 2, **shape: Any) -> dict[str, Any]:
    """A row of `count` equal requests, completely recorded."""
    columns = request_columns((query,) * count, (context,) * count)
    return sparse_row(query * count, latency, requests=count, **columns, **shape)


PAIR = [recorded(2, 10.0), recorded(8, 40.0)]


def test_tokens_interpolate(tmp_path: Path) -> None:
    """RFC 7.2 SparseFlashAttention: canonical leaf contract, token-only 1D; RFC 6.1 success details."""
    answer = hit(data(tmp_path, {SPARSE: PAIR}).query(sparse(8, requests=MIXED)))
    assert answer.latency_us == 20.0  # 8 tokens, a third of the way from 4 -> 10 to 16 -> 40
    assert answer.source is QuerySource.INTERPOLATED
    details = answer.details
    assert (details["kernel_type"], details["query_mode"]) == (SPARSE, "attention_sparse_sharedkv")
    assert (details["method"], details["interpolation_dim"], details["axes"]) == ("linear_1d", 1, ["tokens"])
    assert details["axis_boundary"] == {"tokens": [4.0, 16.0]}
    assert (details["candidate_count"], [meta["line"] for meta in details["matched_row_meta"]]) == (2, [2, 3])
    assert (details["fallback_from"], details["interpolation_path"]) == ("exact_miss", "sparse_attention_1d")
    assert (details["phase"], details["topk"], details["grouping_source"]) == ("mixed", 2048, "runtime_values")
    assert details["exact_fields"]["cache_shape"] == [1766, 128, 512]


def test_cache_blocks_are_no_axis(tmp_path: Path) -> None:
    """RFC 4.3.2: cache capacity is not the effective length; the full cache shape isolates."""
    rows = [recorded(4, 10.0, cache=(blocks, 128, 1, 512)) for blocks in (1000, 2000)]
    source = data(tmp_path, {SPARSE: rows})
    assert differs_in(source.query(sparse(8, cache=(1500, 128, 512), requests=MIXED))) == ["cache_shape"]


def test_the_dependency_argument_is_the_cache(tmp_path: Path) -> None:
    """RFC 4.3.2: in prefill the fresh keys come as `kv` and the cache the rows know as `kv_dependency`."""
    source = data(tmp_path, {SPARSE: PAIR})
    assert hit(source.query(sparse(8, fresh=(2, 6, 512), requests=MIXED))).latency_us == 20.0
    elsewhere = sparse(8, fresh=(1766, 128, 512), cache=(900, 128, 512), requests=MIXED)
    assert differs_in(source.query(elsewhere)) == ["cache_shape"]


def test_a_4d_query_is_flattened(tmp_path: Path) -> None:
    """RFC 4.3.2: a 4D query [B, S, H, D] uses B * S."""
    source = data(tmp_path, {SPARSE: PAIR})
    assert hit(source.query(sparse(8, query=(2, 4, 4, 512), requests=MIXED))).latency_us == 20.0


def test_an_exact_coordinate_is_measured(tmp_path: Path) -> None:
    """RFC 7.2 SparseFlashAttention: specialized exact."""
    answer = hit(data(tmp_path, {SPARSE: PAIR[:1]}).query(sparse(4, requests=even(2, 2, 3000))))
    assert (answer.latency_us, answer.source) == (10.0, QuerySource.MEASURED)
    assert answer.details["method"] == "exact_coordinate"
    assert answer.details["matched_row_meta"][0]["line"] == 2


_DTYPES = ";DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16"


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"dtypes": "DT_FLOAT16;DT_BF16" + _DTYPES}, ["query_dtype"]),
        ({"dtypes": "DT_BF16;INT8" + _DTYPES}, ["cache_dtype"]),
        ({"formats": "NCHW;ND;ND;ND;ND;ND;ND;ND;ND"}, ["input_formats"]),
        ({"formats": "ND;NCHW;ND;ND;ND;ND;ND;ND;ND"}, ["input_formats"]),
        ({"heads": 8}, ["heads"]),
        ({"head_dim": 256}, ["head_dim"]),
        ({"cache": (900, 128, 1, 512)}, ["cache_shape"]),
        ({"cache": (1766, 64, 1, 512)}, ["cache_shape"]),
        ({"topk": 1024}, ["topk"]),
        ({"width": 128}, ["request_grouping"]),
    ],
)
def test_every_regime_field_isolates(tmp_path: Path, changed: dict[str, Any], fields: list[str]) -> None:
    """RFC 7.2 SparseFlashAttention: query/cache dtype, cache-shape, selected-topk and grouping isolation."""
    rows = [recorded(query, 1.0, **changed) for query in (2, 4, 8)]
    assert differs_in(data(tmp_path, {SPARSE: rows}).query(sparse(8, requests=MIXED))) == fields


def test_the_number_of_requests_isolates(tmp_path: Path) -> None:
    """RFC 7.2 SparseFlashAttention: request-and-sequence grouping isolation."""
    rows = [recorded(1, 10.0, count=4), recorded(4, 40.0, count=4)]
    fields = differs_in(data(tmp_path, {SPARSE: rows}).query(sparse(8, requests=MIXED)))
    assert fields == ["request_grouping", "request_values"]


def test_the_phase_isolates(tmp_path: Path) -> None:
    """RFC 7.2 SparseFlashAttention: sparse-phase isolation."""
    rows = [sparse_row(t, float(t), **named({"Runtime phase": "decode"})) for t in (2, 8)]
    source = data(tmp_path, {SPARSE: rows})

    def asked(phase: Any) -> LeafOp:
        return sparse(4, requests=Requests(explicit_phase=phase, block_table_shape=(2, 64)))

    assert hit(source.query(asked("decode"))).latency_us == 4.0
    assert differs_in(source.query(asked("prefill"))) == ["sparse_phase"]


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        (None, "block_table_shape"),
        (Requests(), "block_table_shape"),
        (Requests(block_table_shape=(2, 64)), "phase"),
        (Requests(None, (3000, 3000), block_table_shape=(2, 64)), "query_lens"),
        (Requests((0, 0), (3000, 3000), block_table_shape=(2, 64)), "query_lens"),
        (Requests((4, 9), (3000, 3000), block_table_shape=(2, 64)), "query_lens"),
        (Requests((4, 4), (3000, 3000), block_table_shape=(3, 64)), "block_table_shape"),
    ],
)
def test_a_leaf_without_its_requests_is_a_stable_miss(tmp_path: Path, requests: Requests | None, field: str) -> None:
    """RFC 7.3.7: fail closed while phase or grouping cannot be extracted; decision 002.7 names the field."""
    source = data(tmp_path, {SPARSE: PAIR})
    for _ in range(2):
        assert miss(source.query(sparse(8, requests=requests))).code == f"semantic_field_missing:{field}"


@pytest.mark.parametrize("completeness", ["legacy", "partial", ""])
def test_rows_without_a_known_phase_are_never_candidates(tmp_path: Path, completeness: str) -> None:
    """RFC 7.3.7: fail closed while phase or grouping cannot be extracted from the CSV."""
    rows = [{**item, "Runtime metadata_completeness": completeness} for item in (*PAIR, recorded(4, 20.0))]
    source = data(tmp_path, {SPARSE: rows})
    answer = miss(source.query(sparse(8, requests=MIXED)))
    assert answer.code == "regime_key_unmatched"
    assert rejected(answer) == {"runtime_metadata_incomplete": 3}


def test_rows_with_shapes_alone_are_never_candidates(tmp_path: Path) -> None:
    """RFC 7.2 SparseFlashAttention: fail-closed behavior when semantics are unavailable."""
    source = data(tmp_path, {SPARSE: [sparse_row(4, 10.0), sparse_row(8, 20.0), sparse_row(16, 40.0)]})
    answer = miss(source.query(sparse(8, requests=MIXED)))
    assert rejected(answer) == {"sparse_phase_unknown": 3}


@pytest.mark.parametrize("tokens", [4, 8])  # a measured coordinate and one between
def test_lengths_on_one_side_only_are_no_answer(tmp_path: Path, tokens: int) -> None:
    """RFC 7.2 SparseFlashAttention: lengths on one side only, the phase known on both; nobody may ask for shapes."""
    bare = sparse(tokens, requests=Requests(explicit_phase="mixed", block_table_shape=(2, 64)))
    of_rows = data(tmp_path / "rows", {SPARSE: PAIR})
    assert miss(of_rows.query(bare)).code == "semantic_field_missing:kv_lens"
    shapes = [sparse_row(n, 2.5 * n, **named({"Runtime phase": "mixed"})) for n in (4, 16)]
    of_question = data(tmp_path / "question", {SPARSE: shapes})
    assert hit(of_question.query(bare)).latency_us == 2.5 * tokens
    full = sparse(tokens, requests=even(2, tokens // 2, 3000))
    assert miss(of_question.query(full)).code == "semantic_field_missing:actual_seq_lengths_kv_values"
    asked = replace(full, attrs=(*full.attrs, ("grouping", "shapes")))
    assert miss(of_question.query(asked)).code == "semantic_field_missing:grouping"


def test_different_request_metadata_is_never_one_median(tmp_path: Path) -> None:
    """RFC 7.2 SparseFlashAttention: no cross-semantic median aggregation of duplicate coordinates."""
    columns = request_columns((3, 5), (3000, 3000))
    rows = [recorded(4, 20.0), recorded(4, 300.0, context=9000), sparse_row(8, 99.0, **columns)]
    source = data(tmp_path, {SPARSE: rows})
    assert hit(source.query(sparse(8, requests=MIXED))).latency_us == 20.0
    assert hit(source.query(sparse(8, requests=even(2, 4, 9000)))).latency_us == 300.0
    shapes_only = sparse(8, requests=Requests(explicit_phase="mixed", block_table_shape=(2, 64)))
    assert miss(source.query(shapes_only)).code == "semantic_field_missing:kv_lens"
    asked = sparse(8, requests=MIXED)
    on_purpose = replace(asked, attrs=(*asked.attrs, ("grouping", "shapes")))
    assert miss(source.query(on_purpose)).code == "semantic_field_missing:grouping"  # never for this kernel


def test_the_base_never_answers_through_generic_compute(tmp_path: Path) -> None:
    """RFC 4.3.2: with the wrapper disabled the base does not fall through to generic compute."""
    leaf = sparse(8, requests=MIXED)
    twin = {
        **recorded(4, 5.0),
        "Input Shapes": "8,4,512;1766,128,512;4;8,2048",
        "Input Data Types": "DT_BF16;DT_BF16;FLOAT;INT32",
        "Input Formats": "ND;ND;ND;ND",
    }
    plain = data(tmp_path / "plain", {SPARSE: [twin]}, {SPARSE_OP: {"kernel_type": SPARSE}})
    assert hit(plain.base.query(leaf)).latency_us == 5.0  # generic compute would match
    source = data(tmp_path / "mode", {SPARSE: [twin]})
    disabled = InterpolatingDataSource(source.base, disable_interpolation=True)
    assert miss(disabled.query(leaf)).code == "regime_key_unmatched"
    assert miss(source.query(leaf)).code == "regime_key_unmatched"


@pytest.mark.parametrize("query", [2, 16])
def test_out_of_range_targets_fall_back(tmp_path: Path, query: int) -> None:
    """RFC 7.2: out-of-range targets; RFC 6.2: axes, regime, kernels and geometry in the miss."""
    rows = [recorded(4, 10.0), recorded(8, 40.0)]
    answer = miss(data(tmp_path, {SPARSE: rows}).query(sparse(2 * query, requests=even(2, query, 3000))))
    assert answer.code == "outside_axis_boundary"
    assert answer.details["target_axes"] == {"tokens": 2.0 * query}
    assert answer.details["target_regime"]["sparse_phase"] == "mixed"
    assert answer.details["attempted_kernel_types"] == [SPARSE]


def test_insufficient_candidates(tmp_path: Path) -> None:
    """RFC 7.2: insufficient candidates, invalid latency included."""
    source = data(tmp_path, {SPARSE: [PAIR[0], recorded(8, 0), recorded(16, "nan")]})
    answer = miss(source.query(sparse(8, requests=MIXED)))
    assert answer.code == "insufficient_filtered_candidates"
    assert rejected(answer) == {"latency_zero": 1, "latency_invalid": 1}


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """RFC 4.3.2: v0.13 and v0.15 have no measured data; the indexer's rows are no substitute."""
    answer = miss(data(tmp_path, {INDEXER: PAIR}).query(sparse(8, requests=MIXED)))
    assert answer.code == "csv_not_found"
    assert answer.details["attempted_kernel_types"] == [SPARSE]


@pytest.mark.parametrize(
    ("leaf", "code"),
    [
        (LeafOp.build(SPARSE_OP, [((8, 4, 512), "bf16")], requests=MIXED), "topk_unextractable"),
        (sparse(8, query=(8, 2048), requests=MIXED), "semantic_field_missing:query"),
        (sparse(8, cache=(1766,), requests=MIXED), "semantic_field_missing:cache"),
        (sparse(8, dtype="uint8", requests=MIXED), "dtype_unmapped:uint8"),
    ],
)
def test_target_construction_failures(tmp_path: Path, leaf: LeafOp, code: str) -> None:
    """RFC 6.2: an upstream leaf missing required semantic fields."""
    assert miss(data(tmp_path, {SPARSE: PAIR}).query(leaf)).code == code


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"Runtime topk": 4096}, "topk_unextractable"),
        ({"Runtime actual_seq_lengths_values": "4,7"}, "runtime_query_offsets_invalid"),
        ({"Runtime actual_seq_lengths_kv_values": ""}, "runtime_metadata_incomplete"),
        (
            {
                "Input Shapes": "8,4,512;1766,128,1,512;;8,1,2048;2,64;3;2",
                "Input Data Types": "DT_BF16;DT_BF16;;INT32;INT32;INT32;INT32",
                "Input Formats": "",
            },
            "request_grouping_unextractable",
        ),
        (
            {
                "Input Shapes": "8,4,512;1766,128,1,512;;8,1,2048;2,64;2",
                "Input Data Types": "DT_BF16;DT_BF16;;INT32;INT32;INT32",
                "Input Formats": "",
            },
            "input_signature_missing",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_rejected_with_a_reason(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    """RFC 4.3.2: semantics undefined, missing or ambiguous on the CSV side."""
    source = data(tmp_path, {SPARSE: [*PAIR, {**recorded(4, 999.0), **changed}]})
    assert hit(source.query(sparse(8, requests=MIXED))).latency_us == 20.0
    assert rejected(source.query(sparse(800, requests=even(2, 400, 3000)))) == {reason: 1}


def test_empty_slots_keep_the_positions_of_the_others(tmp_path: Path) -> None:
    """RFC 4.3.2: a shared cache leaves the value slot empty; the request slots stay where they are."""
    shared = {"Input Data Types": "DT_BF16;DT_BF16;;INT32;INT32;INT32;INT32", "Input Formats": ""}
    rows = [
        {
            **recorded(query, latency),
            "Input Shapes": f"{2 * query},4,512;1766,128,1,512;;{2 * query},1,2048;2,64;2;2",
            **shared,
        }
        for query, latency in ((2, 10.0), (8, 40.0))
    ]
    assert hit(data(tmp_path, {SPARSE: rows}).query(sparse(8, requests=MIXED))).latency_us == 20.0
