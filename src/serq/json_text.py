"""JSON read strictly, for programs and traces."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["strict_json"]


def strict_json(text: str) -> Any:
    """The document of a JSON text.

    Raises ValueError with the reason in words for text that is no JSON, NaN and Infinity, numbers that are too large, a
    key that stands twice in one object, lone surrogates and too many nested values.
    """
    try:
        found = json.loads(text, parse_float=_number, parse_constant=_constant, object_pairs_hook=_object)
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a surrogate pair") from None
    return found


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found
