"""Definitions and entries are written out, up to a bound."""

from __future__ import annotations

from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.errors import SerqError
from serq.lowering.expansion import MOST_PARTS, MOST_USES
from serq.runner import run


def twice_each(first: str, other: str, count: int) -> str:
    """Definitions, each made of the one before."""
    return "\n".join([first, *(other.replace("THIS", f"f{i}").replace("LAST", f"f{i - 1}") for i in range(1, count))])


def refusal(definitions: str, use: str) -> SerqError:
    source = f"fn main() {{\n{definitions}\nstage s : fifo;\nserver {{ set a = 0;\n{use}\nrun s (cost(s, 1)); }} }}"
    with pytest.raises(SerqError) as refused:
        compile_program(source=source, workload_source="workload { arrive batch(1); }", horizon=1)
    return refused.value


@pytest.mark.parametrize(
    ("first", "other", "use", "column", "bound"),
    [
        ("def f0(x) { x + x }", "def THIS(x) { LAST(x) + LAST(x) }", "set a = f29(1 + serial);", 9, MOST_USES),
        ("def f0(x) { set a = x; }", "def THIS(x) { LAST(x); LAST(x); }", "f29(serial);", 1, MOST_USES),
        ("def f0(x) { x + 1 }", "def THIS(x) { LAST(x + x) }", "set a = f29(serial);", 9, MOST_PARTS),
        ("def f0(x) { set a = x; }", "def THIS(x) { LAST(x + x); }", "f29(serial);", 1, MOST_PARTS),
    ],
    ids=["values", "statements", "arguments of values", "arguments of statements"],
)
def test_what_doubles_thirty_times_is_refused(first: Any, other: Any, use: Any, column: Any, bound: Any) -> None:
    error = refusal(twice_each(first, other, 30), use)
    assert (error.kind, error.line, error.column) == ("value", 34, column)
    assert "'f29' expands to" in error.message
    assert f"more than {bound}" in error.message
    assert len(error.errors) == 1


def test_a_definition_used_on_its_own_result_is_refused_too() -> None:
    error = refusal("def f(x) { x + x }", "set a = " + "f(" * 30 + "serial" + ")" * 30 + ";")
    assert "'f' expands to" in error.message


def test_a_sum_of_many_definitions_is_not() -> None:
    """1 023 uses inside one, of 2^10 terms."""
    source = f"""fn main() {{ {twice_each("def f0(x) { x + x }", "def THIS(x) { LAST(x) + LAST(x) }", 10)}
      stage s : fifo; server {{ observe seen = f9(serial); run s (cost(s, 1)); }} }}"""
    program = compile_program(source=source, workload_source="workload { arrive batch(2); }", horizon=5)
    assert run(program).observes["seen"].samples == (0.0, 1024.0)


def test_entries_that_call_each_other_twice_are_refused() -> None:
    queues = ["queue q0 : link { serve fifo; transfer (n) { run q0 (cost(q0, n)); } }"]
    queues += [f"queue q{i} : gateway {{ route {{ q{i - 1}.VERB; q{i - 1}.VERB; }} }}" for i in range(1, 25)]
    queues = [text.replace("VERB", "transfer (1)" if i == 1 else "route ()") for i, text in enumerate(queues)]
    source = "fn main() {\n" + "\n".join(queues) + "\nserver (n) { q24.route (); } }"
    with pytest.raises(SerqError, match=r"'q24.route' expands to more than") as refused:
        compile_program(
            source=source,
            workload_source="workload { arrive batch(1); turn { set n = 1; } send (n); }",
            horizon=1,
        )
    assert refused.value.line == 27
