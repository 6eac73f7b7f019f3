"""Standard input and output, where a command takes `-` for a file, and text that is safe to show."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO

from tensor_cast.errors import InvalidValueError, WriteError

__all__ = ["STANDARD", "label", "printable", "put", "quiet", "read_text", "write_text"]

STANDARD: Final = "-"
_OUTPUT: Final = "standard output"


def label(where: str) -> str:
    """What messages call a file: its name, or `standard input`."""
    return "standard input" if where == STANDARD else where


def read_text(where: str) -> str:
    """The text of a file, or of standard input for `-`, without a byte-order mark.

    Raises InvalidValueError naming the file where it is missing, cannot be read or is not UTF-8 text.
    """
    try:
        data = _standard_input() if where == STANDARD else Path(where).read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidValueError(f"{label(where)}: not UTF-8 text") from None
    except OSError as error:
        raise InvalidValueError(f"{label(where)}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise InvalidValueError(f"{printable(where)}: cannot be read: {error}") from None


def _standard_input() -> bytes:
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise OSError(9, "it is closed")
    raw = getattr(stream, "buffer", None)
    return bytes(raw.read()) if raw is not None else stream.read().encode("utf-8", "surrogateescape")


def write_text(where: str | None, text: str) -> None:
    """Write a text to a file, or as it is to standard output for `-` and None.  Raises WriteError."""
    from tensor_cast.files.writing import write_text as write_file

    if where is not None and where != STANDARD:
        write_file(where, text)
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    put(text)


def put(text: str, *, error: bool = False) -> None:
    """Write a text as it is to standard output, or to standard error as far as there is one.

    Raises WriteError where standard output is closed or full, BrokenPipeError where its reader has gone.
    """
    stream: TextIO | None = sys.stderr if error else sys.stdout
    try:
        if stream is None:
            raise OSError(9, "it is closed")
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        if not error:
            raise WriteError(_OUTPUT, problem.strerror or str(problem)) from None


def quiet() -> None:
    """Let go of what standard output would not take, so that the end of the process does not fail over it again."""
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def printable(text: str) -> str:
    """The text on one line: control and format characters, line ends and lone surrogates escaped as Python does."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
