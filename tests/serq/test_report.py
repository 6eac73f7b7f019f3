"""What a report says beside its figures: a verdict, maxima, the unit of time, the nearest name."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest

import castq
import serq
from serq.compiler import compile as compile_program
from serq.errors import UnknownNameError
from serq.report.report import Report
from serq.runner import run


def report_of(source: str, workload: str | None = None, **settings: float) -> Report:
    return run(compile_program(source=source, workload_source=workload, **{"horizon": 20, **settings}))  # type: ignore[arg-type]


QUEUE = "stage s : fifo; workload { arrive WHO; } session { BODY end; }"


def queue(who: str = "batch(3)", body: str = "run s (1 + serial); observe stay = now;") -> Report:
    return report_of(QUEUE.replace("WHO", who).replace("BODY", body))


def test_a_run_that_served_nobody_failed() -> None:
    report = report_of(
        "pool kv { cap 4; } stage s : fifo; workload { arrive batch(6); }"
        "session { hold kv (5 + serial) { run s (1); } end; }"
    )
    assert report.verdict.failed
    assert report.verdict.text == "every session was rejected: it asks more of kv than there is; nobody was served"


def test_some_rejected_sessions_are_told() -> None:
    report = report_of(
        "pool kv { cap 4; } stage s : fifo; workload { arrive batch(6); }"
        "session { hold kv (1 + serial) { run s (1); } end; }"
    )
    assert not report.verdict.failed
    assert report.verdict.text.startswith("2 of 6 sessions rejected: they ask more of kv than there is; ")


def test_sessions_that_stick_and_go_on_to_finish_are_told() -> None:
    """Both want three of three: the later one is preempted at 1 and, having got nowhere, at 2; from 7 on it has all."""
    source = """fn main() { pool p { cap 3; preempt lifo; } stage d : delay;
      server { hold p (cost(p, 1)) {
        run d (cost(d, 1)); grow p (cost(p, 1)); run d (cost(d, 1)); grow p (cost(p, 1)); run d (cost(d, 5));
      } observe done = now; } }"""
    report = report_of(source, "workload { arrive batch(2); }")
    assert list(report.observes["done"].samples) == [7, 14]
    assert report.pool("p").stuck == 1
    assert report.verdict.failed
    assert report.verdict.text == (
        "1 session stuck: preempted at p again without having got further; 2 of 2 sessions ended"
    )


def test_what_waits_for_ever_is_told() -> None:
    report = report_of(
        "pool kv { cap 4; } stage s : fifo; workload { arrive batch(1); }"
        "session { hold kv (free(kv) + 3) { run s (1); } end; }"
    )
    assert "at the end the head of kv asks 7 of kv, more than there is" in report.verdict.text


def test_samples_that_are_no_numbers_are_told() -> None:
    report = queue(body="run s (1); observe share = (now - now) / (serial - serial);")
    assert "samples of share are no numbers" in report.verdict.text


def test_a_run_that_went_well_says_how_many_ended() -> None:
    assert queue().verdict.text == "3 of 3 sessions ended"
    assert queue("none").verdict.text == "no session arrived"


def test_the_largest_sample_is_told() -> None:
    """Works of 1, 2 and 3 one after the other end at 1, 3 and 6."""
    row = queue().observes["stay"]
    assert (row.max, row.p99) == (6.0, 6.0)
    assert queue(body="run s (1); branch (serial > 5) { observe stay = now; } else { }").observes["stay"].max is None


def test_the_longest_gap_between_tokens_is_told() -> None:
    """Tokens of the first at 1, 2, then the long prefill of the second takes 10 of iteration 3."""
    source = """fn main() {
      device chip { }
      stage wait : delay;
      engine llm on chip { tokens cap 50; scheduler { advance running; admit waiting; } worker { forward (COST); } }
      server (p) { run wait (cost(wait, serial * 1.5)); llm (p, 5); }
    }""".replace("COST", "batch.prefilled > 10 ? 10 : 1")
    workload = "workload { arrive batch(2); turn { set p = 4 + 30 * serial; } send (p); session { turn; } }"
    for step_by_step in (False, True):
        program = compile_program(source=source, workload_source=workload, horizon=60)
        assert run(program, step_by_step=step_by_step).stage("llm").itl_max == 10.0


def test_the_largest_of_many_is_exact() -> None:
    program = compile_program(
        source=QUEUE.replace("WHO", "poisson(1)").replace("BODY", "run s (0.1); observe at = now;"), horizon=150_000
    )
    row = run(program).observes["at"]
    assert row.p99_within > 0
    assert row.max == max(run(program, samples=True).observes["at"].samples)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda report: report.stage("ss"), "no stage called 'ss': did you mean 's'?"),
        (lambda report: report.observes["stya"], "no row called 'stya': did you mean 'stay'?"),
        (lambda report: report.pool("kv"), "no pool called 'kv': there is none"),
        (lambda report: report.claim("x"), "no claim called 'x': there is none"),
    ],
)
def test_an_unknown_name_names_the_nearest(read: Any, message: Any) -> None:
    with pytest.raises(UnknownNameError, match="the report has") as refused:
        read(queue())
    assert isinstance(refused.value, KeyError)
    assert message in str(refused.value)


def test_a_report_is_short_where_it_is_shown() -> None:
    report = run(
        compile_program(source=QUEUE.replace("WHO", "poisson(9)").replace("BODY", "observe x = now;"), horizon=2000)
    )
    assert len(report.observes["x"].samples) > 10_000
    assert len(repr(report)) < 300
    assert repr(report).startswith("<Report to 2000: ")
    assert len(repr(report.observes["x"])) < 300


def test_a_report_travels_and_is_json() -> None:
    report = queue()
    assert pickle.loads(pickle.dumps(report)) == report
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document["time_unit"].startswith("the program's own")
    assert document["verdict"] == {"failed": False, "text": "3 of 3 sessions ended"}
    assert document["observes"]["stay"]["max"] == 6.0
    assert math.isfinite(document["end"])


def test_the_two_packages_have_one_version() -> None:
    assert serq.__version__ == castq.__version__
