"""`castq run` and `castq check`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

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


def test_run_prints_what_its_json_holds(castq: Any, desk: Any) -> None:
    ran = castq("run", desk, "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report["observes"]["stay"]["mean"] == 4
    assert report["stages"][0]["utilization"] == 0.5
    shown = castq("run", desk).out.splitlines()
    assert any(line.split()[:3] == ["stay", "3", "4"] for line in shown)


def test_an_input_after_two_dashes(castq: Any, desk: Any) -> None:
    assert json.loads(castq("run", desk, "--json", "--", "--service", "1").out)["observes"]["stay"]["mean"] == 2
    assert json.loads(castq("run", desk, "--json", "--set", "service=1").out)["observes"]["stay"]["mean"] == 2


def test_settings_replace_those_of_the_program(castq: Any, desk: Any) -> None:
    report = json.loads(castq("run", desk, "--horizon", "5", "--seed", "9", "--json").out)
    assert (report["end"], report["seed"], report["ended"]) == (5, 9, 2)


def test_a_refused_program_shows_line_and_caret(castq: Any, tmp_path: Path) -> None:
    path = tmp_path / "wrong.sq"
    path.write_text(DESK.replace("run desk", "run dask"))
    ran = castq("run", str(path))
    assert ran.code == 1
    assert ran.out == ""
    assert "wrong.sq:4:" in ran.err
    assert "^^^^" in ran.err
    assert "'desk'" in ran.err, "the nearest spelling is offered"


@pytest.mark.parametrize("words", [["--", "service"], ["--", "--service"], ["--set", "service"], ["--def", "x"]])
def test_a_wrong_call(castq: Any, desk: Any, words: Any) -> None:
    ran = castq("run", desk, *words)
    assert ran.code == 2
    assert ran.err.startswith("castq: ")


def test_a_missing_file(castq: Any, tmp_path: Path) -> None:
    ran = castq("run", str(tmp_path / "none.sq"))
    assert (ran.code, ran.out) == (2, "")
    assert "none.sq" in ran.err


def test_dump_writes_samples_gauges_and_iterations(castq: Any, desk: Any, tmp_path: Path) -> None:
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
    assert (out / "iterations.csv").read_text().splitlines() == [
        "start,engine,session,turn,kind,tokens,context,blocks,step"
    ]
    again = castq("run", desk, "--dump", str(out))
    assert (again.code, again.out) == (2, ""), "noticed before the run"
    assert "exists" in again.err, "earlier results are not overwritten"


def test_check_says_what_is_declared(castq: Any, desk: Any) -> None:
    ran = castq("check", desk, "--json")
    assert ran.code == 0
    facts = json.loads(ran.out)
    assert facts["stages"] == ["desk: fifo"]
    assert facts["run"]["horizon"] == 12


def test_a_run_that_is_interrupted_reports_what_it_has() -> None:
    from serq.compiler import compile as compile_program
    from serq.runner import run

    source = "stage s : delay; workload { arrive renewal(1); } session { run s (1); end; } run { horizon 1e9; }"

    def stop(done: float) -> None:
        raise KeyboardInterrupt

    report = run(compile_program(source=source), watch=stop)
    assert report.partial
    assert report.end < 1e4
    assert report.ended > 0


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(EXAMPLES.glob("*.sq")) if not path.name.endswith(".wl.sq")],
    ids=lambda path: path.stem,
)
def test_examples_run(castq: Any, path: Any) -> None:
    workload = path.with_suffix(".wl.sq")
    traffic = ["--workload", str(workload)] if workload.is_file() else []
    ran = castq("run", str(path), *traffic, "--horizon", "200", "--warmup", "50", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["ended"] > 10


def test_a_compiled_program_gives_the_same_report(castq: Any, tmp_path: Path) -> None:
    source = str(EXAMPLES / "chat.sq")
    compiled = tmp_path / "chat.json"
    compiled.write_text(castq("ir", source).out)
    settings = ("--horizon", "120", "--warmup", "20", "--json")
    assert castq("run", str(compiled), *settings).out == castq("run", source, *settings).out
    assert castq("run", str(compiled), "--", "--rate", "2").code == 2, "its constants are folded in"


@pytest.mark.parametrize(
    ("change", "telling"),
    [
        (lambda text: text.replace('"version": 1', '"version": 99'), "version 99"),
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: text.replace('"Run"', '"Rum"'), "Rum"),
    ],
)
def test_a_damaged_compiled_program_is_refused(
    castq: Any, desk: Any, tmp_path: Path, change: Any, telling: Any
) -> None:
    compiled = tmp_path / "desk.json"
    compiled.write_text(change(castq("ir", desk).out))
    ran = castq("run", str(compiled))
    assert (ran.code, ran.out) == (1, "")
    assert telling in ran.err


def test_an_instance_gives_inputs_and_settings(castq: Any, desk: Any, tmp_path: Path) -> None:
    case = tmp_path / "case.sq"
    case.write_text("let service = 1;\nrun { horizon 9; seed 4; }\n")
    report = json.loads(castq("run", desk, "--instance", str(case), "--json").out)
    assert (report["observes"]["stay"]["mean"], report["end"], report["seed"]) == (2, 9, 4)
    case.write_text("stage s : delay;\n")
    ran = castq("run", desk, "--instance", str(case))
    assert ran.code == 1
    assert "case.sq:1:" in ran.err


def test_fmt_lays_out_once_and_for_all(castq: Any, tmp_path: Path) -> None:
    path = tmp_path / "desk.sq"
    path.write_text(DESK.replace("run desk (service);", "run   desk(service) ;"))
    assert castq("fmt", "--check", str(path)).code == 1
    assert castq("fmt", str(path)).code == 0
    assert castq("fmt", "--check", str(path)).code == 0
    assert json.loads(castq("run", str(path), "--json").out)["observes"]["stay"]["mean"] == 4


def test_draw_writes_svg(castq: Any, desk: Any, tmp_path: Path) -> None:
    out = tmp_path / "desk.svg"
    assert castq("draw", desk, "--out", str(out)).code == 0
    assert out.read_text() == castq("draw", desk).out
    assert "desk" in out.read_text()
    from xml.etree import ElementTree

    assert ElementTree.fromstring(out.read_text()).tag.endswith("svg")


def test_a_trace_outside_the_program_s_folder_is_not_read(castq: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.csv").write_text("1,1,5,3,0\n")
    path = home / "replay.sq"
    path.write_text(
        'stage s : delay; workload { arrive batch(2); trace "../secret.csv"; }\n'
        "session { turn; run s (new); end; } run { horizon 10; }\n"
    )
    ran = castq("run", str(path))
    assert ran.code == 1
    assert "outside the program's folder" in ran.err
    given = castq("run", str(path), "--trace", str(tmp_path / "secret.csv"), "--json")
    assert json.loads(given.out)["turns"] == 2


def test_arrivals_without_gaps_are_refused(castq: Any, tmp_path: Path) -> None:
    path = tmp_path / "flood.sq"
    path.write_text(DESK.replace("batch(3)", "renewal(now)"))
    ran = castq("run", str(path))
    assert (ran.code, ran.out) == (1, "")
    assert "arrive at 0" in ran.err


def test_dump_keeps_client_figures_and_observations_of_one_name_apart(castq: Any, tmp_path: Path) -> None:
    program, workload, out = tmp_path / "desk.sq", tmp_path / "desk.wl.sq", tmp_path / "out"
    program.write_text("fn main() { stage s : delay; server { run s (cost(s, 2)); observe response = 7; } }")
    workload.write_text("workload { arrive batch(1); }")
    assert castq("run", str(program), "--workload", str(workload), "--horizon", "9", "--dump", str(out)).code == 0
    assert (out / "response.csv").read_text().splitlines()[1] == "2.0,0,1,7.0"
    assert (out / "client" / "response.csv").read_text().splitlines()[1] == "2.0,0,1,2.0"


SERVES_NOBODY = (
    "pool kv { cap 4; } stage s : fifo; workload { arrive batch(2); }"
    "session { hold kv (5 + serial) { run s (1); } observe x = (now - now) / (serial - serial); end; }"
    "run { horizon 9; }"
)


def test_a_run_that_served_nobody_says_why(castq: Any, tmp_path: Path) -> None:
    program = tmp_path / "nobody.sq"
    program.write_text(SERVES_NOBODY)
    found = castq("run", str(program))
    verdict = "every session was rejected: it asks more of kv than there is; nobody was served"
    assert (found.code, found.err.strip()) == (1, f"castq: {verdict}")
    assert f"verdict: {verdict}" in found.out


def test_what_was_not_measured_is_a_dash(castq: Any, tmp_path: Path) -> None:
    program = tmp_path / "nan.sq"
    program.write_text(SERVES_NOBODY.replace("cap 4", "cap 9"))
    found = castq("run", str(program))
    assert found.code == 0
    assert "nan" not in found.out
    assert "samples of x are no numbers" in found.out
    assert "unit of time: the program's own" in found.out
