"""What the commands end with."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes of every command, the same meaning everywhere."""

    DONE = 0
    FAILED = 1
    """The answer is no: a program is refused, a check finds something, or the output cannot be written."""
    MISUSE = 2
    """A wrong call, or a file that is missing or cannot be read."""
    MISSED = 3
    """An operator that was asked for has no answer."""
    INTERRUPTED = 130
    """Ctrl-C."""
