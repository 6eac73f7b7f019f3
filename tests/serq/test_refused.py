"""Near misses: programs that must be refused, by kind, and where the error points."""

from __future__ import annotations

from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.errors import SerqError
from serq.runner import run

WORK = "workload { arrive batch(2); }"

REFUSED = [
    pytest.param(
        (
            "fn main() { pool m { cap 9; preempt leases by (serial); } stage s : delay; server { hold m "
            "(cost(m, 1)) { grow m (cost(m, 1)); run s (cost(s, 1)); } } }"
        ),
        WORK,
        "structure",
        id="leases of a pool that nobody leases",
    ),
    pytest.param(
        (
            "fn main() { device while { } engine e on while { tokens cap 8; scheduler { advance running; } "
            "worker { forward (1); } } server { e (1, 1); } }"
        ),
        WORK,
        "structure",
        id="a device called by a word of the language",
    ),
    pytest.param(
        (
            "fn main() { device g { r (a, b) = a; } engine e on g { tokens cap 8; scheduler { advance "
            "running; } worker { forward (r(1, 2)); } } server { e (1, 1); } }"
        ),
        WORK,
        "structure",
        id="device rate unused",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { tokens cap 8; scheduler { advance running; } worker { "
            "forward (1); } } engine f on g { tokens cap 8; scheduler { advance running; } worker { forward "
            "(1); } } server { e (1, 1); f (1, 1); } }"
        ),
        WORK,
        "structure",
        id="two engines one device",
    ),
    pytest.param(
        (
            "fn main() { pool m { cap 9; block 1; } stage s : fifo; server (n) { hold m (cost(m, n)) { run s "
            "(cost(s, 1)); } } }"
        ),
        ("workload { arrive batch(1); turn { set n = ~exp(3); } send (n); }"),
        "whole",
        id="whole think",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server (hidden o) { observe x = o; run s (cost(s, o)); } }"),
        ("workload { arrive batch(1); turn { set o = 2; } send (o); }"),
        "hidden",
        id="hidden observed early",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; server (hidden o) { if (now > 1) { run s (cost(s, o)); } else { run "
            "s (cost(s, 1)); } observe x = o; } }"
        ),
        ("workload { arrive batch(1); turn { set o = 2; } send (o); }"),
        "hidden",
        id="hidden one branch",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; pool m { cap 2; queue by (o); } server (hidden o) { hold m (cost(m, "
            "1)) { run s (cost(s, o)); } } }"
        ),
        ("workload { arrive batch(1); turn { set o = 2; } send (o); }"),
        "hidden",
        id="queue key hidden",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server reply (k) { run s (cost(s, 1)); set k = now; } }"),
        ("workload { arrive batch(1); session { turn; observe a = reply.j; } }"),
        "signature",
        id="reply unknown",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { tokens cap 8; scheduler { advance running each at most "
            "(2); admit waiting; } worker { forward (1); } } server { e (1, 1); } }"
        ),
        WORK,
        "scheduler",
        id="each differing",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { tokens cap 8; granule 5; scheduler { advance running "
            "each at most (4); } worker { forward (1); } } server { e (1, 1); } }"
        ),
        WORK,
        "value",
        id="granule too large",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { tokens cap 8; state r = 0; scheduler { advance running;"
            " set r = r + 1; } worker { forward (1 + r); } } server { e (1, 1); observe x = r; } }"
        ),
        WORK,
        "name",
        id="register outside",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { tokens cap 8; scheduler { advance running; } worker { "
            "forward (1); } } server { e (1, 0); } }"
        ),
        WORK,
        "value",
        id="E out of turn",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server { set k = 1; run s (cost(s, 1)); } }"),
        ("workload { arrive batch(1); init { set k = 1; } }"),
        "signature",
        id="server assigns client",
    ),
    pytest.param(
        ("fn main() { stage s : delay; server { run s (cost(s, 1)); } }"),
        ("workload { arrive batch(1); turn { tool (1); } }"),
        "structure",
        id="set in workload only",
    ),
    pytest.param(
        (
            "fn main() { pool a { cap 2; } pool b { cap 2; } stage s : delay; server { hold a (cost(a, 1)) { "
            "run s (cost(s, 1)); } lease b (1) } }"
        ),
        WORK,
        "structure",
        id="lease wrong pool",
    ),
    pytest.param(
        (
            "fn main() { pool a { cap 2; } stage s : delay; server { hold a (cost(a, 1)) { run s (cost(s, "
            "1)); end; } } }"
        ),
        WORK,
        "structure",
        id="end in hold",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server { run s (cost(s, 1), latency = -1); } }"),
        WORK,
        "value",
        id="dup connector queue key",
    ),
    pytest.param(
        ("fn main() { queue q : link { serve fifo; nic ps(2); } server { q.transfer (1); } }"),
        WORK,
        "structure",
        id="nic unused",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; def d(x) { run s (cost(s, x)); } server { d(now); } }"),
        WORK,
        "call",
        id="statement def arg clock",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server { run s (now > 1 ? cost(s, 1) : 2); } }"),
        WORK,
        "cost",
        id="mixed if cost",
    ),
    pytest.param(
        (
            "let N = 2; pool seats[N] { cap 1; admit via E; } pool kv[N] { cap 20; } stage E[N] : step { cost"
            " 1; memory kv; } workload { arrive batch(4); session { set i = serial - 2 * floor(serial / 2); "
            "hold seats[i] (1), kv[i] (4) { prefill on E[i] (4); decode[i] 0; } observe f = now; end; } } run"
            " { horizon 40; }"
        ),
        None,
        "name",
        id="families admit",
    ),
    pytest.param(
        (
            "pool seats[2] { cap 1; admit via E; } stage E[3] : step { cost 1; } workload { arrive batch(4); "
            "session { hold seats[0] (1) { prefill on E[0] (4); } end; } } run { horizon 40; }"
        ),
        None,
        "structure",
        id="size mismatch",
    ),
    pytest.param(
        (
            "pool p { cap 9; } stage d : delay; workload { arrive renewal(~exp(2)); session { hold p (2) { "
            "run d (pow(2, 2)); load p (1); } cache (9) drop p; observe x = p; } } run { horizon 3; }"
        ),
        None,
        "name",
        id="drop/pow",
    ),
    pytest.param(
        (
            "pool p { cap 9; } stage d : delay; workload { arrive batch(1); session { run d (1); loop { hold "
            "p (1) { } } } } run { horizon 3; }"
        ),
        None,
        "progress",
        id="loop with hold waits",
    ),
]


@pytest.mark.parametrize(("text", "workload", "kind"), REFUSED)
def test_refused(text: Any, workload: Any, kind: Any) -> None:
    with pytest.raises(SerqError) as caught:
        compile_program(source=text, workload_source=workload, horizon=50)
    assert caught.value.kind == kind


def test_an_input_may_not_change_the_size_of_a_family() -> None:
    text = (
        'use "std/args"; fn main() { let n = args.number("n", 2); let m = n + 1; stage s[m] : fifo;'
        " server { run s[0] (cost(s, 1)); } }"
    )
    with pytest.raises(SerqError) as caught:
        compile_program(source=text, workload_source=WORK, horizon=50, sets={"n": 3})
    assert caught.value.kind == "override"
    assert len(compile_program(source=text, workload_source=WORK, horizon=50).stages) == 3


def test_an_expression_too_deep_to_run_is_refused() -> None:
    deep = "1"
    for _ in range(2000):
        deep = f"now < 1 ? 1 : {deep}"
    source = f"stage s : delay; workload {{ arrive batch(1); }} session {{ run s ({deep}); end; }} run {{ horizon 5; }}"
    with pytest.raises(SerqError, match="nested"):
        run(compile_program(source=source))


@pytest.mark.parametrize("inside", ["run s (5);", "end;", "hold p (1) { }", "branch (serial > 0) { set x = 1; }"])
@pytest.mark.parametrize("block", ["init", "turn"])
def test_init_and_turn_blocks_only_set_and_observe(block: Any, inside: Any) -> None:
    source = (
        "pool p { cap 4; } stage s : delay;\n"
        f"workload {{ arrive batch(2); {block} {{ {inside} }} }}\n"
        "session { turn; hold p (1) { run s (1); } end; } run { horizon 9; }"
    )
    with pytest.raises(SerqError) as refused:
        compile_program(source=source)
    assert (refused.value.kind, refused.value.line) == ("structure", 2)


@pytest.mark.parametrize(
    ("pool", "hold"),
    [("cap 9.5; block 4", "4"), ("cap 8; block 0.5", "4"), ("cap 9.5", "4"), ("cap 9", "2.5")],
)
def test_pools_of_tokens_count_in_whole_tokens(pool: Any, hold: Any) -> None:
    """A pool with blocks, or whose content a `cache` keeps, holds tokens."""
    source = (
        f"fn main() {{ pool p {{ {pool}; }} stage d : delay;\n"
        f"server {{ hold p (cost(p, {hold})) {{ run d (cost(d, 1)); }} cache (cost(p, 4)) }} }}"
    )
    with pytest.raises(SerqError) as refused:
        compile_program(source=source, workload_source=WORK, horizon=5)
    assert refused.value.kind == "whole"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("fn main() {\n  stage mem : delay;\n  pool mem { cap 4; }\n  server { run mem (cost(mem, 1)); }\n}", 3),
        ("fn main() {\n  pool mem { cap 4; }\n  stage mem : delay;\n  server { run mem (cost(mem, 1)); }\n}", 3),
        ("fn main() {\n  stage s : delay;\n  server {\n    npu\n  }\n}", 4),
        ("// nothing here\nfn kv() { }", 2),
    ],
    ids=["stage then pool", "pool then stage", "a lone word", "no fn main"],
)
def test_the_place_an_error_points_to(source: Any, line: Any) -> None:
    with pytest.raises(SerqError) as refused:
        compile_program(source=source, workload_source=WORK, horizon=5)
    assert refused.value.line == line
