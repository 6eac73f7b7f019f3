"""docs/architecture.md names every room, and no room or file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def folders() -> set[str]:
    found = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("__init__.py")}
    return found | {"src/tensor_cast/performance_model/profiling_database/data"}


def test_every_room_is_on_the_map() -> None:
    assert set(re.findall(r"^\| `(src/[\w/]+)` \|", TEXT, flags=re.MULTILINE)) == folders()


def test_every_file_on_a_walk_exists() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", TEXT))
    assert len(named) > 15
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []
