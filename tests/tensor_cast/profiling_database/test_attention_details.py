"""What answers of attention kernels say of their question, and how the rows of any answer lie (RFC 8.1, 6.1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specialized_rows import INDEXER, SPARSE, data, even, indexer, indexer_row, request_columns, sparse
from specialized_rows import sparse_row as selected_row
from support import attention, hit, mm, named, row, source, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, ProfilingDataSource, QueryResult, QuerySource, Requests
from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.geometry.points import PointSet
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.dense_attention import DenseAttentionPath
from tensor_cast.performance_model.profiling_database.paths.path import Target

FIA, FIA_OP = "FusedInferAttentionScore", "tensor_cast.attention.default"
FIA_ENTRY = {FIA_OP: {"kernel_type": FIA, "query_mode": "attention_special"}}
SQRT = {FIA: {"axis_transform": "sqrt_seq"}}
KEYS = ("attention_axes", "axes_pre_transform", "target_regime_key", "batch_axis_status", "source_layout")
REGIME = {
    "kernel_type": FIA,
    "dtype": "DT_BF16",
    "sparse_mode": 3,
    "kv_heads": 1,
    "input_layout": "TND",
    "kv_precision": "wide",
}


def fia(query: str, seq: int, latency: float, **columns: Any) -> dict[str, Any]:
    runtime = {
        "Runtime avg_seq_len": seq,
        "Runtime sparse_mode": 3,
        "Runtime num_key_value_heads": 1,
        "Runtime input_layout": "TND",
    }
    return row(f"{query};99,128,128;99,128,128", "DT_BF16;DT_BF16;DT_BF16", latency, **(named(runtime | columns)))


def decodes() -> list[dict[str, Any]]:
    """Four requests of one new token each, on contexts of 1024 and 4096 tokens."""
    known = {"Runtime batch_size": 4, "Runtime phase": "decode"}
    return [fia("4,8,128", seq, latency, **known) for seq, latency in ((1024, 10.0), (4096, 40.0))]


def prefills() -> list[dict[str, Any]]:
    return [
        fia("512,8,128", seq, latency, **{"Runtime phase": "prefill"}) for seq, latency in ((512, 5.0), (2048, 9.0))
    ]


def database(folder: Path, rows: Sequence[dict[str, Any]], matching: str = "compatible") -> InterpolatingDataSource:
    where = write_database(folder, {FIA: rows}, FIA_ENTRY, SQRT)
    return InterpolatingDataSource(ProfilingDataSource(where, exact_match=matching))


def told(answer: QueryResult) -> dict[str, Any]:
    """The keys of attention, after a way through JSON."""
    details = json.loads(json.dumps(answer.details))
    assert details == answer.details, "plain values only"
    return {key: details[key] for key in KEYS if key in details}


def decode(seq: int) -> LeafOp:
    return attention(4, 8, 128, [seq] * 4, query_lens=[1] * 4, query_shape=(4, 8, 128))


@pytest.mark.parametrize(("seq", "found"), [(4096, QuerySource.MEASURED), (2500, QuerySource.INTERPOLATED)])
def test_a_decode_exact_and_interpolated(tmp_path: Path, seq: int, found: QuerySource) -> None:
    """RFC 8.1: the same keys from the base's own row and from a line between two, lengths before the square root."""
    answer = hit(database(tmp_path, decodes()).query(decode(seq)))
    assert answer.source is found
    assert told(answer) == {
        "attention_axes": ["q_tokens", "seq", "heads", "head_dim", "batch"],
        "axes_pre_transform": {"q_tokens": 4, "seq": seq, "heads": 8, "head_dim": 128, "batch": 4},
        "target_regime_key": {**REGIME, "phase": "decode"},
        "batch_axis_status": "batch_axis_constrained",
        "source_layout": "TND",
    }


@pytest.mark.parametrize("seq", [4096, 2500])
def test_strict_tells_a_decode_by_request(tmp_path: Path, seq: int) -> None:
    """The tokens follow from the batch, so they are no axis; what each request adds is regime."""
    answer = hit(database(tmp_path, decodes(), "strict").query(decode(seq)))
    assert told(answer) == {
        "attention_axes": ["seq", "heads", "head_dim", "batch"],
        "axes_pre_transform": {"seq": seq, "heads": 8, "head_dim": 128, "batch": 4},
        "target_regime_key": {**REGIME, "new_tokens": 1, "phase": "decode"},
        "batch_axis_status": "batch_axis_constrained",
        "source_layout": "TND",
    }


