"""`castq run` and `castq check`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "serving"
# three customers at time 0, two units of service each: they stay 2, 4 and 6
DESK = """let service = 2;
stage desk : fifo;
workload { arrive batch(3); }
session { set came = now; run desk (service); observe stay = now - came; end; }
gauge jobs = queue(desk);
run { horizon 12; }
"""


@pytest.fixture
def desk(tmp_path: Path) -> str:
    path = tmp_path / "desk.sq"
    path.write_text(DESK)
    return str(path)


def test_run_prints_what_its_json_holds(castq, desk):
    ran = castq("run", desk, "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report["observes"]["stay"]["mean"] == 4
    assert report["stages"][0]["utilization"] == 0.5
    shown = castq("run", desk).out.splitlines()
    assert any(line.split()[:3] == ["stay", "3", "4"] for line in shown)


def test_an_input_after_two_dashes(castq, desk):
    assert json.loads(castq("run", desk, "--json", "--", "--service", "1").out)["observes"]["stay"]["mean"] == 2
    assert json.loads(castq("run", desk, "--json", "--set", "service=1").out)["observes"]["stay"]["mean"] == 2


def test_settings_replace_those_of_the_program(castq, desk):
    report = json.loads(castq("run", desk, "--horizon", "5", "--seed", "9", "--json").out)
    assert (report["end"], report["seed"], report["ended"]) == (5, 9, 2)


def test_a_refused_program_shows_line_and_caret(castq, tmp_path):
    path = tmp_path / "wrong.sq"
    path.write_text(DESK.replace("run desk", "run dask"))
    ran = castq("run", str(path))
    assert ran.code == 1
    assert ran.out == ""
    assert "wrong.sq:4:" in ran.err
    assert "^^^^" in ran.err
    assert "'desk'" in ran.err, "the nearest spelling is offered"


@pytest.mark.parametrize("words", [["--", "service"], ["--", "--service"], ["--set", "service"], ["--def", "x"]])
def test_a_wrong_call(castq, desk, words):
    ran = castq("run", desk, *words)
    assert ran.code == 2
    assert ran.err.startswith("castq: ")


def test_a_missing_file(castq, tmp_path):
    ran = castq("run", str(tmp_path / "none.sq"))
    assert (ran.code, ran.out) == (1, "")
    assert "none.sq" in ran.err


def test_dump_writes_samples_gauges_and_iterations(castq, desk, tmp_path):
    out = tmp_path / "out"
    assert castq("run", desk, "--dump", str(out)).code == 0
    rows = list(csv.DictReader((out / "stay.csv").read_text().splitlines()))
    assert [float(row["value"]) for row in rows] == [2, 4, 6]
    assert (out / "gauge" / "jobs.csv").read_text().splitlines() == [
        "time,value",
        "0.0,3.0",
        "2.0,2.0",
        "4.0,1.0",
        "6.0,0.0",
    ]
    assert (out / "iterations.csv").read_text().splitlines() == ["start,engine,session,turn,kind,tokens"]
    again = castq("run", desk, "--dump", str(out))
    assert again.code == 1
    assert "exists" in again.err, "earlier results are not overwritten"


def test_check_says_what_is_declared(castq, desk):
    ran = castq("check", desk, "--json")
    assert ran.code == 0
    facts = json.loads(ran.out)
    assert facts["stages"] == ["desk: fifo"]
    assert facts["run"]["horizon"] == 12


def test_a_run_that_is_interrupted_reports_what_it_has():
    from serq.compile import compile as compile_program
    from serq.runner import run

    source = "stage s : delay; workload { arrive renewal(1); } session { run s (1); end; } run { horizon 1e9; }"

    def stop(done: float) -> None:
        raise KeyboardInterrupt

    report = run(compile_program(source=source), watch=stop)
    assert report.partial
    assert report.end < 1e4
    assert report.ended > 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sq")), ids=lambda path: path.stem)
def test_examples_run(castq, path):
    ran = castq("run", str(path), "--horizon", "200", "--warmup", "50", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["ended"] > 10
