"""`castq rfc`: every row asked, departures named, GPU tables optional."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from castq.rfc import conformance as rfc
from castq.rfc.conformance import Outcome, RfcReport, check_rfc
from castq.rfc.rows import RfcRow, RfcRows, grouped, load_rows
from tensor_cast.errors import DataFileError
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.performance_model.profiling_database import InterpolatingDataSource, ProfilingDataSource
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.data_source import QueryResult

DFC = "tensor_cast.dispatch_ffn_combine_quant.default"


@pytest.fixture(scope="module")
def report() -> RfcReport:
    """Every row on the demo databases, without GPU tables."""
    return check_rfc([])


def _row(report: RfcReport, operator: str) -> rfc.RowReport:
    return next(row for row in report.rows if row.row.operator == operator)


def _only(operator: str, **changes: Any) -> RfcRows:
    found = next(row for row in load_rows().rows if row.operator == operator)
    return RfcRows((replace(found, **changes),), ())


def test_every_row_behaves_as_stated(report: Any) -> None:
    """RFC 7.3.1: reachable targets, exact and interpolated answers, stable misses; row by row."""
    assert [problem for row in report.rows for problem in row.problems] == []
    assert len(report.rows) == 30
    assert all(all(row.reachable.values()) for row in report.rows)


def test_data_gaps_are_what_the_basis_column_says(report: Any) -> None:
    """RFC 3.4.1 tensor_cast.dispatch_ffn_combine_quant.default: v0.15 has no EP sizes, v0.18 answers W8A8."""
    row = _row(report, DFC)
    assert [found.text for found in row.synthetic["v0.18"]][:2] == ["exact", "1D"]
    assert row.synthetic["v0.15"][0].text == "miss regime_key_unmatched (ep_size_missing)"


def test_every_dimension_up_to_the_ceiling_is_reached(report: Any) -> None:
    """RFC 3.4.1 tensor_cast.static_quant_linear.default: one, two and three axes."""
    kinds = {found.kind for found in _row(report, "tensor_cast.static_quant_linear.default").synthetic["v0.18"]}
    assert {"exact", "1D", "2D", "3D"} <= kinds
    for row in report.rows:
        if row.row.table == "3.4.1" and any(found.kind == "exact" for found in row.synthetic["v0.18"]):
            assert row.row.claims["v0.18"].ceiling in {found.kind for found in row.synthetic["v0.18"]}, row.row.operator


def test_every_row_of_341_answers_on_rows_of_its_own(report: Any) -> None:
    """RFC 3.4.1: a stable miss until profiling data is added; with such rows each answers, up to its ceiling."""
    rows = [row for row in report.rows if row.row.table == "3.4.1"]
    assert len(rows) == 23
    for row in rows:
        for version, claim in row.row.claims.items():
            kinds = {found.kind for found in (*row.synthetic[version], *row.own.get(version, ()))}
            wanted = {"zero-cost"} if claim.path == "zero-cost" else {"exact", "1D", claim.ceiling}
            assert wanted <= kinds, (row.row.operator, version)


def test_a_departure_of_own_rows_is_named() -> None:
    row = next(row for row in load_rows().rows if row.operator == "tensor_cast.fp8_linear.default")
    assert row.own is not None
    own = replace(row.own, expect=("2D", *row.own.expect[1:]))
    found = check_rfc([], rows=_only(row.operator, own=own))
    assert "v0.18, rows of its own, probe 1: expected 2D, got exact" in found.rows[0].problems


def test_excluded_operators_are_never_interpolated(report: Any) -> None:
    """RFC 3.4.2 tensor_cast.matmul_all_reduce.default; RFC 3.4.2 tensor_cast.static_quant_linear_all_reduce.default;
    RFC 3.4.2 tensor_cast.static_quant_linear_int4_all_reduce.default;
    RFC 3.4.2 tensor_cast.fp8_linear_all_reduce.default; RFC 3.4.2 tensor_cast.mxfp4_linear_all_reduce.default;
    RFC 3.4.2 tensor_cast.concat_and_cache_mla.default; RFC 3.4.2 aten.index.Tensor."""
    rows = [row for row in report.rows if row.row.table == "3.4.2"]
    outcomes = [found for row in rows for version in row.synthetic for found in row.synthetic[version]]
    assert {found.kind for found in outcomes} == {"exact", "miss", "accepted-miss"}
    assert _row(report, "aten.index.Tensor").synthetic_text == "accepted-miss"


def test_phase_1_paths_still_answer(demo: Any) -> None:
    """RFC 7.3.9: compute, attention and the switch, beside the specialised paths."""
    folder = next(demo.rglob("op_mapping.yaml")).parent
    base = ProfilingDataSource(open_database(folder))
    product = LeafOp.build("aten.mm.default", [((100, 5120), "bf16"), ((5120, 768), "bf16")])
    found = InterpolatingDataSource(base).query(product)
    assert isinstance(found, QueryResult)
    assert (found.details["interpolation_path"], found.details["axes"]) == ("multidim", ["M"])
    cache = [((64, 128, 1, 128), "bf16")] * 2
    prefill = LeafOp.build(
        "tensor_cast.attention.default", [((2048, 1024), "bf16"), *cache], requests=Requests((2048,), (6000,))
    )
    attention = InterpolatingDataSource(base).query(prefill)
    assert isinstance(attention, QueryResult)
    assert (attention.source, attention.details["query_mode"]) == ("INTERPOLATED", "attention_special")
    assert InterpolatingDataSource(base, disable_interpolation=True).lookup(product) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": "elementwise"}, "the mapping does not lead to elementwise"),
        ({"selector": {"query_mode": "other"}}, "the mapping does not lead to moe_fused"),
        ({"axes": (("M",),)}, "interpolated along tokens, which the row does not list"),
        ({"expect": ("2D",) * 7}, "probe 1: expected 2D, got exact"),
    ],
)
def test_a_departure_is_named(changes: Any, said: Any) -> None:
    row = next(row for row in load_rows().rows if row.operator == DFC)
    claims = {"v0.18": replace(row.claims["v0.18"], **changes)}
    found = check_rfc([], rows=_only(DFC, claims=claims))
    assert not found.ok
    assert any(said in problem for problem in found.rows[0].problems)


def test_the_command_prints_one_line_a_row(castq: Any, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rfc, "check_rfc", lambda *_: report)
    ran = castq("rfc")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert sum(line.startswith(("tensor_cast.", "aten.")) for line in lines) == 30
    line = next(line for line in lines if line.startswith("aten.mul.Tensor"))
    assert "v0.13: compute; v0.15, v0.18: elementwise" in line
    assert "v0.13: 1D; v0.15, v0.18: 2D" in line
    assert lines[-1].startswith("30 of 30 rows behave as the RFC states")
    document = json.loads(castq("rfc", "--json").out)
    assert document["ok"] is True
    assert document["rows"][0]["reachable"] == {"v0.15": True, "v0.18": True}


def test_a_departure_exits_with_1(castq: Any, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = replace(report.rows[0], problems=("v0.15: wrong",))
    monkeypatch.setattr(rfc, "check_rfc", lambda *_: RfcReport((bad,), ("a note",)))
    ran = castq("rfc")
    assert ran.code == 1
    assert "departs from the RFC: tensor_cast.dispatch_ffn_combine.default, v0.15: wrong" in ran.out
    assert "a note" in ran.out
    assert "0 of 1 rows" in ran.out


def test_without_the_gpu_extra_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rfc, "find_spec", lambda _: None)
    found = check_rfc(rows=_only(DFC))
    assert found.ok
    assert found.notes == ("GPU tables not asked: pip install '.[gpu]' in a checkout of castq brings them",)
    assert found.rows[0].real_text == "-"


def test_what_needs_scipy_is_no_departure_without_it(castq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    found = check_rfc([])
    assert found.ok
    assert [note for note in found.notes if "need SciPy: pip install '.[simplex]'" in note]
    monkeypatch.setattr(rfc, "check_rfc", lambda *_: found)
    ran = castq("rfc")
    assert ran.code == 0
    assert "departs" not in ran.out
    whole = sum(not row.unasked for row in found.rows)
    assert 0 < whole < 30
    assert f"{whole} of {whole} rows behave" in ran.out


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="the GPU tables are not installed")
def test_gpu_tables_answer_with_their_own_kernels() -> None:
    found = check_rfc(rows=replace(load_rows(), rows=_only("tensor_cast.fp8_linear.default").rows))
    assert found.ok
    assert found.rows[0].real_text == "h200_sxm/vllm/0.24.0 QuantMatmul 1D"


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="the GPU tables are not installed")
def test_a_wrong_database_name_is_a_wrong_call(castq: Any) -> None:
    ran = castq("rfc", "--database", "h2000/vllm/1")
    assert ran.code == 2
    assert "h2000" in ran.err


def test_help_shows_an_example(castq: Any) -> None:
    ran = castq("rfc", "--help")
    assert ran.code == 0
    assert "castq rfc --database h200_sxm/vllm/0.24.0" in ran.out


def test_progress_is_told(report: Any) -> None:
    told: list[tuple[str, int, int]] = []
    check_rfc([], lambda *step: told.append(step), _only(DFC))
    assert told == [(DFC, 1, 1)]


def test_outcomes_meet_what_is_expected() -> None:
    miss = Outcome("miss", "semantic_field_missing:phase", ("topk", "ep_size"))
    assert miss.meets("miss")
    assert miss.meets("miss semantic_field_missing")
    assert miss.meets("miss semantic_field_missing:phase topk")
    assert not miss.meets("miss semantic_field_missing:query")
    assert not miss.meets("miss semantic_field_missing heads")
    assert not miss.meets("exact")
    assert Outcome("2D").meets("2D")


def test_versions_that_agree_share_a_text() -> None:
    assert grouped({"a": "1", "b": "1"}) == "1"
    assert grouped({"a": "1", "b": "2", "c": "1"}) == "a, c: 1; b: 2"


@pytest.mark.parametrize(
    "text",
    ["gpu: []\n", "gpu: []\nfamilies: [{common: {}, operators: [{}]}]\n", "gpu: []\nfamilies: 3\n"],
)
def test_a_broken_row_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.yaml").write_text(text)
    with pytest.raises(DataFileError, match="not a file of RFC rows"):
        load_rows(tmp_path / "rows.yaml")


def test_row_file_lists_must_fit(tmp_path: Path) -> None:
    head = "gpu: []\nfamilies:\n  - common: {table: 3.4.1, category: c, versions: [v0.18], path: p, ceiling: 1D}\n"
    body = "    operators: [{operator: aten.mm.default, expect: [1D, 2D], probes: [{inputs: ['1,1:bf16']}]}]\n"
    (tmp_path / "rows.yaml").write_text(head + body)
    with pytest.raises(DataFileError, match="2 outcomes for 1 probes"):
        load_rows(tmp_path / "rows.yaml")


def test_rows_are_frozen_values() -> None:
    row = load_rows().rows[0]
    assert isinstance(row, RfcRow)
    with pytest.raises(AttributeError):
        row.operator = "x"  # type: ignore[misc]
