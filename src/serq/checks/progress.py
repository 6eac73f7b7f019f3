"""Loops must be able to pass time on every path through their body."""

from __future__ import annotations

from collections.abc import Callable

from serq import ir
from serq.errors import Place, fail
from serq.ir.walk import reachable

__all__ = ["check_progress"]


def check_progress(
    program: ir.Program, starts: tuple[int, ...], place: Callable[[ir.Stmt], Place | None] = lambda _: None
) -> None:
    """Raises `progress` for a loop whose body has a path that never waits."""
    for start in starts:
        for statement in reachable(program, start):
            if isinstance(statement, ir.While) and not _passes(program, statement.body):
                hint = "let every path run a stage, take a turn that does, or end"
                message = "a loop may go round for ever without passing time"
                raise fail("progress", message, place(statement), hint=hint)


def _passes(program: ir.Program, block: int) -> bool:
    return any(_waits(program, statement) for statement in program.blocks[block])


def _waits(program: ir.Program, statement: ir.Stmt) -> bool:
    match statement:
        case ir.Run():
            return statement.work != ir.Num(0.0) or statement.latency not in (None, ir.Num(0.0))
        case ir.End():
            return True
        case ir.Hold():
            return _passes(program, statement.body)
        case ir.Branch():
            return _passes(program, statement.then) and _passes(program, statement.otherwise)
        case ir.While():
            return statement.test == ir.Num(1.0)
        case ir.Turn(body=int() as body):
            return _passes(program, body)
        case _:
            return False
