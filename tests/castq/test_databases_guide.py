"""The guide to databases: its example is carried out as written, and its tables name every key and column read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.performance_model.profiling_database.mapping import op_mapping, table_layout

GUIDE = Path(__file__).parents[2] / "docs" / "databases.md"
BLOCK = re.compile(r"<!-- (file: (?P<name>\S+)|run|console) -->\n```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)


@pytest.fixture
def guide() -> str:
    return GUIDE.read_text(encoding="utf-8")


def commands(text: str) -> list[tuple[list[str], str]]:
    """Each command of a console block and what it prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    lines = [part.partition("\n") for part in parts]
    return [(shlex.split(line), output) for line, _, output in lines]


def test_the_example_does_what_it_says(castq: Any, guide: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = 0
    for block in BLOCK.finditer(guide):
        if block["name"]:
            (tmp_path / block["name"]).parent.mkdir(exist_ok=True)
            (tmp_path / block["name"]).write_text(block["text"], encoding="utf-8")
        elif block["kind"] == "python":
            exec(compile(block["text"], str(GUIDE), "exec"), {})
        else:
            for command, output in commands(block["text"]):
                assert _words(castq(*command[1:]).out) == _words(output), command
                asked += 1
    assert asked == 8


def test_every_key_of_a_mapping_is_described(guide: Any) -> None:
    keys = {*op_mapping._TOP_TEXT, *op_mapping._ENTRY_FIELDS, *table_layout._FIELDS}
    keys |= {*op_mapping._TOP_MAPS} - {"interpolation_policy"}
    keys |= {*op_mapping._POLICY_FIELDS} - {"generic_compute", "shape_transform"}
    described = set(re.findall(r"`([a-z_]+)`", guide))
    assert sorted(keys - described) == []


def test_every_column_that_is_read_is_described(guide: Any) -> None:
    source = op_mapping.SHIPPED_MAPPINGS.parent
    files = list(source.rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    columns = set(re.findall(r'"(Runtime [a-z_]+|EP Size|API Path|message_bytes|num_devices|topology_tier)"', text))
    assert len(columns) >= 12
    assert sorted(column for column in columns if f"`{column}`" not in guide) == []


def _words(text: str) -> list[list[str]]:
    """Lines as words: a table is aligned on a terminal and has tabs in a pipe."""
    return [line.split() for line in text.splitlines()]
