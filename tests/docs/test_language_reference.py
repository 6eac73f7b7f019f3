"""The language reference names what the implementation knows, and its programs are what they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from castq.cli import app
from serq import SerqError, ir
from serq import compile as compile_program
from serq.ir.arithmetic import FUNCTIONS
from serq.ir.moments import CONTEXT_WORDS, MOMENTS, POOL_QUERIES, STAGE_QUERIES, Moment
from serq.ir.words import (
    AGGREGATES,
    BUILTINS,
    DISTRIBUTIONS,
    KEYWORDS,
    NO_DEFINITION,
    QUEUE_WORDS,
    RESERVED,
    RETIRED_NAMES,
    RETIRED_WORDS,
)
from serq.report.report import Report
from serq.report.rows import ClaimRow, GaugeRow, ObserveRow, OverCap, PoolRow, StageRow

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "serq"
PARSERS = ("engine", "expressions", "items", "seed", "split", "statements")
REFERENCE = ROOT / "docs" / "language.md"
TEXT = REFERENCE.read_text(encoding="utf-8")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n((?:<!-- .*? -->\n)*)", re.DOTALL | re.MULTILINE)
PROGRAMS = [(body, marks) for kind, body, marks in FENCE.findall(TEXT) if kind == "serq"]
PROSE = FENCE.sub("", TEXT)
CODE = " ".join([*re.findall(r"`([^`\n]+)`", PROSE.replace(r"\|", "|")), *(body for _, body, _ in FENCE.findall(TEXT))])
WORDS = set(re.findall(r"\w+", CODE))
"""Every word written as code: prose that happens to use it does not count."""


def missing(words: set[str] | frozenset[str]) -> list[str]:
    return sorted(words - WORDS)


def trees(pattern: str = "**/*.py") -> Iterator[ast.Module]:
    for path in sorted(SOURCES.glob(pattern)):
        yield ast.parse(path.read_text(encoding="utf-8"))


def strings(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def grammar_words() -> set[str]:
    """The words the parsers ask for: arguments of the cursor's methods, keys of the tables of readers, comparisons."""
    found: set[str] = set()
    for module in (tree for name in PARSERS for tree in trees(f"syntax/{name}.py")):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and called(node) in ("accept", "expect", "sees"):
                found.update(strings(node.args[:1] if called(node) == "expect" else node.args))
            elif isinstance(node, ast.Dict):
                found.update(strings([key for key in node.keys if key is not None]))
            elif isinstance(node, ast.Compare) and ast.unparse(node.left) in ("text", "word.text", "name.text"):
                found.update(strings(node.comparators))
            elif isinstance(node, ast.Assign) and re.fullmatch(r"_(ITEMS|ROLES|VERBS)", ast.unparse(node.targets[0])):
                found.update(strings([node.value]))
    return {word for word in found if word.isidentifier()}


def error_kinds() -> set[str]:
    found: set[str] = set()
    for module in trees():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and called(node) in ("fail", "SerqError", "RunError") and node.args:
                found.update(strings(node.args[:1]))
    return {kind for kind in found if re.fullmatch(r"[a-z]+(-[a-z]+)*", kind)}


def error_codes() -> set[str]:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.glob("**/*.py"))
    return set(re.findall(r'"(E-[a-z0-9-]+)"', text))


