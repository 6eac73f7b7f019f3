"""Straight programs, worked out queue by queue, against the event loop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conformance
from serq.compiler import compile as compile_program
from serq.errors import RunError
from serq.runner import run
from serq.sim.straight.plan import plan

SERVICES = (
    "~exp(0.7)",
    "~uniform(0.1, 1.2)",
    "~erlang(3, 0.6)",
    "~h2(0.5, 4)",
    "0.25",
    "0.1 + big * 0.5",
    "max(0.05, grain - floor(grain / 2))",
    "grain > 0.5 ? 0.2 : 0.3",
    "~bernoulli(0.5) * 0.2 + 0.3",
    "exp(0 - grain) + ln(1 + grain) ^ 2",
)
GAPS = ("poisson (0.8)", "poisson (1.6)", "renewal (~erlang(2, 1.1))", "renewal (1)", "renewal (0.3 + ~exp(0.5))")
STAGES = ("fifo", "fifo(2)", "fifo(3)", "delay")


@st.composite
def programs(draw: st.DrawFn) -> str:
    count = draw(st.integers(1, 3))
    stages = [f"stage s{i} : {draw(st.sampled_from(STAGES))};" for i in range(count)]
    turn = draw(st.booleans())
    block = "turn { set extra = ~exp(0.2) + turn_no; }" if turn else ""
    session = ["set came = now; set grain = ~exp(1); set big = ~bernoulli(0.3);"]
    for i in range(count):
        session.append(f"run s{i} ({draw(st.sampled_from(SERVICES))});")
        if draw(st.booleans()):
            session.append(f"observe after{i} = now - came;")
        if turn:
            session.append("turn; set grain = grain + extra;")
    return "\n".join(
        [
            *stages,
            f"workload {{ arrive {draw(st.sampled_from(GAPS))}; {block} }}",
            f"session {{ {' '.join(session)} observe stay = now - came; end; }}",
            f"run {{ horizon {draw(st.sampled_from((3, 60, 200)))}; warmup {draw(st.sampled_from((0, 2)))}; }}",
        ]
    )


@settings(max_examples=150, deadline=None)
@given(programs(), st.integers(1, 1000))
def test_the_event_loop_gives_the_same(source: str, seed: int) -> None:
    program = compile_program(source=source, seed=seed)
    assert plan(program) is not None
    slow = run(program, step_by_step=True).to_json(samples=True)
    assert conformance.departures(slow, run(program).to_json(samples=True)) == []


DESK = """
stage desk : fifo;
workload { arrive poisson (0.5); }
session { set came = now; run desk (~exp(1)); observe stay = now - came; end; }
run { horizon 100000; warmup 20; }
"""


@pytest.mark.parametrize("arrivals", [1, 100, 20_000])
def test_a_number_of_arrivals_ends_the_run(arrivals: int) -> None:
    program = compile_program(source=DESK, arrivals=arrivals, warmup=0.0)
    slow = run(program, step_by_step=True, samples=True).to_json(samples=True)
    fast = run(program, samples=True)
    assert conformance.departures(slow, fast.to_json(samples=True)) == []
    assert fast.end == max(fast.observes["stay"].times)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("horizon 100000", "horizon 30"), "run-drain"),
        (("warmup 20", "warmup 90000"), "run-drain"),
        (("~exp(1)", "~uniform(-1, 1)"), "run-amount"),
        (("poisson (0.5)", "renewal (~uniform(-1, 1))"), "run-amount"),
        (("poisson (0.5)", "renewal (~bernoulli(0))"), "run-progress"),
    ],
)
def test_errors_are_those_of_the_event_loop(change: tuple[str, str], kind: str) -> None:
    program = compile_program(source=DESK.replace(*change), arrivals=20_000)
    with pytest.raises(RunError) as slow:
        run(program, step_by_step=True)
    with pytest.raises(RunError) as fast:
        run(program)
    assert (fast.value.kind, str(fast.value)) == (slow.value.kind, str(slow.value)) == (kind, str(fast.value))


def test_work_of_zero_passes_by_the_queue() -> None:
    program = compile_program(source=DESK.replace("~exp(1)", "~bernoulli(0.5)"), horizon=500.0)
    assert plan(program) is not None
    slow = run(program, step_by_step=True).to_json(samples=True)
    assert conformance.departures(slow, run(program).to_json(samples=True)) == []


@pytest.mark.parametrize(
    "change",
    [
        ("run desk (~exp(1));", "run desk (~exp(1)); run desk (1);"),
        ("run desk (~exp(1));", "branch (grain > 1) { run desk (1); } else { }"),
        ("run desk (~exp(1));", "run desk (queue(desk) + 1);"),
        ("run desk (~exp(1));", "run desk (came > 5 ? ~exp(1) : 1);"),
        ("run desk (~exp(1));", "run desk (~erlang(90, 1));"),
        ("poisson (0.5)", "closed (5)"),
        ("fifo", "ps(1)"),
        ("fifo", "fifo(1000000000)"),
        ("stage desk", "gauge there = queue(desk); stage desk"),
    ],
)
def test_other_programs_are_left_to_the_event_loop(change: tuple[str, str]) -> None:
    text = DESK.replace("set came = now;", "set came = now; set grain = 1;").replace(*change)
    assert plan(compile_program(source=text)) is None


def test_an_interrupted_run_reports_what_it_has() -> None:
    def interrupt(done: float) -> None:
        if done > 0.5:
            raise KeyboardInterrupt

    report = run(compile_program(source=DESK), watch=interrupt)
    assert report.partial
    assert 50_000 < report.end < 100_000
    stay = report.observes["stay"]
    assert stay.count == report.ended > 20_000
    assert max(stay.times) <= report.end
    assert report.stages[0].utilization == pytest.approx(0.5, abs=0.02)  # arrivals times service
    assert report.mean_live == pytest.approx(1.0, abs=0.1)  # an M/M/1 queue at a load of a half
