"""Run a compiled program."""

from __future__ import annotations

from collections.abc import Sequence

from serq import ir
from serq.report import Report, build_report
from serq.sim.kernel import Kernel

__all__ = ["run"]


def run(
    program: ir.Program,
    *,
    trace: Sequence[Sequence[tuple[float, float, float, float]]] = (),
    iterations: bool = False,
) -> Report:
    """Simulate to the end and report.

    `trace` gives the sessions a trace program replays; without it they are read from the program's trace file.
    `iterations` also records every iteration of every engine.  Raises RunError where the run cannot go on.
    """
    kernel = Kernel(program, trace or _trace_of(program))
    if iterations:
        kernel.claims.iterations = []
    end = kernel.run()
    return build_report(kernel, end)


def _trace_of(program: ir.Program) -> Sequence[Sequence[tuple[float, float, float, float]]]:
    return () if program.trace is None or program.trace.sessions is None else program.trace.sessions
