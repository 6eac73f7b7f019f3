"""What a size may be: the checks every constructor makes, in one wording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.tensor import Shape

__all__ = ["Rows", "at_most", "leading", "multiple", "one_of", "positive"]

_LARGEST: Final = 2**63 - 1
Rows = int | tuple[int, ...]
"""Tokens as a number, or the leading dimensions of a tensor, such as `(1, T)` or `(1, T, heads)`."""


def positive(**sizes: int) -> None:
    """Refuses a size that is no whole number above 0, or one of more than 63 bits, naming it."""
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise InvalidValueError(f"{name}: expected a whole number >= 1, got {value!r}")
        if value > _LARGEST:
            raise InvalidValueError(f"{name}: expected a whole number >= 1, got more than 2**63 - 1")


def multiple(of: int, reason: str, **sizes: int) -> None:
    """Refuses a size that `of` does not divide."""
    for name, value in sizes.items():
        if value % of:
            raise InvalidValueError(f"{name}: expected a multiple of {of} ({reason}), got {value}")


def at_most(limit: int, reason: str, **sizes: int) -> None:
    """Refuses a size above `limit`."""
    for name, value in sizes.items():
        if value > limit:
            raise InvalidValueError(f"{name}: expected at most {limit} ({reason}), got {value}")


def one_of(allowed: Iterable[str], **words: str) -> None:
    """Refuses a word outside the allowed ones."""
    known = tuple(allowed)
    for name, word in words.items():
        if word not in known:
            raise InvalidValueError(f"{name}: expected one of {', '.join(known)}, got {word!r}")


def leading(rows: Rows, name: str = "tokens") -> Shape:
    """`rows` as dimensions."""
    shape = rows if isinstance(rows, tuple) else (rows,)
    if not shape:
        raise InvalidValueError(f"{name}: expected a whole number >= 1 or leading dimensions, got ()")
    for dim in shape:
        positive(**{name: dim})
    return shape
