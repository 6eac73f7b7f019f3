"""One way to lay a program out: two blanks of indentation, one blank around operators, the author's own line breaks.

Comments and the choice between `name(` and `name (` are kept; formatting twice changes nothing, and the tokens stay the
same, so a program means after formatting what it meant before.
"""

from __future__ import annotations

from dataclasses import dataclass

from serq.errors import SerqError, Source
from serq.syntax.parse import is_deployment, parse_deployment, parse_single_file, parse_workload
from serq.syntax.tokens import Comment, Token, tokenize

__all__ = ["format_source"]

_STEP = "  "
_OPEN, _CLOSE = "([{", ")]}"
_TIGHT_BEFORE = {",", ";", ")", "]", ".", ":"}
_TAIL_CLAUSES = {"cache", "keep", "lease"}
_BINARY = {"+", "-", "*", "/", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "||", "?", "="}


@dataclass
class _Piece:
    """A token or comment with the lines it covers and whether blanks stood before it."""

    text: str
    kind: str
    first: int
    last: int
    spaced: bool


def format_source(text: str, name: str = "program") -> str:
    """The program laid out in the one way; raises `SerqError` when it is not a program, deployment or workload file."""
    source = Source.of(name, text)
    _parse(source)
    pieces = _pieces(source)
    lines: list[str] = []
    state = _State()
    row: list[_Piece] = []
    for index, piece in enumerate(pieces):
        row.append(piece)
        following = pieces[index + 1] if index + 1 < len(pieces) else None
        if following is not None and following.first == piece.last:
            continue
        lines.append(state.indent(row) + _spaced(row))
        state.follow(row, following)
        row = []
        if following is not None and following.first > piece.last + 1 and piece.text != "{" and following.text != "}":
            lines.append("")
    return "\n".join(lines) + "\n" if lines else ""


def _parse(source: Source) -> None:
    if is_deployment(source):
        parse_deployment(source)
        return
    try:
        parse_single_file(source)
    except SerqError as error:
        try:
            parse_workload(source)
        except SerqError as other:
            further = max((error, other), key=lambda one: (one.line or 0, one.column or 0))
            raise further from None


def _pieces(source: Source) -> list[_Piece]:
    tokens, comments = tokenize(source)
    found: list[tuple[int, int, _Piece]] = []
    for token in tokens[:-1]:
        text = f'"{token.text}"' if token.kind == "string" else token.text
        found.append((token.at.line, token.at.column, _piece(text, token.kind, token, source)))
    found += [(one.at.line, one.at.column, _piece(one.text, "comment", one, source)) for one in comments]
    return [piece for _, _, piece in sorted(found, key=lambda one: one[:2])]


def _piece(text: str, kind: str, item: Token | Comment, source: Source) -> _Piece:
    before = source.line(item.at.line)[: item.at.column - 1]
    spaced = not before or before[-1].isspace()
    return _Piece(text, kind, item.at.line, item.at.line + text.count("\n"), spaced)


# --- indentation ------------------------------------------------------------------------------------------------------


@dataclass
class _State:
    """Where the layout stands: open brackets, and whether a statement goes on in the next row.

    `tail` follows the clauses after a block: `closed` where the statement may end, `clause` inside one.
    """

    depth: int = 0
    inside: bool = False
    tail: str = ""
    base: int = 0

    def indent(self, row: list[_Piece]) -> str:
        closing = 0
        for piece in row:
            if piece.kind != "op" or piece.text not in _CLOSE:
                break
            closing += 1
        starts_block = row[0].kind == "op" and row[0].text in "{}"
        return _STEP * (self.depth - min(closing, self.depth) + (1 if self.inside and not starts_block else 0))

    def follow(self, row: list[_Piece], following: _Piece | None) -> None:
        for piece in row:
            operator = piece.kind == "op"
            if operator and piece.text in _OPEN:
                self.depth += 1
            elif operator and piece.text in _CLOSE and self.depth:
                self.depth -= 1
            if piece.kind != "comment":
                self._follow_tail(piece)
                self.inside = not (operator and piece.text in "{};")
        more = following is not None and following.text in _TAIL_CLAUSES
        if self.tail == "closed" and not more:
            self.inside = False

    def _follow_tail(self, piece: _Piece) -> None:
        if piece.kind == "op" and piece.text == "}":
            self.tail, self.base = "closed", self.depth
        elif self.tail == "clause":
            if piece.kind == "op" and piece.text == ")" and self.depth == self.base:
                self.tail = "closed"
        else:
            self.tail = "clause" if self.tail and piece.text in _TAIL_CLAUSES else ""


# --- blanks -----------------------------------------------------------------------------------------------------------


def _spaced(row: list[_Piece]) -> str:
    text = row[0].text
    for index in range(1, len(row)):
        text += _between(row, index) + row[index].text
    return text


def _between(row: list[_Piece], index: int) -> str:
    one, two = row[index - 1], row[index]
    if two.kind == "comment":
        return "  " if two.text.startswith("//") else " "
    if one.kind == "comment":
        return " "
    if two.kind == "op" and one.kind == "op":
        return _between_operators(row, index)
    if two.kind == "op":
        return _before_operator(one, two)
    if one.kind == "op":
        return "" if one.text in ("(", "[", ".", "~") or _is_unary(row, index - 1) else " "
    return " "


def _before_operator(one: _Piece, two: _Piece) -> str:
    if two.text == ":":
        return " " if two.spaced else ""
    if two.text in _TIGHT_BEFORE:
        return ""
    if two.text in ("(", "["):
        return " " if two.spaced and two.text == "(" else ""
    return " "


def _between_operators(row: list[_Piece], index: int) -> str:
    one, two = row[index - 1], row[index]
    if two.text == ":":
        return " " if two.spaced else ""
    if two.text in _TIGHT_BEFORE or one.text in ("(", "[", "~") or _is_unary(row, index - 1):
        return ""
    if two.text in ("(", "[") and one.text in (")", "]"):
        return " " if two.spaced else ""
    return " "


def _is_unary(row: list[_Piece], index: int) -> bool:
    piece = row[index]
    if piece.kind != "op" or piece.text not in ("-", "!"):
        return False
    if piece.text == "!" or index == 0:
        return True
    before = row[index - 1]
    return before.kind == "op" and (before.text in _BINARY or before.text in ("(", "[", ",", ":", "!", "{", ";"))
