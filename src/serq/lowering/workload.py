"""Arrivals, traces and the tool stage of a workload."""

from __future__ import annotations

from serq import ir
from serq.errors import Place, fail
from serq.lowering.build import Scope
from serq.lowering.expressions import constant, lower_number
from serq.lowering.settings import Settings
from serq.syntax import tree
from serq.syntax.walk import nested

__all__ = ["lower_arrival", "lower_trace", "needs_tool"]


def lower_arrival(arrive: tree.ArriveItem | None, scope: Scope) -> ir.Arrival:
    """How sessions arrive."""
    if arrive is None or arrive.value is None:
        return ir.Arrival()
    at = arrive.value.at
    if arrive.kind == "renewal":
        gap = lower_number(arrive.value, scope.to("arrival gap"), "a gap")
        if isinstance(gap, ir.Num) and not gap.value > 0:
            raise fail("value", "a gap between arrivals is above 0", at)
        return ir.Arrival("renewal", gap=gap)
    value = constant(arrive.value, scope, f"the argument of {arrive.kind!r}")
    if arrive.kind == "poisson":
        if not 0 < value < float("inf"):
            raise fail("value", f"a rate of arrivals is above 0 and finite, not {value:g}", at)
    elif not (1 <= value <= 1_000_000 and value % 1 == 0):
        raise fail("value", f"{arrive.kind!r} takes a whole number from 1 to 1000000, not {value:g}", at)
    return ir.Arrival(arrive.kind, value)


def lower_trace(workload: tree.WorkloadDecl, settings: Settings) -> ir.Trace | None:
    """The trace a workload replays; the caller's replaces the one written."""
    ordered = bool(workload.trace and workload.trace[1])
    if settings.trace is not None:
        return ir.Trace(settings.trace, ordered)
    return ir.Trace(workload.trace[0], ordered, folder=settings.folder or ".") if workload.trace else None


def needs_tool(body: tree.Body) -> Place | None:
    """Where a body spends time on the stage `tool` without naming another."""
    for one in nested(body):
        if isinstance(one, tree.RunStatement) and one.word == "tool" and not one.stages and one.member is None:
            return one.at
    return None
