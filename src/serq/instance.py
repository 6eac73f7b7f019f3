"""Instance files: the constants and settings of one case, kept apart from the program.

Source: docs/language.md, "Command line".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from serq.errors import SerqError, Source, fail
from serq.lowering.build import Build
from serq.lowering.declarations import Inputs, add_lets
from serq.lowering.settings import Settings, written_settings
from serq.syntax import tree
from serq.syntax.parse import parse_single_file

__all__ = ["Instance", "read_instance"]


@dataclass(frozen=True, slots=True)
class Instance:
    """Values of inputs by name, and the settings of the run that the file gives."""

    sets: dict[str, float]
    settings: Settings


def read_instance(path: str | Path) -> Instance:
    """An instance file holds `let`s and at most one `run { }`, and nothing else.

    Raises SerqError where it holds something else or a value is not constant, OSError where it cannot be read.
    """
    file = Path(path)
    try:
        items = parse_single_file(Source.of(file.name, file.read_text(encoding="utf-8-sig"))).items
    except UnicodeDecodeError:
        raise SerqError("syntax", "the file is not UTF-8 text", file=file.name) from None
    for item in items:
        if not isinstance(item, tree.LetDecl | tree.RunDecl):
            raise fail("structure", "an instance file holds only 'let' and one 'run { … }'", item.at)
    runs = [item for item in items if isinstance(item, tree.RunDecl)]
    if len(runs) > 1:
        raise fail("structure", "a second 'run'", runs[1].at)
    build = Build(single_file=True)
    add_lets(items, build, Inputs({}), "single")
    if build.errors:
        raise build.errors[0]
    settings = written_settings(runs[0] if runs else None, build, Settings())
    return Instance(dict(build.lets), settings)
