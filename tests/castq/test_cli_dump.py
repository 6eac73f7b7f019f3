"""`castq run --dump`: checked before the run, whole or not there, inside its folder; a report is never lost."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Two customers of three units of prefill share eight tokens an iteration of one unit: both are done at time 1.
PROGRAM = """stage e : step { budget 8; cost 1; }
workload { arrive batch(2); }
session { set came = now; run e prefill (3); observe NAME = now - came; end; }
gauge GAUGE = queue(e);
run { horizon 10; }
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path, "stay", "jobs")


def written(folder: Path, name: str, gauge: str) -> Path:
    path = folder / "p.sq"
    path.write_text(PROGRAM.replace("NAME", name).replace("GAUGE", gauge))
    return path


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_samples_and_iterations_of_one_name_are_kept_apart(castq: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = castq("run", str(written(tmp_path, "iterations", "jobs")), "--dump", str(out))
    assert ran.code == 0
    assert ran.err == f"castq: iterations goes to iterations-2.csv of {out}\n"
    assert [row["value"] for row in rows(out / "iterations-2.csv")] == ["1.0", "1.0"]
    assert [row["tokens"] for row in rows(out / "iterations.csv")] == ["3.0", "3.0"]


def test_a_long_name_is_cut(castq: Any, tmp_path: Path) -> None:
    out, name = tmp_path / "out", "n" * 300
    assert castq("run", str(written(tmp_path, name, "jobs")), "--dump", str(out)).code == 0
    assert len(rows(out / f"{'n' * 200}.csv")) == 2


@pytest.mark.parametrize("name", ["../victim", "/elsewhere/victim", "a\0b", "a/b", "a\nb", "", "\x1b[31m"])
def test_no_name_leads_out_of_the_folder(castq: Any, tmp_path: Path, program: Any, name: Any) -> None:
    compiled = json.loads(castq("ir", str(program)).out)
    compiled["observes"] = [name]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(compiled))
    before = sorted(tmp_path.rglob("*"))
    ran = castq("run", str(path), "--dump", str(tmp_path / "out"))
    assert (ran.code, ran.out) == (1, "")
    assert "Traceback" not in ran.err
    assert ran.err.replace("\n", "").isprintable()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link", "below a file"])
def test_a_place_that_cannot_be_is_noticed_before_the_run(
    castq: Any, tmp_path: Path, program: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    make: dict[str, Callable[[], None]] = {
        "folder": out.mkdir,
        "file": out.touch,
        "dangling link": lambda: out.symlink_to("nowhere"),
        "below a file": out.touch,
    }
    make[kind]()
    monkeypatch.setattr("serq.runner.run", lambda *_, **__: pytest.fail("the run has begun"))
    ran = castq("run", str(program), "--dump", str(out / "deeper" if kind == "below a file" else out))
    assert (ran.code, ran.out) == (1 if kind == "below a file" else 2, "")
    assert len(ran.err.splitlines()) == 1


def test_a_refused_dump_name_is_noticed_before_the_run(
    castq: Any, tmp_path: Path, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serq.report.dump.dump_names", lambda _: (_ for _ in ()).throw(OSError(2, "none", "there")))
    monkeypatch.setattr("serq.runner.run", lambda *_, **__: pytest.fail("the run has begun"))
    assert castq("run", str(program), "--dump", str(tmp_path / "out")).code == 2


def test_a_dump_that_fails_does_not_cost_the_report(
    castq: Any, tmp_path: Path, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    expected = castq("run", str(program)).out
    monkeypatch.setattr("os.fsync", full)
    ran = castq("run", str(program), "--dump", str(tmp_path / "out"))
    assert (ran.code, ran.out) == (1, expected)
    assert re.fullmatch(r"castq: .*out/.*\.csv: cannot be written: No space left on device\n", ran.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.sq"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_report_that_cannot_be_printed_does_not_cost_the_dump(tmp_path: Path, program: Any) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "castq", "run", str(program), "--dump", str(tmp_path / "out")]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert len(rows(tmp_path / "out" / "stay.csv")) == 2


def test_of_two_runs_into_one_folder_one_says_that_it_lost(
    castq: Any, tmp_path: Path, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serq import runner

    run, out = runner.run, tmp_path / "out"

    def meanwhile(*args: Any, **options: Any) -> object:
        out.mkdir()
        (out / "stay.csv").write_text("of the other run")
        return run(*args, **options)

    monkeypatch.setattr(runner, "run", meanwhile)
    ran = castq("run", str(program), "--dump", str(out))
    assert ran.code == 1
    assert ran.out.startswith("ended at"), "the report is there"
    assert ran.err == f"castq: {out}: cannot be written: another run has written it meanwhile\n"
    assert (out / "stay.csv").read_text() == "of the other run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "p.sq"]
