"""Errors of a run say where in the text, who and when."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.errors import RunError
from serq.runner import run

DEPLOYMENT = """fn main() {
  pool p { cap 5; queue by (queue(d[KEY])); }
  device chip { }
  stage d [3] : delay;
  engine llm on chip {
    tokens cap BUDGET;
    scheduler { advance running; admit waiting; }
    worker { forward (COST); }
  }
  server (n) {
    run d[0] (cost(d, 1));
    hold p (cost(p, UNITS)) {
      run d[0] (cost(d, HELD));
    } cache (cost(p, 1))
    if (TEST) { observe seen = queue(d[INDEX]); }
    llm (n, 2);
  }
}
"""
GOOD = {
    "KEY": "0",
    "BUDGET": "8",
    "COST": "1",
    "UNITS": "1",
    "HELD": "1",
    "TEST": "serial == 2",
    "INDEX": "1",
}
WORKLOAD = "workload { arrive renewal(1); turn { set n = 4; } send (n); session { turn; } }"


def failure(step_by_step: bool = False, **changed: str) -> RunError:
    source = DEPLOYMENT
    for name, value in {**GOOD, **changed}.items():
        source = source.replace(name, value)
    program = compile_program(source=source, workload_source=WORKLOAD, horizon=20)
    with pytest.raises(RunError) as refused:
        run(program, step_by_step=step_by_step)
    return refused.value


@pytest.mark.parametrize(
    ("changed", "kind", "line", "session", "time", "message"),
    [
        ({"UNITS": "2 - serial - free(p)"}, "run-amount", 12, 0, 2, "got -3"),
        ({"TEST": "serial / 2"}, "run-guard", 15, 1, 4, "a guard must be 0 or 1, got 0.5"),
        ({"INDEX": "serial + 1"}, "run-index", 15, 2, 5, r"d\[3\] is not there: .* from 0 to 2"),
        ({"COST": "3 - now"}, "run-cost", 5, None, 3, "llm at 3 would last 0"),
    ],
)
@pytest.mark.parametrize("step_by_step", [False, True])
def test_where_who_and_when(
    changed: Any, kind: Any, line: Any, session: Any, time: Any, message: Any, step_by_step: Any
) -> None:
    error = failure(step_by_step, **changed)
    assert (error.kind, error.file, error.line, error.session, error.time) == (kind, "deployment", line, session, time)
    with pytest.raises(RunError, match=message):
        raise error


def test_a_header_fails_in_the_session_that_waits() -> None:
    """From 2 to 5 the first one holds; at 4 two wait, and the key of the second cannot be read."""
    error = failure(KEY="serial + 1", UNITS="4", HELD="3")
    assert (error.kind, error.line, error.session, error.time) == ("run-index", 12, 2, 4)


def test_the_text_shows_the_line() -> None:
    assert str(failure(TEST="serial / 2")) == (
        "deployment:15:5: error: a guard must be 0 or 1, got 0.5 (session 1, at time 4)\n"
        "15 |     if (serial / 2) { observe seen = queue(d[1]); }\n"
        "   |     ^^"
    )


def test_a_run_that_does_not_drain_says_when() -> None:
    program = compile_program(
        source="fn main() { stage d : fifo; server { run d (cost(d, 5)); } }",
        workload_source="workload { arrive renewal(1); }",
        horizon=7,
        arrivals=9,
    )
    with pytest.raises(
        RunError, match=r"7 of 9 sessions arrived .*, 6 of them have not ended \(at time 7\)"
    ) as refused:
        run(program)
    assert (refused.value.kind, refused.value.time) == ("run-drain", 7)


def test_errors_travel_between_processes() -> None:
    error = failure(TEST="serial / 2")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
