"""YAML becomes plain values with line numbers, or an error that points at the line."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.errors import DataFileError
from tensor_cast.files.located_yaml import load_yaml, parse_yaml

PATH = Path("some.yaml")


def test_plain_values_are_what_yaml_says() -> None:
    text = "a: 1\nb: 1.5\nc: true\nd: ~\ne: text\nf: [1, two]\ng: {h: 2026-01-02}\n1: number\n"
    assert parse_yaml(text, PATH).value == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": "text",
        "f": [1, "two"],
        "g": {"h": datetime.date(2026, 1, 2)},
        1: "number",
    }


def test_standard_scalar_tags_and_aliases_are_plain() -> None:
    assert parse_yaml("a: !!str 1\nb: !!int '2'\nc: &x [1]\nd: *x\n", PATH).value == {
        "a": "1",
        "b": 2,
        "c": [1],
        "d": [1],
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_document_is_none(text: str) -> None:
    assert parse_yaml(text, PATH).value is None


def test_every_key_knows_its_line() -> None:
    located = parse_yaml("a:\n  b:\n    - x\n    - y: 1\n      z: 2\n", PATH)
    assert located.lines[("a",)] == 1
    assert located.lines[("a", "b")] == 2
    assert located.lines[("a", "b", 0)] == 3
    assert located.lines[("a", "b", 1, "z")] == 5


def test_an_error_points_at_the_deepest_known_key() -> None:
    located = parse_yaml("a:\n  b: 1\n", PATH)
    error = located.error(("a", "b", "c"), "is missing")
    assert (str(error), error.line) == ("some.yaml:2: a.b.c: is missing", 2)
    assert str(located.error(("z",), "is missing")) == "some.yaml:1: z: is missing"
    assert str(located.error((), "is wrong")) == "some.yaml:1: is wrong"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key 'a'"),
        ("a:\n  b: 1\n  b: 2\n", 3, "duplicate key 'b'"),
        ("a: {b: 1, b: 2}\n", 1, "duplicate key 'b'"),
        ("1: a\n1: b\n", 2, "duplicate key 1"),
        ("a: 1\nb: [1, 2\n", 3, "expected ',' or ']'"),
        ("a: *nowhere\n", 1, "found undefined alias 'nowhere'"),
        ("x: &x {a: 1}\nb:\n  <<: *x\n", 3, "tag 'tag:yaml.org,2002:merge' is not allowed"),
        ("a: !!float far\n", 1, "cannot read 'far' as float"),
        (f"a: {'1' * 5000}\n", 1, f"cannot read '{'1' * 60}' as int"),
    ],
)
def test_an_error_names_file_and_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DataFileError) as caught:
        parse_yaml(text, PATH)
    assert str(caught.value).startswith(f"some.yaml:{line}: {message}")
    assert caught.value.line == line


def test_control_characters_are_refused() -> None:
    with pytest.raises(DataFileError, match="special characters are not allowed") as caught:
        parse_yaml("a: \x01\n", PATH)
    assert caught.value.code == "yaml_syntax"


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None])
def test_what_cannot_be_read_is_named(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "some.yaml"
    make(path)
    with pytest.raises(DataFileError, match=r"some\.yaml: cannot be read: ") as caught:
        load_yaml(path)
    assert caught.value.code == "unreadable"


def test_objects_are_never_built(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = f"a: !!python/object/apply:pathlib.Path.mkdir\n  - !!python/object/apply:pathlib.Path ['{target}']\n"
    with pytest.raises(DataFileError) as caught:
        parse_yaml(text, PATH)
    assert (caught.value.code, caught.value.line) == ("yaml_tag", 1)
    assert not target.exists()
