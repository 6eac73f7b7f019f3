"""Every citation can be opened: the documents, headings, sections and rows that code names are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TREES: Final = ("src", "tests", "tools", "bench", "examples")
SUFFIXES: Final = (".py", ".yaml", ".yml", ".toml", ".sq", ".seq")
OWN: Final = Path(__file__).resolve()

_GAP: Final = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:#[ \t]*)?)"
_NUMBERS: Final = r"\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
_DOCUMENT: Final = re.compile(
    rf'\bdocs/(?:[\w.-]+/)*[\w.-]+\.md(?P<heads>(?:,{_GAP}"[^"\n]+")*)(?:,{_GAP}sections?{_GAP}(?P<numbers>{_NUMBERS}))?'
)
_RFC: Final = re.compile(rf"\bRFC(?:'s)?,?{_GAP}(?:(?:tables?|sections?){_GAP})?(?P<numbers>{_NUMBERS})")
_DECISION: Final = re.compile(r"\b[Dd]ecisions? (?P<rows>0\d\d(?:\.\d+)?(?:(?:, | and | to )0\d\d(?:\.\d+)?)*)")
_LINK: Final = re.compile(r"\]\((?P<path>[^)#:]*)(?:#(?P<anchor>[^)]+))?\)")
_IETF: Final = 100
"""RFC numbers from here on are those of the internet, not sections of ours."""

FORBIDDEN: Final = tuple(
    map(
        re.compile,
        (
            r"\bfacts,?\s+sections?\b",
            r"\bfacts,\s+\d",
            r"\b[Rr]ulings?\s+\d",
            r"\b[Ss]pecification(?:'s)?,?\s+sections?\b",
            r"\bseed RFC\b",
        ),
    )
)
FORBIDDEN_IN_SOURCES: Final = (re.compile(r"\.\./shared\b"), re.compile(r"\bsections?\s+\d"))


@dataclass(frozen=True)
class Document:
    """What can be cited of a document: its headings, and their numbers where they have some."""

    headings: frozenset[str]
    sections: frozenset[str]
    rows: frozenset[str]
    anchors: frozenset[str]


@cache
def document(path: Path) -> Document | None:
    """The document, or None where there is none."""
    if not path.is_file():
        return None
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = [line.replace("`", "") for line in re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE)]
    numbered = {number.rstrip(".") for heading in headings for number in re.findall(r"^\d+(?:\.\d+)*\.?", heading)}
    rows = frozenset(re.findall(r"^\| (\d+) \|", text, re.MULTILINE))
    anchors = frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return Document(frozenset(headings), frozenset(numbered | _items(text)), rows, anchors)


def _items(text: str) -> set[str]:
    """Items of a numbered list count as sections of the section they stand in: 7.3.5."""
    found, section = set(), ""
    for line in text.splitlines():
        if heading := re.match(r"#{1,6} +(\d+(?:\.\d+)*)", line):
            section = heading[1]
        elif item := re.match(r"(\d+)\. ", line):
            found.add(f"{section}.{item[1]}")
    return found


def dead_citations(text: str, root: Path = ROOT) -> list[str]:
    """What a text cites and nobody can open."""
    return [*_dead_documents(text, root), *_dead_sections(text, root), *_dead_rows(text, root)]


def _dead_documents(text: str, root: Path) -> Iterator[str]:
    for cited in _DOCUMENT.finditer(text):
        name = re.match(r"docs/\S+?\.md", cited[0])
        assert name is not None
        found = document(root / name[0])
        if found is None:
            yield f"{name[0]} is not there"
            continue
        yield from (
            f"{name[0]} has no heading {head!r}"
            for head in re.findall(r'"([^"]+)"', cited["heads"])
            if head.replace("`", "") not in found.headings
        )
        yield from (
            f"{name[0]} has no section {number}"
            for number in re.findall(r"[\d.]*\d", cited["numbers"] or "")
            if number not in found.sections
        )


def _dead_sections(text: str, root: Path) -> Iterator[str]:
    rfc = document(root / "docs/rfc/phase2_en.md")
    assert rfc is not None
    for cited in _RFC.finditer(text):
        for number in re.findall(r"[\d.]*\d", cited["numbers"]):
            if number not in rfc.sections and not (number.isdigit() and int(number) >= _IETF):
                yield f"the RFC has no section {number}"


def _dead_rows(text: str, root: Path) -> Iterator[str]:
    for cited in _DECISION.finditer(text):
        for name in re.findall(r"0\d\d(?:\.\d+)?", cited["rows"]):
            number, _, row = name.partition(".")
            found = [document(path) for path in (root / "docs/decisions").glob(f"{number}-*.md")]
            if not found or found[0] is None:
                yield f"there is no decision {number}"
            elif row and row not in found[0].rows:
                yield f"decision {number} has no row {row}"


def unopenable(text: str, *, sources: bool) -> list[str]:
    """Forms that cite what does not ship, as they stand in the text."""
    patterns = (*FORBIDDEN, *FORBIDDEN_IN_SOURCES) if sources else FORBIDDEN
    return [found[0] for pattern in patterns for found in pattern.finditer(text)]


def _files(tree: str) -> list[Path]:
    return [path for path in sorted((ROOT / tree).rglob("*")) if path.suffix in SUFFIXES and path.resolve() != OWN]


@pytest.mark.parametrize("tree", TREES)
def test_what_code_cites_is_there(tree: str) -> None:
    files = _files(tree)
    assert files
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    dead = [f"{path.relative_to(ROOT)}: {what}" for path, text in texts.items() for what in dead_citations(text)]
    assert dead == []


@pytest.mark.parametrize("tree", TREES)
def test_nothing_cites_what_does_not_ship(tree: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in _files(tree)
        for text in unopenable(path.read_text(encoding="utf-8"), sources=tree == "src")
    ]
    assert found == []


def test_citations_are_found_at_all() -> None:
    """A pattern that matched nothing would let everything pass."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in _files("src"))
    headed = [found for found in _DOCUMENT.finditer(text) if found["heads"]]
    assert min(len(headed), len(_RFC.findall(text)), len(_DECISION.findall(text))) > 20


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Source: docs/facts/no-such-page.md.", "docs/facts/no-such-page.md is not there"),
        ('docs/facts/exact-lookup.md, "Padding", "Pudding".', "docs/facts/exact-lookup.md has no heading 'Pudding'"),
        ('docs/facts/exact-lookup.md,\n    "Pudding"', "docs/facts/exact-lookup.md has no heading 'Pudding'"),
        ('# docs/facts/exact-lookup.md,\n# "Pudding"', "docs/facts/exact-lookup.md has no heading 'Pudding'"),
        ("docs/rfc/phase2_en.md, section 4.5.1", "docs/rfc/phase2_en.md has no section 4.5.1"),
        ("RFC 4.4.2 and 4.9", "the RFC has no section 4.9"),
        ("RFC, section 11", "the RFC has no section 11"),
        ("RFC 7.3.11", "the RFC has no section 7.3.11"),
        ("the RFC's tables 3.4.1 and 3.4.3", "the RFC has no section 3.4.3"),
        ("decision 002.99", "decision 002 has no row 99"),
        ("decisions 002.5 and 099.1", "there is no decision 099"),
    ],
)
def test_a_made_up_citation_is_found(text: str, problem: str) -> None:
    assert dead_citations(text) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        'docs/facts/exact-lookup.md, "Padding"; RFC 4.4.2; decision 002.11.',
        'docs/language.md, "Growth, preemption, leases"',
        "docs/rfc/phase2_en.md, section 3.4.1",
        "RFC 7.3.10 and 8.4",
        "what RFC 8259 leaves to readers",
    ],
)
def test_a_good_citation_is_not(text: str) -> None:
    assert dead_citations(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "exact-lookup facts, section 9.3",
        "leaf-operator facts sections 1.4",
        "exact-lookup facts, 2.4",
        "Ruling 7",
        "rulings 5 to 9",
        "the specification's section 16.1",
        "Specification, sections 12.7",
        "seed RFC",
        "../shared/specs",
        "section 5.1 of the language",
    ],
)
def test_forms_that_nobody_can_open_are_found(text: str) -> None:
    assert unopenable(text, sources=True)


def test_links_between_documents_lead_somewhere() -> None:
    dead = []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for link in _LINK.finditer(re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8"))):
            target = (page.parent / link["path"]).resolve() if link["path"] else page
            found = document(target) if target.suffix == ".md" else None
            if not target.exists() or (link["anchor"] and found and link["anchor"] not in found.anchors):
                dead.append(f"{page.relative_to(ROOT)}: {link[0]}")
    assert dead == []
