"""Every oracle table: what the vendors' own functions and schedulers did, compared exactly.

The folder `cases` holds a few cases of each table; the whole tables lie beside the checkout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from castq.shapes.refusals import ShapeError
from shape_tables import ENGINES, answer_of, expected_of, main, tables_in

OWN = Path(__file__).parent / "cases"
SHARED = Path(__file__).parents[4] / "shared" / "conformance"
TOOL = Path(__file__).parents[3] / "tools" / "shape_tables.py"
TABLES = sorted(path.stem for path in OWN.glob("*.json"))


def differences(path: Path) -> list[str]:
    [table] = tables_in(path)
    engine = ENGINES[table["table"]]
    found = [(case, answer_of(engine, case)) for case in table["cases"]]
    return [f"{case['id']}: expected {expected_of(case)}, got {got}" for case, got in found if got != expected_of(case)]


@pytest.mark.parametrize("name", TABLES)
def test_the_cases_of_a_table(name: str) -> None:
    assert differences(OWN / f"{name}.json") == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="the oracle tables lie beside the checkout, in ../shared")
@pytest.mark.parametrize("name", TABLES)
def test_the_whole_table(name: str) -> None:
    folder = "engines" if name == "vllm_graph" else "input-shapes"
    assert differences(SHARED / folder / f"{name}.json") == []


def test_every_table_has_an_engine_and_every_engine_a_table() -> None:
    assert set(ENGINES) == set(TABLES)
    assert len(TABLES) == 21


def test_the_tool_counts_and_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"id": "a", "group": "mask", "in": {"tokens_across_dp": [3, 1], "tokens_padded": 4}}
    right = {"gathered_tokens": 8, "valid_tokens": 4, "mask_per_rank": [3, 1]}
    wrong = {**right, "valid_tokens": 5}
    cases = [{**case, "out": right}, {**case, "id": "b", "out": wrong}]
    document = {"schema": "input-shapes/1", "table": "rbln_moe_dp", "cases": cases}
    (tmp_path / "one.json").write_text(json.dumps(document))
    (tmp_path / "notes.json").write_text("[]")
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith('rbln_moe_dp b: expected {"gathered_tokens": 8, "valid_tokens": 5')
    assert lines[-1] == "1 of 2"


def test_a_table_without_an_engine_is_named_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"schema": "input-shapes/1", "table": "nobody", "cases": [{}]}))
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == ["nobody: no engine (1 cases)", "0 of 1"]


def test_the_tool_runs_by_itself() -> None:
    ran = subprocess.run([sys.executable, str(TOOL), str(OWN)], capture_output=True, text=True, check=False)
    count = sum(len(table["cases"]) for table in tables_in(OWN))
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, f"{count} of {count}")


def test_a_refusal_says_what_the_vendor_raises() -> None:
    error = ShapeError("no_covering_bucket", "9 decodes: too many", raised="ValueError", rank=1)
    assert (str(error), error.raised, error.rank) == ("rank 1: 9 decodes: too many", "ValueError", 1)
