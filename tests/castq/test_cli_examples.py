"""`castq examples`: what comes with castq, copied to a new folder, runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Castq = Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_list_is_what_the_repository_has(castq: Castq) -> None:
    files = json.loads(castq("examples", "--json").out)["files"]
    assert files == sorted(
        path.relative_to(EXAMPLES).as_posix()
        for path in EXAMPLES.rglob("*")
        if path.suffix in (".py", ".sq", ".csv", ".yaml")
    )
    assert "serving/chat.sq" in files


def test_copies_are_equal_and_run(castq: Castq, tmp_path: Path) -> None:
    ran = castq("examples", "--out", str(tmp_path / "mine"))
    assert (ran.code, ran.out) == (0, f"{len(castq('examples').out.split())} files in {tmp_path / 'mine'}\n")
    for name in castq("examples").out.split():
        assert (tmp_path / "mine" / name).read_bytes() == (EXAMPLES / name).read_bytes()
    assert castq("check", str(tmp_path / "mine" / "serving" / "chat.sq")).code == 0


def test_a_folder_that_exists_is_left_alone(castq: Castq, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("mine")
    ran = castq("examples", "--out", str(tmp_path))
    assert (ran.code, ran.err) == (2, f"castq: {tmp_path}: exists already; name a new folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]
