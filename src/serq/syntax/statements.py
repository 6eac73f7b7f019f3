"""The grammar of statements, both editions.

Source: docs/language.md, "Grammar of statements", "Grammar of what both editions share".
"""

from __future__ import annotations

from collections.abc import Callable

from serq.errors import Place, closest, fail
from serq.syntax import tree
from serq.syntax.expressions import ExpressionParser
from serq.syntax.tokens import Token

__all__ = ["StatementParser"]

_HINTS = {
    True: {
        "if": "the single-file edition writes 'branch (test) { } else { }'",
        "while": "the single-file edition has 'loop { }' with 'branch'",
    },
    False: {
        "branch": "this word is retired: write 'if (test) { } else { }'",
        "request": "in the split edition 'turn;' submits a request",
        "prefill": "write 'run ENGINE prefill (tokens)'",
        "decode": "write 'run ENGINE decode (tokens)'",
    },
}
_RETIRED = {
    "enter": "this word is retired: write 'hold POOL (units) { } cache (units)'",
    "keep": "this word is retired: write 'cache (units)'",
    "admit": "this spelling is retired: write 'hold POOL (units), … at admission (name = value) { } cache (units)'",
}


class StatementParser(ExpressionParser):
    """Reads statements; `single_file` chooses the words of the single-file edition."""

    single_file = False

    def block(self) -> tree.Body:
        return self.deeper(self._block)

    def _block(self) -> tree.Body:
        self.expect("{")
        statements = []
        while not self.sees("}"):
            statements.append(self.statement())
        self.next()
        return tuple(statements)

    def statement(self) -> tree.Statement:
        token = self.token
        if token.kind != "name":
            raise self.unexpected("a statement or '}'")
        readers = _SINGLE_FILE if self.single_file else _SPLIT
        if reader := readers.get(token.text):
            return reader(self, self.next())
        hint = _HINTS[self.single_file].get(token.text) or _RETIRED.get(token.text)
        if hint and self.ahead().text != ".":
            raise fail("syntax", f"{token.text!r} is not a statement here", token.at, hint=hint)
        return self._call_statement()

    # --- simple statements --------------------------------------------------------------------------------------------

    def _word(self, word: Token) -> tree.Statement:
        self.expect(";")
        return tree.WordStatement(word.at, word.text)

    def _mark(self, word: Token) -> tree.Statement:
        name = self.name()
        self.expect(";")
        return tree.NameStatement(word.at, word.text, name.text)

    def _set(self, word: Token) -> tree.Statement:
        name = self.name()
        self.expect("=")
        if word.text == "Cost" and self.accept("{"):
            fields = self.many(self._cost_field)
            self.expect("}")
            self.expect(";")
            return tree.CostRecord(word.at, name.text, name.at, fields)
        value = self.expression()
        self.expect(";")
        return tree.SetStatement(word.at, word.text, name.text, name.at, value)

    def _cost_field(self) -> tuple[tree.Path, tree.Expression]:
        name = self.reference("a pool or stage")
        self.expect(":")
        return name, self.expression()

    def _amount(self, word: Token) -> tree.Statement:
        pool = self.reference("a pool")
        amount = None if word.text in ("drop", "release") else self.parenthesised()
        self.expect(";")
        return tree.AmountStatement(word.at, word.text, pool, amount)

    def _choose(self, word: Token) -> tree.Statement:
        name = self.name()
        self.expect("in")
        count = self.expression()
        self.expect("by")
        keys = self.keys()
        self.expect(";")
        return tree.ChooseStatement(word.at, name.text, name.at, count, keys)

    # --- control ------------------------------------------------------------------------------------------------------

    def _if(self, word: Token) -> tree.Statement:
        chance = bool(self.single_file and self.accept("with"))
        test = self.parenthesised()
        then = self.block()
        otherwise: tree.Body = ()
        if self.accept("else"):
            nested = None if self.single_file else self.accept("if")
            otherwise = (self.deeper(lambda: self._if(nested)),) if nested else self.block()
        return tree.IfStatement(word.at, test, then, otherwise, chance)

    def _while(self, word: Token) -> tree.Statement:
        test = self.parenthesised() if word.text == "while" else None
        return tree.WhileStatement(word.at, test, self.block())

    def _fork(self, word: Token) -> tree.Statement:
        return tree.ForkStatement(word.at, self.block())

    # --- holds --------------------------------------------------------------------------------------------------------

    def _hold(self, word: Token) -> tree.Statement:
        parts = self.many(self.hold_part)
        prefix = self.chain() if not self.single_file and self.accept("prefix") else ()
        reuse = self.parenthesised() if self.accept("reuse") else None
        bindings: tuple[tuple[str, Place, tree.Expression], ...] = ()
        if self.accept("at"):
            self.expect("admission")
            self.expect("(")
            bindings = self.many(self._binding)
            self.expect(")")
        body = self.block()
        if self.sees("keep"):
            raise fail("syntax", "'keep' is retired", self.token.at, hint=_RETIRED["keep"])
        cache = self.parenthesised() if self.accept("cache") else None
        lease = None
        if self.accept("lease"):
            pool = self.reference("a pool")
            lease = (pool, self.parenthesised())
        self.accept(";")
        return tree.HoldStatement(word.at, parts, body, prefix, reuse, bindings, cache, lease)

    def hold_part(self) -> tree.HoldPart:
        pool = self.reference("a pool")
        units = self.parenthesised()
        reserve = self.parenthesised() if self.accept("reserve") else None
        return tree.HoldPart(pool, units, reserve)

    def chain(self) -> tuple[tuple[tree.Expression, tree.Expression], ...]:
        """The segments of a prefix: `(key: length, ...)`."""
        self.expect("(")
        segments = self.many(self._segment)
        self.expect(")")
        return segments

    def _segment(self) -> tuple[tree.Expression, tree.Expression]:
        key = self.expression()
        self.expect(":")
        return key, self.expression()

    def _binding(self) -> tuple[str, Place, tree.Expression]:
        name = self.name()
        self.expect("=")
        return name.text, name.at, self.expression()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _run(self, word: Token) -> tree.Statement:
        stages = () if self.sees("(") else self.many(lambda: self.reference("a stage"))
        mode = self.next().text if self.sees("prefill", "decode") else "plain"
        self.expect("(")
        amount = self.expression()
        latency, share = self._named() if self.sees(",") else (None, None)
        self.expect(")")
        growing = self.reference("a pool") if self.accept("growing") else None
        self.expect(";")
        return tree.RunStatement(word.at, "run", stages, amount, mode, growing=growing, latency=latency, share=share)

    def _named(self) -> tuple[tree.Expression | None, str | None]:
        latency: tree.Expression | None = None
        share: str | None = None
        while self.accept(","):
            name = self.name("'latency' or 'share'")
            if name.text not in ("latency", "share") or (latency if name.text == "latency" else share):
                raise fail("syntax", f"unexpected argument {name.text!r}", name.at)
            self.expect("=")
            if name.text == "latency":
                latency = self.expression()
            else:
                share = self.policy()
        return latency, share

    def policy(self) -> str:
        """`share.maxmin` or `share.bottleneck`."""
        self.expect("share")
        self.expect(".")
        if not self.sees("maxmin", "bottleneck"):
            raise self.unexpected("'maxmin' or 'bottleneck'")
        return self.next().text

    def _place(self) -> tuple[tuple[tree.Path, ...], tree.Expression | None]:
        if self.accept("on"):
            return self.many(lambda: self.reference("a stage")), None
        if self.accept("["):
            member = self.expression()
            self.expect("]")
            return (), member
        return (), None

    def _tool(self, word: Token) -> tree.Statement:
        stages, member = self._place()
        amount = self.expression()
        mode = "plain" if word.text == "tool" else word.text
        growing = self.reference("a pool") if mode != "plain" and self.accept("growing") else None
        self.expect(";")
        return tree.RunStatement(word.at, word.text, stages, amount, mode, member, growing)

    def _transfer(self, word: Token) -> tree.Statement:
        stages, member = self._place()
        amount = self.expression()
        self.expect("from")
        source = self.reference("a pool")
        self.expect("to")
        target = self.reference("a pool")
        load = self.parenthesised()
        self.expect(";")
        return tree.TransferStatement(word.at, stages, amount, source, target, load, member)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call_statement(self) -> tree.Statement:
        start = self.token
        path = self.reference()
        if not self.sees("("):
            if path.plain is None:
                raise self.unexpected("'('")
            hint = closest(start.text, _BOTH) or "a statement that calls something goes on with '('"
            raise fail("syntax", f"unknown statement {start.text!r}", start.at, hint=hint)
        args = self._arguments()
        if path.plain is not None:
            self.expect(";")
            return tree.CallStatement(path.at, path.plain, args)
        if len(path.parts) == 1 or path.parts[-1].index is not None:
            raise fail("syntax", "a call needs the name of an entry or a definition", start.at)
        source = self.reference("a queue") if self.accept("from") else None
        target, load = None, None
        if source and self.accept("to"):
            target, load = self.reference("a pool"), self.parenthesised()
        self.expect(";")
        queue = tree.Path(path.at, path.parts[:-1])
        return tree.EntryCall(path.at, queue, path.parts[-1].name, args, source, target, load)


_Reader = Callable[[StatementParser, Token], tree.Statement]
_P = StatementParser
_BOTH: dict[str, _Reader] = {
    "turn": _P._word,
    "end": _P._word,
    "set": _P._set,
    "observe": _P._set,
    "hold": _P._hold,
    "grow": _P._amount,
    "load": _P._amount,
    "drop": _P._amount,
    "release": _P._amount,
    "run": _P._run,
    "tool": _P._tool,
    "transfer": _P._transfer,
    "loop": _P._while,
    "choose": _P._choose,
}
_SINGLE_FILE: dict[str, _Reader] = {
    **_BOTH,
    "request": _P._word,
    "prefill": _P._tool,
    "decode": _P._tool,
    "branch": _P._if,
}
_SPLIT: dict[str, _Reader] = {
    **_BOTH,
    "Size": _P._set,
    "Cost": _P._set,
    "join": _P._word,
    "mark": _P._mark,
    "shrink": _P._amount,
    "if": _P._if,
    "while": _P._while,
    "fork": _P._fork,
}
