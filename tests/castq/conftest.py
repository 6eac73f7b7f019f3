"""The program as a user runs it, and a demo database without noise, so that expected values are closed forms."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from castq.cli import main
from tensor_cast.demo import write_demo_database


@dataclass(frozen=True)
class Ran:
    """Exit code and both streams of one run."""

    code: int
    out: str
    err: str


Castq = Callable[..., Ran]


@pytest.fixture
def castq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Castq:
    """Runs `castq ARGS`, optionally with text on standard input."""

    def run(*args: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["castq", *args])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Ran(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a demo without noise."""
    return write_demo_database(tmp_path_factory.mktemp("castq") / "demo", noise=0.0).root
