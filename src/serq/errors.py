"""The errors of the language: a kind, a position and a text that shows the line, a caret and the fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Place", "RunError", "SerqError", "Source", "UnknownNameError", "closest", "fail", "nearest", "unknown_name"]


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """One source text and the name diagnostics call it by (`deployment` or `workload` when it has no file)."""

    name: str
    text: str
    lines: tuple[str, ...] = field(repr=False, default=())

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        return cls(name, text, tuple(line.rstrip("\r") for line in text.split("\n")))

    def line(self, number: int) -> str:
        """The text of a line counted from 1, empty beyond the end."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a source: line and column count from 1, `length` is the width of the caret."""

    source: Source
    line: int
    column: int
    length: int = 1


class SerqError(ValueError):
    """A program, its workload, its settings or its trace cannot be used; also raised for errors while running.

    `kind` is one of the kinds of the language (`syntax`, `name`, `moment`, ...), `code` the code of a structural error
    when it has one.  `errors` lists every independent error found, this one first;
    after a `fatal` one no others are looked for.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source_line: str | None = None,
        length: int = 1,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        self.kind = kind
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.source_line = source_line
        self.length = length
        self.hint = hint
        self.code = code
        self.errors: Sequence[SerqError] = (self,)
        self.fatal = False
        super().__init__(kind, message)

    def __str__(self) -> str:
        """The diagnostic: position, message, source line with a caret, and help."""
        place = "" if self.line is None else ":".join(str(n) for n in (self.line, self.column) if n is not None) + ": "
        file = "" if not self.file else f"{self.file}:" if place else f"{self.file}: "
        code = f"[{self.code}]" if self.code else ""
        lines = [f"{file}{place}error{code}: {self.message}"]
        if self.line is not None and self.source_line is not None:
            margin = " " * len(str(self.line))
            shown = self.source_line.replace("\t", " ")
            pad = " " * (max(1, self.column or 1) - 1)
            lines += [f"{self.line} | {shown}", f"{margin} | {pad}{'^' * max(1, self.length)}"]
        if self.hint:
            lines.append(f"help: {self.hint}")
        return "\n".join(lines)


class RunError(SerqError):
    """A run that cannot go on.

    `kind` is one of `run-guard run-cost run-progress run-amount run-index run-drain run-cycle`.  `file` and `line` tell
    where in the text, `session` who (its serial) and `time` when in the run; None where that is not known, as the lines
    of a program that was read from its interchange form.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.place: Place | None = None
        self.session: int | None = None
        self.time: float | None = None

    def located(self, place: Place | None = None, session: int | None = None, time: float | None = None) -> RunError:
        """The error with what it does not know yet of where, who and when."""
        if self.place is None and place is not None:
            self.place, self.file, self.line, self.column = place, place.source.name, place.line, place.column
        self.session = session if self.session is None else self.session
        self.time = time if self.time is None else self.time
        return self

    def __str__(self) -> str:
        """`FILE:LINE:COLUMN: error: message (session S, at time T)`, with the line of the text."""
        known = [] if self.session is None else [f"session {self.session}"]
        known += [] if self.time is None else [f"at time {self.time:g}"]
        message = f"{self.message} ({', '.join(known)})" if known else self.message
        return message if self.place is None else str(fail(self.kind, message, self.place))


def fail(kind: str, message: str, at: Place | None, *, hint: str | None = None, code: str | None = None) -> SerqError:
    """An error at a place of the source (or, without one, about the whole program), ready to raise."""
    if at is None:
        return SerqError(kind, message, hint=hint, code=code)
    text = at.source.line(at.line)
    length = min(at.length, max(1, len(text) - at.column + 1))
    return SerqError(
        kind,
        message,
        file=at.source.name,
        line=at.line,
        column=at.column,
        source_line=text,
        length=length,
        hint=hint,
        code=code,
    )


def nearest(word: str, offer: str) -> str | None:
    """A hint naming the word in quotes of `offer` that is nearest to what was written, or None."""
    return closest(word, re.findall(r"'(\w+)", offer))


class UnknownNameError(KeyError):
    """A name that a report does not have; its text names the nearest one."""

    def __str__(self) -> str:
        return str(self.args[0])


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among the known ones, ready to raise."""
    names = list(dict.fromkeys(known))
    hint = closest(name, names) or (f"the names are {', '.join(names)}" if names else "there is none")
    return UnknownNameError(f"the report has no {kind} called {name!r}: {hint}")


def closest(name: str, known: Iterable[str]) -> str | None:
    """A 'did you mean' hint naming the nearest known spelling, or None."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {found[0]!r}?" if found else None
