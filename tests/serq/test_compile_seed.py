"""Programs of the single-file edition: what they become in the interchange form."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import conformance
from serq import ir
from serq.compiler import compile as compile_program
from serq.errors import SerqError

COUNTER = """
let service = 2;
stage desk : fifo;
workload { arrive batch(3); }
session { set t0 = now; run desk (service); observe stay = now - t0; end; }
gauge jobs = queue(desk);
run { horizon 12; warmup 1; seed 7; }
"""


def program(body: str, *, declared: str = "stage desk : fifo;", run: str = "horizon 10;", **given: Any) -> ir.Program:
    text = f"{declared} workload {{ arrive batch(2); }} session {{ {body} }} run {{ {run} }}"
    return compile_program(source=text, **given)


def statements(body: str, **given: str) -> ir.Block:
    found = program(body, **given)
    return found.blocks[found.session]


def test_a_whole_program() -> None:
    found = compile_program(source=COUNTER)
    stage = ir.Ref(0)
    assert found.attrs[9:] == ("t0",)
    assert found.blocks[found.session] == (
        ir.Set(9, ir.Ctx("now")),
        ir.Run((stage,), ir.Num(2.0)),
        ir.Observe(0, ir.Binary("-", ir.Ctx("now"), ir.Attr(9))),
        ir.End("session"),
    )
    assert found.stages == (ir.Stage("desk", "fifo"),)
    assert found.gauges == (ir.Gauge("jobs", ir.Call("queue", (), stage)),)
    assert found.arrival == ir.Arrival("batch", 3.0)
    assert (found.horizon, found.warmup, found.seed, found.arrivals) == (12.0, 1.0, 7, None)
    assert not found.client


def test_the_caller_overrides_settings_and_constants() -> None:
    found = compile_program(source=COUNTER, horizon=20, seed=3, sets={"service": "1 + 4"})
    assert (found.horizon, found.seed) == (20.0, 3)
    assert found.blocks[found.session][1] == ir.Run((ir.Ref(0),), ir.Num(5.0))


def test_definitions_are_written_out_and_constants_folded() -> None:
    declared = "stage desk : fifo; def twice(x) = 2 * x; def both(a, b) { max(twice(a), b) }"
    run = statements("run desk (both(1 + 2, 4)); run desk (both(serial, 4)); end;", declared=declared)
    assert run[0] == ir.Run((ir.Ref(0),), ir.Num(6.0))
    assert run[1] == ir.Run((ir.Ref(0),), ir.Call("max", (ir.Binary("*", ir.Num(2.0), ir.Attr(1)), ir.Num(4.0))))


def test_a_replaced_definition() -> None:
    declared = "stage desk : fifo; def f(x) = x;"
    found = program("run desk (f(3)); end;", declared=declared, defs={"f": "x * x"})
    assert found.blocks[found.session][0] == ir.Run((ir.Ref(0),), ir.Num(9.0))


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        ("-2 ^ 2", -4.0),
        ("2 ^ 3 ^ 2", 512.0),
        ("1 / 0", math.inf),
        ("pow(2, 3)", 8.0),
        ("floor(-1.5) + ceil(-1.5)", -3.0),
        ("!0 + !7", 1.0),
        ("0 ? 1 : 0 ? 2 : 3", 3.0),
        ("1 && 0 || 1", 1.0),
        ("max j in 3 (j * (2 - j))", 1.0),
        ("sum k in 4 (k)", 6.0),
        ("ln(exp(0)) + sqrt(16) + abs(-2)", 6.0),
    ],
)
def test_constants(expr: Any, value: Any) -> None:
    assert statements(f"run desk (1); set a = {expr}; end;")[1] == ir.Set(9, ir.Num(value))


def test_families_and_references() -> None:
    declared = "pool kd[2] { cap 3; } stage desk : fifo; stage lane[1] : ps(present);"
    found = program("hold kd[serial] (1) { run lane[0] (1); } end;", declared=declared)
    assert [(pool.name, pool.index) for pool in found.pools] == [("kd", 0), ("kd", 1)]
    assert [(stage.name, stage.kind, stage.index) for stage in found.stages] == [
        ("desk", "fifo", None),
        ("lane", "delay", 0),
    ]
    hold = found.blocks[found.session][0]
    assert isinstance(hold, ir.Hold)
    assert hold.pools == (ir.HoldPool(ir.Ref(0, 2, ir.Attr(1)), ir.Num(1.0)),)
    assert found.blocks[hold.body] == (ir.Run((ir.Ref(1, 1, ir.Num(0.0)),), ir.Num(1.0)),)


STEP = """
pool kv {{ cap 64; block 16; preempt lifo; }}
pool seats {{ cap 4; admit via npu; queue by (waited, serial); }}
stage npu : step {{ budget 256; chunk 128; cost 1 + tokens; {serve} memory kv; }}
"""


@pytest.mark.parametrize(
    ("serve", "exclusive", "words"),
    [
        ("", False, ["serve", "admit"]),
        ("serve admission;", False, ["serve", "admit"]),
        ("serve decode first;", False, ["serve", "admit"]),
        ("serve exclusive prefill;", True, []),
        ("serve only (decoding) by (remaining);", False, ["serve", "admit"]),
    ],
)
def test_step_stages(serve: Any, exclusive: Any, words: Any) -> None:
    body = "hold seats (1), kv (4) { prefill (4) growing kv; decode (2) growing kv; } end;"
    found = program(body, declared=STEP.format(serve=serve))
    step = found.stages[0].step
    assert step is not None
    assert (step.exclusive, step.memory, step.budget, step.chunk) == (exclusive, 0, ir.Num(256.0), ir.Num(128.0))
    assert [one.kind for one in step.iteration] == words
    assert found.pools[1].admit_via == 0
    assert found.pools[1].queue == (ir.Ctx("waited"), ir.Attr(1))
    assert found.pools[0].preempt == ir.Preempt("by", (ir.Unary("-", ir.Ctx("admission")),))
    if words:
        assert step.iteration[1].gate == ir.Binary("==", ir.Ctx("running_preempted"), ir.Num(0.0))
    if "only" in serve:
        assert step.iteration[0].only == step.iteration[1].only == ir.Ctx("decoding")


def test_control_and_transfer() -> None:
    declared = "pool a { cap 4; } pool b { cap 4; } stage up : ps(2); stage down : ps(3); share bottleneck;"
    body = """
    hold a (2) { run up (1); } cache (2) lease a (inf);
    branch with (0.25) { set x = 1; } else { set x = 2; }
    hold b (2) { transfer on up, down (4) from a to b (1); }
    end;
    """
    found = program(body, declared=declared)
    lease, branch, hold, _ = found.blocks[found.session]
    assert isinstance(lease, ir.Hold)
    assert lease.lease == ir.Lease(ir.Ref(0), ir.Num(math.inf))
    assert isinstance(branch, ir.Branch)
    assert branch.test == ir.Sample("bernoulli", (ir.Num(0.25),))
    assert isinstance(hold, ir.Hold)
    assert found.blocks[hold.body] == (
        ir.Run((ir.Ref(0), ir.Ref(1)), ir.Num(4.0), share="bottleneck"),
        ir.Load(ir.Ref(1), ir.Num(1.0)),
        ir.Release(ir.Ref(0)),
    )
    assert found.share == "bottleneck"


def test_a_tool_stage_is_supplied() -> None:
    found = program("run desk (1); tool 2; end;")
    assert found.stages[1] == ir.Stage("tool", "delay")


def test_request_expands_the_server() -> None:
    text = """
    stage desk : fifo;
    workload { arrive batch(1); session { turn; request; request; end; } }
    server { run desk (1); }
    run { horizon 5; }
    """
    found = compile_program(source=text)
    assert [type(one).__name__ for one in found.blocks[found.session]] == ["Turn", "Run", "Run", "End"]


def test_use_reads_beside_the_including_file_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shapes.sq").write_text('use "more.sq"; def rows(n) = n <= 1 ? 1 : half(8);')
    (tmp_path / "lib" / "more.sq").write_text("def half(n) = n / 2;")
    main = tmp_path / "main.sq"
    main.write_text('use "lib/more.sq"; use "lib/shapes.sq";' + COUNTER.replace("(service)", "(rows(3))"))
    found = compile_program(main)
    assert found.blocks[found.session][1] == ir.Run((ir.Ref(0),), ir.Num(4.0))
    for bad in ("../outside.sq", "lib/absent.sq"):
        main.write_text(f'use "{bad}";' + COUNTER)
        with pytest.raises(SerqError) as caught:
            compile_program(main)
        assert caught.value.kind == "structure"


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", conformance.names(prefix="s"))
def test_the_corpus_compiles(name: Any) -> None:
    case = conformance.expectation(name)
    found = conformance.compiled(case)
    expected = case["expect"]
    assert list(found.observes) == list(expected["observes"])
    assert [(row.name, row.index) for row in found.stages] == [
        (row["name"], row["index"]) for row in expected["stages"]
    ]
    assert [(row.name, row.index) for row in found.pools] == [(row["name"], row["index"]) for row in expected["pools"]]
