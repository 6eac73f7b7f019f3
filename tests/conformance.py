"""Runs a program of the corpus and lists where its result departs from the expected one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serq.compiler import compile as compile_program
from serq.errors import RunError, SerqError
from serq.runner import run
from serq.sim.selection import Selection

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "conformance" / "serq"
LOOSE = {"itl_p50": 0.01, "itl_p99": 0.01}


def names(folder: Path = CORPUS, prefix: str = "") -> list[str]:
    return sorted(path.stem for path in folder.glob(f"{prefix}*.json"))


def expectation(name: str, folder: Path = CORPUS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def compiled(case: dict[str, Any], folder: Path = CORPUS) -> Any:
    files, settings = case["files"], case["settings"]
    workload = files.get("workload")
    return compile_program(
        folder / files["program"],
        workload=None if workload is None else folder / workload,
        **{key: settings[key] for key in ("sets", "defs", "seed", "horizon", "warmup", "arrivals") if key in settings},
    )


def differences(name: str, folder: Path = CORPUS) -> list[str]:
    """Every departure, as `path: expected, got`; empty when the program conforms."""
    case = expectation(name, folder)
    expect = case["expect"]
    if expect["status"] == "error":
        return _refusal(case, expect, folder)
    try:
        report = run(compiled(case, folder), iterations="iterations" in expect)
    except (SerqError, RunError) as error:
        return [f"refused: {error}"]
    found: list[str] = []
    got = report.to_json(samples=True)
    _compare(found, "report", expect["report"], {key: got[key] for key in expect["report"]})
    _named(found, "observes", expect.get("observes", {}), got["observes"])
    _named(found, "client", expect.get("client", {}), got["client"], loose_ci=True)
    _gauges(found, expect.get("gauges", {}), got["gauges"])
    for key in ("claims", "stages", "pools"):
        _compare(found, key, expect.get(key, []), got.get(key, []))
    if "iterations" in expect:
        _iterations(found, expect["iterations"], report.iterations)
    return found


def departures(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Where two reports differ by more than 1e-9, relative above 1."""
    found: list[str] = []
    _compare(found, "report", one, other)
    return found


def _refusal(case: dict[str, Any], expect: dict[str, Any], folder: Path) -> list[str]:
    try:
        program = compiled(case, folder)
    except SerqError as error:
        if expect["phase"] != "compile":
            return [f"phase: expected {expect['phase']}, refused when compiled: {error}"]
        line = (expect.get("where") or {}).get("line")
        problems = []
        if error.kind != expect["kind"]:
            problems.append(f"kind: expected {expect['kind']}, got {error.kind}: {error}")
        if line is not None and error.line != line:
            problems.append(f"line: expected {line}, got {error.line}: {error}")
        return problems
    try:
        run(program)
    except (RunError, SerqError) as error:
        kind = error.kind
        return [] if kind == expect["kind"] else [f"kind: expected {expect['kind']}, got {kind}: {error}"]
    return [f"expected {expect['kind']} ({expect['phase']}), but it ran"]


def _same(expected: Any, got: Any, tolerance: float = 1e-9) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool) or expected is None or got is None:
        return bool(expected == got)
    if isinstance(expected, int | float) and isinstance(got, int | float):
        if math.isinf(expected) or math.isinf(got):
            return bool(expected == got)
        return abs(expected - got) <= max(tolerance * max(1.0, abs(expected)), 0.0)
    return bool(expected == got)


def _compare(found: list[str], path: str, expected: Any, got: Any, tolerance: float = 1e-9) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            if not isinstance(got, dict) or key not in got:
                found.append(f"{path}.{key}: expected {value!r}, missing")
            else:
                _compare(found, f"{path}.{key}", value, got[key], LOOSE.get(key, tolerance))
    elif isinstance(expected, list):
        if not isinstance(got, list) or len(expected) != len(got):
            size = len(got) if isinstance(got, list) else None
            found.append(f"{path}: expected {len(expected)} items, got {size}: {expected!r:.200} {got!r:.200}")
        else:
            for i, (one, other) in enumerate(zip(expected, got, strict=True)):
                _compare(found, f"{path}[{i}]", one, other, tolerance)
    elif not _same(expected, got, tolerance):
        found.append(f"{path}: expected {expected!r}, got {got!r}")


def _named(found: list[str], path: str, expected: Any, got: Any, *, loose_ci: bool = False) -> None:
    for name, row in expected.items():
        if name not in got:
            found.append(f"{path}.{name}: missing")
            continue
        other = dict(got[name])
        other["turn_nos"] = other.pop("turns", None)
        wanted = dict(row)
        if loose_ci and "samples" in wanted and "times" in wanted:
            pairs = sorted(zip(wanted.pop("times"), wanted.pop("samples"), strict=True))
            mine = sorted(zip(other["times"], other["samples"], strict=True))
            _compare(found, f"{path}.{name}.samples", [list(p) for p in pairs], [list(p) for p in mine])
        if loose_ci and wanted.get("ci") is not None:
            _compare(found, f"{path}.{name}.ci", wanted.pop("ci"), other["ci"], 0.01)
        _compare(found, f"{path}.{name}", wanted, other)


def _gauges(found: list[str], expected: Any, got: Any) -> None:
    for name, row in expected.items():
        if name not in got:
            found.append(f"gauges.{name}: missing")
            continue
        other = dict(got[name])
        other["changes"] = [list(pair) for pair in zip(other["times"], other["values"], strict=True)]
        _compare(found, f"gauges.{name}", row, other)


def _iterations(found: list[str], expected: list[Any], got: Sequence[Selection]) -> None:
    """The first divergent iteration only."""
    for i, (start, grants) in enumerate(expected):
        if i >= len(got):
            found.append(f"iteration {i}: expected {grants} at {start}, but the run made {len(got)}")
            return
        time, mine = got[i].time, [[one.request, one.turn, one.phase[0], one.tokens] for one in got[i].requests]
        if abs(time - start) > 6e-5 or mine != grants:
            found.append(f"iteration {i}: expected {grants} at {start}, got {mine} at {time:.4f}")
            return
    if len(got) > len(expected):
        found.append(f"iterations: expected {len(expected)}, got {len(got)}")
