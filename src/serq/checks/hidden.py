"""A value the deployment cannot know in advance may not be read before the work that uses it up has finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from serq import ir
from serq.errors import Place, fail
from serq.ir.fold import reads
from serq.ir.walk import values

__all__ = ["HiddenFlow", "refuse_decisions"]

Slots = frozenset[int]
_NONE: Slots = frozenset()


@dataclass
class _State:
    """What is known at a point: hidden slots already revealed, and hidden values each slot was computed from."""

    revealed: Slots = _NONE
    taint: dict[int, Slots] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(self.revealed, dict(self.taint))

    def merge(self, other: _State | None) -> _State:
        if other is None:
            return self
        slots = self.taint.keys() | other.taint.keys()
        taint = {slot: self.taint.get(slot, _NONE) | other.taint.get(slot, _NONE) for slot in slots}
        return _State(self.revealed & other.revealed, taint)


class HiddenFlow:
    """Follows hidden values through the statements.

    `strict` is the rule of the split edition, where a test or observation counts as a decision too.  `tainted` collects
    every slot that ever holds an unrevealed value, for the keys that may be read at any time.
    """

    def __init__(
        self,
        program: ir.Program,
        hidden: Slots,
        strict: bool,
        place: Callable[[ir.Stmt], Place | None] = lambda _: None,
    ) -> None:
        self.program = program
        self.hidden = hidden
        self.strict = strict
        self.place = place
        self.tainted: set[int] = set(hidden)

    def follow(self, block: int, skip: int = 0) -> None:
        """Walk from the start of a block, leaving out its first statements."""
        self._block(self.program.blocks[block][skip:], _State())

    def decision(self, expr: ir.Expr) -> Slots:
        """The slots a decision reads that may hold a hidden value."""
        return reads(expr) & self.tainted

    def _sources(self, expr: ir.Expr, state: _State) -> Slots:
        found: Slots = _NONE
        for slot in reads(expr):
            found |= frozenset({slot}) if slot in self.hidden else state.taint.get(slot, _NONE)
        return found

    def _block(self, block: tuple[ir.Stmt, ...], state: _State | None) -> _State | None:
        for statement in block:
            if state is None:
                return None
            state = self._statement(statement, state)
        return state

    def _inner(self, block: int, state: _State | None) -> _State | None:
        return self._block(self.program.blocks[block], state)

    def _statement(self, statement: ir.Stmt, state: _State) -> _State | None:
        if self.strict:
            self._check(statement, state)
        match statement:
            case ir.Set():
                return self._assign(statement.slot, statement.value, state)
            case ir.Run():
                return _State(state.revealed | self._sources(statement.work, state), state.taint)
            case ir.Hold():
                return self._hold(statement, state)
            case ir.Branch():
                one = self._inner(statement.then, state.copy())
                two = self._inner(statement.otherwise, state.copy())
                return two.merge(one) if two is not None else one
            case ir.While():
                for _ in range(3):
                    state = state.merge(self._inner(statement.body, state.copy()))
                return state
            case ir.Fork():
                self._inner(statement.body, state.copy())
                return state
            case ir.Turn(body=None):
                return state if self.program.turn is None else self._inner(self.program.turn, state)
            case ir.End():
                return None
            case _:
                return state

    def _check(self, statement: ir.Stmt, state: _State) -> None:
        if isinstance(statement, ir.Run | ir.Set):
            return
        for expr in values(statement):
            self._refuse(self._sources(expr, state) - state.revealed, statement)

    def _refuse(self, early: Slots, statement: ir.Stmt) -> None:
        for slot in sorted(early):
            name = self.program.attrs[slot]
            hint = "read it after the run whose work it is"
            message = f"the hidden value {name!r} is read before it can be known"
            raise fail("hidden", message, self.place(statement), hint=hint)

    def _assign(self, slot: int, value: ir.Expr, state: _State) -> _State:
        unknown = self._sources(value, state) - state.revealed
        if slot in self.hidden:
            state.revealed -= {slot}
            unknown = _NONE
        state.taint[slot] = unknown
        if unknown:
            self.tainted.add(slot)
        return state

    def _hold(self, statement: ir.Hold, state: _State) -> _State | None:
        for slot, expr in statement.bindings:
            state = self._assign(slot, expr, state)
        after = self._inner(statement.body, state)
        if after is not None and self.strict and statement.cache is not None:
            self._refuse(self._sources(statement.cache, after) - after.revealed, statement)
        return after


def refuse_decisions(flow: HiddenFlow, decisions: list[tuple[ir.Expr, str, Place | None]]) -> None:
    """Raises `hidden` for the first decision that reads a hidden value."""
    for expr, what, at in decisions:
        for slot in sorted(flow.decision(expr)):
            name = flow.program.attrs[slot]
            message = f"{what} reads {name!r}, which the deployment cannot know in advance"
            raise fail("hidden", message, at)
