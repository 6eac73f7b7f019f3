"""Refused programs: the kind, the place and the help of every diagnostic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import conformance
from serq.compiler import compile as compile_program
from serq.errors import SerqError

REFUSED = Path(__file__).parent / "refused"
CASES = sorted(path.stem for path in REFUSED.glob("*.sq") if not path.name.endswith(".wl.sq"))


def refusal(text: str, workload: str | None = None, **given: Any) -> SerqError:
    with pytest.raises(SerqError) as caught:
        compile_program(source=text, workload_source=workload, **{"horizon": 10, **given})
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_refused(name: Any) -> None:
    workload = REFUSED / f"{name}.wl.sq"
    note = re.search(
        r"// refused: (\S+?)(?:, line (\d+))?(?:, code (\S+?))?(?:, mentions (.+))?$",
        (REFUSED / f"{name}.sq").read_text(),
    )
    assert note is not None
    with pytest.raises(SerqError) as caught:
        compile_program(REFUSED / f"{name}.sq", workload=workload if workload.exists() else None, horizon=10)
    error = caught.value
    assert error.kind == note[1]
    assert note[2] is None or error.line == int(note[2])
    assert error.code == note[3]
    for word in (note[4] or "").split():
        assert word in str(error)


def _compile_errors() -> list[str]:
    if not conformance.CORPUS.is_dir():
        return []
    found = [name for name in conformance.names() if name[0] in "xy"]
    return [name for name in found if conformance.expectation(name)["expect"]["phase"] == "compile"]


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", _compile_errors())
def test_the_corpus_is_refused(name: Any) -> None:
    case = conformance.expectation(name)
    expected = case["expect"]
    with pytest.raises(SerqError) as caught:
        conformance.compiled(case)
    error = caught.value
    assert error.kind == expected["kind"]
    assert error.code == expected.get("code")
    line = expected["where"]["line"]
    assert line is None or error.line == line
    for word in expected.get("mentions", ()):
        assert word in str(error)


def test_a_diagnostic_shows_the_line_a_caret_and_the_fix() -> None:
    error = refusal("stage desk : fifo;\nworkload { arrive batch(1); }\nsession { run dask (1); end; }\n")
    assert str(error) == (
        "deployment:3:15: error: no stage is called 'dask'\n"
        "3 | session { run dask (1); end; }\n"
        "  |               ^^^^\n"
        "help: did you mean 'desk'?"
    )


def test_independent_errors_come_together() -> None:
    text = "stage desk : fifo; workload { arrive batch(1); } session { run dask (1); set a = b; run desk (-1); end; }"
    error = refusal(text)
    assert [one.kind for one in error.errors] == ["name", "name", "value"]
    assert error.errors[0] is error


WORK = "workload { arrive batch(1); }"
SEED = [
    ("session { end; }", "structure"),
    (f"{WORK}", "structure"),
    (f"{WORK} session {{ end; }} session {{ end; }}", "structure"),
    (f"{WORK} stage s : fifo; stage s : fifo; session {{ end; }}", "structure"),
    (f"{WORK} let tokens = 1; session {{ end; }}", "structure"),
    (f"{WORK} let serial = 1; session {{ end; }}", "structure"),
    (f"{WORK} session {{ set serial = 1; end; }}", "structure"),
    (f"{WORK} let a = b; let b = 1; session {{ end; }}", "name"),
    (f"{WORK} def f(x) = f(x); session {{ end; }}", "call"),
    (f"{WORK} def f(x) = g(x); def g(x) = x; session {{ end; }}", "call"),
    (f"{WORK} def f(x) = x; session {{ set a = f(); end; }}", "call"),
    (f"{WORK} def f(x) = x + x; session {{ set a = f(~exp(1)); end; }}", "draw"),
    (f"{WORK} session {{ set a = ~normal(1); end; }}", "call"),
    (f"{WORK} session {{ set a = cost(s, 1); end; }}", "call"),
    (f"{WORK} session {{ request; end; }}", "structure"),
    (f"{WORK} pool p {{ cap 4; }} session {{ grow p (1); end; }}", "structure"),
    (f"{WORK} pool p {{ cap -1; }} session {{ end; }}", "value"),
    (f"{WORK} pool p {{ cap now; }} session {{ end; }}", "moment"),
    (f"{WORK} pool p {{ block 0; }} session {{ end; }}", "value"),
    (f"{WORK} stage s : fifo(1.5); session {{ end; }}", "value"),
    (f"{WORK} stage s : ps(serial); session {{ end; }}", "moment"),
    (f"{WORK} stage s : step {{ budget 4; }} session {{ end; }}", "structure"),
    (f"{WORK} stage s : step {{ budget 0; cost 1; }} session {{ end; }}", "value"),
    (f"{WORK} stage s : step {{ cost 1; }} session {{ run s (1); end; }}", "structure"),
    (f"{WORK} stage s : fifo; session {{ prefill on s 4; end; }}", "structure"),
    (f"{WORK} session {{ prefill 4; end; }}", "structure"),
    (f"{WORK} stage s[2] : fifo; session {{ run s (1); end; }}", "reference"),
    (f"{WORK} stage s : fifo; session {{ run s[1] (1); end; }}", "reference"),
    (f"{WORK} stage s : ps(1); stage t : ps(1); session {{ run s, t (1); end; }}", "structure"),
    (f"{WORK} gauge g = now; session {{ end; }}", "moment"),
    (f"{WORK} claim c : at end (count(x) > 1); session {{ end; }}", "name"),
    (f"{WORK} stage s : fifo; claim c : every iteration of s (1); session {{ end; }}", "structure"),
    (f"{WORK} session {{ branch (2) {{ }} end; }}", "guard"),
    (f"{WORK} pool p {{ cap 9; }} session {{ set a = free(p); hold p (a) {{ }} end; }}", "lint"),
    ("workload { arrive batch(0); } session { end; }", "value"),
    ("workload { arrive poisson(0); } session { end; }", "value"),
    ("workload { arrive batch(1); hidden h; } session { end; }", "name"),
]


@pytest.mark.parametrize(("text", "kind"), SEED)
def test_single_file_refusals(text: Any, kind: Any) -> None:
    assert refusal(text).kind == kind


ONE = "stage s : fifo;"
SPLIT = [
    (f"{ONE} server {{ run s (cost(s, turn_no)); }}", WORK, "signature"),
    (f"{ONE} server {{ run s (cost(s, 1)); }}", "workload { arrive batch(1); session { end; } }", "structure"),
    (f"{ONE} server {{ run s (cost(s, 1) + 1); }}", WORK, "cost"),
    (f"{ONE} server {{ run s (cost(s, 1) * cost(s, 2)); }}", WORK, "cost"),
    (f"{ONE} server {{ if (now > 1) {{ set c = cost(s, 1); }} run s (c); }}", WORK, "cost"),
    (f"{ONE} server {{ Size n = 1; run s (cost(s, 1)); }}", WORK, "cost"),
    (f"{ONE} server {{ mark m; run s (cost(s, 1)); }}", WORK, "structure"),
    (f"{ONE} server {{ turn; run s (cost(s, 1)); }}", WORK, "structure"),
    (f"{ONE} server {{ run s (cost(s, pow(1, 2))); }}", WORK, "call"),
    (f"{ONE} server {{ run s (cost(s, 1)); }}", "workload { arrive batch(1); send (x: 1); }", "signature"),
    (f"{ONE} server {{ run s (cost(s, 1)); }}", f"{WORK} {WORK}", "structure"),
    (f"{ONE} server {{ run s (cost(s, 1)); }}", "stage c : delay; workload { arrive batch(1); }", "structure"),
    (f"{ONE} server {{ run s (cost(s, 1)); run t (cost(t, 1)); }}", f"stage t : delay; {WORK}", "signature"),
    (f'{ONE} let a = args.number("a", 1); server {{ run s (cost(s, 1)); }}', WORK, "structure"),
    (f"{ONE} server (a) {{ run s (cost(s, a)); }}", "workload { turn { set a = 1; } send (a: a); }", "signature"),
    ("device d { a cap 1; b cap 2; } server { end; }", WORK, "structure"),
    ("pool p on d { } server { end; }", WORK, "name"),
    ("queue run : link { serve fifo; } server { end; }", WORK, "structure"),
    ("queue q : gateway { } server { end; }", WORK, "structure"),
    ("queue q : link { serve fifo; transfer (n) { run (cost(q, n)); } } server { q.route(); }", WORK, "name"),
]


@pytest.mark.parametrize(("items", "workload", "kind"), SPLIT)
def test_split_refusals(items: Any, workload: Any, kind: Any) -> None:
    assert refusal(f"fn main() {{ {items} }}", workload).kind == kind


@pytest.mark.parametrize(
    "given",
    [
        {"horizon": None},
        {"horizon": -1.0},
        {"horizon": float("inf")},
        {"warmup": 11},
        {"arrivals": 3},
        {"sets": {"nothing": 1}},
        {"defs": {"nothing": "1"}},
    ],
)
def test_settings(given: Any) -> None:
    text = f"{WORK} {ONE} session {{ run s (1); end; }} run {{ }}"
    assert refusal(text, **given).kind == "override"


def test_wrong_arguments_are_python_errors() -> None:
    with pytest.raises(TypeError):
        compile_program(source=WORK, horizon="10")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        compile_program(source=WORK, seed=2**64)


def test_nothing_given_and_a_workload_for_a_single_file() -> None:
    assert refusal(f"{WORK} session {{ end; }}", WORK).kind == "structure"
    with pytest.raises(SerqError):
        compile_program()


SMALL = "stage s : fifo; workload { arrive renewal(1); } session { run s (1); end; } let k = 2; run { horizon 9; }"


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"seed": -1}, "'seed' lies between 0 and 2\\^64 - 1 .* not at -1"),
        ({"seed": 2**64}, "'seed' lies between 0 and 2\\^64 - 1"),
        ({"arrivals": -1}, "'arrivals' lies between 1 and 2\\^64 - 1"),
        ({"arrivals": 0}, "'arrivals' lies between 1 and 2\\^64 - 1"),
        ({"arrivals": 2**64}, "'arrivals' lies between 1 and 2\\^64 - 1"),
    ],
)
def test_a_seed_or_number_of_arrivals_has_a_range(given: Any, allowed: Any) -> None:
    with pytest.raises(OverflowError, match=allowed):
        compile_program(source=SMALL, **given)


def test_a_seed_written_in_the_text_has_the_same_range() -> None:
    with pytest.raises(SerqError, match="'seed' is a whole number between 0 and"):
        compile_program(source=SMALL.replace("horizon 9;", "horizon 9; seed 2 ^ 64;"))


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3), np.uint8(3), np.float32(3), np.float64(3), "1 + 2"])
def test_numbers_of_other_libraries_are_numbers(number: Any) -> None:
    program = compile_program(source=SMALL.replace("run s (1)", "run s (k)"), sets={"k": number})
    assert program == compile_program(source=SMALL.replace("run s (1)", "run s (3)"))


def test_settings_of_other_libraries_are_numbers() -> None:
    given: dict[str, Any] = {"seed": np.int32(4), "horizon": np.int64(20), "warmup": np.float32(1.5)}
    program = compile_program(source=SMALL, **given, arrivals=cast(int, np.uint8(5)))
    assert (program.seed, program.horizon, program.warmup, program.arrivals) == (4, 20.0, 1.5, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sets": {"k": None}}, "the input 'k' is a number or the text of one, not None"),
        ({"sets": {"k": True}}, "the input 'k' is a number"),
        ({"sets": {"k": [1]}}, "the input 'k' is a number"),
        ({"defs": {"f": 3}}, "the definition 'f' is the text of an expression, not 3"),
        ({"seed": 1.5}, "'seed' is a whole number, not 1.5"),
        ({"horizon": "9"}, "'horizon' is a number, not '9'"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(given: Any, message: Any) -> None:
    with pytest.raises(TypeError, match=message):
        compile_program(source=SMALL, **given)


DEPLOYMENT = """fn main() {
  device chip { kv cap 40; flops (n) = n / 100; }
  engine llm on chip { seats cap 2; tokens cap 8;
    scheduler { advance running; admit waiting taking seats (1), kv (request.known); }
    worker { forward (1 + flops(batch.tokens)); } }
  pool seats on llm { }
  pool kv on chip { }
  stage s : fifo;
  server (n) { run s (cost(s, 1)); llm (n, 2); }
}"""
SENDS = "workload { arrive batch(1); turn { set n = 4; } send (n); }"


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("scheduler", "schedular"),
        ("worker", "wroker"),
        ("advance", "advence"),
        ("waiting", "waitng"),
        ("forward", "foward"),
        ("fifo", "fiffo"),
        ("seats (1)", "seat (1)"),
    ],
)
def test_a_misspelt_word_names_the_nearest(word: Any, written: Any) -> None:
    assert refusal(DEPLOYMENT.replace(word, written), SENDS).hint == f"did you mean {word.split()[0]!r}?"


@pytest.mark.parametrize(("word", "written"), [("arrive", "arive"), ("batch", "bach"), ("workload", "workoad")])
def test_a_misspelt_word_of_a_workload_names_the_nearest(word: Any, written: Any) -> None:
    assert refusal(DEPLOYMENT, SENDS.replace(word, written)).hint == f"did you mean {word!r}?"


def test_an_unknown_pool_in_taking_names_what_the_engine_takes() -> None:
    error = refusal(DEPLOYMENT.replace("seats (1)", "xyz (1)"), SENDS)
    assert (error.kind, error.line, error.hint) == ("name", 4, "'llm' takes seats, kv")


def test_what_is_missing_says_how_to_give_it() -> None:
    assert "--workload FILE" in str(refusal(DEPLOYMENT))
    assert "--horizon T" in str(refusal(DEPLOYMENT, SENDS, horizon=None))
    empty = refusal("")
    assert (empty.kind, empty.message) == ("structure", "the program is empty")


@pytest.mark.parametrize(("text", "line"), [("cost(s, 1)", 9), ("tokens cap 8", 3)])
def test_a_time_of_a_device_is_read_by_a_worker_only(text: Any, line: Any) -> None:
    changed = DEPLOYMENT.replace(text, text.replace("1", "flops(n)").replace("8", "flops(8)"))
    error = refusal(changed, SENDS)
    assert (error.kind, error.line) == ("moment", line)
    assert "only the 'worker' of an engine" in error.message
