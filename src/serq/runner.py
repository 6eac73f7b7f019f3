"""Run a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from serq import ir
from serq.errors import SerqError
from serq.report.measure import build_report
from serq.report.report import Report
from serq.sim.kernel import Kernel
from serq.sim.selection import Observer, Selection
from serq.sim.straight.plan import plan
from serq.sim.straight.run import NotStraightError, StraightRun
from serq.traces.replay import with_trace

__all__ = ["run"]

Rows = Sequence[tuple[float, float, float, float]]


def run(
    program: ir.Program,
    *,
    trace: Sequence[Rows] = (),
    iterations: bool = False,
    samples: bool = False,
    watch: Callable[[float], None] | None = None,
    step_by_step: bool = False,
    observer: Observer | None = None,
) -> Report:
    """Simulate to the end and report.

    `trace` gives the sessions a trace program replays, each a list of (new, out, think, forced); without it those the
    program carries or its trace file holds.  `observer` is given every iteration of every engine as it begins, a frozen
    `Selection`, and changes nothing; `iterations` keeps them in the report.  `samples` keeps every sample and every
    change of a gauge, where otherwise those of a list that grows beyond 100 000 leave a digest only (percentiles then
    within 0.1 %).  `watch` is told now and then which fraction of the run is done.
    `step_by_step` takes every event and every engine iteration by itself, also where many could be run through
    together; the results agree to 1e-9.  A KeyboardInterrupt ends the run early: the report then says `partial`.
    Raises RunError where the run cannot go on, SerqError where the trace cannot be read or the program is nested too
    deeply.  Time is linear in the events; memory in the sessions present, not in the length of the run, and in what was
    to be kept.
    """
    rows = trace or _rows(program)
    recorded: list[Selection] = []
    straight = None if step_by_step else plan(program)
    try:
        if straight is not None:
            kernel = _kernel(program, rows, samples)
            with suppress(NotStraightError):
                return build_report(kernel, StraightRun(kernel, straight).run(watch))
        kernel = _kernel(program, rows, samples)
        kernel.observer = _observing(observer, recorded if iterations else None)
        end = kernel.run(watch, step_by_step=step_by_step)
    except KeyboardInterrupt:
        return build_report(kernel, kernel.ctx.now, partial=True, selections=recorded)
    return build_report(kernel, end, selections=recorded)


def _observing(observer: Observer | None, recorded: list[Selection] | None) -> Observer | None:
    """Who is given the iterations of a run: the caller's observer, the record, both, or nobody."""
    if observer is None or recorded is None:
        return observer if recorded is None else recorded.append

    def both(selection: Selection) -> None:
        recorded.append(selection)
        observer(selection)

    return both


def _kernel(program: ir.Program, rows: Sequence[Rows], samples: bool) -> Kernel:
    try:
        return Kernel(program, rows, keep=samples)
    except RecursionError:
        raise SerqError("syntax", "an expression or a block is nested too deeply to be run") from None


def _rows(program: ir.Program) -> Sequence[Rows]:
    loaded = with_trace(program).trace
    return () if loaded is None or loaded.sessions is None else loaded.sessions
