"""Deployments with their workload files: what they become in the interchange form."""

from __future__ import annotations

from typing import Any

import pytest

import conformance
from serq import ir
from serq.compiler import compile as compile_program

WORKLOAD = "workload { arrive batch(2); turn { set p = 6; set o = 3; } send (p, o); }"
ENGINE = """
fn main() {
  device gpu { kv cap 64; work (t) = t / 8; }
  engine llm on gpu {
    seats cap 4; tokens cap max(4, 8 - running.decoding); state fresh = 1;
    scheduler {
      let crowd = running.count + waiting.count;
      if (fresh == 1) { advance running decode first each at most (max(2, floor(8 / crowd))); }
      admit waiting while (running.preempted == 0) each at most (max(2, floor(8 / crowd)))
        taking seats (1), kv (min(request.known, request.hit + budget_left(llm))) reserve (request.known)
        reuse (floor(request.known - 1, 4)) cache (request.known);
      set fresh = waiting.admitted > 0;
    }
    worker { forward (work(batch.tokens)); }
  }
  pool seats on llm { queue by (waited, p); }
  pool kv on gpu { block 4; preempt by (-position) requeue tail; }
  server (p, hidden o) { llm (p, o); observe first = llm.first; }
  gauge f = fresh;
  claim short : every iteration of llm (tokens <= 8 && fresh < 2);
  claim done : at end (count(llm.reused) == 2);
}
"""


def split(text: str, workload: str = WORKLOAD, **given: Any) -> ir.Program:
    return compile_program(source=text, workload_source=workload, horizon=20, **given)


def server_of(found: ir.Program) -> ir.Block:
    turn = next(one for one in found.blocks[found.session] if isinstance(one, ir.Turn))
    assert turn.body is not None
    return found.blocks[turn.body]


def test_an_engine() -> None:
    found = split(ENGINE)
    stage = found.stages[0]
    assert (stage.name, stage.kind) == ("llm", "step")
    step = stage.step
    assert step is not None
    assert step.memory == 1
    assert step.budget == ir.Call("max", (ir.Num(4.0), ir.Binary("-", ir.Num(8.0), ir.Ctx("decoders"))))
    crowd = ir.Binary("+", ir.Ctx("residents"), ir.Ctx("waiting_count"))
    assert step.chunk == ir.Call("max", (ir.Num(2.0), ir.Call("floor", (ir.Binary("/", ir.Num(8.0), crowd),))))
    assert step.cost == ir.Binary("/", ir.Ctx("tokens"), ir.Num(8.0))
    branch, admit, change = step.iteration
    assert (branch.kind, admit.kind, change.kind) == ("branch", "admit", "set")
    assert branch.test == ir.Binary("==", ir.Reg(0), ir.Num(1.0))
    assert change.value == ir.Binary(">", ir.Ctx("waiting_admitted"), ir.Num(0.0))
    assert found.registers == (ir.Register("fresh", 0, 1.0),)
    seats, kv = found.pools
    assert (seats.cap, seats.admit_via, kv.cap, kv.admit_via, kv.block) == (4.0, 0, 64.0, None, 4.0)
    assert kv.preempt == ir.Preempt("by", (ir.Unary("-", ir.Ctx("position")),), requeue_tail=True)
    assert found.client
    assert found.observes == ("first", "llm.reused", "llm.prefill")
    assert found.claims[1].test == ir.Binary("==", ir.Agg("count", 1), ir.Num(2.0))


