"""The one layout of programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serq.syntax.fmt import format_source

ROOT = Path(__file__).parents[2]


def test_a_clause_after_a_block_ends_the_statement() -> None:
    """The semicolon after `cache (…)` and `lease P (t)` is optional, and what follows is no continuation."""
    source = (
        "fn main() {\n  pool p { cap 4; }\n  stage s : delay;\n  server {\n"
        "    hold p (cost(p, 1)) { run s (cost(s, 1)); } cache (cost(p, 1)) lease p (inf)\n"
        "    observe x = now;\n    release p;\n  }\n}\n"
    )
    assert format_source(source) == source


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "serving").rglob("*.sq")), ids=lambda path: path.name)
def test_examples_are_laid_out(path: Any) -> None:
    assert format_source(path.read_text()) == path.read_text()
