"""Runs every oracle table of input shapes in a folder, or one file: `python tools/shape_tables.py FOLDER`.

Prints each difference and the name of each table that has no engine here, then `N of M`; exit 0 only if all are equal
and no table was left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from castq.shapes.refusals import ShapeError
from shape_cases import Engine, ascend, rbln, vllm

__all__ = ["ENGINES", "answer_of", "expected_of", "main", "tables_in"]

ENGINES: Mapping[str, Engine] = {**rbln.ENGINES, **ascend.ENGINES, **vllm.ENGINES}
SCHEMA = "input-shapes/1"


def tables_in(place: Path) -> Iterator[Mapping[str, Any]]:
    """The tables of a folder, or the one of a file, by name."""
    for path in sorted(place.glob("*.json")) if place.is_dir() else [place]:
        table = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(table, dict) and table.get("schema") == SCHEMA:
            yield table


def answer_of(engine: Engine, case: Mapping[str, Any]) -> object:
    """What castq says of a case: the value of its `out`, or the type and reason of a refusal."""
    try:
        return json.loads(json.dumps(engine(case["group"], case["in"])))
    except ShapeError as error:
        return {"type": error.raised, "reason": error.reason}


def expected_of(case: Mapping[str, Any]) -> object:
    """What the vendor's code said of it."""
    return {name: case["error"][name] for name in ("type", "reason")} if "error" in case else case["out"]


def main(arguments: list[str] | None = None) -> int:
    """Compares, prints, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path, help="a folder of tables, or one table")
    parser.add_argument("--limit", type=int, default=20, help="differences printed for each table (default 20)")
    options = parser.parse_args(arguments)
    equal = total = left_out = 0
    for table in tables_in(options.place):
        name, cases = table["table"], table["cases"]
        total += len(cases)
        engine = ENGINES.get(name)
        if engine is None:
            left_out += 1
            sys.stdout.write(f"{name}: no engine ({len(cases)} cases)\n")
            continue
        different = [(case, got) for case in cases if (got := answer_of(engine, case)) != expected_of(case)]
        equal += len(cases) - len(different)
        for case, got in different[: options.limit]:
            sys.stdout.write(f"{name} {case['id']}: expected {json.dumps(expected_of(case))}, got {json.dumps(got)}\n")
        sys.stdout.write(f"{name}: {len(cases) - len(different)} of {len(cases)}\n")
    sys.stdout.write(f"{equal} of {total}\n")
    return 0 if total and equal == total and not left_out else 1


if __name__ == "__main__":
    sys.exit(main())