def test_a_request_is_written_out() -> None:
    found = split(ENGINE)
    slot = {name: ir.Attr(index) for index, name in enumerate(found.attrs)}
    hold = next(one for one in server_of(found) if isinstance(one, ir.Hold))
    known, done = slot["llm.request.known"], slot["llm.request.finished"]
    computed, asked = slot["computed"], slot["llm.request.input"]
    resumed = ir.Call(
        "max",
        (known, ir.Cond(ir.Binary("<", computed, asked), asked, ir.Binary("+", computed, ir.Num(1.0)))),
    )
    assert hold.on_preempt is not None
    assert found.blocks[hold.on_preempt] == (
        ir.Set(known.slot, resumed),
        ir.Set(slot["llm.request.preempted"].slot, ir.Num(1.0)),
    )
    assert hold.cache == ir.Cond(done, ir.Binary("+", asked, slot["llm.request.output"]), resumed)
    assert hold.pools[1].reserve == known
    with_input = next(one for one in found.blocks[hold.body] if isinstance(one, ir.Branch))
    assert with_input.test == ir.Binary(">", known, ir.Num(0.0))
    assert found.blocks[with_input.otherwise] == ()
    runs = [one for one in (*found.blocks[with_input.then], *found.blocks[hold.body]) if isinstance(one, ir.Run)]
    assert [(run.mode, run.growing) for run in runs] == [("prefill", ir.Ref(1)), ("decode", ir.Ref(1))]
    assert found.hidden == (slot["o"].slot,)


def test_a_sent_expression_has_a_slot_of_its_own() -> None:
    text = "fn main() { stage s : fifo; server (n) { run s (cost(s, n)); } }"
    found = split(text, "workload { arrive batch(1); turn { set k = 2; set n = 5; } send (n: k + n); }")
    assert found.attrs[-2:] == ("n", "server.n") or "server.n" in found.attrs
    own = found.attrs.index("server.n")
    assert server_of(found)[0] == ir.Set(own, ir.Binary("+", ir.Attr(9), ir.Attr(found.attrs.index("n"))))
    assert server_of(found)[1] == ir.Run((ir.Ref(0),), ir.Attr(own))


def test_inputs() -> None:
    text = (
        'use "std/args"; fn main() { let a = args.number("scale", 2); let b = args.number("more", a / 2);'
        " stage s : fifo; server { run s (cost(s, a + b)); } }"
    )
    work = "workload { arrive batch(1); }"
    assert server_of(split(text, work)) == (ir.Run((ir.Ref(0),), ir.Num(3.0)),)
    assert server_of(split(text, work, sets={"scale": "2 * 5"})) == (ir.Run((ir.Ref(0),), ir.Num(15.0)),)


def test_constants_of_the_two_files_are_apart() -> None:
    text = "fn main() { let n = 2; stage s : fifo; server { run s (cost(s, n)); } }"
    found = split(text, "let n = 3; workload { arrive batch(n); }")
    assert found.arrival == ir.Arrival("batch", 3.0)
    assert server_of(found) == (ir.Run((ir.Ref(0),), ir.Num(2.0)),)


def test_an_entry_runs_where_it_is_called() -> None:
    text = """
    fn main() {
      queue wire[2] : link { serve fifo latency 0.5; transfer (n) { run (cost(wire, n + self)); mark moved; } }
      server { choose j in 2 by (queue(wire[j])); wire[j].transfer (3); observe at = wire.moved; }
    }
    """
    found = split(text, "workload { arrive batch(1); }")
    choose, member, run, mark, seen = server_of(found)
    slots = {name: index for index, name in enumerate(found.attrs)}
    own = ir.Attr(slots["wire.self"])
    assert isinstance(choose, ir.Choose)
    assert member == ir.Set(own.slot, ir.Attr(slots["j"]))
    assert run == ir.Run((ir.Ref(0, 2, own),), ir.Binary("+", ir.Num(3.0), own), latency=ir.Num(0.5))
    assert mark == ir.Set(slots["wire.moved"], ir.Ctx("now"))
    assert seen == ir.Observe(0, ir.Attr(slots["wire.moved"]))


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", [name for name in conformance.names() if name[0] in "abcdefg"])
def test_the_corpus_compiles(name: Any) -> None:
    case = conformance.expectation(name)
    found = conformance.compiled(case)
    expected = case["expect"]
    assert set(found.observes) == set(expected["observes"])
    assert [(row.name, row.index) for row in found.stages] == [
        (row["name"], row["index"]) for row in expected["stages"]
    ]
    assert [(row.name, row.index) for row in found.pools] == [(row["name"], row["index"]) for row in expected["pools"]]
