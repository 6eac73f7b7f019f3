"""Published request traces to trace files: one session a request, whose think time is the time of its arrival.

Two forms are read, told apart by their first line: CSV with a head line (the Azure LLM inference traces, and others
whose columns have one of the names below) and JSON lines (the Mooncake traces, and others with such keys).  What a
session of one turn cannot hold, such as the identity of prefixes, is left out, and a note says so.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from serq.errors import SerqError
from serq.json_text import strict_json

__all__ = ["Imported", "Request", "read_requests", "trace_text"]

Request = tuple[float, int, int]
"""Arrival in seconds, tokens of the prompt, tokens of the answer."""

_ROLES: Final[Mapping[str, Sequence[str]]] = {
    "time": ("timestamp", "arrival_time"),
    "prompt": ("contexttokens", "input_length", "input_tokens", "prompt_tokens", "request tokens"),
    "answer": ("generatedtokens", "output_length", "output_tokens", "completion_tokens", "response tokens"),
}
_WANTED: Final = (
    "a first line TIMESTAMP,ContextTokens,GeneratedTokens (or columns such as timestamp, input_tokens, output_tokens), "
    "or JSON lines with timestamp, input_length, output_length"
)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_SECONDS: Final = {"s": Decimal(1), "ms": Decimal("0.001")}
_LARGEST: Final = 2**53
_BLOCKS: Final = "hash_ids"
_LOST: Final = {
    _BLOCKS: "prompts share no prefix when replayed",
    "session_id": "each request is replayed as a session of its own",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """Requests in the order of their arrival, the first at 0, and what was changed or left out, a sentence each."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """One request as it is written: its line, name, place and text of each role, and the fields beside them."""

    number: int
    names: Mapping[str, str]
    columns: Mapping[str, int]
    values: Mapping[str, str]
    extra: Mapping[str, Any]


def read_requests(
    text: str, name: str, limit: int | None = None, *, unit: str | None = None, block_size: int = 512
) -> Imported:
    """The first `limit` requests of a published trace that messages call `name`.

    `unit` (`s` or `ms`) is that of numeric times: without it seconds in CSV and milliseconds in JSON lines, as the
    traces are published.  Dates without a time zone are UTC.  `block_size` is the number of tokens that one of the
    `hash_ids` stands for.  Raises SerqError of kind `trace` with the line and the field for an unknown form, a request
    without tokens, a value that is none, times of different kinds, and blocks that contradict the length of the prompt.
    """
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    is_json = next((line for line in lines if line.strip()), "").lstrip().startswith("{")
    reader = _Reader(name, _SECONDS[unit or ("ms" if is_json else "s")], block_size)
    for line in islice(_json_lines(lines, name) if is_json else _csv_lines(lines, name), limit):
        reader.take(line)
    if not reader.requests:
        raise SerqError("trace", "the file holds no requests", file=name)
    notes = list(reader.notes())
    if unit is None and not reader.dated and _BLOCKS not in reader.left_out:
        notes.append(f"times are taken as {'milliseconds' if is_json else 'seconds'}; --time-unit says otherwise")
    ordered = sorted(reader.requests, key=lambda request: request[0])
    start = ordered[0][0]
    return Imported(tuple((float(moment - start), prompt, answer) for moment, prompt, answer in ordered), tuple(notes))


def trace_text(requests: Iterable[Request]) -> str:
    """A trace file: session, turn, new, out, think."""
    rows = (f"{i},1,{prompt},{answer},{arrival:.6f}" for i, (arrival, prompt, answer) in enumerate(requests, start=1))
    return "\n".join(["session,turn,new,out,think", *rows, ""])


def _csv_lines(lines: Sequence[str], name: str) -> Iterator[_Line]:
    reader = csv.reader(lines)
    try:
        head = [field.strip() for field in next(reader, [])]
        names = _names(head, name, 1)
        for row in reader:
            if not row:
                continue
            if len(row) != len(head):
                message = f"a line has {len(head)} fields, not {len(row)}"
                raise SerqError("trace", message, file=name, line=reader.line_num, column=1)
            fields = dict(zip(head, row, strict=True))
            yield _line(reader.line_num, names, fields)
    except csv.Error as error:
        raise SerqError("trace", f"no CSV: {error}", file=name, line=reader.line_num) from None


def _json_lines(lines: Sequence[str], name: str) -> Iterator[_Line]:
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            fields = strict_json(text)
        except ValueError as error:
            message = f"no request as JSON on one line: {error}"
            raise SerqError("trace", message, file=name, line=number) from None
        if not isinstance(fields, dict):
            raise SerqError("trace", "no request: expected a JSON object", file=name, line=number)
        yield _line(number, _names(fields, name, number), fields)


def _names(fields: Iterable[str], name: str, line: int) -> dict[str, str]:
    """What this file calls time, prompt and answer."""
    found: dict[str, str] = {}
    for field in fields:
        role = next((role for role, names in _ROLES.items() if field.lower() in names), None)
        if role is not None and role in found:
            message = f"{found[role]} and {field} both say the {role}"
            raise SerqError("trace", message, file=name, line=line)
        if role is not None:
            found[role] = field
    missing = [role for role in _ROLES if role not in found]
    if missing:
        lacks = ", ".join(f"{role} ({' or '.join(_ROLES[role])})" for role in missing)
        raise SerqError("trace", f"unknown form: no {lacks}; expected {_WANTED}", file=name, line=line)
    return found


def _line(number: int, names: Mapping[str, str], fields: Mapping[str, Any]) -> _Line:
    values = {role: _text(fields[field]) for role, field in names.items()}
    columns = {role: list(fields).index(field) + 1 for role, field in names.items()}
    return _Line(
        number, names, columns, values, {key: value for key, value in fields.items() if key not in names.values()}
    )


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value)


class _Reader:
    """Takes requests line by line, and remembers what has to be said of them."""

    def __init__(self, name: str, scale: Decimal, block_size: int) -> None:
        self._name = name
        self._scale = scale
        self._block_size = block_size
        self._kind = ""
        self._latest = Decimal("-Infinity")
        self._late = 0
        self._first_late = 0
        self.requests: list[tuple[Decimal, int, int]] = []
        self.left_out: Counter[str] = Counter()

    def take(self, line: _Line) -> None:
        """Add a request."""
        moment = self._moment(line)
        self.requests.append((moment, *self._tokens(line)))
        self.left_out.update(line.extra.keys())
        if moment < self._latest:
            self._late += 1
            self._first_late = self._first_late or line.number
        self._latest = max(moment, self._latest)

    def notes(self) -> Iterator[str]:
        """A sentence on the order, if it was changed, and on each field that is not carried over."""
        total = len(self.requests)
        if self._late:
            first = f"first: line {self._first_late}"
            yield f"{self._late} of {total} requests stand after a later one ({first}); put in order"
        for field, count in self.left_out.items():
            why = f": {_LOST[field]}" if field in _LOST else ""
            yield f"{field} left out ({count} of {total} requests){why}"

    @property
    def dated(self) -> bool:
        """Whether times are dates, which need no unit."""
        return self._kind not in ("", "a number")

    def _moment(self, line: _Line) -> Decimal:
        """The time of a request in seconds."""
        text = line.values["time"]
        if _NUMBER.fullmatch(text):
            self._same_kind("a number", line)
            return Decimal(text) * self._scale
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            raise self._wrong(line, "time", "is no time") from None
        self._same_kind("a date" if date.tzinfo is None else "a date with a time zone", line)
        gone = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return Decimal(gone.days * 86_400 + gone.seconds) + Decimal(gone.microseconds) / 1_000_000

    def _same_kind(self, kind: str, line: _Line) -> None:
        self._kind = self._kind or kind
        if kind != self._kind:
            raise self._wrong(line, "time", f"is {kind}, where earlier lines have {self._kind}")

    def _tokens(self, line: _Line) -> tuple[int, int]:
        """Tokens of prompt and answer."""
        prompt, answer = (self._whole(line, role) for role in ("prompt", "answer"))
        blocks = line.extra.get(_BLOCKS)
        if blocks is not None:
            self._check_blocks(line, blocks, prompt)
        return prompt, answer

    def _whole(self, line: _Line, role: str) -> int:
        text = line.values[role]
        value = Decimal(text) if _NUMBER.fullmatch(text) else Decimal("NaN")
        if not value.is_finite() or value != value.to_integral_value() or not 0 <= value <= _LARGEST:
            raise self._wrong(line, role, "is not a whole number of tokens")
        if value == 0:
            raise self._wrong(line, role, "cannot be replayed: a request takes at least one token in and one out")
        return int(value)

    def _check_blocks(self, line: _Line, blocks: object, prompt: int) -> None:
        """A prompt may have fewer blocks than it fills (some traces list complete ones only), but never more."""
        filled = -(-prompt // self._block_size)
        if not isinstance(blocks, list):
            raise SerqError("trace", f"{_BLOCKS} is no list", file=self._name, line=line.number)
        if len(blocks) > filled:
            message = (
                f"{_BLOCKS} has {len(blocks)} blocks of {self._block_size} tokens where {prompt} tokens fill {filled}; "
                "--block-size N says how many tokens a block has"
            )
            raise SerqError("trace", message, file=self._name, line=line.number)

    def _wrong(self, line: _Line, role: str, problem: str) -> SerqError:
        message = f"{line.values[role][:60]!r} in {line.names[role]} {problem}"
        return SerqError("trace", message, file=self._name, line=line.number, column=line.columns[role])
