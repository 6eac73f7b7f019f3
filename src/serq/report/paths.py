"""The ways a session can go through a program: which stage follows which, and under what condition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from serq import ir
from serq.ir.moments import POOL_QUERIES

__all__ = ["Paths", "Visit", "condition", "paths"]

_MOST_LETTERS: Final = 28
_MOST_WAYS: Final = 8
_DEEPEST: Final = 6
_Ends = dict[tuple[int, tuple[str, ...]], None]
"""Where a session may have been last, with the conditions met since, in the order they were found."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One run of a session: its stages, and the pools it holds meanwhile (first members of families)."""

    stages: tuple[int, ...]
    pools: tuple[int, ...]


@dataclass(slots=True)
class Paths:
    """The runs of a program in the order of its text, and the conditions under which one stage follows another.

    An empty condition is met always.
    """

    visits: list[Visit] = field(default_factory=list)
    steps: dict[tuple[int, int], list[str]] = field(default_factory=dict)

    def step(self, one: int, two: int, conditions: tuple[str, ...]) -> None:
        label = " and ".join(conditions)
        known = self.steps.setdefault((one, two), [])
        if label not in known:
            known.append(label)


def paths(program: ir.Program) -> Paths:
    """Every stage that can follow another in a session of the program, each with its conditions."""
    walk = _Walk(program)
    walk.block(program.session, {}, ())
    return walk.found


def condition(program: ir.Program, test: ir.Expr) -> str:
    """A test as short text."""
    text = _text(program, test)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


class _Walk:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.found = Paths()
        self.legs: _Ends = {}
        self.firsts: list[list[tuple[int, tuple[str, ...]]]] = []

    def block(self, block: int | None, ends: _Ends, held: tuple[int, ...]) -> _Ends:
        """Where a session may have been last after a block, from where it may have been before."""
        for statement in () if block is None else self.program.blocks[block]:
            ends = self.statement(statement, ends, held)
        return ends

    def statement(self, statement: ir.Stmt, ends: _Ends, held: tuple[int, ...]) -> _Ends:
        match statement:
            case ir.Run():
                return self.run(statement, ends, held)
            case ir.Hold(pools=pools, body=body):
                return self.block(body, ends, (*held, *(part.pool.base for part in pools)))
            case ir.Branch(test=ir.Num(value), then=then, otherwise=otherwise):
                return self.block(then if value else otherwise, ends, held)
            case ir.Branch(test, then, otherwise):
                label = condition(self.program, test)
                taken = self.block(then, _met(ends, label), held)
                skipped = self.block(otherwise, _met(ends, _not(label)), held)
                if taken == _met(ends, label) and skipped == _met(ends, _not(label)):
                    return ends
                return _few({**taken, **skipped})
            case ir.While():
                return self.loop(statement, ends, held)
            case ir.Fork(body=body):
                self.legs.update(self.block(body, ends, held))
                return ends
            case ir.Join():
                legs, self.legs = self.legs, {}
                return {**ends, **legs}
            case ir.Turn(body=body):
                return self.block(body, ends, held)
            case ir.End(what="session"):
                return {}
            case _:
                return ends

    def run(self, run: ir.Run, ends: _Ends, held: tuple[int, ...]) -> _Ends:
        stages = tuple(ref.base for ref in run.stages)
        self.found.visits.append(Visit(stages, held))
        self.follow(ends, stages[0], ())
        for one, two in pairwise(stages):
            self.found.step(one, two, ())
        return {(stages[-1], ()): None}

    def follow(self, ends: _Ends, stage: int, further: tuple[str, ...]) -> None:
        """A stage comes after these places; after the beginning of a loop it is one of the loop's first."""
        for at, conditions in ends:
            met = (*conditions, *(one for one in further if one not in conditions))
            if at >= 0:
                self.found.step(at, stage, met)
            else:
                self.firsts[-1 - at].append((stage, met))

    def loop(self, loop: ir.While, ends: _Ends, held: tuple[int, ...]) -> _Ends:
        """The body follows what was before the loop and its own end: a negative place stands for the beginning."""
        if loop.test == ir.Num(0.0):
            return ends
        always = isinstance(loop.test, ir.Num)
        label = "" if always else condition(self.program, loop.test)
        self.firsts.append([])
        beginning = -len(self.firsts)
        out = self.block(loop.body, _met({**ends, (beginning, ()): None}, label), held)
        round_ = {place: None for place in out if place[0] != beginning}
        for first, conditions in self.firsts[-1 - beginning]:
            self.follow(round_, first, conditions)
        return {} if always else _few(_met({**ends, **round_}, _not(label)))


def _not(label: str) -> str:
    return f"not ({label})" if " " in label else f"not {label}"


def _few(ends: _Ends) -> _Ends:
    """The same places, each with few sets of conditions: more are not worth telling apart."""
    ways = Counter(at for at, _ in ends)
    return {(at, conditions if ways[at] <= _MOST_WAYS else ("…",)): None for at, conditions in ends}


def _met(ends: _Ends, label: str) -> _Ends:
    """The same places, with one more condition met since."""
    if not label:
        return ends
    return {(at, conditions if label in conditions else (*conditions, label)): None for at, conditions in ends}


# --- expressions as text ----------------------------------------------------------------------------------------------


def _text(program: ir.Program, expr: ir.Expr, depth: int = 0) -> str:
    """An expression as text; what lies deep inside is left out."""

    def inner(one: ir.Expr) -> str:
        text = _text(program, one, depth + 1)
        return f"({text})" if isinstance(one, ir.Binary | ir.Cond) else text

    if depth > _DEEPEST:
        return "…"
    match expr:
        case ir.Num(value):
            return f"{value:g}"
        case ir.Attr(slot):
            return program.attrs[slot]
        case ir.Ctx(name):
            return name
        case ir.Reg(index):
            return program.registers[index].name
        case ir.Unary(op, operand):
            return f"{op}{inner(operand)}"
        case ir.Binary(op, left, right):
            return f"{inner(left)} {op} {inner(right)}"
        case ir.Sample(kind, args):
            return f"~{kind}({', '.join(map(inner, args))})"
        case ir.Call(name, args, ref):
            resource = [] if ref is None else [_resource(program, name, ref)]
            return f"{name}({', '.join([*resource, *map(inner, args)])})"
        case ir.Cond(test, then, otherwise):
            return f"{inner(test)} ? {inner(then)} : {inner(otherwise)}"
        case _:
            return "…"


def _resource(program: ir.Program, query: str, ref: ir.Ref) -> str:
    rows = program.pools if query in POOL_QUERIES else program.stages
    name = rows[ref.base].name
    return name if ref.index is None else f"{name}[{_text(program, ref.index, _DEEPEST)}]"
