"""The grammar of devices, engines, schedulers and their pools (split edition)."""

from __future__ import annotations

from dataclasses import dataclass, field

from serq.errors import Place
from serq.syntax import tree
from serq.syntax.items import ItemParser
from serq.syntax.tokens import Token

__all__ = ["EngineParser"]


@dataclass
class _Engine:
    """What an engine's braces have held so far."""

    caps: list[tree.LetDecl] = field(default_factory=list)
    tokens: tree.Expression | None = None
    granule: tree.Expression | None = None
    states: list[tree.LetDecl] = field(default_factory=list)
    connectors: list[tree.ConnectorDecl] = field(default_factory=list)
    lets: list[tree.LetDecl] = field(default_factory=list)
    scheduler: tuple[tree.SchedulerStatement, ...] | None = None
    scheduler_at: Place | None = None
    forward: tree.Expression | None = None


class EngineParser(ItemParser):
    def pool_item(self) -> tree.PoolDecl:
        word = self.next()
        name = self.name()
        size = self.size()
        on = self.reference("a device or an engine") if self.accept("on") else None
        return tree.PoolDecl(word.at, name.text, name.at, size, self.pool_options(), on)

    def device_item(self) -> tree.DeviceDecl:
        self.next()
        device = self.name()
        self.expect("{")
        rates, caps = [], []
        while not self.sees("}"):
            name = self.name("a time resource, a capacity or '}'")
            if self.sees("("):
                params = self.parameters()
                self.expect("=")
                rates.append(tree.DefDecl(name.at, name.text, params, self.expression(), (), False))
            else:
                self.expect("cap")
                caps.append(tree.LetDecl(name.at, name.text, name.at, self.expression()))
            self.expect(";")
        self.next()
        return tree.DeviceDecl(device.at, device.text, tuple(rates), tuple(caps))

    def engine_item(self) -> tree.EngineDecl:
        word = self.next()
        name = None if self.sees("on") else self.name()
        self.expect("on")
        device = self.name("a device")
        self.expect("{")
        found = _Engine()
        while not self.sees("}"):
            self._engine_part(self.name("an engine item or '}'"), found)
        self.next()
        return tree.EngineDecl(
            word.at,
            name.text if name else "",
            name.at if name else word.at,
            device.text,
            device.at,
            tuple(found.caps),
            found.tokens,
            found.granule,
            tuple(found.states),
            tuple(found.connectors),
            tuple(found.lets),
            found.scheduler,
            found.scheduler_at,
            found.forward,
        )

    def _engine_part(self, word: Token, found: _Engine) -> None:
        if self.accept("cap"):
            value = self.expression()
            self.expect(";")
            if word.text == "tokens":
                found.tokens = value
            else:
                found.caps.append(tree.LetDecl(word.at, word.text, word.at, value))
        elif word.text == "granule":
            found.granule = self.expression()
            self.expect(";")
        elif word.text == "state":
            name = self.name()
            self.expect("=")
            found.states.append(tree.LetDecl(word.at, name.text, name.at, self.expression()))
            self.expect(";")
        elif word.text == "connector":
            found.connectors.append(self._connector())
        elif word.text == "scheduler":
            found.scheduler_at = self.token.at
            self._scheduler(found)
        elif word.text == "worker":
            self.expect("{")
            self.expect("forward")
            found.forward = self.parenthesised()
            self.expect(";")
            self.expect("}")
        else:
            retired = {"schedule": "this word is retired: write 'scheduler { … }'"}
            items = "the items are 'NAME cap units;', 'tokens', 'granule', 'state', 'connector', 'scheduler', 'worker'"
            raise self.unknown("engine item", word, items, retired)

    def _connector(self) -> tree.ConnectorDecl:
        name = self.name("a queue")
        self.expect("{")
        found: dict[str, tree.Expression] = {}
        while not self.sees("}"):
            if not self.sees("per_token", "load", "save"):
                raise self.unexpected("'per_token', 'load', 'save' or '}'")
            word = self.next()
            found[word.text] = self.parenthesised()
            self.expect(";")
        self.next()
        return tree.ConnectorDecl(name.at, name.text, found.get("per_token"), found.get("load"), found.get("save"))

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def _scheduler(self, found: _Engine) -> None:
        self.expect("{")
        while self.sees("let"):
            found.lets.append(self.let_item())
        found.scheduler = self._schedule_rest()

    def _schedule_block(self) -> tuple[tree.SchedulerStatement, ...]:
        self.expect("{")
        return self.deeper(self._schedule_rest)

    def _schedule_rest(self) -> tuple[tree.SchedulerStatement, ...]:
        statements = []
        while not self.sees("}"):
            statements.append(self._schedule_statement(self.name("a scheduler statement or '}'")))
        self.next()
        return tuple(statements)

    def _schedule_statement(self, word: Token) -> tree.SchedulerStatement:
        if word.text == "if":
            return self._schedule_if(word)
        if word.text == "advance":
            statement = self._advance(word)
        elif word.text == "admit":
            statement = self._admit(word)
        elif word.text == "exclusive":
            self.expect("prefill")
            statement = tree.SchedulerStatement(word.at, "exclusive", at_most=self._at_most())
        elif word.text == "set":
            name = self.name("a register")
            self.expect("=")
            statement = tree.SchedulerStatement(word.at, "set", name=name.text, value=self.expression())
        else:
            retired = {"branch": "this word is retired: write 'if (test) { } else { }'"}
            statements = "the statements are 'advance', 'admit', 'exclusive prefill', 'if', 'set'"
            raise self.unknown("scheduler statement", word, statements, retired)
        self.expect(";")
        return statement

    def _schedule_if(self, word: Token) -> tree.SchedulerStatement:
        test = self.parenthesised()
        then = self._schedule_block()
        otherwise: tuple[tree.SchedulerStatement, ...] = ()
        if self.accept("else"):
            nested = self.accept("if")
            otherwise = (self.deeper(lambda: self._schedule_if(nested)),) if nested else self._schedule_block()
        return tree.SchedulerStatement(word.at, "if", value=test, then=then, otherwise=otherwise)

    def _advance(self, word: Token) -> tree.SchedulerStatement:
        self.expect("running")
        only = self.parenthesised() if self.accept("only") else None
        order = tree.Order("admission", (), only)
        if self.accept("by"):
            order = tree.Order("by", self.keys(), only)
        elif self.accept("decode"):
            self.expect("first")
            order = tree.Order("decode_first", (), only)
        else:
            self.accept("admission")
        return tree.SchedulerStatement(word.at, "advance", order, at_most=self._at_most())

    def _admit(self, word: Token) -> tree.SchedulerStatement:
        self.expect("waiting")
        only = self.parenthesised() if self.accept("only") else None
        gate = self.parenthesised() if self.accept("while") else None
        at_most = self._at_most()
        taking = self._taking() if self.sees("taking") else None
        order = tree.Order("admission", (), only)
        return tree.SchedulerStatement(word.at, "admit", order, gate, at_most, taking)

    def _at_most(self) -> tree.Expression | None:
        if not self.accept("each"):
            return None
        self.expect("at")
        self.expect("most")
        return self.parenthesised()

    def _taking(self) -> tree.Taking:
        word = self.next()
        parts = self.many(self.hold_part)
        reuse = self.parenthesised() if self.accept("reuse") else None
        prefix = self.chain() if self.accept("prefix") else ()
        cache = self.parenthesised() if self.accept("cache") else None
        return tree.Taking(word.at, parts, reuse, prefix, cache)
