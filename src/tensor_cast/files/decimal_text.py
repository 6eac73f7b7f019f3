"""Numbers as tables, mappings and command lines write them: ASCII decimals, and nothing that merely looks like one.

Python's own `int` and `float` also take `1_6`, digits of other scripts, `nan` and `inf`; a cell that holds one of these
is damaged or was never a number.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["parse_real", "parse_whole"]

_MAX_LENGTH: Final = 64  # no measured quantity needs more; keeps a cell of ten thousand digits from being computed
_MAX_EXACT: Final = 2.0**53


def parse_real(text: str) -> float | None:
    """The finite number that `text` spells in ASCII, blanks around it ignored; None for anything else."""
    if len(text) > _MAX_LENGTH or "_" in text or not text.isascii():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse_whole(text: str) -> int | None:
    """The whole number that `text` spells (`16`, `16.0` and `1.6e1` are one); None for fractions and anything else."""
    value = parse_real(text)
    if value is None or not value.is_integer():
        return None
    if abs(value) <= _MAX_EXACT:
        return int(value)
    return int(text) if text.strip().lstrip("+-").isdecimal() else None