def test_strict_misses_name_lengths_as_they_were_asked(tmp_path: Path) -> None:
    answer = database(tmp_path, decodes(), "strict").query(decode(5000))
    assert "asked seq=5000," in str(answer)
    assert "measured seq 1024..4096" in str(answer)


@pytest.mark.parametrize(("seq", "found"), [(512, QuerySource.MEASURED), (1024, QuerySource.INTERPOLATED)])
def test_a_prefill_whose_rows_know_no_batch(tmp_path: Path, seq: int, found: QuerySource) -> None:
    asked = attention(512, 8, 128, [seq], query_shape=(512, 8, 128))
    answer = hit(database(tmp_path, prefills()).query(asked))
    assert answer.source is found
    assert told(answer) == {
        "attention_axes": ["q_tokens", "seq", "heads", "head_dim"],
        "axes_pre_transform": {"q_tokens": 512, "seq": seq, "heads": 8, "head_dim": 128},
        "target_regime_key": REGIME,
        "batch_axis_status": "batch_axis_absent",
        "source_layout": "TND",
    }


@pytest.mark.parametrize("seq", [1024, 2048])
def test_a_batch_of_the_query_shape(tmp_path: Path, seq: int) -> None:
    """A query (B, N, 1, D) holds B requests, in rows without `Runtime batch_size` as in questions."""
    columns = {"Runtime sparse_mode": 0, "Runtime input_layout": "BNSD_NBSD", "Runtime num_key_value_heads": 1}
    rows = [fia("4,16,1,512", length, latency, **columns) for length, latency in ((1024, 10.0), (4096, 40.0))]
    cache = ((900, 1, 128, 512), "bf16")
    asked = LeafOp.build(
        FIA_OP,
        [((4, 16, 1, 512), "bf16"), cache, cache],
        attrs={"sparse_mode": 0},
        requests=Requests(None, (seq,) * 4),
    )
    found = told(hit(database(tmp_path, rows).query(asked)))
    assert found["axes_pre_transform"] == {"q_tokens": 4, "seq": seq, "heads": 16, "head_dim": 512, "batch": 4}
    assert (found["batch_axis_status"], found["source_layout"]) == ("batch_axis_constrained", "BNSD_NBSD")


def test_a_row_that_does_not_say_its_layout(tmp_path: Path) -> None:
    """The base takes a blank cell for any layout; the answer does not make one up."""
    rows = [fia("4,8,128", 1024, 10.0, **{"Runtime input_layout": ""})]
    answer = hit(database(tmp_path, rows).query(decode(1024)))
    assert answer.latency_us == 10.0
    assert "source_layout" not in answer.details


GROUP_AXES = {
    "q_tokens": np.array([8.0, 8.0, 8.0]),
    "seq": np.array([1000.0, 2000.0, 3000.0]),
    "batch": np.array([2.0, 2.0, np.nan]),
}


def group(*rows: int) -> CandidateGroup:
    at = list(rows)
    points = PointSet({axis: values[at] for axis, values in GROUP_AXES.items()}, np.ones(len(at)), np.array(at))
    return CandidateGroup((), points)


@pytest.mark.parametrize(
    ("rows", "asked", "status", "batch"),
    [
        ((0, 1), 2, "batch_axis_constrained", 2.0),
        ((0, 1), None, "batch_axis_constant", 2.0),
        ((0, 1, 2), None, "batch_axis_filtered", None),
    ],
)
def test_where_the_batch_of_an_answer_is_from(
    rows: tuple[int, ...], asked: int | None, status: str, batch: float | None
) -> None:
    """docs/facts/interpolation.md, "Dense attention", for questions that do not know their batch as well."""
    path, target = DenseAttentionPath(), Target({"q_tokens": 8.0, "seq": 1500.0}, (), notes={"batch": asked})
    fitted = path.fit(target, group(*rows))
    assert not isinstance(fitted, MissReason)
    seen, part = fitted
    found = path.evidence(OperatorEntry(FIA_OP), seen, part) | {k: v for k, v in seen.notes.items() if v is not None}
    assert found["batch_axis_status"] == status
    assert found["axes_pre_transform"].get("batch") == batch
    assert found.get("dropped_batched_candidates") == (2 if status == "batch_axis_filtered" else None)


