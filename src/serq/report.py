"""What a run tells: plain attributes, and the same as JSON.  Specification, section 16.6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from serq import ir
from serq.errors import unknown_name
from serq.sim.context import RunError
from serq.sim.gauges import GaugeSeries
from serq.sim.samples import SampleList
from serq.verdict import Verdict, judge

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.stages import StageState

__all__ = ["ClaimRow", "GaugeRow", "ObserveRow", "OverCap", "PoolRow", "Report", "Rows", "StageRow", "build_report"]

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ObserveRow:
    """An observation's statistics and samples.

    The samples are those of a run that kept them: all of up to 100 000, of any number where they were asked for.
    Without them `p99` is exact to the relative error `p99_within`.  Times are in the program's own unit.
    """

    name: str
    count: int
    mean: float | None
    ci: float | None
    cv2: float | None
    p99: float | None
    p99_within: float
    max: float | None
    samples: tuple[float, ...] = field(default=(), repr=False)
    times: tuple[float, ...] = field(default=(), repr=False)
    sessions: tuple[int, ...] = field(default=(), repr=False)
    turns: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """A gauge's time average, interval, extremes and change points."""

    name: str
    mean: float | None
    ci: float | None
    min: float | None
    max: float | None
    times: tuple[float, ...] = field(default=(), repr=False)
    values: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim's outcome."""

    name: str
    kind: str
    result: str
    checked: int
    failures: int
    first: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage, or one member of a family."""

    name: str
    index: int | None
    mean_number: float
    utilization: float
    completed: int
    throughput: float
    mean_wait: float | None
    mean_service: float | None
    iterations: int
    prefill_only: float
    decode_only: float
    mixed: float
    mean_decodes: float
    mean_decode_batch: float | None
    mean_decode_step: float | None
    mean_itl: float | None
    itl_p50: float | None
    itl_p99: float | None
    itl_max: float | None
    idle_with_work: bool


@dataclass(frozen=True, slots=True)
class OverCap:
    """At the end of a run: the queue whose head asks for more than the capacity, and how much it asks for."""

    queue: str
    need: float


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool, or one member of a family."""

    name: str
    index: int | None
    mean_used: float
    mean_cached: float
    mean_queue: float
    mean_holders: float
    mean_wait: float | None
    admissions: int
    evicted_entries: int
    evicted_units: float
    preemptions: int
    spills: int
    rejected: int
    stuck: int
    over_cap: OverCap | None
    growing_at_end: int
    growing_stalled: bool


Row = TypeVar("Row")
_Named = TypeVar("_Named", StageRow, PoolRow, ClaimRow)


class Rows(dict[str, Row]):
    """Rows by name, in the order of the program; another name raises `UnknownNameError`, with the nearest."""

    def __missing__(self, name: str) -> Row:
        raise unknown_name("row", name, self)


TIME_UNIT: Final = "the program's own: the unit of its costs, gaps and latencies"
"""The unit of every time in a report."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """A finished run.  `partial` marks one that was interrupted.  Times are in the program's own unit."""

    horizon: float
    end: float
    warmup: float
    seed: int
    events: int
    arrivals: int
    ended: int
    turns: int
    mean_live: float
    observes: Rows[ObserveRow]
    client: Rows[ObserveRow]
    gauges: Rows[GaugeRow]
    claims: tuple[ClaimRow, ...]
    stages: tuple[StageRow, ...]
    pools: tuple[PoolRow, ...]
    partial: bool = False
    iterations: tuple[tuple[float, str, tuple[tuple[int, int, str, float], ...]], ...] = ()

    def stage(self, name: str) -> StageRow:
        """The first stage of that name; raises `UnknownNameError`, with the nearest, where there is none."""
        return _named("stage", name, self.stages)

    def pool(self, name: str) -> PoolRow:
        """The first pool of that name; raises `UnknownNameError`, with the nearest, where there is none."""
        return _named("pool", name, self.pools)

    def claim(self, name: str) -> ClaimRow:
        """The claim of that name; raises `UnknownNameError`, with the nearest, where there is none."""
        return _named("claim", name, self.claims)

    @property
    def verdict(self) -> Verdict:
        """What came of the run, in one line."""
        return judge(self)

    def __repr__(self) -> str:
        """One line: what came of the run and the names of its rows, without their samples."""
        names = {
            kind: [row.name for row in rows]
            for kind, rows in (
                ("client", self.client.values()),
                ("observes", self.observes.values()),
                ("gauges", self.gauges.values()),
                ("stages", self.stages),
                ("pools", self.pools),
                ("claims", self.claims),
            )
        }
        shown = ", ".join(f"{kind}: {_few(found)}" for kind, found in names.items() if found)
        return f"<Report to {self.end:g}: {self.verdict.text}; {shown}>"

    def to_json(self, *, samples: bool = False) -> dict[str, Any]:
        """Plain JSON values; non-finite numbers are null; samples and change points only when asked for."""
        skipped = () if samples else ("samples", "times", "sessions", "turns", "values")
        document = {item.name: _plain(getattr(self, item.name), skipped) for item in fields(self)}
        if not samples:
            del document["iterations"]
        if not self.claims:
            del document["claims"]
        return {**document, "time_unit": TIME_UNIT, "verdict": _plain(self.verdict, ())}


def _named(kind: str, name: str, rows: Sequence[_Named]) -> _Named:
    for row in rows:
        if row.name == name:
            return row
    raise unknown_name(kind, name, [row.name for row in rows])


def _few(names: Sequence[str]) -> str:
    """The first names, each once, and how many more there are."""
    once = list(dict.fromkeys(names))
    return " ".join(once[:_SHOWN]) + (f" and {len(once) - _SHOWN} more" if len(once) > _SHOWN else "")


def _plain(value: Any, skipped: Sequence[str]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: _plain(getattr(value, item.name), skipped) for item in fields(value) if item.name not in skipped
        }
    if isinstance(value, dict):
        return {key: _plain(item, skipped) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, skipped) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def build_report(kernel: Kernel, end: float, *, partial: bool = False) -> Report:
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
        iterations=tuple((time, name, tuple(grants)) for time, name, grants in kernel.claims.iterations or ()),
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
