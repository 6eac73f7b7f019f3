"""Source text to tokens.  Keywords are ordinary names here: only the grammar knows where a word is a keyword."""

from __future__ import annotations

import re
from dataclasses import dataclass

from serq.errors import Place, Source, fail

__all__ = ["Comment", "Token", "tokenize"]

_BLANK = re.compile(r"[ \t\r\n\f\v\ufeff]+")
_NUMBER = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?")
_NAME = re.compile(r"[^\W\d]\w*")
_OPERATOR = re.compile(r"<=|>=|==|!=|&&|\|\||[-+*/^<>!?:~=()\[\]{},;.]")


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is `name`, `number`, `string`, `op` or `end`; `text` of a string is without its quotes."""

    kind: str
    text: str
    at: Place


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its delimiters, kept for the formatter; `own_line` tells whether code stands before it."""

    text: str
    at: Place
    own_line: bool


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.position = 0
        self.line = 1
        self.line_start = 0
        self.tokens: list[Token] = []
        self.comments: list[Comment] = []

    def place(self, length: int = 1) -> Place:
        return Place(self.source, self.line, self.position - self.line_start + 1, max(1, length))

    def advance(self, to: int) -> None:
        piece = self.text[self.position : to]
        newlines = piece.count("\n")
        if newlines:
            self.line += newlines
            self.line_start = self.position + piece.rfind("\n") + 1
        self.position = to

    def comment(self) -> None:
        if self.text.startswith("//", self.position):
            end = self.text.find("\n", self.position)
            end = len(self.text) if end < 0 else end
        else:
            end = self.text.find("*/", self.position + 2) + 2
            if end < 2:
                raise fail("syntax", "this comment is never closed", self.place(2), hint="close it with '*/'")
        before = self.text[self.line_start : self.position]
        self.comments.append(
            Comment(self.text[self.position : end].rstrip(), self.place(2), not before.strip()),
        )
        self.advance(end)

    def string(self) -> None:
        end = self.text.find('"', self.position + 1)
        newline = self.text.find("\n", self.position)
        if end < 0 or 0 <= newline < end:
            raise fail("syntax", "this string is never closed", self.place(), hint="close it with '\"'")
        self.add("string", self.text[self.position + 1 : end], end + 1)

    def number(self, end: int) -> None:
        follow = self.text[end : end + 1]
        if follow == "." or follow == "_" or follow.isalnum():
            raise fail("syntax", "malformed number", self.place(end - self.position + 1))
        self.add("number", self.text[self.position : end], end)

    def add(self, kind: str, text: str, end: int) -> None:
        self.tokens.append(Token(kind, text, self.place(end - self.position)))
        self.advance(end)

    def step(self) -> None:
        if found := _BLANK.match(self.text, self.position):
            self.advance(found.end())
        elif self.text.startswith(("//", "/*"), self.position):
            self.comment()
        elif self.text[self.position] == '"':
            self.string()
        elif found := _NUMBER.match(self.text, self.position):
            self.number(found.end())
        elif (found := _NAME.match(self.text, self.position)) and (
            found.group()[0] == "_" or found.group()[0].isalpha()
        ):
            self.add("name", found.group(), found.end())
        elif found := _OPERATOR.match(self.text, self.position):
            self.add("op", found.group(), found.end())
        else:
            raise fail("syntax", f"unexpected character {self.text[self.position]!r}", self.place())


def tokenize(source: Source) -> tuple[list[Token], list[Comment]]:
    """All tokens of a source, closed by one of kind `end`, and its comments."""
    scanner = _Scanner(source)
    while scanner.position < len(scanner.text):
        scanner.step()
    scanner.tokens.append(Token("end", "", scanner.place()))
    return scanner.tokens, scanner.comments
