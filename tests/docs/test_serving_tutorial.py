"""Every program of the tutorial runs, and gives the figures the text quotes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.runner import run

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"```serq\n(.*?)```\n((?:<!-- .*? -->\n)*)", re.DOTALL)
FIGURE = re.compile(r"<!-- (\S+) (=|>) (\S+?)(?: within (\S+))? -->")


def found(document: Any, path: str) -> Any:
    if path.startswith("claims."):
        return next(row["result"] for row in document["claims"] if row["name"] == path.removeprefix("claims."))
    for name in path.split("."):
        document = document[name]
    return document


@pytest.mark.parametrize(("program", "figures"), PROGRAM.findall(TEXT))
def test_program(program: Any, figures: Any) -> None:
    quoted = FIGURE.findall(figures)
    assert quoted, "a program of the tutorial quotes at least one figure"
    document = run(compile_program(source=program)).to_json()
    for path, relation, value, margin in quoted:
        got = found(document, path)
        if relation == ">":
            assert got > float(value), path
        elif isinstance(got, str):
            assert got == value, path
        else:
            assert got == pytest.approx(float(value), abs=found(document, margin) if margin else 1e-9), path


def test_the_tutorial_has_its_programs() -> None:
    assert len(PROGRAM.findall(TEXT)) == 7
