"""Published request traces to trace files: one session a request, whose think time is the time of its arrival.

Two forms are read, told apart by their first line: the Azure LLM inference traces (CSV with the columns TIMESTAMP,
ContextTokens, GeneratedTokens) and the Mooncake traces (one JSON object a line with timestamp in milliseconds,
input_length, output_length).  Prefix identity (`hash_ids`) is not carried over.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path

from serq.errors import SerqError

__all__ = ["Request", "read_requests", "trace_text"]

Request = tuple[float, int, int]
"""Arrival in seconds, tokens of the prompt, tokens of the answer."""

_AZURE = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
_MOONCAKE = ("timestamp", "input_length", "output_length")


def read_requests(path: str | Path, limit: int | None = None) -> list[Request]:
    """The first `limit` requests of a published trace, with the first arrival at 0.

    Raises SerqError of kind `trace`, with the line, where the form is neither or a line is malformed; OSError where the
    file cannot be read.
    """
    file = Path(path)
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            found = list(islice(_requests(lines, file.name), limit))
    except UnicodeDecodeError:
        raise SerqError("trace", "the file is not UTF-8 text", file=file.name) from None
    if not found:
        raise SerqError("trace", "the file holds no requests", file=file.name)
    start = min(arrival for arrival, _, _ in found)
    return [(arrival - start, prompt, answer) for arrival, prompt, answer in found]


def trace_text(requests: Iterable[Request]) -> str:
    """A trace file: session, turn, new, out, think."""
    rows = (f"{i},1,{prompt},{answer},{arrival:.6f}" for i, (arrival, prompt, answer) in enumerate(requests, start=1))
    return "\n".join(["session,turn,new,out,think", *rows, ""])


def _requests(lines: Iterable[str], name: str) -> Iterator[Request]:
    reader = iter(lines)
    first = next(reader, "")
    if first.lstrip().startswith("{"):
        for number, line in enumerate(_again(first, reader), start=1):
            if line.strip():
                yield _mooncake(line, number, name)
        return
    head = first.strip().split(",")
    if head != _AZURE:
        wanted = f"a first line {','.join(_AZURE)}, or JSON lines with {', '.join(_MOONCAKE)}"
        raise SerqError("trace", f"unknown form: expected {wanted}", file=name, line=1, column=1)
    for number, row in enumerate(csv.reader(reader), start=2):
        if row:
            yield _azure(row, number, name)


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _azure(row: list[str], number: int, name: str) -> Request:
    if len(row) != len(_AZURE):
        raise SerqError("trace", f"a line has 3 fields, not {len(row)}", file=name, line=number, column=1)
    try:
        moment = datetime.fromisoformat(row[0][:26])
    except ValueError:
        raise SerqError("trace", f"{row[0]!r} is no time", file=name, line=number, column=1) from None
    return moment.timestamp(), _whole(row[1], number, 2, name), _whole(row[2], number, 3, name)


def _mooncake(line: str, number: int, name: str) -> Request:
    try:
        found = json.loads(line)
        arrival = float(found[_MOONCAKE[0]])
        prompt, answer = (str(found[key]) for key in _MOONCAKE[1:])
    except (ValueError, TypeError, KeyError) as error:
        raise SerqError("trace", f"no request with {', '.join(_MOONCAKE)}: {error}", file=name, line=number) from None
    if not math.isfinite(arrival):
        raise SerqError("trace", f"{arrival} is no time", file=name, line=number)
    return arrival / 1000, _whole(prompt, number, 2, name), _whole(answer, number, 3, name)


def _whole(text: str, number: int, column: int, name: str) -> int:
    if text.strip().isdecimal():
        return int(text)
    message = f"{text!r} is not a whole number of tokens"
    raise SerqError("trace", message, file=name, line=number, column=column)
