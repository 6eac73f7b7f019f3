"""Feature by feature: programs that must be accepted, and their compiled form read back."""

from __future__ import annotations

from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.ir.json_form import from_json, to_json

WORK = "workload { arrive batch(2); }"

ACCEPTED = [
    pytest.param(
        (
            'use "std/kvt"; use "std/share"; fn main() { queue pre : prefill { device g { kv cap 40; } engine'
            " on g { tokens cap 8; scheduler { advance running; } worker { forward (1); } } pool kv on g { "
            "block 1; } nic ps(4); prefill (n) { hold kv (cost(kv, n)) { run pre prefill (cost(pre, n)) "
            "growing kv; } cache (cost(kv, n)) lease kv (inf); } } queue dec : decode { device g { kv cap 40;"
            " } engine on g { tokens cap 8; scheduler { advance running; } worker { forward (1); } } pool kv "
            "on g { block 1; } nic ps(2); decode (n) from pre { hold kv (cost(kv, n + 3)) { transfer (n) from"
            " pre to kv (n - 1); run dec prefill (cost(dec, 1)) growing kv; run dec decode (cost(dec, 2)) "
            "growing kv; } } } kvt.nixl_pull (pre, dec, latency = 0.5, share = share.maxmin); server { "
            "pre.prefill (4); dec.decode (4) from pre; observe fin = now; } }"
        ),
        WORK,
        id="entry transfer without on",
    ),
    pytest.param(
        (
            "fn main() { def stamp(v) { set when = now; set val = v; } queue q : link { serve fifo; transfer "
            "(n) { stamp(n); run (cost(q, n)); observe w = when + val; } } server { q.transfer (2); observe "
            "at = q.when; } }"
        ),
        WORK,
        id="definition in an entry",
    ),
    pytest.param(
        (
            "fn main() { queue a : agg { device g { } engine on g { tokens cap 8; scheduler { advance "
            "running; } worker { forward (1); } } decode (n) { a (n, o); observe len = o; } } server (p, "
            "hidden o) { a.decode (p); observe fin = now; } }"
        ),
        ("workload { arrive batch(2); turn { set o = 5; set k = 2; } send (p: k + 1, o: o + 1); }"),
        id="hidden sent expression in entry",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server (n) { run s (cost(s, n)); observe f = now; } }"),
        (
            "def grow_(x) { x + 1 } def ask(k) { set n = k; turn; } workload { arrive batch(2); send (n); "
            "session { ask(2); tool (grow_(1)); ask(3); } }"
        ),
        id="client def",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; server { run s (cost(s, serial + 1)); } claim few given (kind == 1) "
            ": at end (now > 1); }"
        ),
        ("workload { arrive batch(2); init { set kind = serial; } }"),
        id="param not a tool",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { seats cap 2; tokens cap 8; scheduler { if "
            "(running.count == 0) { admit waiting taking seats (1); } else if (waiting.count > 0) { advance "
            "running; admit waiting taking seats (1); } else { advance running; } } worker { forward (1); } }"
            " pool seats on e { } server { e (4, 2); observe f = now; } }"
        ),
        WORK,
        id="scheduler else if",
    ),
    pytest.param(
        (
            "fn main() { pool m { cap 20; block 2; } stage s : delay; server (t) { hold m (cost(m, 8)) prefix"
            " (t: 4, serial: inf) reuse (cost(m, 6)) { observe c = cached; run s (cost(s, 1)); } cache "
            "(cost(m, 8)) } }"
        ),
        ("workload { arrive batch(2); turn { set t = 1; } send (t); session { turn; turn; } }"),
        id="prefix in engine entry",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; pool m { cap 9; } server { set a = cost(s, 1); set b = max(a, "
            "cost(s, 2)) * 2 + (now > 1 ? a : -a); run s (b); Cost w = { m: 2, s: 1 }; hold m (w.m) reserve "
            "(w.m * 2) { run s (w.s); grow m (min(cost(m, 1), w.m)); shrink m (cost(m, 1)); } observe f = "
            "now; } }"
        ),
        WORK,
        id="cost min max cond",
    ),
    pytest.param(
        (
            "fn main() { pool a { cap 9; } pool b { cap 9; } stage s : delay; server { set c = cost(a, b, 2);"
            " hold a (c), b (c) { run s (cost(s, 1)); } cache (c) observe f = now; } }"
        ),
        WORK,
        id="joint cost",
    ),
    pytest.param(
        ("fn main() { stage s[2] : fifo; server { run s[serial] (cost(s[serial], 2)); observe f = now; } }"),
        WORK,
        id="family cost index",
    ),
    pytest.param(
        (
            "fn main() { device g { } engine e on g { tokens cap 8; scheduler { advance running; } worker { "
            "forward (1); } } server { fork { e (3, 2); observe a = now; } e (2, 2); join; observe f = now; }"
            " }"
        ),
        WORK,
        id="fork with requests",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; server { set k = 0; while (k < 3) { run s (cost(s, 1)); set k = k + "
            "1; } observe f = now; } }"
        ),
        WORK,
        id="while server",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; server { set k = 0; loop { run s (cost(s, 1)); set k = k + 1; if (k "
            "> 2) { end; } } } }"
        ),
        WORK,
        id="loop end server",
    ),
    pytest.param(
        ("fn main() { let a = 3; stage s : fifo(a - 1); server { run s (cost(s, 1)); } }"),
        WORK,
        id="unused let fine",
    ),
    pytest.param(
        (
            "fn main() { stage s : fifo; pool m { cap 9; evict by (price(s, 1, 2), -size); } server { hold m "
            "(cost(m, 4)) { run s (cost(s, 1)); } cache (cost(m, 4)) observe x = est_wait(s); } }"
        ),
        WORK,
        id="price",
    ),
    pytest.param(
        (
            "fn main() { pool m { cap 99; block 1; } stage s : fifo; server (n) { hold m (cost(m, n)) { run s"
            " (cost(s, 1)); } } }"
        ),
        ("workload { arrive batch(1); turn { set n = floor(~exp(3)); } send (n); }"),
        id="whole floor",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server (hidden o) { set z = o; run s (cost(s, z)); observe x = o; } }"),
        ("workload { arrive batch(1); turn { set o = 2; } send (o); }"),
        id="hidden ok after",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server reply (k) { run s (cost(s, 1)); set k = now; } }"),
        ("workload { arrive batch(1); session { turn; observe a = reply.k; while (reply.k < 3) { turn; } } }"),
        id="reply read",
    ),
    pytest.param(
        (
            "fn main() { queue q[2] : link { serve ps(2); } server { q[serial].transfer (2); observe f = now;"
            " } gauge b = sum j in 2 (busy(q[j])); }"
        ),
        WORK,
        id="gauge in queue family",
    ),
    pytest.param(
        ("fn main() { stage s : delay; server (new) { run s (cost(s, new)); } }"),
        ("workload { arrive batch(1); send (new); }"),
        id="trace names",
    ),
    pytest.param(
        ("fn main() { stage s : fifo; server { while (1) { run s (cost(s, 1)); } } }"),
        WORK,
        id="guard constant while",
    ),
    pytest.param(
        (
            "pool seats { cap 4; admit via E; } pool kv { cap 64; block 4; preempt lifo; } stage E : step { "
            "budget 16; cost 1; memory kv; } workload { arrive batch(3); hidden gen; init { set ask = 10; set"
            " gen = 3; } } session { hold seats (1), kv (min(known, hit + budget_left(E))) reserve (known) at"
            " admission (known = computed < ask ? ask : computed + 1, hit = min(cachedin(kv), known - 1)) { "
            "prefill (known - min(cached, known - 1)) growing kv; decode (gen - (known - ask)) growing kv; } "
            "cache (ask + gen) observe f = now; end; } run { horizon 40; }"
        ),
        None,
        id="21.4",
    ),
    pytest.param(
        (
            "let N = 2; pool seats[N] { cap 1; admit via E; } pool kv[N] { cap 20; } stage E[N] : step { cost"
            " 1; memory kv; } workload { arrive batch(4); session { set i = serial - 2 * floor(serial / 2); "
            "hold seats[i] (1), kv[i] (4) { prefill on E[i] (4); } observe f = now; end; } } claim c : every "
            "iteration of E[1] (tokens <= 4); run { horizon 40; }"
        ),
        None,
        id="families admit ok",
    ),
    pytest.param(
        (
            "pool seats[2] { cap 1; admit via E; } stage E : step { cost 1; } workload { arrive batch(4); "
            "session { set i = serial - 2 * floor(serial / 2); hold seats[i] (1) { prefill (4); } observe f ="
            " now; end; } } run { horizon 40; }"
        ),
        None,
        id="single admits family",
    ),
    pytest.param(
        (
            "pool tier { cap 20; } stage w : fifo; pool m { cap 4; spill tier via w (size) when (size > 1); }"
            " stage d : delay; workload { arrive batch(3); session { run d (serial); hold m (3) { run d "
            "(0.5); } cache (3) run d (5 - now); observe t = cachedin(tier); end; } } run { horizon 40; }"
        ),
        None,
        id="spill",
    ),
    pytest.param(
        (
            "stage a : ps(2); stage b : ps(1); share maxmin; workload { arrive batch(3); session { run a, b "
            "(2); observe t = now; end; } } run { horizon 40; }"
        ),
        None,
        id="share",
    ),
    pytest.param(
        (
            "pool m { cap 4; reserve held; queue by (-serial); evict by (~uniform(0,1)); } stage d : delay; "
            "workload { arrive batch(3); session { hold m (1) reserve (2) { run d (1); grow m (1); run d (1);"
            " } cache (1); observe t = now; end; } } run { horizon 40; }"
        ),
        None,
        id="reserved held",
    ),
    pytest.param(
        (
            "stage tool[2] : fifo; workload { arrive batch(3); session { tool[0] 2; tool on tool[1] (1); "
            "observe t = now; end; } } run { horizon 40; }"
        ),
        None,
        id="tool index",
    ),
    pytest.param(
        (
            "stage prefill : step { cost 1; budget 4; } stage decode : step { cost 1; } workload { arrive "
            "batch(3); session { prefill 5; decode 2; observe t = now; end; } } run { horizon 40; }"
        ),
        None,
        id="decode stage name",
    ),
    pytest.param(
        ("stage d : delay; workload { arrive batch(3); session { turn; run d (new); end; } } run { horizon 40; }"),
        None,
        id="trace seed",
    ),
    pytest.param(
        ("stage d : delay; workload { arrive batch(3); session { run d (1); } } run { horizon 3; }"),
        None,
        id="end implied",
    ),
    pytest.param(
        (
            "stage d : delay; def a(x) { run d (x); } def b(x) { a(2 * x); observe o = now; } workload { "
            "arrive batch(1); session { b(1); b(2); end; } } run { horizon 30; }"
        ),
        None,
        id="def stmt nested",
    ),
    pytest.param(
        (
            "stage d[2] : delay; pool m[2] { cap 3; } def w(p, i) { hold p[i] (1) { run d[i] (1); } } def "
            "load_of(p) = used(p); workload { arrive batch(2); session { w(m, serial); observe u = "
            "load_of(m[0]); end; } } gauge g = load_of(m[1]); run { horizon 30; }"
        ),
        None,
        id="def resource ref",
    ),
]


@pytest.mark.parametrize(("text", "workload"), ACCEPTED)
def test_accepted(text: Any, workload: Any) -> None:
    program = compile_program(source=text, workload_source=workload, horizon=50)
    assert from_json(to_json(program)) == program


def test_a_long_aggregate_is_written_and_read() -> None:
    text = (
        "stage lane[4000] : fifo; workload { arrive batch(1); }"
        " session { run lane[0] (1); observe q = sum k in 4000 (queue(lane[k])); end; } run { }"
    )
    written = to_json(compile_program(source=text, horizon=5))
    assert to_json(from_json(written)) == written
