"""The coverage table is up to date, and nothing the RFC promises is without a citing test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rfc_coverage import citations, coverage_text, main, uncited

ROOT = Path(__file__).parents[2]


def test_the_table_is_what_the_generator_writes() -> None:
    written = (ROOT / "docs/rfc-coverage.md").read_text(encoding="utf-8")
    assert written == coverage_text(ROOT), "run: python tools/rfc_coverage.py"


def test_every_row_of_72_and_sentence_of_73_has_a_citing_test() -> None:
    assert uncited(ROOT) == []


def test_citations_are_read_from_docstrings_of_tests(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "sub"
    folder.mkdir(parents=True)
    (folder / "test_x.py").write_text(
        'def test_a():\n    """RFC 7.2 Elementwise: max dimension; RFC 7.3.4: no false hit."""\n'
        'def helper():\n    """RFC 7.3.5."""\n'
        'class TestIt:\n    def test_b(self):\n        """RFC 3.4.1 aten.add.Tensor: 2D."""\n'
        "def test_c():\n    pass\n"
    )
    found = {(c.file, c.test, c.section, c.subject) for c in citations(tmp_path / "tests")}
    assert {item for item in found if item[3]} == {
        ("tests/sub/test_x.py", "test_a", "7.2", "Elementwise"),
        ("tests/sub/test_x.py", "test_b", "3.4.1", "aten.add.Tensor"),
    }
    assert ("tests/sub/test_x.py", "test_a", "7.3.4", "") in found
    assert not any(item[2] == "7.3.5" for item in found)


def test_check_says_whether_it_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 2
    assert "usage" in capsys.readouterr().err
    (tmp_path / "docs/rfc").mkdir(parents=True)
    (tmp_path / "docs/rfc/phase2_en.md").write_bytes((ROOT / "docs/rfc/phase2_en.md").read_bytes())
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert len(uncited(tmp_path)) == 18, "eight rows and ten sentences, and no tests at all"


@pytest.mark.parametrize("arguments", [["--help"], ["--check", "more"]])
def test_unknown_arguments_are_refused(monkeypatch: pytest.MonkeyPatch, arguments: Any) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments) == 2
