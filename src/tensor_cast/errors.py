"""The one family of exceptions that tensor_cast raises for misuse.

A question the data cannot answer is not an exception: it is a `Miss` value.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CastqError",
    "DataFileError",
    "InvalidValueError",
    "MissingFigureError",
    "UnknownNameError",
    "WriteError",
    "how_to_install",
    "nearest",
]


class CastqError(Exception):
    """Base of every error raised on purpose; its text is fit to show to a user as it stands."""


class InvalidValueError(CastqError, ValueError):
    """An argument has a value that is not allowed."""


class UnknownNameError(CastqError, KeyError):
    """A name that should exist does not."""

    def __str__(self) -> str:
        return str(self.args[0])


class MissingFigureError(CastqError, LookupError):
    """A figure of a device is empty; names the device, the figure, why, and what is known."""


class DataFileError(CastqError, ValueError):
    """A data file cannot be used; names the file, the line or row, the field and what was found."""

    def __init__(self, path: object, problem: str, *, line: int | None = None, code: str = "invalid") -> None:
        self.path = str(path)
        self.problem = problem
        self.line = line
        self.code = code
        place = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {problem}")


class WriteError(CastqError, OSError):
    """Something could not be written; what was there before is as it was."""

    def __init__(self, target: object, problem: str) -> None:
        super().__init__(f"{target}: cannot be written: {problem}")


def how_to_install(extra: str) -> str:
    """The command that brings an optional part; castq is installed from a checkout."""
    return f"pip install '.[{extra}]' in a checkout of castq"


def nearest(name: str, known: Iterable[str]) -> str:
    """A ' (did you mean ...?)' suffix naming the closest known spelling, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
