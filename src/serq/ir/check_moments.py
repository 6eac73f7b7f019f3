"""Does every expression of a program in the interchange form read only what exists when it is evaluated?"""

from __future__ import annotations

from collections.abc import Iterator

from serq import ir
from serq.errors import SerqError
from serq.ir.fold import parts
from serq.ir.moments import MOMENTS, Moment

__all__ = ["check_moments"]

_Placed = Iterator[tuple[ir.Expr | None, str]]


def check_moments(program: ir.Program) -> None:
    """Raises `SerqError` of kind `interchange` for a word, query or draw that the moment of its expression has not."""
    for expr, moment in _expressions(program):
        if expr is not None:
            for part in parts(expr):
                _check(part, MOMENTS[moment], program)


def _check(part: ir.Expr, moment: Moment, program: ir.Program) -> None:
    match part:
        case ir.Attr(slot):
            found = moment.attributes and (moment.hidden or slot not in program.hidden)
            what = f"the attribute {program.attrs[slot]!r}"
        case ir.Ctx(name):
            words = {*moment.words, *moment.dotted.values(), *(("now",) if moment.now else ())}
            found, what = name in words, repr(name)
        case ir.Sample():
            found, what = moment.draws, "a draw"
        case ir.Reg():
            found, what = moment.registers, "a register"
        case ir.Agg(kind):
            found, what = moment.name == "an end claim", repr(kind)
        case ir.Call(name, _, ref) if ref is not None:
            found, what = name in moment.queries, repr(name)
        case _:
            return
    if not found:
        raise SerqError("interchange", f"{what} cannot be read in {moment.name}")


def _expressions(program: ir.Program) -> _Placed:
    yield program.arrival.gap, "arrival gap"
    yield from ((gauge.value, "gauge") for gauge in program.gauges)
    for claim in program.claims:
        yield claim.given, "given clause"
        yield claim.test, "end claim" if claim.kind == "at_end" else "iteration claim"
    for pool in program.pools:
        yield from _pool(pool)
    for stage in program.stages:
        yield stage.capacity, "capacity"
        if stage.step is not None:
            yield from _step(stage.step)
    for block in program.blocks:
        for statement in block:
            yield from _statement(statement)


def _pool(pool: ir.Pool) -> _Placed:
    yield from ((key, "queue key") for key in pool.queue)
    yield from ((key, "eviction key") for key in pool.evict)
    yield from ((key, "victim key") for key in (*pool.preempt.keys, *pool.preempt.suspend))
    if pool.spill is not None:
        yield pool.spill.work, "spill"
        yield pool.spill.when, "spill"
        yield pool.spill.tier.index, "spill"
        yield pool.spill.via.index, "spill"


def _step(step: ir.Step) -> _Placed:
    yield step.budget, "budget"
    yield step.chunk, "chunk"
    yield step.cost, "step cost"
    waiting = list(step.iteration)
    while waiting:
        item = waiting.pop()
        waiting += (*item.then, *item.otherwise)
        yield from ((key, "order") for key in (item.only, *item.keys))
        yield from ((test, "guard") for test in (item.test, item.gate, item.value))


def _statement(statement: ir.Stmt) -> _Placed:
    match statement:
        case ir.Hold():
            yield from _hold(statement)
        case ir.Set() | ir.Observe():
            yield statement.value, "statement"
        case ir.Grow() | ir.Shrink():
            yield from ((expr, "statement") for expr in (statement.amount, statement.pool.index))
        case ir.Load():
            yield from ((expr, "statement") for expr in (statement.amount, statement.counted, statement.pool.index))
        case ir.Drop() | ir.Release():
            yield statement.pool.index, "statement"
        case ir.Run():
            refs = [ref.index for ref in (*statement.stages, *((statement.growing,) if statement.growing else ()))]
            yield from ((expr, "statement") for expr in (statement.work, statement.latency, *refs))
        case ir.Branch() | ir.While():
            yield statement.test, "statement"
        case ir.Choose():
            yield from ((expr, "statement") for expr in (statement.count, *statement.keys))
        case _:
            return


def _hold(hold: ir.Hold) -> _Placed:
    header = [hold.reuse, *(value for _, value in hold.bindings)]
    for part in hold.pools:
        header += [part.units, part.reserve]
        yield part.pool.index, "statement"
    yield from ((expr, "admission") for expr in header)
    yield from ((expr, "admission") for segment in hold.prefix for expr in segment)
    yield hold.cache, "statement"
    if hold.lease is not None:
        yield hold.lease.time, "statement"
        yield hold.lease.pool.index, "statement"
    if hold.cached_of is not None:
        yield hold.cached_of.index, "statement"
