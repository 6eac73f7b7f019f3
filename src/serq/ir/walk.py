"""Walking over the blocks of the interchange form."""

from __future__ import annotations

from collections.abc import Iterator

from serq import ir

__all__ = ["assignments", "inner_blocks", "reachable", "values"]


def inner_blocks(statement: ir.Stmt) -> tuple[int, ...]:
    """The blocks a statement holds, without the server a turn is submitted to."""
    match statement:
        case ir.Hold():
            extra = () if statement.on_preempt is None else (statement.on_preempt,)
            return (statement.body, *extra)
        case ir.Branch():
            return statement.then, statement.otherwise
        case ir.While() | ir.Fork():
            return (statement.body,)
        case ir.Turn():
            return () if statement.body is None else (statement.body,)
        case _:
            return ()


def reachable(program: ir.Program, start: int) -> Iterator[ir.Stmt]:
    """Every statement of a block and of the blocks inside it."""
    waiting = [start]
    seen = set()
    while waiting:
        block = waiting.pop()
        if block in seen:
            continue
        seen.add(block)
        for statement in program.blocks[block]:
            yield statement
            waiting.extend(inner_blocks(statement))


def assignments(statements: Iterator[ir.Stmt]) -> Iterator[tuple[int, ir.Expr]]:
    """Every slot that is assigned with the value it gets."""
    for statement in statements:
        if isinstance(statement, ir.Set):
            yield statement.slot, statement.value
        elif isinstance(statement, ir.Hold):
            yield from statement.bindings


def values(statement: ir.Stmt) -> Iterator[ir.Expr]:
    """The expressions a statement reads at the moment of a statement (headers of holds are not among them)."""
    match statement:
        case ir.Set() | ir.Observe():
            yield statement.value
        case ir.Grow() | ir.Shrink() | ir.Load():
            yield statement.amount
            if isinstance(statement, ir.Load) and statement.counted is not None:
                yield statement.counted
        case ir.Run():
            yield statement.work
            if statement.latency is not None:
                yield statement.latency
        case ir.Branch() | ir.While():
            yield statement.test
        case ir.Choose():
            yield statement.count
            yield from statement.keys
        case _:
            pass
