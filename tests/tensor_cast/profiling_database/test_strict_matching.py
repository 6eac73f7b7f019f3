"""Strict and compatible matching (decision 002.30): the very operator alone, or rules of padding and tolerance too."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import Row, hit, miss, named, row, write_database
from tensor_cast import (
    InterpolatingDataSource,
    LeafOp,
    ParallelConfig,
    ProfilingDataSource,
    QueryResult,
    QuerySource,
    Requests,
    TensorSpec,
)
from tensor_cast.dtypes import canonical_dtype
from tensor_cast.errors import InvalidValueError

MM, MM_OP = "MatMulV2", "aten.mm.default"
FIA, FIA_OP = "FusedInferAttentionScore", "tensor_cast.attention.default"
GMM, GMM_OP = "GroupedMatmul", "tensor_cast.grouped_matmul.default"
REDUCE, REDUCE_OP = "hcom_allReduce_", "tensor_cast.all_reduce.default"
ENTRIES = {
    MM_OP: {"kernel_type": MM},
    GMM_OP: {"kernel_type": GMM},
    FIA_OP: {"kernel_type": FIA, "query_mode": "attention_special"},
}


def database(
    folder: Path, tables: Mapping[str, Sequence[Row]], matching: str | None = "strict", ep: int | None = None
) -> InterpolatingDataSource:
    where = write_database(folder, tables, ENTRIES)
    base = ProfilingDataSource(where, None, ParallelConfig(expert_parallel_size=ep), exact_match=matching)
    return InterpolatingDataSource(base)


def product(m: int, dtype: str = "bf16", k: int = 64, n: int = 32) -> LeafOp:
    return LeafOp.build(MM_OP, [((m, k), dtype), ((k, n), dtype)])


def product_row(m: int, latency: float, dtypes: str = "DT_BF16;DT_BF16", **columns: Any) -> Row:
    return row(f"{m},64;64,32", dtypes, latency, **columns)


def attention(count: int, query: int, context: int, heads: int = 8) -> LeafOp:
    cache = TensorSpec((900, 128, heads, 128), "bfloat16")
    inputs = (
        TensorSpec((count * query, heads, 128), "bfloat16", role="query"),
        TensorSpec(cache.shape, "bfloat16", role="key"),
        TensorSpec(cache.shape, "bfloat16", role="value"),
    )
    return LeafOp(FIA_OP, inputs, requests=Requests((query,) * count, (context,) * count))


def attention_row(tokens: int, batch: int, context: int, latency: float, phase: str) -> Row:
    columns = {
        "Runtime avg_seq_len": context,
        "Runtime batch_size": batch,
        "Runtime num_key_value_heads": 8,
        "Runtime sparse_mode": 3,
        "Runtime input_layout": "TND",
        "Runtime phase": phase,
    }
    shapes = f"{tokens},8,128;900,128,8,128;900,128,8,128"
    return row(shapes, "DT_BF16;DT_BF16;DT_BF16", latency, **named(columns))


def test_padding_answers_by_name_or_not_at_all(tmp_path: Path) -> None:
    """RFC 8.1: M = 1 takes 10 us, M = 128 200 us; 16 is padded to the row of 1, or 10 + 190 * 15/127 between both."""
    rows = {MM: [product_row(1, 10.0), product_row(128, 200.0)]}
    padded = hit(database(tmp_path / "a", rows, None).query(product(16)))
    assert (padded.latency_us, padded.source) == (10.0, QuerySource.MEASURED)
    assert padded.details["inexact_match"] == {"rule": "padding", "changes": ["M 1 -> 16"]}
    assert padded.details["exact_match"] == "compatible"
    assert "matched by padding: M 1 -> 16" in str(padded)
    between = hit(database(tmp_path / "b", rows).query(product(16)))
    assert between.latency_us == pytest.approx(10 + 190 * 15 / 127)
    assert (between.source, between.details["exact_match"]) == (QuerySource.INTERPOLATED, "strict")
    assert "strict matching" in str(between)


def test_of_padded_rows_the_nearest_wins(tmp_path: Path) -> None:
    rows = {MM: [product_row(1, 10.0), product_row(14, 14.0), product_row(7, 12.0)]}
    answer = hit(database(tmp_path, rows, None).query(product(16)))
    assert (answer.latency_us, answer.details["inexact_match"]["changes"]) == (14.0, ["M 14 -> 16"])


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_another_float_is_named_or_refused(tmp_path: Path, dtype: str) -> None:
    rows = {MM: [product_row(16, 10.0), product_row(32, 20.0)]}
    answer = hit(database(tmp_path / "a", rows, None).query(product(16, dtype)))
    assert "matched by" in str(answer)
    assert f"DT_BF16 -> {canonical_dtype(dtype)}" in str(answer)
    for m in (16, 24):
        assert miss(database(tmp_path / "b", rows).query(product(m, dtype))).code == "regime_key_unmatched"


def test_half_precision_has_rows_of_its_own(tmp_path: Path) -> None:
    rows = {MM: [product_row(16, 10.0), product_row(16, 99.0, "DT_FLOAT16;DT_FLOAT16")]}
    assert hit(database(tmp_path, rows).query(product(16, "fp16"))).latency_us == 99.0


@pytest.mark.parametrize("interpolate", [True, False])
def test_repeats_are_one_representative(tmp_path: Path, interpolate: bool) -> None:
    """Rows 10 and 30 at M = 16: 20 exactly there, and 20 at the end of every line from there."""
    wrapper = database(tmp_path, {MM: [product_row(16, 10.0), product_row(16, 30.0), product_row(32, 60.0)]})
    source = InterpolatingDataSource(wrapper.base, disable_interpolation=not interpolate)
    answer = hit(source.query(product(16)))
    meta = answer.details["matched_row_meta"][0]
    assert (answer.latency_us, meta["duplicate_count"]) == (20.0, 2)
    assert (meta["duplicate_latency_min_us"], meta["duplicate_latency_max_us"]) == (10.0, 30.0)
    assert "repeats 2 of 10..30 us" in str(answer)
    if interpolate:
        assert hit(source.query(product(24))).latency_us == 40.0
    first = database(tmp_path / "c", {MM: [product_row(16, 10.0), product_row(16, 30.0)]}, "compatible")
    assert hit(first.query(product(16))).latency_us == 10.0


def test_representations_of_one_operator_still_match(tmp_path: Path) -> None:
    """Transposed and tiled weights, and a leading 1, are the same product."""
    transposed = row("16,64;32,64", "DT_BF16;DT_BF16", 10.0)
    assert hit(database(tmp_path / "a", {MM: [transposed]}).query(product(16))).latency_us == 10.0
    tiled = row("16,64;4,2,16,16", "DT_BF16;DT_BF16", 11.0, formats="ND;FRACTAL_NZ")
    assert hit(database(tmp_path / "b", {MM: [tiled]}).query(product(16))).latency_us == 11.0
    batched = LeafOp.build(MM_OP, [((1, 16, 64), "bf16"), ((64, 32), "bf16")])
    assert hit(database(tmp_path / "c", {MM: [product_row(16, 12.0)]}).query(batched)).latency_us == 12.0


def test_one_token_lies_on_the_token_axis(tmp_path: Path) -> None:
    """Decision 002.2: (1, H) is one token; rows 1, 4, 8 answer 2."""
    rows = [row(f"{m},64;4,32,64", "DT_BF16;DT_BF16", 10.0 * m) for m in (1, 4, 8)]
    asked = LeafOp.build(GMM_OP, [((2, 64), "bf16"), ((4, 32, 64), "bf16")])
    for matching in ("strict", "compatible"):
        assert hit(database(tmp_path / matching, {GMM: rows}, matching).query(asked)).latency_us == 20.0


@pytest.mark.parametrize("matching", ["strict", "compatible"])
def test_what_both_sides_know_agrees(tmp_path: Path, matching: str) -> None:
    rows = [row(f"{m},64;4,32,64", "DT_BF16;DT_BF16", 10.0 * m, **named({"EP Size": 8})) for m in (4, 8)]
    for m in (4, 6):
        asked = LeafOp.build(GMM_OP, [((m, 64), "bf16"), ((4, 32, 64), "bf16")])
        assert hit(database(tmp_path / f"8{m}", {GMM: rows}, matching, ep=8).query(asked)).latency_us == 10.0 * m
        assert hit(database(tmp_path / f"n{m}", {GMM: rows}, matching).query(asked)).latency_us == 10.0 * m
        refused = miss(database(tmp_path / f"4{m}", {GMM: rows}, matching, ep=4).query(asked))
        assert refused.details["regime_differs_in"] == {"ep_size": {"asked": 4, "measured": 8}}


def test_an_open_fact_in_which_rows_differ_is_asked_for(tmp_path: Path) -> None:
    rows = [row("4,64;4,32,64", "DT_BF16;DT_BF16", 10.0 * ep, **named({"EP Size": ep})) for ep in (4, 8)]
    asked = LeafOp.build(GMM_OP, [((4, 64), "bf16"), ((4, 32, 64), "bf16")])
    assert miss(database(tmp_path / "a", {GMM: rows}).query(asked)).code == "semantic_field_missing:ep_size"
    assert hit(database(tmp_path / "b", {GMM: rows}, ep=8).query(asked)).latency_us == 80.0


PREFILL, DECODE = attention_row(128, 1, 128, 52.0, "prefill"), attention_row(128, 128, 128, 484.0, "decode")


@pytest.mark.parametrize("matching", ["strict", "compatible"])
@pytest.mark.parametrize("order", [[PREFILL, DECODE], [DECODE, PREFILL]])
def test_a_decode_is_never_answered_by_a_prefill(tmp_path: Path, matching: str, order: list[Row]) -> None:
    source = database(tmp_path, {FIA: order}, matching)
    assert hit(source.query(attention(1, 128, 128))).latency_us == 52.0
    assert hit(source.query(attention(128, 1, 128))).latency_us == 484.0
    assert miss(source.query(attention(1, 128, 8192))).code == "regime_key_unmatched"  # a chunk on a history is neither


def test_decodes_lie_between_decodes(tmp_path: Path) -> None:
    """Batches 1, 2, 4 of one context: 3 lies halfway between 2 and 4; a context beyond the rows is refused."""
    rows = [attention_row(b, b, 4096, 100.0 * b, "decode") for b in (1, 2, 4, 16)]
    source = database(tmp_path, {FIA: rows})
    answer = hit(source.query(attention(3, 1, 4096)))
    assert (answer.latency_us, answer.details["axes"], answer.source) == (300.0, ["batch"], QuerySource.INTERPOLATED)
    assert miss(source.query(attention(4, 1, 4100))).details["target_axes"]["seq"] == 4100.0
    uneven = attention(2, 1, 4096)
    uneven = LeafOp(uneven.name, uneven.inputs, requests=Requests((1, 1), (4095, 4097)))
    assert miss(source.query(uneven)).code.startswith("request_lengths_not_uniform")
    tolerant = hit(database(tmp_path / "c", {FIA: rows}, None).query(attention(4, 1, 4100)))
    assert tolerant.details["inexact_match"] == {"rule": "tolerance", "changes": ["seq 4096 -> 4100"]}


def reduce(elements: int, dtype: str = "bf16", ranks: int = 2) -> LeafOp:
    shapes = [((elements,), dtype)]
    return LeafOp.build(REDUCE_OP, shapes, shapes, {"rank": 0, "rank_group": tuple(range(ranks))})


def collective(folder: Path, matching: str | None) -> ProfilingDataSource:
    folder.mkdir(parents=True)
    rows = [(1000, 10.0), (1000, 40.0), (2000, 15.0), (4000, 100.0)]
    lines = ["message_bytes,num_devices,dtype,Duration(us)", *(f"{size},2,DT_BF16,{us}" for size, us in rows)]
    (folder / f"{REDUCE}.csv").write_text("\n".join(lines) + "\n")
    mapping = {"operator_mappings": {REDUCE_OP: {"kernel_type": REDUCE, "category": "communication"}}}
    (folder / "op_mapping.yaml").write_text(json.dumps(mapping))
    return ProfilingDataSource(folder, exact_match=matching)


def test_collectives_lie_between_their_two_neighbours(tmp_path: Path) -> None:
    """Compatible: the fit of all rows, clamped to the representatives 10 and 15; strict: halfway 25 and 15."""
    fitted, strict = collective(tmp_path / "a", None), collective(tmp_path / "b", "strict")
    assert [hit(fitted.query(reduce(n))).latency_us for n in (500, 750, 1000)] == [10.0, 15.0, 15.0]
    assert [hit(strict.query(reduce(n))).latency_us for n in (500, 750, 1000, 1500)] == [25.0, 20.0, 15.0, 57.5]
    assert hit(strict.query(reduce(500))).details["matched_row_meta"][0]["duplicate_count"] == 2
    assert hit(fitted.query(reduce(500, "fp16"))).latency_us == 10.0
    refused = miss(strict.query(reduce(500, "fp16")))
    assert refused.details["regime_differs_in"] == {"dtype": {"asked": "float16", "measured": "DT_BF16"}}


def test_the_mapping_says_how_and_the_caller_may_choose(tmp_path: Path) -> None:
    where = write_database(tmp_path, {MM: [product_row(1, 10.0), product_row(128, 200.0)]}, ENTRIES)
    assert ProfilingDataSource(where).exact_match == "compatible"
    path = where / "op_mapping.yaml"
    path.write_text("exact_match: strict\n" + path.read_text())
    assert ProfilingDataSource(where).exact_match == "strict"
    assert ProfilingDataSource(where, exact_match="compatible").exact_match == "compatible"
    with pytest.raises(InvalidValueError, match="expected one of strict, compatible; got 'exact'"):
        ProfilingDataSource(where, exact_match="exact")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=2, max_size=12, unique=True), st.data())
def test_leaving_a_row_out_never_measures_another(sizes: list[int], data: st.DataObject) -> None:
    """Strict: with the operator's own rows gone the answer is an interpolation or a miss, never a measured row."""
    import tempfile

    left_out = data.draw(st.sampled_from(sizes))
    with tempfile.TemporaryDirectory() as folder:
        rows = [product_row(m, float(m)) for m in sizes if m != left_out]
        answer = database(Path(folder), {MM: rows}).query(product(left_out))
        if isinstance(answer, QueryResult):
            assert answer.source is QuerySource.INTERPOLATED
            assert answer.latency_us == pytest.approx(left_out)
        else:
            assert left_out in (min(sizes), max(sizes)) or len(rows) < 2


def test_results_survive_what_values_go_through(tmp_path: Path) -> None:
    source = database(tmp_path, {MM: [product_row(16, 10.0), product_row(32, 20.0)]})
    again = database(tmp_path / "twin", {MM: [product_row(16, 10.0), product_row(32, 20.0)]})
    for leaf in (product(16), product(24), product(99), product(16, "fp8")):
        answer = source.query(leaf)
        assert json.loads(json.dumps(answer.details)) == json.loads(json.dumps(again.query(leaf).details))
        assert pickle.loads(pickle.dumps(answer)) == answer == copy.deepcopy(answer) == copy.copy(answer)
        assert hash(answer) == hash(again.query(leaf))
        assert answer == again.query(leaf)
    info = hit(source.query(product(16))).shape_match_info
    assert info is not None
    assert info.simulation_shapes == [[16, 64], [64, 32]]
