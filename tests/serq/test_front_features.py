"""Feature by feature: programs that must be accepted, and near misses that must be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from serq.compiler import compile as compile_program
from serq.errors import SerqError
from serq.fmt import format_source
from serq.ir_json import from_json, to_json
from serq.runner import run

ROOT = Path(__file__).parents[2]
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

REFUSED = [
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


@pytest.mark.parametrize(("text", "workload"), ACCEPTED)
def test_accepted(text, workload):
    program = compile_program(source=text, workload_source=workload, horizon=50)
    assert from_json(to_json(program)) == program


@pytest.mark.parametrize(("text", "workload", "kind"), REFUSED)
def test_refused(text, workload, kind):
    with pytest.raises(SerqError) as caught:
        compile_program(source=text, workload_source=workload, horizon=50)
    assert caught.value.kind == kind


def test_an_input_may_not_change_the_size_of_a_family():
    text = (
        'use "std/args"; fn main() { let n = args.number("n", 2); let m = n + 1; stage s[m] : fifo;'
        " server { run s[0] (cost(s, 1)); } }"
    )
    with pytest.raises(SerqError) as caught:
        compile_program(source=text, workload_source=WORK, horizon=50, sets={"n": 3})
    assert caught.value.kind == "override"
    assert len(compile_program(source=text, workload_source=WORK, horizon=50).stages) == 3


def test_a_long_aggregate_is_written_and_read():
    text = (
        "stage lane[4000] : fifo; workload { arrive batch(1); }"
        " session { run lane[0] (1); observe q = sum k in 4000 (queue(lane[k])); end; } run { }"
    )
    written = to_json(compile_program(source=text, horizon=5))
    assert to_json(from_json(written)) == written


def test_a_clause_after_a_block_ends_the_statement():
    """The semicolon after `cache (…)` and `lease P (t)` is optional, and what follows is no continuation."""
    source = (
        "fn main() {\n  pool p { cap 4; }\n  stage s : delay;\n  server {\n"
        "    hold p (cost(p, 1)) { run s (cost(s, 1)); } cache (cost(p, 1)) lease p (inf)\n"
        "    observe x = now;\n    release p;\n  }\n}\n"
    )
    assert format_source(source) == source


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "serving").rglob("*.sq")), ids=lambda path: path.name)
def test_examples_are_laid_out(path):
    assert format_source(path.read_text()) == path.read_text()


def test_an_expression_too_deep_to_run_is_refused():
    deep = "1"
    for _ in range(2000):
        deep = f"now < 1 ? 1 : {deep}"
    source = f"stage s : delay; workload {{ arrive batch(1); }} session {{ run s ({deep}); end; }} run {{ horizon 5; }}"
    with pytest.raises(SerqError, match="nested"):
        run(compile_program(source=source))


@pytest.mark.parametrize("inside", ["run s (5);", "end;", "hold p (1) { }", "branch (serial > 0) { set x = 1; }"])
@pytest.mark.parametrize("block", ["init", "turn"])
def test_init_and_turn_blocks_only_set_and_observe(block, inside):
    source = (
        "pool p { cap 4; } stage s : delay;\n"
        f"workload {{ arrive batch(2); {block} {{ {inside} }} }}\n"
        "session { turn; hold p (1) { run s (1); } end; } run { horizon 9; }"
    )
    with pytest.raises(SerqError) as refused:
        compile_program(source=source)
    assert (refused.value.kind, refused.value.line) == ("structure", 2)


def observed(source: str, workload: str, observe: str, horizon: float = 20) -> list[float]:
    """The samples of one observation."""
    return list(
        run(compile_program(source=source, workload_source=workload, horizon=horizon)).observes[observe].samples
    )


def test_a_tick_tries_everyone_who_waits():
    """At 1.5 the first takes 2 of 3 units, the second (2) does not fit, the third (1) does."""
    source = """fn main() { pool desk { cap 3; queue fifo every (1.5); } stage d : delay;
      server {
        run d (cost(d, serial / 4));
        hold desk (cost(desk, serial == 2 ? 1 : 2)) { observe at = now + serial / 10; run d (cost(d, 4)); }
      } }"""
    assert observed(source, "workload { arrive batch(3); }", "at") == [1.5, 1.7, 6.1]


def test_shrink_lowers_a_held_reservation_by_what_it_gives_back():
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


def test_a_reserve_that_can_never_fit_rejects_also_where_the_units_depend_on_the_moment():
    source = """fn main() { pool p { cap 10; } stage d : delay;
      server { hold p (cost(p, free(p) / 2)) reserve (cost(p, 11 + serial)) { run d (cost(d, 1)); } } }"""
    report = run(compile_program(source=source, workload_source="workload { arrive batch(2); }", horizon=9))
    pool = report.pool("p")
    assert pool is not None
    assert (pool.rejected, report.ended) == (2, 2)


@pytest.mark.parametrize(("horizon", "result", "first"), [(2.5, "not_evaluated", None), (9, "fails", 9)])
def test_what_holds_at_the_end_is_read_when_every_session_has_left(horizon, result, first):
    source = """fn main() { stage d : fifo; server { run d (cost(d, 1)); observe at = now; }
      claim two : at end (count(at) == 2); }"""
    report = run(compile_program(source=source, workload_source="workload { arrive batch(3); }", horizon=horizon))
    assert (report.claims[0].result, report.claims[0].first) == (result, first)


@pytest.mark.parametrize(
    ("pool", "hold"),
    [("cap 9.5; block 4", "4"), ("cap 8; block 0.5", "4"), ("cap 9.5", "4"), ("cap 9", "2.5")],
)
def test_pools_of_tokens_count_in_whole_tokens(pool, hold):
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
def test_the_place_an_error_points_to(source, line):
    with pytest.raises(SerqError) as refused:
        compile_program(source=source, workload_source=WORK, horizon=5)
    assert refused.value.line == line