def test_batches_between_which_a_question_is_open(tmp_path: Path) -> None:
    points = PointSet({"seq": np.array([1.0, 2.0]), "batch": np.array([2.0, 4.0])}, np.ones(2), np.arange(2))
    target = Target({"seq": 1.0}, (), notes={"batch": None})
    assert DenseAttentionPath().fit(target, CandidateGroup((), points)) is MissReason.BATCH_AXIS_UNCONSTRAINED


@pytest.mark.parametrize("tokens", [4, 8])
def test_the_indexer(tmp_path: Path, tokens: int) -> None:
    """No batch axis: requests are regime.  Its rows record no input layout here, so their formats stand for it."""
    rows = [indexer_row(4, 64, 10.0), indexer_row(16, 64, 40.0)]
    found = told(hit(data(tmp_path, {INDEXER: rows}).query(indexer(tokens, 64))))
    assert found["attention_axes"] == ["tokens", "cache_blocks"]
    assert found["axes_pre_transform"] == {"tokens": tokens, "cache_blocks": 64}
    regime = found["target_regime_key"]
    assert (regime["kernel_type"], regime["topk"], regime["request_grouping"]) == (INDEXER, 2048, [2, 64])
    assert found["source_layout"] == "ND;ND;ND;ND;ND;ND"
    assert "batch_axis_status" not in found


@pytest.mark.parametrize("tokens", [4, 8])
def test_sparse_attention(tmp_path: Path, tokens: int) -> None:
    rows = []
    for count, latency in ((4, 10.0), (16, 40.0)):
        columns = request_columns((count // 2,) * 2, (3000, 3000)) | {"Runtime input_layout": "TND"}
        rows.append(selected_row(count, latency, **columns))
    answer = hit(data(tmp_path, {SPARSE: rows}).query(sparse(tokens, requests=even(2, tokens // 2, 3000))))
    found = told(answer)
    assert (found["attention_axes"], found["axes_pre_transform"]) == (["tokens"], {"tokens": tokens})
    assert found["target_regime_key"]["request_values"] == ["mixed", "equal", [3000, 3000]]
    assert found["source_layout"] == "TND"


@pytest.mark.parametrize("m", [64, 96])
def test_other_kernels_tell_the_formats_of_their_rows(tmp_path: Path, m: int) -> None:
    """A tiled weight, a plain one: ND rows are asked first, and neither is mixed with the other."""
    tiled = [row(f"{n},32;1,2,16,16", "DT_BF16;DT_BF16", n / 2, formats="ND;FRACTAL_NZ") for n in (64, 128)]
    plain = [row(f"{n},32;32,16", "DT_BF16;DT_BF16", n) for n in (64, 128)]
    entry = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
    found = hit(source(write_database(tmp_path / "a", {"MatMulV2": tiled}, entry)).query(mm(m, 32, 16)))
    assert told(found) == {"source_layout": "ND;FRACTAL_NZ"}
    found = hit(source(write_database(tmp_path / "b", {"MatMulV2": [*plain, *tiled]}, entry)).query(mm(m, 32, 16)))
    assert (found.latency_us, told(found)) == (float(m), {"source_layout": "ND;ND"})


MAPPING = """
operator_mappings:
  tensor_cast.attention.default:
    kernel_type: Decode
    facts: {family: attention}
tables:
  Decode:
    files: [decode]
    axes: {kv: kv, batch_size: batch, num_heads: heads}
    constants: {phase: decode, dtype: bfloat16, kv_dtype: bfloat16, head_dim: 128, window: 0, kv_heads: 1}
    latency: us
    latency_unit: us
"""


@pytest.mark.parametrize("seq", [1024, 2500])
def test_attention_of_a_column_table(tmp_path: Path, seq: int) -> None:
    """Its axes are the table's; the rows are numbers without a layout."""
    (tmp_path / "op_mapping.yaml").write_text(MAPPING)
    (tmp_path / "decode.csv").write_text("kv,batch,heads,us\n1024,4,8,10\n4096,4,8,40\n")
    answer = hit(InterpolatingDataSource(ProfilingDataSource(tmp_path)).query(decode(seq)))
    found = told(answer)
    assert found["attention_axes"] == ["kv", "batch_size", "num_heads"]
    assert found["axes_pre_transform"] == {"kv": seq, "batch_size": 4, "num_heads": 8}
    assert found["target_regime_key"] == {
        "phase": "decode",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "head_dim": 128,
        "window": 0,
        "kv_heads": 1,
    }
    assert "source_layout" not in found
