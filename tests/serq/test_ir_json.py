"""The interchange form as JSON: there and back, and everything else refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import conformance
import serq
from serq import ir
from serq.compiler import compile as compile_program
from serq.errors import SerqError
from serq.ir.json_form import from_json, schema, to_json
from serq.traces.replay import read_trace, with_trace

CASES = Path(__file__).parent / "cases"
TEXT = """
pool kv { cap inf; block 16; } pool seats { cap 2; admit via npu; }
stage npu : step { cost 1; memory kv; }
workload { arrive poisson(2); trace "t.csv" ordered; }
session { turn; hold seats (1), kv (4) at admission (a = cachedin(kv)) { prefill (new) growing kv; } cache (a) end; }
gauge g = queue(npu);
claim c : some iteration of npu (tokens > 0);
run { horizon 10; arrivals 3; }
"""


@pytest.fixture
def program() -> Any:
    return compile_program(source=TEXT)


def changed(program: ir.Program, **fields: Any) -> str:
    return json.dumps({**json.loads(to_json(program)), **fields})


def test_there_and_back(program: Any) -> None:
    text = to_json(program)
    assert from_json(text) == program
    assert to_json(from_json(text)) == text
    assert json.loads(text)["version"] == ir.IR_VERSION


@pytest.mark.parametrize("name", conformance.names(CASES))
def test_essential_cases_there_and_back(name: Any) -> None:
    found = conformance.compiled(conformance.expectation(name, CASES), CASES)
    assert from_json(to_json(found)) == found


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", [name for name in conformance.names() if name[0] not in "xy"])
def test_the_corpus_there_and_back(name: Any) -> None:
    found = conformance.compiled(conformance.expectation(name))
    assert from_json(to_json(found)) == found


def test_the_folder_of_a_trace_stays_at_home(tmp_path: Path) -> None:
    path = tmp_path / "p.sq"
    path.write_text(TEXT)
    (tmp_path / "t.csv").write_text("session,turn,new,out,think\n# note\n\n1,0,3,1,0.5\n1,1,4,1,0,7\n2,0,5,1,0\n")
    found = compile_program(path)
    assert str(tmp_path) not in to_json(found)
    loaded = with_trace(found)
    assert loaded.trace is not None
    assert loaded.trace.sessions == (((3.0, 1.0, 0.5, 0.0), (4.0, 1.0, 0.0, 7.0)), ((5.0, 1.0, 0.0, 0.0),))
    assert from_json(to_json(loaded)) == loaded


@pytest.mark.parametrize(
    ("line", "column"), [("1,0,abc,1,0", 3), ("1,0,1,2.5,0", 4), ("1,0,1,1,x", 5), ("1,0,1,1,1,nan", 6), ("1,0,1", 3)]
)
def test_malformed_traces(tmp_path: Path, line: Any, column: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"session,turn,new,out,think\n1,0,1,1,0\n{line}\n")
    with pytest.raises(SerqError) as caught:
        read_trace(path)
    assert (caught.value.kind, caught.value.file, caught.value.line) == ("trace", "t.csv", 3)
    assert caught.value.column == column


def test_a_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(SerqError) as caught:
        read_trace(tmp_path / "none.csv")
    assert caught.value.kind == "trace"


@pytest.mark.parametrize(
    "fields",
    [
        {"version": ir.IR_VERSION + 1},
        {"version": None},
        {"surprise": 1},
        {"blocks": [[{"node": "Leap"}]]},
        {"blocks": [[{"node": "Num", "value": 1.0}]]},
        {"blocks": [[{"node": "Set", "slot": 0}]]},
        {"blocks": [[{"node": "Set", "slot": True, "value": {"node": "Num", "value": 1.0}}]]},
        {"blocks": [[{"node": "Set", "slot": 99, "value": {"node": "Num", "value": 1.0}}]]},
        {"blocks": [[{"node": "Fork", "body": 0}]], "session": 0},
        {"blocks": [[{"node": "Drop", "pool": {"base": 9}}]], "session": 0},
        {"gauges": [{"name": "g", "value": {"node": "Ctx", "name": "yesterday"}}]},
        {"gauges": [{"name": "g", "value": {"node": "Call", "name": "max", "args": []}}]},
        {"gauges": [{"name": "g", "value": {"node": "Call", "name": "used"}}]},
        {"session": 99},
        {"horizon": "soon"},
        {"attrs": "abc"},
        {"builtins": [["cached", 0]]},
    ],
)
def test_refused(program: Any, fields: Any) -> None:
    with pytest.raises(SerqError) as caught:
        from_json(changed(program, **fields))
    assert caught.value.kind == "interchange"


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "{", '{"version": NaN}', "[" * 100_000, '{"version": 1, "version": 1}', '{"a": "\\ud800"}']
)
def test_not_a_program(text: Any) -> None:
    with pytest.raises(SerqError):
        from_json(text)


def test_the_schema_is_the_one_written_out() -> None:
    path = Path(serq.__file__).parent.joinpath("ir", "schema.json")
    assert json.loads(path.read_text()) == schema()
