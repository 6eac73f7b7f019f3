"""The report of a run that has ended, read off its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from serq import ir
from serq.errors import RunError
from serq.report.report import Report
from serq.report.rows import ClaimRow, GaugeRow, ObserveRow, OverCap, PoolRow, Rows, StageRow
from serq.sim.gauges import GaugeSeries
from serq.sim.samples import SampleList
from serq.sim.selection import Selection

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.stages import StageState

__all__ = ["build_report"]


def build_report(kernel: Kernel, end: float, *, partial: bool = False, selections: Sequence[Selection] = ()) -> Report:
    """The figures of a run that has ended at `end`."""
    program = kernel.program
    start = program.warmup if end > program.warmup else 0.0
    clients = kernel.population.client.items() if program.client else ()
    return Report(
        horizon=program.horizon if program.horizon is not None else end,
        end=end,
        warmup=program.warmup,
        seed=program.seed,
        events=kernel.events,
        arrivals=kernel.population.arrivals,
        ended=kernel.population.ended,
        turns=kernel.population.turns,
        mean_live=kernel.population.live.mean(start, end),
        observes=Rows({samples.name: _observe_row(samples) for samples in kernel.samples}),
        client=Rows({name: _client_row(samples) for name, samples in clients}),
        gauges=Rows({series.name: _gauge_row(series, start, end) for series in kernel.gauges}),
        claims=tuple(_claim_row(kernel, i, partial) for i in range(len(program.claims))),
        stages=tuple(_stage_row(stage, start, end) for stage in kernel.stages),
        pools=tuple(_pool_row(pool, start, end) for pool in kernel.pools),
        partial=partial,
        iterations=tuple(selections),
    )


def _client_row(samples: SampleList) -> ObserveRow:
    samples.sort_by_time()
    return _observe_row(samples)


def _gauge_row(series: GaugeSeries, start: float, end: float) -> GaugeRow:
    changes = (tuple(series.times), tuple(series.values)) if series.whole else ((), ())
    return GaugeRow(series.name, *series.statistics(start, end), *changes)


def _observe_row(samples: SampleList) -> ObserveRow:
    found = samples.summary()
    return ObserveRow(
        samples.name,
        found.count,
        found.mean,
        found.ci,
        found.cv2,
        found.p99,
        found.p99_within,
        found.max,
        tuple(samples.samples),
        tuple(samples.times),
        tuple(samples.sessions),
        tuple(samples.turns),
    )


def _claim_row(kernel: Kernel, i: int, partial: bool) -> ClaimRow:
    claim = kernel.program.claims[i]
    outside = kernel.claims.scope[i]
    if outside is not None:
        return ClaimRow(
            claim.name, claim.kind, "out_of_scope", 0, 0, None, f"session {outside} does not satisfy `given`"
        )
    if claim.kind == "at_end":
        return _end_row(kernel, claim, partial)
    checked, failures = kernel.claims.checked[i], kernel.claims.failures[i]
    if claim.kind == "every_iteration":
        result = "fails" if failures else "holds"
    else:
        result = "witnessed" if checked > failures else "not_witnessed"
    return ClaimRow(claim.name, claim.kind, result, checked, failures, kernel.claims.first[i], None)


def _end_row(kernel: Kernel, claim: ir.Claim, partial: bool) -> ClaimRow:
    """What holds at the end is only known of a run in which every session has left."""
    live = kernel.population.count
    if partial or live:
        note = "the run was interrupted" if partial else f"{live} session{'s' * (live > 1)} live at the end"
        return ClaimRow(claim.name, claim.kind, "not_evaluated", 0, 0, None, note)
    holds = _end_value(kernel, claim.test) != 0
    first = None if holds else kernel.ctx.now
    return ClaimRow(claim.name, claim.kind, "holds" if holds else "fails", 1, 0 if holds else 1, first, None)


def _end_value(kernel: Kernel, expr: ir.Expr) -> float:
    """An `at end` test: aggregates of observations become numbers first."""
    return kernel.function(_with_aggregates(kernel, expr))(kernel.no_attrs)


def _with_aggregates(kernel: Kernel, expr: ir.Expr) -> ir.Expr:
    match expr:
        case ir.Agg(kind, observe):
            return ir.Num(_aggregate(kernel, kind, observe))
        case ir.Unary(op, operand):
            return ir.Unary(op, _with_aggregates(kernel, operand))
        case ir.Binary(op, left, right):
            return ir.Binary(op, _with_aggregates(kernel, left), _with_aggregates(kernel, right))
        case ir.Cond(test, then, otherwise):
            parts = [_with_aggregates(kernel, part) for part in (test, then, otherwise)]
            return ir.Cond(parts[0], parts[1], parts[2])
        case ir.Call(name, args, ref):
            return ir.Call(name, tuple(_with_aggregates(kernel, arg) for arg in args), ref)
        case _:
            return expr


def _aggregate(kernel: Kernel, kind: str, observe: int) -> float:
    totals = kernel.samples[observe].totals
    if totals is None:
        raise RunError("run-amount", f"{kernel.samples[observe].name}: no totals were kept")
    return totals.figure(kind)


def _stage_row(stage: StageState, start: float, end: float) -> StageRow:
    from serq.sim.engine.stage import EngineStage
    from serq.sim.stages import FlowStage

    span = end - start
    done = stage.completed
    busy = stage.load.mean(start, end) if isinstance(stage, FlowStage) else stage.busy_time.mean(start, end)
    engine = stage if isinstance(stage, EngineStage) else None
    figures = engine.figures if engine else None
    batches = figures.decode_batches if figures else 0
    return StageRow(
        name=stage.name,
        index=stage.spec.index,
        mean_number=stage.number.mean(start, end),
        utilization=busy,
        completed=done,
        throughput=done / span if span > 0 else 0.0,
        mean_wait=stage.wait_total / done if done else None,
        mean_service=stage.service_total / done if done else None,
        iterations=figures.iterations if figures else 0,
        prefill_only=figures.phase_time["prefill"].mean(start, end) if figures else 0.0,
        decode_only=figures.phase_time["decode"].mean(start, end) if figures else 0.0,
        mixed=figures.phase_time["mixed"].mean(start, end) if figures else 0.0,
        mean_decodes=figures.decodes.mean(start, end) if figures else 0.0,
        mean_decode_batch=figures.decode_total / batches if figures and batches else None,
        mean_decode_step=figures.decode_duration / batches if figures and batches else None,
        mean_itl=figures.gaps.mean() if figures else None,
        itl_p50=figures.gaps.percentile(0.5) if figures else None,
        itl_p99=figures.gaps.percentile(0.99) if figures else None,
        itl_max=figures.gaps.max if figures else None,
        idle_with_work=bool(engine and engine.running is None and engine.idle_with_work and engine.has_work),
    )


def _pool_row(pool: PoolState, start: float, end: float) -> PoolRow:
    over = pool.kernel.over_cap(pool)
    return PoolRow(
        name=pool.name,
        index=pool.spec.index,
        mean_used=pool.mean_used.mean(start, end),
        mean_cached=pool.mean_cached.mean(start, end),
        mean_queue=pool.mean_queue.mean(start, end),
        mean_holders=pool.mean_holders.mean(start, end),
        mean_wait=pool.waits / pool.waits_counted if pool.waits_counted else None,
        admissions=pool.admissions,
        evicted_entries=pool.evicted_entries,
        evicted_units=pool.evicted_units,
        preemptions=pool.preemptions,
        spills=pool.spills,
        rejected=pool.rejected,
        stuck=pool.stuck,
        over_cap=None if over is None else OverCap(*over),
        growing_at_end=len(pool.growers),
        growing_stalled=bool(pool.growers) and pool.kernel.growers_stalled(pool),
    )
