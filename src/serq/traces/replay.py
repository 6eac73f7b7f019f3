"""Trace files: the turns a workload replays, one line each.  Source: docs/language.md, "Workload"."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

from serq import ir
from serq.errors import SerqError

__all__ = ["Row", "read_trace", "with_trace"]

Row = tuple[float, float, float, float]
_COLUMNS = ("session", "turn", "new", "out", "think", "forced")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def read_trace(path: str | Path) -> tuple[tuple[Row, ...], ...]:
    """The sessions of a trace file, each its turns as `(new, out, think, forced)`.

    Raises `SerqError` of kind `trace` with the line, and as column the number of the field, when the file is missing or
    a line is malformed.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SerqError("trace", f"the trace {file.name!r} is not UTF-8 text", file=file.name) from error
    except (OSError, ValueError) as error:  # a ValueError for a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise SerqError("trace", f"the trace {file.name!r} cannot be read: {reason}", file=file.name) from error
    sessions: list[list[Row]] = []
    last: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith(("session", "#")):
            continue
        session, row = _row(line, number, file.name)
        if session != last:
            sessions.append([])
            last = session
        sessions[-1].append(row)
    if not sessions:
        raise SerqError("trace", f"the trace {file.name!r} holds no turns", file=file.name)
    return tuple(tuple(session) for session in sessions)


def _row(line: str, number: int, name: str) -> tuple[str, Row]:
    fields = [field.strip() for field in line.split(",")]
    if not 5 <= len(fields) <= 6:
        message = f"a line of {name!r} has 5 or 6 fields ({', '.join(_COLUMNS)}), not {len(fields)}"
        raise SerqError("trace", message, file=name, line=number, column=min(len(fields), 6))
    values = [_value(fields, column, number, name) for column in range(2, len(fields))]
    forced = values[3] if len(values) > 3 else 0.0
    return fields[0], (values[0], values[1], values[2], forced)


def _value(fields: list[str], column: int, number: int, name: str) -> float:
    text, what = fields[column], _COLUMNS[column]
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    whole = column > 3 or (value % 1 == 0 and value >= 0)
    if math.isfinite(value) and whole:
        return value
    wanted = "a whole number" if column <= 3 else "a number"
    message = f"{text!r} in the column {what!r} of {name!r} is not {wanted}"
    raise SerqError("trace", message, file=name, line=number, column=column + 1)


def with_trace(program: ir.Program) -> ir.Program:
    """The program with the rows of its trace.

    A trace the program names is read relative to the folder it stands in, and nowhere else; one that the caller gave
    (its `folder` is empty) is read wherever it lies.
    """
    trace = program.trace
    if trace is None or trace.sessions is not None:
        return program
    path = Path(trace.path)
    if trace.folder:
        folder = Path(trace.folder).resolve()
        path = _resolved(folder / path)
        if not path.is_relative_to(folder):
            raise SerqError("trace", f"the trace {trace.path!r} lies outside the program's folder", file=path.name)
    return replace(program, trace=replace(trace, sessions=read_trace(path)))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError) as error:  # links in a circle, a NUL in the name
        raise SerqError("trace", f"the trace {path.name!r} cannot be read: {error}") from error
