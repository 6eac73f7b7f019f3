"""The cursor over the tokens and the grammar of expressions.  Source: docs/language.md, "Grammar of expressions"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from serq.errors import Place, SerqError, Source, fail, nearest
from serq.syntax import tree
from serq.syntax.tokens import Token, tokenize

__all__ = ["ExpressionParser"]

_T = TypeVar("_T")
_PRECEDENCE = {"||": 1, "&&": 2, "+": 4, "-": 4, "*": 5, "/": 5}
_COMPARE = ("<", "<=", ">", ">=", "==", "!=")
_PRECEDENCE.update(dict.fromkeys(_COMPARE, 3))
_DEEPEST = 80


class ExpressionParser:
    """Recursive descent over one source; every method leaves the cursor behind what it read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens, self.comments = tokenize(source)
        self.position = 0
        self.depth = 0

    # --- the cursor ---------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def ahead(self, count: int = 1) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.position += 1
        return token

    def sees(self, *texts: str) -> bool:
        return self.token.text in texts and self.token.kind in ("name", "op")

    def accept(self, text: str) -> Token | None:
        return self.next() if self.sees(text) else None

    def expect(self, text: str, hint: str | None = None) -> Token:
        if self.sees(text):
            return self.next()
        raise self.unexpected(repr(text), hint)

    def name(self, what: str = "a name") -> Token:
        if self.token.kind == "name":
            return self.next()
        raise self.unexpected(what)

    def string(self) -> Token:
        if self.token.kind == "string":
            return self.next()
        raise self.unexpected('a string in "quotes"')

    def unexpected(self, wanted: str, hint: str | None = None) -> SerqError:
        found = "the end of the text" if self.token.kind == "end" else repr(self.token.text)
        if hint is None and self.token.kind == "name":
            hint = nearest(self.token.text, wanted)
        return fail("syntax", f"expected {wanted}, found {found}", self.token.at, hint=hint)

    @staticmethod
    def unknown(what: str, word: Token, offer: str, retired: Mapping[str, str] = MappingProxyType({})) -> SerqError:
        """The error for a word that is none of those on offer: what replaced it, the nearest one, or what there is."""
        hint = retired.get(word.text) or nearest(word.text, offer) or offer
        return fail("syntax", f"unknown {what} {word.text!r}", word.at, hint=hint)

    def deeper(self, read: Callable[[], _T]) -> _T:
        """Read one level of nesting; refuses texts nested beyond any use."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise fail("syntax", f"nested more than {_DEEPEST} deep", self.token.at)
        value = read()
        self.depth -= 1
        return value

    def many(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        """One or more, separated by commas."""
        values = [read()]
        while self.accept(","):
            values.append(read())
        return tuple(values)

    def parenthesised(self) -> tree.Expression:
        self.expect("(")
        value = self.expression()
        self.expect(")")
        return value

    def keys(self) -> tree.Keys:
        self.expect("(")
        values = self.many(self.expression)
        self.expect(")")
        return values

    # --- expressions --------------------------------------------------------------------------------------------------

    def expression(self) -> tree.Expression:
        return self.deeper(self._conditional)

    def _conditional(self) -> tree.Expression:
        chain: list[tuple[Place, tree.Expression, tree.Expression]] = []
        value = self._binary(1)
        while mark := self.accept("?"):
            then = self.expression()
            self.expect(":")
            chain.append((mark.at, value, then))
            value = self._binary(1)
        for at, test, then in reversed(chain):
            value = tree.Conditional(at, test, then, value)
        return value

    def _binary(self, least: int) -> tree.Expression:
        left = self._unary()
        while self.token.kind == "op" and _PRECEDENCE.get(self.token.text, 0) >= least:
            operator = self.next()
            right = self._binary(_PRECEDENCE[operator.text] + 1)
            left = tree.BinaryOp(operator.at, operator.text, left, right)
            if operator.text in _COMPARE and self.sees(*_COMPARE):
                hint = "join two comparisons with '&&'"
                raise fail("syntax", "comparisons do not chain", self.token.at, hint=hint)
        return left

    def _unary(self) -> tree.Expression:
        if self.sees("-", "!"):
            operator = self.next()
            return tree.UnaryOp(operator.at, operator.text, self.deeper(self._unary))
        base = self._primary()
        if mark := self.accept("^"):
            return tree.BinaryOp(mark.at, "^", base, self.deeper(self._unary))
        return base

    def _primary(self) -> tree.Expression:
        token = self.token
        if token.kind == "number":
            return self._number()
        if token.kind == "string":
            self.next()
            return tree.Text(token.at, token.text)
        if self.accept("("):
            value = self.expression()
            self.expect(")")
            return value
        if self.accept("~"):
            name = self.name("a distribution")
            return tree.Draw(token.at, name.text, self._arguments())
        if token.kind != "name":
            raise self.unexpected("an expression")
        if token.text in ("max", "min", "sum") and self.ahead().kind == "name":
            return self._aggregate()
        return self._path_or_call()

    def _number(self) -> tree.Number:
        token = self.next()
        return tree.Number(token.at, float(token.text.replace("_", "")), token.text)

    def _arguments(self) -> tuple[tree.Expression, ...]:
        self.expect("(")
        values = () if self.sees(")") else self.many(self.expression)
        self.expect(")")
        return values

    def _aggregate(self) -> tree.Expression:
        op = self.next()
        variable = self.name()
        self.expect("in")
        count: tree.Expression
        if self.token.kind == "number":
            count = self._number()
        elif self.sees("("):
            count = self.parenthesised()
        else:
            word = self.name("a number, a constant's name or '('")
            count = tree.Path(word.at, (tree.Part(word.at, word.text),))
        return tree.Aggregate(op.at, op.text, variable.text, count, self.parenthesised())

    def _path_or_call(self) -> tree.Expression:
        if self.ahead().text == "(" and self.ahead().kind == "op":
            name = self.next()
            return tree.CallExpr(name.at, name.text, self._arguments())
        path = self.reference()
        if self.sees("(") and path.text == "args.number":
            return tree.CallExpr(path.at, path.text, self._arguments())
        return path

    def reference(self, what: str = "a name") -> tree.Path:
        """A path: `name`, `name[index]`, `queue[index].member`."""
        parts = [self._part(what)]
        while self.accept("."):
            parts.append(self._part("a name"))
        first, last = parts[0].at, parts[-1].at
        length = last.column + last.length - first.column if first.line == last.line else first.length
        at = Place(first.source, first.line, first.column, length)
        return tree.Path(at, tuple(parts))

    def _part(self, what: str) -> tree.Part:
        name = self.name(what)
        index = None
        if self.accept("["):
            index = self.expression()
            self.expect("]")
        return tree.Part(name.at, name.text, index)
