"""Of every engine: tokens and memory are conserved, padding makes no progress, shortcuts change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conformance
from serq.compiler import compile as compile_program
from serq.report.report import Report
from serq.runner import run

PROGRAM = """
let bs = {block};
pool kv {{ cap {blocks} * bs; block bs; evict lru; preempt {preempt}; }}
pool seats {{ cap {seats}; admit via engine; }}
stage engine : step {{ budget {budget}; chunk {chunk}; cost {cost}; memory kv; {serve} }}
workload {{ arrive {arrive}; init {{ set ask = {ask}; set out = {out}; }} }}
session {{
  hold seats (1), kv (min(known, hit + budget_left(engine))) reserve (ask + out)
       at admission (known = computed < ask ? ask : computed + 1,
                     hit = min(cachedin(kv), floor((known - 1) / bs) * bs)) {{
    set had = min(cached, floor((known - 1) / bs) * bs);
    prefill on engine (known - had) growing kv;
    decode on engine (out - 1 - (known - ask)) growing kv;
  }} cache (ask + out)
  observe done = out;
  end;
}}
gauge used_units = used(kv);
run {{ horizon 400; }}
"""


@dataclass(frozen=True)
class Case:
    """One engine and its traffic."""

    block: int
    blocks: int
    seats: int
    budget: int
    chunk: int
    preempt: str
    serve: str
    arrive: str
    ask: str
    out: str

    def source(self, cost: str) -> str:
        return PROGRAM.format(**self.__dict__, cost=cost)


@st.composite
def cases(draw: Any, arrive: tuple[str, ...], longer: int = 1) -> Case:
    """`longer` answers, in a memory that grows with them."""
    return Case(
        block=draw(st.sampled_from([1, 4, 16])),
        blocks=draw(st.integers(30, 60)) * longer,
        seats=draw(st.integers(1, 6)),
        budget=draw(st.integers(8, 64)),
        chunk=draw(st.integers(1, 64)),
        preempt=draw(st.sampled_from(["none", "lifo"])),
        serve=draw(st.sampled_from(["", "serve decode first;", "serve exclusive prefill;", "serve by (serial);"])),
        arrive=draw(st.sampled_from(arrive)),
        ask=f"{draw(st.integers(1, 12))} + {draw(st.integers(0, 2))} * serial",
        out=f"{longer} * {draw(st.integers(2, 9))} + {draw(st.integers(0, 2))} * serial",
    )


BATCH = ("batch (5)",)
ANY = (*BATCH, "renewal (7)", "poisson (0.2)")
COSTS = st.sampled_from(["1", "0.5 + tokens / 8", "0.25 + (kv_decode + kv_prefill) / 64", "1 + decoders * residents"])


def simulated(source: str, **options: Any) -> Report:
    return run(compile_program(source=source), **options)


@settings(max_examples=60, deadline=None)
@given(case=cases(BATCH), cost=COSTS)
def test_tokens_and_memory_are_conserved(case: Any, cost: Any) -> None:
    report = simulated(case.source(cost), iterations=True)
    given_tokens: dict[int, int] = {}
    starts = [one.time for one in report.iterations]
    assert all(one < following for one, following in pairwise(starts))
    assert [one.step for one in report.iterations] == list(range(len(starts)))
    for one in report.iterations:
        assert one.tokens <= case.budget
        assert len({got.request for got in one.requests}) == len(one.requests) <= case.seats
        for got in one.requests:
            assert 1 <= got.tokens <= (case.chunk if got.phase == "prefill" else 1)
            given_tokens[got.request] = given_tokens.get(got.request, 0) + int(got.tokens)
    for value in report.gauges["used_units"].values:
        assert 0 <= value <= case.blocks * case.block
    kv = report.pool("kv")
    assert kv is not None
    for session, out in zip(report.observes["done"].sessions, report.observes["done"].samples, strict=True):
        ask = eval(case.ask, {"serial": session})
        known = ask + out - 1
        assert given_tokens[session] >= known, "every token but the last is computed"
        assert kv.preemptions or given_tokens[session] == known, "and nothing twice where nobody was preempted"


@settings(max_examples=40, deadline=None)
@given(case=cases(BATCH), rows=st.sampled_from([(1, 2, 4, 8), (8,), (3, 6)]))
def test_padding_makes_no_progress(case: Any, rows: Any) -> None:
    """Padded rows change how long an iteration takes, never what it computes."""
    padded = f"{rows[-1]}"
    for size in reversed(rows[:-1]):
        padded = f"decoders <= {size} ? {size} : {padded}"
    plain, wide = (
        simulated(case.source(cost), iterations=True) for cost in ("0.5 + decoders / 8", f"0.5 + ({padded}) / 8")
    )
    assert [one.requests for one in plain.iterations] == [one.requests for one in wide.iterations]
    for one, two in zip(plain.iterations, wide.iterations, strict=True):
        assert one.time <= two.time + 1e-9


@settings(max_examples=80, deadline=None)
@given(case=cases(ANY), cost=COSTS)
def test_running_ahead_changes_nothing(case: Any, cost: Any) -> None:
    program = compile_program(source=case.source(cost))
    slow = run(program, iterations=True, step_by_step=True).to_json(samples=True)
    fast = run(program, iterations=True).to_json(samples=True)
    assert conformance.departures(slow, fast) == []


@settings(max_examples=80, deadline=None)
@given(case=cases(ANY, longer=20), cost=COSTS, gauge=st.booleans())
def test_leaping_over_long_answers_changes_nothing(case: Any, cost: Any, gauge: Any) -> None:
    source = case.source(cost)
    if not gauge:
        source = source.replace("gauge used_units = used(kv);", "")
    program = compile_program(source=source)
    slow = run(program, step_by_step=True).to_json(samples=True)
    assert conformance.departures(slow, run(program).to_json(samples=True)) == []


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", [name for name in conformance.names() if name[0] in "defs"])
def test_the_corpus_step_by_step(name: Any) -> None:
    case = conformance.expectation(name)
    if case["expect"]["status"] == "error":
        return
    program = conformance.compiled(case)
    slow = run(program, iterations=True, step_by_step=True).to_json(samples=True)
    assert conformance.departures(slow, run(program, iterations=True).to_json(samples=True)) == []
