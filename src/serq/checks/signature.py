"""Which attributes are certainly set where they are needed: replies when a turn ends, costs where they are spent."""

from __future__ import annotations

from serq import ir
from serq.errors import Place, SerqError, fail
from serq.ir.fold import reads
from serq.ir.walk import values

__all__ = ["check_assigned"]

Slots = frozenset[int]


class _Assigned:
    def __init__(self, program: ir.Program, costs: Slots) -> None:
        self.program = program
        self.costs = costs
        self.at_end: list[Slots] = []

    def block(self, block: int, state: Slots | None) -> Slots | None:
        for statement in self.program.blocks[block]:
            if state is None:
                return None
            state = self._statement(statement, state)
        return state

    def _statement(self, statement: ir.Stmt, state: Slots) -> Slots | None:
        for expr in values(statement):
            self._spent(expr, state)
        match statement:
            case ir.Set() | ir.Choose():
                return state | {statement.slot}
            case ir.Hold():
                return self._hold(statement, state)
            case ir.Branch():
                one, two = self.block(statement.then, state), self.block(statement.otherwise, state)
                return two if one is None else one if two is None else one & two
            case ir.While():
                self.block(statement.body, state)
                return None if statement.test == ir.Num(1.0) else state
            case ir.Fork():
                self.block(statement.body, state)
                return state
            case ir.End():
                self.at_end.append(state)
                return None
            case _:
                return state

    def _hold(self, statement: ir.Hold, state: Slots) -> Slots | None:
        for slot, expr in statement.bindings:
            self._spent(expr, state)
            state |= {slot}
        for part in statement.pools:
            self._spent(part.units, state)
        return self.block(statement.body, state)

    def _spent(self, expr: ir.Expr, state: Slots) -> None:
        for slot in sorted((reads(expr) & self.costs) - state):
            name = self.program.attrs[slot]
            raise SerqError("cost", f"the cost {name!r} is not set on every path that reads it")


def check_assigned(program: ir.Program, block: int, costs: Slots, replies: list[tuple[int, str, Place]]) -> None:
    """Raises `signature` for a reply that some path leaves unset, `cost` for a cost read before it is set."""
    found = _Assigned(program, costs)
    end = found.block(block, frozenset())
    ends = found.at_end if end is None else [*found.at_end, end]
    for slot, name, at in replies:
        if any(slot not in state for state in ends):
            raise fail("signature", f"the reply {name!r} is not set on every path", at)
