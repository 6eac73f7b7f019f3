"""The event loop: events in order of time and scheduling, settling, iterations.

Deterministic: nothing depends on the host's clock, hashes or threads.  Source: docs/language.md, "Events and settling".
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

from serq import ir
from serq.errors import RunError
from serq.ir.fold import parts
from serq.sim.claims import Claims
from serq.sim.context import Context
from serq.sim.engine.ahead import DecodeRuns
from serq.sim.engine.stage import EngineStage
from serq.sim.expr import ExprCompiler, Function
from serq.sim.gauges import GaugeSeries
from serq.sim.growth import Growth
from serq.sim.holds import Holds
from serq.sim.leases import Leases
from serq.sim.pools import PoolState
from serq.sim.population import Population, Rows
from serq.sim.rng import Rng
from serq.sim.samples import SampleList, Totals
from serq.sim.selection import Observer
from serq.sim.sessions import Session, StatementCompiler
from serq.sim.stages import DelayStage, FifoStage, FlowFabric, FlowStage, PsStage, StageState

__all__ = ["Kernel"]

_MACHINE = 0x5851F42D4C957F2D
_EVICTION = 0x2545F4914F6CDD1D
_WARMUP, _EVENT, _TICK = 0, 1, 2
_WATCHED = 2048
_GAPLESS = 10_000


class Kernel:
    """One run of one program.

    `keep` keeps every sample and every change of a gauge; else their number is bounded, and so is the memory.
    """

    def __init__(self, program: ir.Program, trace: Sequence[Rows] = (), *, keep: bool = False) -> None:
        self.program = program
        self.machine_rng = Rng(program.seed ^ _MACHINE)
        self.eviction_rng = Rng(program.seed ^ _EVICTION)
        self._arrival_rng = Rng(program.seed)
        self.ctx = Context(self.machine_rng)
        self.registers = [register.initial for register in program.registers]
        self.no_attrs = [0.0] * len(program.attrs)
        slots = dict(program.builtins)
        self.slot_cached, self.slot_computed = slots["cached"], slots["computed"]
        self.slot_turn = slots["turn_no"]
        asked = _asked_totals(program)
        self.samples = [
            SampleList(name, keep=keep, totals=Totals() if i in asked else None)
            for i, name in enumerate(program.observes)
        ]
        self.gauges = [GaugeSeries(gauge.name, program.warmup, keep=keep) for gauge in program.gauges]
        self.events = 0
        self.stopped_at: float | None = None
        self.dirty_stages: set[int] = set()
        self.dirty_fabric = False
        self.moving_gauges = False
        self.offered = True
        self._order = 0
        self._sequence = 0
        self._gapless = 0
        self.heap: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        self.population = Population(self, trace, keep=keep)
        self.holds, self.growth, self.leases = Holds(self), Growth(self), Leases(self)
        self.claims = Claims(self)
        self.observer: Observer | None = None
        self._build()

    def _build(self) -> None:
        program = self.program
        self.pools = [PoolState(self, spec, i) for i, spec in enumerate(program.pools)]
        flows = _fabric(program)
        self.fabric = FlowFabric(self, flows[1]) if flows[0] else None
        self.stages: list[StageState] = [self._stage(spec, i, flows[0]) for i, spec in enumerate(program.stages)]
        self.expressions = ExprCompiler(self.ctx, self.pools, self.stages, self.registers)
        self.engines = [stage for stage in self.stages if isinstance(stage, EngineStage)]
        for pool in self.pools:
            pool.compile()
            if pool.spec.admit_via is not None:
                engine = self.stages[pool.spec.admit_via]
                pool.admit_via = engine
                if isinstance(engine, EngineStage):
                    engine.queues.append(pool)
        for stage in self.stages:
            stage.compile()
        for engine in self.engines:
            if engine.step.memory is not None:
                engine.memory = self.pools[engine.step.memory]
                engine.memory.engine = engine
        self._gauge_functions = [self.function(gauge.value) for gauge in program.gauges]
        self.claims.compile()
        self.population.compile(StatementCompiler(self))
        self._gap = self.optional(program.arrival.gap)

    def _stage(self, spec: ir.Stage, position: int, flows: set[int]) -> StageState:
        if position in flows and self.fabric is not None:
            flow = FlowStage(self, spec, position, self.fabric)
            self.fabric.stages.append(flow)
            return flow
        kinds: dict[str, Callable[[Kernel, ir.Stage, int], StageState]] = {
            "fifo": FifoStage,
            "ps": PsStage,
            "delay": DelayStage,
            "step": EngineStage,
        }
        return kinds[spec.kind](self, spec, position)

    # --- services for stages, pools and statements --------------------------------------------------------------------

    def function(self, expr: ir.Expr) -> Function:
        return self.expressions.function(expr)

    def optional(self, expr: ir.Expr | None) -> Function | None:
        return self.expressions.optional(expr)

    def pool_ref(self, ref: ir.Ref) -> Callable[[list[float]], Any]:
        return self.expressions.reference(ref, self.pools)

    def stage_ref(self, ref: ir.Ref) -> Callable[[list[float]], Any]:
        return self.expressions.reference(ref, self.stages)

    def next_order(self) -> int:
        self._order += 1
        return self._order

    def schedule(self, time: float, action: Callable[[Any], None], payload: Any, phase: int = _EVENT) -> None:
        """An event; one that never comes (infinite time) is not kept."""
        if time < math.inf:
            heapq.heappush(self.heap, (time, phase, self.next_sequence(), action, payload))

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def schedule_tick(self, pool: PoolState, period: float, *, later: bool = True) -> None:
        """A tick at the next multiple of the period, later than now, or now if it has not ticked yet."""
        now = self.ctx.now
        at = math.floor(now / period) * period
        if later or at < now or pool.ticked_at == now:
            at = (math.floor(now / period) + 1) * period
        if pool.tick_at != at:
            pool.tick_at = at
            heapq.heappush(self.heap, (at, _TICK, pool.position, self._tick, pool))

    def guard(self, value: float) -> bool:
        if value == 1.0:
            return True
        if value == 0.0:
            return False
        raise RunError("run-guard", f"a guard must be 0 or 1, got {value:g}")

    def amount(self, value: float, what: str) -> float:
        if value >= 0:
            return value
        raise RunError("run-amount", f"{what}: the amount must not be negative or undefined, got {value:g}")

    def observe(self, samples: SampleList, value: float, s: Session) -> None:
        if samples.totals is not None:
            samples.totals.add(value)
        if self.ctx.now >= self.program.warmup:
            samples.add(value, self.ctx.now, s.serial, s.turn_no)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def serve_pools(self) -> None:
        for pool in self.pools:
            if pool.growers or (pool.serves_itself and (pool.front or pool.waiting)):
                pool.serve()

    def _settle(self) -> None:
        self.offered = True
        while True:
            while self.population.ready:
                self.population.resume(self.population.ready.popleft())
            self.serve_pools()
            if not self.population.ready:
                return

    def _tick(self, pool: PoolState) -> None:
        pool.tick_at, pool.ticked_at = -1.0, self.ctx.now
        if pool.spec.queue_every is not None:
            for frame in pool.in_turn():
                if frame.session.waiting_in is frame and self.holds.try_admit(frame):
                    self._settle()
            if pool.head() is not None:
                self.schedule_tick(pool, pool.spec.queue_every)
        if pool.spec.preempt.every is not None:
            self.leases.tick(pool, pool.spec.preempt.every)

    def _iterate(self) -> bool:
        """Let idle engines form iterations, unless an event is due at this very instant.

        What a preemption frees is offered when the next event settles, unless the iteration also admitted somebody.
        """
        changed = False
        for engine in self.engines:
            if self.heap and self.heap[0][0] == self.ctx.now:
                return changed
            if engine.running is None and engine.has_work and engine.form():
                changed = True
                if engine.preempted:
                    self.offered = False
                if engine.admitted:
                    self._settle()
        return changed

    def _conclude(self) -> None:
        """Settle, iterate and reschedule after an event has been applied."""
        self._settle()
        while self._iterate():
            pass
        if self.dirty_stages:
            for position in sorted(self.dirty_stages):
                self.stages[position].reschedule()
            self.dirty_stages.clear()
        if self.dirty_fabric and self.fabric is not None:
            self.dirty_fabric = False
            self.fabric.reschedule()
        self.record_gauges()

    def record_gauges(self) -> None:
        if not self.gauges:
            return
        for series, value in zip(self.gauges, self._gauge_functions, strict=True):
            series.record(self.ctx.now, value(self.no_attrs))

    def run(self, watch: Callable[[float], None] | None = None, *, step_by_step: bool = False) -> float:
        """Run to the end; returns the end time.

        `watch` is told the fraction done every few thousand events.  `step_by_step` forms every iteration of an engine
        by itself, also where many are alike.  Raises RunError, which knows the time, where the run cannot go on.
        """
        try:
            return self._run(watch, step_by_step=step_by_step)
        except RunError as error:
            raise error.located(time=self.ctx.now) from None

    def _run(self, watch: Callable[[float], None] | None, *, step_by_step: bool) -> float:
        program = self.program
        self.horizon = program.horizon if program.horizon is not None else 0.0
        decode_runs = DecodeRuns(self)
        together = decode_runs.possible and not step_by_step
        if program.warmup > 0:
            self.schedule(program.warmup, self._end_warmup, None, _WARMUP)
        self._first_arrivals()
        self._conclude()
        heap, seen = self.heap, 0
        while heap and self.stopped_at is None:
            if together and type(heap[0][4]) is EngineStage and heap[0][0] <= self.horizon:
                decode_runs.ahead(heap[0][4])
            time = heap[0][0]
            if time > self.horizon:
                break
            _, _, _, action, payload = heapq.heappop(heap)
            self.ctx.now = time
            self.events += 1
            action(payload)
            self._conclude()
            if watch is not None and self.events >= seen + _WATCHED:
                seen = self.events
                watch(self.fraction(self.horizon))
        return self.finish(self.horizon)

    def fraction(self, horizon: float) -> float:
        """How much of the run is done."""
        wanted = self.program.arrivals
        if wanted:
            return (self.population.arrivals - self.population.count) / wanted
        return self.ctx.now / horizon

    def finish(self, horizon: float) -> float:
        """Check that the run could end as it did; returns its end."""
        wanted = self.program.arrivals
        if wanted is not None:
            if self.stopped_at is None:
                arrived = f"{self.population.arrivals} of {wanted} sessions arrived by the horizon"
                message = f"{arrived}, {self.population.count} of them have not ended"
                raise RunError("run-drain", message).located(time=horizon)
            if self.stopped_at <= self.program.warmup and self.program.warmup > 0:
                message = "every session ended at or before the end of the warm-up"
                raise RunError("run-drain", message).located(time=self.stopped_at)
            horizon = self.stopped_at
        self.ctx.now = horizon
        self._check_cycles()
        for s in self.population.present.values():
            self.population.unended(s.turn)
        return horizon

    def _check_cycles(self) -> None:
        for pool in self.pools:
            for frame in (*pool.front, *pool.waiting, *(grower.frame for grower in pool.growers)):
                leg = frame.session
                if leg.root is leg or not leg.root.joining:
                    continue
                holders = [s for s, _ in pool.holding.values()]
                if holders and all(s is leg.root for s in holders):
                    note = f"session {leg.serial} waits in join for a leg that waits for its {pool.name}"
                    raise RunError("run-cycle", note).located(session=leg.serial, time=self.ctx.now)

    def _end_warmup(self, _: None) -> None:
        now = self.ctx.now
        self.population.live.restart(now)
        for pool in self.pools:
            pool.restart_statistics(now)
        for stage in self.stages:
            stage.restart_statistics(now)

    def _first_arrivals(self) -> None:
        arrival = self.program.arrival
        if arrival.kind in ("closed", "batch"):
            for _ in range(int(arrival.value)):
                self.population.start()
        elif arrival.kind == "poisson":
            self.schedule(0.0, self._arrive, None)
        elif arrival.kind == "renewal":
            self.schedule(self.next_gap(), self._arrive, None)

    def next_gap(self) -> float:
        """Time until the next arrival."""
        arrival = self.program.arrival
        if arrival.kind == "poisson":
            return self._arrival_rng.exp(1.0 / arrival.value) if arrival.value > 0 else math.inf
        ctx = self.ctx
        rng, ctx.rng = ctx.rng, self._arrival_rng
        gap = self._gap(self.no_attrs) if self._gap is not None else math.inf
        ctx.rng = rng
        self._gapless = self._gapless + 1 if gap == 0 else 0
        if self._gapless > _GAPLESS:
            raise RunError("run-progress", f"more than {_GAPLESS} sessions in a row arrive at {ctx.now:g}")
        return self.amount(gap, "arrival gap")

    def gaps(self, count: int) -> list[float]:
        """The next gaps between arrivals."""
        arrival = self.program.arrival
        if arrival.kind != "poisson" or arrival.value <= 0:
            return [self.next_gap() for _ in range(count)]
        mean, log = -1.0 / arrival.value, math.log
        return [mean * log(1.0 - u) for u in self._arrival_rng.randoms(count)]

    def _arrive(self, _: None) -> None:
        wanted = self.program.arrivals
        if wanted is None or self.population.arrivals + 1 < wanted:
            self.schedule(self.ctx.now + self.next_gap(), self._arrive, None)
        self.population.start()

    def over_cap(self, pool: PoolState) -> tuple[str, float] | None:
        """At the end of a run: the queue whose head needs more of the pool than there is, and how much."""
        for queue in self.pools:
            frame = queue.head()
            if frame is not None and pool in frame.pools:
                need = self.holds.asked(frame, pool)
                if pool.round_up(need) > pool.cap:
                    return queue.name, need
        return None

    @staticmethod
    def growers_stalled(pool: PoolState) -> bool:
        """Whether every holder is a waiting grower."""
        growing = {id(grower.session) for grower in pool.growers}
        return all(key in growing for key in pool.holding)


def _asked_totals(program: ir.Program) -> set[int]:
    """The observations that claims aggregate."""
    return {part.observe for claim in program.claims for part in parts(claim.test) if isinstance(part, ir.Agg)}


def _fabric(program: ir.Program) -> tuple[set[int], str]:
    """Stages joined by flows, and their policy."""
    joined: set[int] = set()
    policy = program.share or "maxmin"
    for block in program.blocks:
        for stmt in block:
            if isinstance(stmt, ir.Run) and len(stmt.stages) > 1:
                policy = stmt.share or policy
                for ref in stmt.stages:
                    joined.update(range(ref.base, ref.base + ref.count))
    return joined, policy
