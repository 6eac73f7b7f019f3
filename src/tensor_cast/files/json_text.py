"""JSON read strictly: what RFC 8259 leaves to readers, and what Python adds to it, is refused."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from tensor_cast.errors import InvalidValueError

__all__ = ["JsonError", "parse_json"]

_MOST_DIGITS: Final = 300
_MOST_SHOWN: Final = 20
_MOST_NESTED: Final = 64


class JsonError(InvalidValueError):
    """A text that cannot be used as JSON: `problem` in words, and the line where it is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.problem = problem
        self.line = line
        super().__init__(problem if line is None else f"line {line}: {problem}")


def parse_json(text: str) -> Any:
    """The document of a JSON text.

    Raises JsonError for text that is no JSON, for NaN and Infinity, numbers beyond the range of doubles, a
    key that stands twice in one object, lone surrogates, and more than 64 values inside one another.
    """
    try:
        document = json.loads(
            text, parse_int=_whole, parse_float=_number, parse_constant=_constant, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.lineno) from None
    except RecursionError:
        raise JsonError("too many nested values") from None
    _check(document)
    return document


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:  # beyond the range of doubles; Python itself refuses to read 4 300 digits
        raise JsonError(f"the number {_cut(text)} is too large")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"the number {_cut(text)} is too large")
    return value


def _constant(name: str) -> float:
    raise JsonError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {twice!r} stands twice in one object")
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... ({len(text)} characters)"


def _check(document: object) -> None:
    """Refuse text that is none, and nesting that a recursive reader would not survive."""
    level = [document]
    for _ in range(_MOST_NESTED + 1):
        texts = [item for item in level if isinstance(item, str)]
        texts += [key for item in level if isinstance(item, dict) for key in item]
        for text in texts:
            _check_text(text)
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inner for item in items]
        if not level:
            return
    raise JsonError("too many nested values")


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise JsonError(f"the text {_cut(ascii(text))} holds half of a surrogate pair") from None