def section(title: str) -> str:
    """The text below a heading, up to the next of its rank or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, title
    return found.group(2)


def rows(text: str, columns: int) -> dict[str, list[str]]:
    """The table rows of a text that have so many columns, by their first cell."""
    lines = [line.strip("|").split(" |") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines if len(cells) == columns}


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "least"),
    [
        (frozenset(BUILTINS), 9),
        (RESERVED | QUEUE_WORDS | RETIRED_NAMES | NO_DEFINITION, 80),
        (frozenset(RETIRED_WORDS) | frozenset(RETIRED_WORDS.values()), 14),
        (frozenset(DISTRIBUTIONS), 6),
        (frozenset(FUNCTIONS), 8),
        (POOL_QUERIES | STAGE_QUERIES, 14),
        (CONTEXT_WORDS, 20),
        (frozenset(grammar_words()), 100),
    ],
    ids=["attributes", "reserved", "retired", "distributions", "functions", "queries", "context", "grammar"],
)
def test_words(words: frozenset[str], least: int) -> None:
    assert len(words) >= least
    assert missing(words) == []


def test_the_grammar_words_are_those_of_the_parsers() -> None:
    some = {"granule", "requeue", "maxmin", "nixl_pull", "bottleneck", "poisson", "branch", "gateway"}
    assert some <= grammar_words()


def test_reserved_words_are_listed_as_they_are() -> None:
    lists = [set(body.split()) for kind, body, _ in FENCE.findall(section("Names")) if kind == "text"]
    assert lists[0] == RESERVED
    assert lists[1] == QUEUE_WORDS
    assert lists[2] == KEYWORDS
    others = RESERVED | RETIRED_NAMES | set(FUNCTIONS) | set(DISTRIBUTIONS) | POOL_QUERIES | STAGE_QUERIES | AGGREGATES
    assert KEYWORDS | others | {"blocksize", "main"} == NO_DEFINITION


@pytest.mark.parametrize("name", sorted({word for moment in MOMENTS.values() for word in moment.dotted}))
def test_dotted_words(name: str) -> None:
    assert re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", CODE)


def test_functions_and_draws_have_a_row() -> None:
    table = " ".join(rows(section("Expressions"), 2)) + " ".join(rows(section("Expressions"), 3))
    assert [name for name in FUNCTIONS if f"`{name}(" not in table] == []
    assert [name for name in DISTRIBUTIONS if f"`~{name}(" not in table] == []
    assert [name for name in POOL_QUERIES | STAGE_QUERIES if f"`{name}(" not in table] == []


# --- moments ----------------------------------------------------------------------------------------------------------

MOMENT_ROWS = rows(section("What may be read where"), 6)
GROUPS = {
    "totals": frozenset({"decoders", "residents", "kv_decode", "kv_prefill"}),
    "batch": frozenset({"tokens", "prefilled", "attention", "decoders", "residents", "kv_decode", "kv_prefill"}),
}
ALL = POOL_QUERIES | STAGE_QUERIES
QUERIES = {
    "all": ALL,
    "shared": ALL - {"cachedin", "allocated", "work", "budget_left"},
    "counts": frozenset({"queue", "busy", "used", "free", "holders", "queued"}),
    "none": frozenset(),
}


def test_the_groups_are_defined_as_used_here() -> None:
    text = " ".join(section("What may be read where").split())
    for name, words in GROUPS.items():
        found = re.search(rf"\*\*{name}\*\*(?: are| is) `([^`]+)`", text)
        assert found, name
        assert set(found.group(1).split()) <= words, name
    for name, queries in QUERIES.items():
        found = re.search(rf"- \*\*{name}\*\*(.*?)(?= - \*\*| Two groups)", text)
        assert found, name
        named = set(re.findall(r"`(\w+)`", found.group(1)))
        assert named in (queries, ALL - queries), name


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=lambda moment: moment.name)
def test_moment(moment: Moment) -> None:
    words, attributes, queries, now, draws = MOMENT_ROWS[moment.name]
    read = set(" ".join(re.findall(r"`([^`]+)`", words)).split())
    for name, group in GROUPS.items():
        read |= group if re.search(rf"(?<!\w){name}(?!\w)", re.sub(r"`[^`]*`", "", words)) else set()
    assert read == moment.words
    known = QUERIES[queries.split(" + ")[0]] | set(re.findall(r"`(\w+)`", queries))
    assert known == moment.queries
    assert (attributes != "no") == moment.attributes
    assert ("hidden" in attributes) == moment.hidden
    assert (now, draws) == ("yes" if moment.now else "no", "yes" if moment.draws else "no")


# --- errors, report, interchange form, command line -------------------------------------------------------------------


def test_error_kinds() -> None:
    kinds = error_kinds()
    assert {"syntax", "whole", "run-drain", "interchange", "trace"} <= kinds
    text = section("Errors")
    assert sorted(kind for kind in kinds if f"`{kind}`" not in text) == []


def test_error_codes_are_those_of_the_sources() -> None:
    known = error_codes()
    assert len(known) >= 19
    assert set(re.findall(r"`(E-[a-z0-9-]+)`", section("Errors"))) == known


@pytest.mark.parametrize("kind", [Report, ObserveRow, GaugeRow, ClaimRow, StageRow, PoolRow, OverCap])
def test_report_fields(kind: Any) -> None:
    text = section("The report")
    assert [field.name for field in fields(kind) if f"`{field.name}`" not in text] == []


def test_the_interchange_form() -> None:
    text = section("Interchange form")
    assert f"version {ir.IR_VERSION};" in text
    nodes = {name for name in ir.__all__ if isinstance(getattr(ir, name), type)} - {"IR_VERSION"}
    listed = set(" ".join(re.findall(r"`([A-Z]\w*(?: [A-Z]\w*)*)`", text)).split())
    assert listed == nodes | {"Fold"}


@pytest.mark.parametrize("command", ["run", "check", "ir", "fmt", "draw"])
def test_command_line(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"]).output
    options = set(re.findall(r"^\s+(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
    assert options, shown
    text = section("Command line")
    assert f"`castq {command} " in text
    assert sorted(option for option in options if not re.search(rf"`{option}[ `]", text)) == []


# --- programs and links -----------------------------------------------------------------------------------------------


def is_workload(marks: str) -> bool:
    return "<!-- workload of the program above -->" in marks


def programs() -> Iterator[tuple[str, str | None, str | None]]:
    """Each program with its workload, and the kind of the error it is meant to meet."""
    for (body, marks), (after, after_marks) in zip(PROGRAMS, [*PROGRAMS[1:], ("", "")], strict=True):
        if not is_workload(marks):
            refused = re.search(r"<!-- refused: (\S+) -->", marks)
            yield body, after if is_workload(after_marks) else None, refused.group(1) if refused else None


@pytest.mark.parametrize(("program", "workload", "kind"), list(programs()))
def test_program(program: str, workload: str | None, kind: str | None) -> None:
    if kind is None:
        compile_program(source=program, workload_source=workload, to_run=False)
        return
    with pytest.raises(SerqError) as refusal:
        compile_program(source=program, workload_source=workload, to_run=False)
    assert refusal.value.kind == kind


def test_the_reference_has_its_programs() -> None:
    kinds = [kind for _, _, kind in programs()]
    assert len(kinds) >= 7
    assert {"syntax", "hidden", "lint", "progress"} <= set(kinds)
    assert sum(1 for _, workload, _ in programs() if workload) >= 1


def anchors() -> set[str]:
    """The anchors of the headings, as the usual renderers make them; a second heading of one name gets a number."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", TEXT), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(plain if plain not in found else f"{plain}-{found.count(plain)}")
    return set(found)


def links() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    found = [("language.md", anchor) for anchor in re.findall(r"\]\(#([^)]+)\)", TEXT)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found += [(page.name, anchor) for anchor in re.findall(r"\]\([^)#\s]*language\.md#([^)]+)\)", text)]
    return found


@pytest.mark.parametrize(("page", "anchor"), links())
def test_link(page: str, anchor: str) -> None:
    assert anchor in anchors(), page


def test_there_are_links() -> None:
    assert len(links()) >= 15


def test_no_line_is_longer_than_120() -> None:
    assert [number for number, line in enumerate(TEXT.splitlines(), start=1) if len(line) > 120] == []
