"""What a hold asks for may not rest on a state that has moved on by the time it is admitted.

An attribute that was set from live state (a query of a pool or stage) is stale in the header of a hold: it would be
read at every attempt, long after it was true.  Assignments are followed in the order in which a session meets them, as
far as every way to the hold passes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from serq import ir
from serq.errors import Place, fail
from serq.ir.fold import parts, reads

__all__ = ["check_stale"]

_State = frozenset[int]
Headers = Iterable[tuple[ir.Expr, str, Place | None]]


def check_stale(program: ir.Program, headers: Headers) -> None:
    """Raises `lint` for the first header that reads a stale attribute."""
    walk = _Walk(program, headers)
    state: _State = frozenset()
    if program.init is not None:
        state = walk.block(program.init, state)
    walk.block(program.session, state)
    for what, at, slot in walk.found:
        name = program.attrs[slot]
        hint = f"read it when the hold is admitted: 'at admission ({name} = …)'"
        message = f"{what} reads {name!r}, taken from live state that may have changed by the admission"
        raise fail("lint", message, at, hint=hint)


class _Walk:
    """Follows a session; `found` holds the offending headers in the order in which they were met."""

    def __init__(self, program: ir.Program, headers: Headers) -> None:
        self._program = program
        self._headers = {id(expr): (what, at) for expr, what, at in headers}
        self.found: list[tuple[str, Place | None, int]] = []

    def block(self, index: int, state: _State) -> _State:
        """The stale attributes after a block that begins with these."""
        for statement in self._program.blocks[index]:
            state = self._statement(statement, state)
        return state

    def _statement(self, statement: ir.Stmt, state: _State) -> _State:
        match statement:
            case ir.Set(slot, value):
                live = any(isinstance(part, ir.Call) and part.ref is not None for part in parts(value))
                return state | {slot} if live else state - {slot}
            case ir.Choose(slot):
                return state - {slot}
            case ir.Hold():
                return self._hold(statement, state)
            case ir.Branch(_, then, otherwise):
                return self._inner(then, state) & self._inner(otherwise, state)
            case ir.While(_, body):
                return self._inner(body, state)
            case ir.Fork(body):
                self.block(body, state)
                return state
            case ir.Turn(body):
                if self._program.turn is not None:
                    state = self.block(self._program.turn, state)
                return state if body is None else self.block(body, state)
            case _:
                return state

    def _inner(self, index: int, state: _State) -> _State:
        """A block inside: what it sets from live state may not have been set, so it is not held against those after."""
        return self.block(index, state) & state

    def _hold(self, hold: ir.Hold, state: _State) -> _State:
        for slot, value in hold.bindings:
            self._read(value, state)
            state -= {slot}
        for value in _asked(hold):
            self._read(value, state)
        return self._inner(hold.body, state)

    def _read(self, value: ir.Expr, state: _State) -> None:
        header = self._headers.get(id(value))
        if header is not None:
            self.found.extend((*header, slot) for slot in sorted(reads(value) & state))


def _asked(hold: ir.Hold) -> Iterator[ir.Expr]:
    for item in hold.pools:
        yield item.units
        if item.reserve is not None:
            yield item.reserve
    if hold.reuse is not None:
        yield hold.reuse
    for key, length in hold.prefix:
        yield from (key, length)
