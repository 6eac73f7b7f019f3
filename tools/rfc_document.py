"""The RFC documents as structure: numbered headings, tables and lists, read from their Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Section", "Table", "code_spans", "read_document"]

_HEADING: Final = re.compile(r"(#+) (?:(\d+(?:\.\d+)*)\.? )?(.*)")
_ITEM: Final = re.compile(r"(?:\d+\.|-) (.*)")
_CODE: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Table:
    """A table's header and rows; cells without their surrounding blanks."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under one heading, up to the next one; `number` is empty for the title."""

    number: str
    level: int
    title: str
    tables: tuple[Table, ...]
    items: tuple[str, ...]
    code_blocks: tuple[str, ...]
    paragraphs: int


def code_spans(text: str) -> tuple[str, ...]:
    """What stands between backticks, in order."""
    return tuple(_CODE.findall(text))


def read_document(path: Path) -> dict[str, Section]:
    """The sections by number, in order; the title has the empty number."""
    lines = path.read_text(encoding="utf-8").splitlines()
    starts, fenced = [], False
    for i, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if not fenced and _HEADING.fullmatch(line):
            starts.append(i)
    bodies = (lines[start:end] for start, end in zip(starts, (*starts[1:], len(lines)), strict=True))
    return {section.number: section for section in map(_section, bodies)}


def _section(lines: list[str]) -> Section:
    found = _HEADING.fullmatch(lines[0])
    assert found is not None
    blocks = _blocks(lines[1:])
    return Section(
        found[2] or "",
        len(found[1]),
        found[3],
        tuple(_table(block) for block in blocks if block[0].startswith("|")),
        tuple(item[1] for block in blocks for line in block if (item := _ITEM.fullmatch(line))),
        tuple("\n".join(block[1:-1]) for block in blocks if block[0].startswith("```")),
        sum(not block[0].startswith(("|", "```")) and not _ITEM.fullmatch(block[0]) for block in blocks),
    )


def _blocks(lines: list[str]) -> list[list[str]]:
    """Runs of lines between blank ones; a fenced block is one run."""
    blocks: list[list[str]] = [[]]
    fenced = False
    for line in lines:
        fenced ^= line.startswith("```")
        if line or fenced:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _table(lines: list[str]) -> Table:
    header, _, *rows = (tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines)
    return Table(header, tuple(rows))
