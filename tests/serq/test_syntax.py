"""Tokens, expressions and statements: what is read, and where reading stops."""

from __future__ import annotations

from typing import Any

import pytest

from serq.errors import SerqError, Source
from serq.syntax import tree
from serq.syntax.fmt import format_source
from serq.syntax.parse import is_deployment, parse_deployment, parse_expression, parse_single_file, parse_workload
from serq.syntax.tokens import tokenize


def source(text: str) -> Source:
    return Source.of("text", text)


def shown(expr: tree.Expression) -> str:
    """The tree with every operation in parentheses."""
    match expr:
        case tree.Number():
            return f"{expr.value:g}"
        case tree.Path():
            return expr.text
        case tree.BinaryOp():
            return f"({shown(expr.left)} {expr.op} {shown(expr.right)})"
        case tree.UnaryOp():
            return f"({expr.op}{shown(expr.operand)})"
        case tree.Conditional():
            return f"({shown(expr.test)} ? {shown(expr.then)} : {shown(expr.otherwise)})"
        case tree.CallExpr() | tree.Draw():
            return f"{expr.name}({', '.join(map(shown, expr.args))})"
        case tree.Aggregate():
            return f"{expr.op} {expr.var} in {shown(expr.count)} {shown(expr.body)}"
    raise AssertionError(expr)


@pytest.mark.parametrize(
    ("text", "tree_text"),
    [
        ("-2 ^ 2", "(-(2 ^ 2))"),
        ("2 ^ -1", "(2 ^ (-1))"),
        ("2 ^ 3 ^ 2", "(2 ^ (3 ^ 2))"),
        ("7 - 3 - 2", "((7 - 3) - 2)"),
        ("1 + 2 * 3 < 4 && !a || b", "((((1 + (2 * 3)) < 4) && (!a)) || b)"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("max j in 3 (queue(lane[j]))", "max j in 3 queue(lane)"),
        ("sum k in (n + 1) (k)", "sum k in (n + 1) k"),
        ("max(1, 2)", "max(1, 2)"),
        ("~exp(2) + running.count", "(exp(2) + running.count)"),
    ],
)
def test_precedence(text: Any, tree_text: Any) -> None:
    assert shown(parse_expression(source(text))) == tree_text


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("1E+3", 1000.0), ("2.5e-2", 0.025), ("1_000", 1000.0)],
)
def test_numbers(text: Any, value: Any) -> None:
    expr = parse_expression(source(text))
    assert isinstance(expr, tree.Number)
    assert expr.value == value


def test_a_number_too_large_is_infinity() -> None:
    expr = parse_expression(source("1e999"))
    assert isinstance(expr, tree.Number)
    assert expr.value == float("inf")


@pytest.mark.parametrize(
    ("text", "column", "mention"),
    [
        ("1 < 2 < 3", 7, "chain"),
        ("1..2", 1, "malformed number"),
        ("0x10", 1, "malformed number"),
        ("1 +", 4, "expected an expression"),
        ("max(1, )", 8, "expected an expression"),
        ("a @ b", 3, "unexpected character"),
        ("(1", 3, "expected ')'"),
        ('"open', 1, "never closed"),
        ("1 /* open", 3, "never closed"),
    ],
)
def test_malformed_expressions(text: Any, column: Any, mention: Any) -> None:
    with pytest.raises(SerqError) as caught:
        parse_expression(source(text))
    assert caught.value.kind == "syntax"
    assert caught.value.column == column
    assert mention in str(caught.value)


def test_comments_do_not_nest() -> None:
    tokens, comments = tokenize(source("1 /* a /* b */ + 2 // c\n"))
    assert [token.text for token in tokens] == ["1", "+", "2", ""]
    assert [comment.text for comment in comments] == ["/* a /* b */", "// c"]


def test_letters_of_any_script_and_crlf() -> None:
    tokens, _ = tokenize(source("größe = 1;\r\n  länge"))
    assert [token.text for token in tokens] == ["größe", "=", "1", ";", "länge", ""]
    assert (tokens[4].at.line, tokens[4].at.column) == (2, 3)


