"""Small runs whose outcome is worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.errors import RunError
from serq.runner import run


def observed(source: str, workload: str, observe: str, horizon: float = 20) -> list[float]:
    """The samples of one observation."""
    return list(
        run(compile_program(source=source, workload_source=workload, horizon=horizon)).observes[observe].samples
    )


def test_a_tick_tries_everyone_who_waits() -> None:
    """At 1.5 the first takes 2 of 3 units, the second (2) does not fit, the third (1) does."""
    source = """fn main() { pool desk { cap 3; queue fifo every (1.5); } stage d : delay;
      server {
        run d (cost(d, serial / 4));
        hold desk (cost(desk, serial == 2 ? 1 : 2)) { observe at = now + serial / 10; run d (cost(d, 4)); }
      } }"""
    assert observed(source, "workload { arrive batch(3); }", "at") == [1.5, 1.7, 6.1]


def test_shrink_lowers_a_held_reservation_by_what_it_gives_back() -> None:
    """Nothing is allocated, so nothing is given back: the reservation of 8 stays until the hold ends at 3."""
    source = """fn main() { pool p { cap 10; reserve held; } stage d : delay;
      server {
        if (serial == 0) {
          hold p (cost(p, 0)) reserve (cost(p, 8)) { shrink p (cost(p, 6)); run d (cost(d, 3)); }
        } else {
          run d (cost(d, 1));
          hold p (cost(p, 5)) { observe at = now; }
        }
      } }"""
    assert observed(source, "workload { arrive batch(2); }", "at") == [3]


def test_a_reserve_that_can_never_fit_rejects_also_where_the_units_depend_on_the_moment() -> None:
    source = """fn main() { pool p { cap 10; } stage d : delay;
      server { hold p (cost(p, free(p) / 2)) reserve (cost(p, 11 + serial)) { run d (cost(d, 1)); } } }"""
    report = run(compile_program(source=source, workload_source="workload { arrive batch(2); }", horizon=9))
    pool = report.pool("p")
    assert pool is not None
    assert (pool.rejected, report.ended) == (2, 2)


@pytest.mark.parametrize(("horizon", "result", "first"), [(2.5, "not_evaluated", None), (9, "fails", 9)])
def test_what_holds_at_the_end_is_read_when_every_session_has_left(horizon: Any, result: Any, first: Any) -> None:
    source = """fn main() { stage d : fifo; server { run d (cost(d, 1)); observe at = now; }
      claim two : at end (count(at) == 2); }"""
    report = run(compile_program(source=source, workload_source="workload { arrive batch(3); }", horizon=horizon))
    assert (report.claims[0].result, report.claims[0].first) == (result, first)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("p = 2 - 3 * serial; set o = 2", "input is at least 0, got -1"),
        ("p = 4; set o = 1 - serial", "at least 1, got 0"),
    ],
)
def test_a_request_must_ask_for_something(asked: str, message: str) -> None:
    deployment = """
fn main() {
  device chip { }
  engine llm on chip { tokens cap 6; scheduler { advance running; } worker { forward (2); } }
  server (p, hidden o) { llm (p, o); }
}
"""
    workload = f"workload {{ arrive batch(2); turn {{ set {asked}; }} send (p, o); session {{ turn; }} }}"
    program = compile_program(source=deployment, workload_source=workload, horizon=20.0)
    with pytest.raises(RunError, match=message) as refused:
        run(program)
    assert refused.value.kind == "run-amount"