@pytest.mark.parametrize("text", ["(" * 500 + "1" + ")" * 500, "-" * 900 + "1", "1 ? " * 400 + "1" + " : 2" * 400])
def test_deep_nesting_is_an_error_of_the_program(text: Any) -> None:
    with pytest.raises(SerqError) as caught:
        parse_expression(source(text))
    assert caught.value.kind == "syntax"


def test_keywords_are_contextual() -> None:
    program = parse_single_file(
        source("stage order : fifo; pool queue { cap 1; } session { run order (1); set link = 2; }")
    )
    stage, pool, session = program.items
    assert isinstance(stage, tree.StageDecl)
    assert isinstance(pool, tree.PoolDecl)
    assert isinstance(session, tree.SessionDecl)
    assert (stage.name, pool.name, len(session.body)) == ("order", "queue", 2)


def test_both_spellings_of_a_definition() -> None:
    program = parse_single_file(source("def f(x) = 2 * x; def g(x) { 2 * x } def h(x) { set a = x; } def e() { }"))
    shapes = [(item.name, item.value is not None, len(item.body)) for item in program.items]  # type: ignore[union-attr]
    assert shapes == [("f", True, 0), ("g", True, 0), ("h", False, 1), ("e", False, 0)]


def test_the_edition_is_in_the_text() -> None:
    assert is_deployment(source("fn main() { }"))
    assert not is_deployment(source("// fn main\nstage fn : fifo;"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fn main() { server { branch (1) { } } }", "write 'if (test)"),
        ("fn main() { def f(x) = x; }", "write 'def f(x) {"),
        ("fn main() { stage s : ps(n in n); }", "write 'ps(e)'"),
        ("fn main() { server { enter p (1) { } } }", "write 'hold POOL"),
        ("fn main() { server { hold p (1) { } keep (1); } }", "write 'cache (units)'"),
        ("fn main() { engine e on d { schedule { } } }", "write 'scheduler"),
    ],
)
def test_retired_spellings_name_their_replacement(text: Any, hint: Any) -> None:
    with pytest.raises(SerqError) as caught:
        parse_deployment(source(text))
    assert caught.value.kind == "syntax"
    assert hint in str(caught.value)


def test_the_other_edition_is_named() -> None:
    with pytest.raises(SerqError, match="single-file edition writes 'branch"):
        parse_single_file(source("session { if (1) { } }"))


def test_no_empty_statement_and_no_trailing_comma() -> None:
    for text in ("session { ; }", "session { set a = 1;; }", "workload { hidden a, ; }"):
        with pytest.raises(SerqError) as caught:
            parse_single_file(source(text))
        assert caught.value.kind == "syntax"


def test_a_hold_may_end_with_a_semicolon_or_not() -> None:
    for end in ("", ";"):
        parse_single_file(source("session { hold p (1) { } cache (1)" + end + " end; }"))


def test_an_empty_server_list_is_an_error() -> None:
    with pytest.raises(SerqError) as caught:
        parse_deployment(source("fn main() { server () { } }"))
    assert caught.value.column == 21


def test_workload_file() -> None:
    file = parse_workload(source('let n = 2; workload { arrive batch(n); send (a, b: 2); trace "t.csv" ordered; }'))
    assert [type(item).__name__ for item in file.items] == ["LetDecl", "WorkloadDecl"]


LAID_OUT = """\
// a counter
stage desk : fifo;
session {
  set a = -1 + max(2, 3) * b; // kept
  hold kv (1), m (a)
    at admission (x = 1,
      y = !a) {
    run desk (1);
  } cache (2)
}
"""


def test_formatting() -> None:
    loose = LAID_OUT.replace("  ", "\t").replace(" + ", "+").replace(" // kept", "//kept".replace("//k", "// k"))
    once = format_source(loose)
    assert once == LAID_OUT.replace("; // kept", ";  // kept")
    assert format_source(once) == once


def test_formatting_keeps_one_blank_line_and_refuses_broken_text() -> None:
    assert format_source("let a = 1;\n\n\n\nlet b = 2;\n") == "let a = 1;\n\nlet b = 2;\n"
    with pytest.raises(SerqError):
        format_source("let a = ;")
