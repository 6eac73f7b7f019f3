"""The event loop: events in order of time and scheduling, settling, iterations.  Specification, section 11.

Deterministic: nothing depends on the host's clock, hashes or threads.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from serq import ir
from serq.sim.context import Context, RunError
from serq.sim.engine import EngineStage
from serq.sim.expr import ExprCompiler, Function, reads_live_state
from serq.sim.pools import Entry, Lease, PoolState
from serq.sim.rng import Rng, StreamBank, stream_seed
from serq.sim.sessions import (
    CompiledHold,
    HoldFrame,
    Ops,
    PreemptedError,
    Session,
    SessionEndError,
    StatementCompiler,
    run_ops,
)
from serq.sim.stages import DelayStage, FifoStage, FlowFabric, FlowStage, Job, PsStage, StageState
from serq.sim.stats import GaugeSeries, SampleList, TimeAverage

__all__ = ["Kernel"]

_MACHINE = 0x5851F42D4C957F2D
_TRACE = 0x6A09E667F3BCC908
_EVICTION = 0x2545F4914F6CDD1D
_WAKEUPS = 1001
_WARMUP, _EVENT, _TICK = 0, 1, 2

Rows = Sequence[tuple[float, float, float, float]]


class Kernel:
    """One run of one program."""

    def __init__(self, program: ir.Program, trace: Sequence[Rows] = ()) -> None:
        self.program = program
        self.trace = trace
        seed = program.seed
        self.machine_rng = Rng(seed ^ _MACHINE)
        self.eviction_rng = Rng(seed ^ _EVICTION)
        self._arrival_rng = Rng(seed)
        self._trace_rng = Rng(seed ^ _TRACE)
        self._bank = StreamBank(seed, 2)
        self.ctx = Context(self.machine_rng)
        self.registers = [register.initial for register in program.registers]
        self.no_attrs = [0.0] * len(program.attrs)
        slots = dict(program.builtins)
        self.slot_cached, self.slot_serial = slots["cached"], slots["serial"]
        self.slot_turn, self.slot_computed = slots["turn_no"], slots["computed"]
        self._row_slots = [slots[name] for name in ("new", "out", "think", "forced")]
        self._slot_more = slots["more"]
        self.samples = [SampleList(name) for name in program.observes]
        self.client: dict[str, SampleList] = {name: SampleList(name) for name in ("ttft", "tpot", "response")}
        self.gauges = [GaugeSeries(gauge.name) for gauge in program.gauges]
        self.iterations: list[tuple[float, str, list[tuple[int, int, str, float]]]] | None = None
        self._counters()
        self._build()

    def _counters(self) -> None:
        self.events = 0
        self.arrivals = 0
        self.ended = 0
        self.turns = 0
        self.live = TimeAverage()
        self._live = 0
        self._order = 0
        self._sequence = 0
        self._admissions = 0
        self._heap: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        self._ready: deque[Session] = deque()
        self._running: Session | None = None
        self.dirty_stages: set[int] = set()
        self.dirty_fabric = False
        self._sessions: dict[int, Session] = {}
        self._wakeup_at = -1.0
        self._stopped_at: float | None = None
        self.open_turns: list[Any] = []

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
        self._claims()
        compiler = StatementCompiler(self)
        self._init, self._turn_block = compiler.block(program.init), compiler.block(program.turn)
        self._session_block = compiler.block(program.session)
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

    def _claims(self) -> None:
        self.claim_tests = [
            self.function(claim.test) if claim.kind != "at_end" else None for claim in self.program.claims
        ]
        self.claim_given = [self.optional(claim.given) for claim in self.program.claims]
        n = len(self.program.claims)
        self.claim_checked, self.claim_failures = [0] * n, [0] * n
        self.claim_first: list[float | None] = [None] * n
        self.claim_scope: list[int | None] = [None] * n

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
            self._sequence += 1
            heapq.heappush(self._heap, (time, phase, self._sequence, action, payload))

    def schedule_tick(self, pool: PoolState, period: float) -> None:
        """The next multiple of the period strictly later than now."""
        at = (math.floor(self.ctx.now / period) + 1) * period
        if pool.tick_at != at:
            pool.tick_at = at
            heapq.heappush(self._heap, (at, _TICK, pool.position, self._tick, pool))

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
        samples.whole_run.append(value)
        if self.ctx.now >= self.program.warmup:
            samples.add(value, self.ctx.now, s.serial, s.turn_no)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def make_ready(self, s: Session) -> None:
        s.ready = True
        s.waiting_in = None
        self._ready.append(s)

    def start_session(self) -> None:
        serial = self.arrivals
        self.arrivals += 1
        self._live += 1
        self.live.set(float(self._live), self.ctx.now)
        attrs = [0.0] * len(self.program.attrs)
        attrs[self.slot_serial] = float(serial)
        s = Session(self, serial, attrs, self._bank.stream(serial))
        self._sessions[serial] = s
        if self.trace:
            ordered = self.program.trace is not None and self.program.trace.ordered
            pick = serial % len(self.trace) if ordered else self._trace_rng.range_u32(0, len(self.trace) - 1)
            s.rows = self.trace[pick]
        if self._init:
            self._immediate(self._init, s, Rng(stream_seed(self.program.seed, serial, 0, 1)))
        for i, given in enumerate(self.claim_given):
            if given is not None and self.claim_scope[i] is None and not given(attrs):
                self.claim_scope[i] = serial
        s.gen = self._life(s)
        self.make_ready(s)

    def _immediate(self, ops: Ops, s: Session, rng: Rng) -> None:
        """Run statements that cannot wait, on a stream of their own."""
        ctx = self.ctx
        before = ctx.session, ctx.rng
        ctx.session, ctx.rng = s, rng
        for _, op in ops:
            op(s)
        ctx.session, ctx.rng = before

    def _life(self, s: Session) -> Any:
        with suppress(SessionEndError):
            yield from run_ops(self._session_block, s)
        self._end_session(s)

    def _end_session(self, s: Session) -> None:
        if s.legs:
            raise RunError("run-cycle", f"session {s.serial} ends while {s.legs} of its legs run")
        for lease in list(s.leases):
            self.end_lease(lease)
        self._live -= 1
        self.live.set(float(self._live), self.ctx.now)
        if self.ctx.now >= self.program.warmup:
            self.ended += 1
        del self._sessions[s.serial]
        if self.program.arrival.kind == "closed":
            self.start_session()
        elif not self._live and self.arrivals == self.program.arrivals:
            self._stopped_at = self.ctx.now

    def fork(self, s: Session, body: Ops) -> None:
        """A leg: a copy of the attributes runs the block, starting behind the sessions already ready."""
        index = s.root.legs_started
        s.root.legs_started += 1
        s.legs += 1
        leg = Session(self, s.serial, list(s.attrs), Rng(stream_seed(self.program.seed, s.serial, index, 3)), s.root)
        leg.turn = s.turn
        leg.gen = self._leg(leg, s, body)
        self.make_ready(leg)

    def _leg(self, leg: Session, parent: Session, body: Ops) -> Any:
        yield from run_ops(body, leg)
        for lease in leg.leases:
            lease.session = parent
            parent.leases.append(lease)
        leg.leases = []
        parent.legs -= 1
        if parent.joining and not parent.legs:
            parent.joining = False
            self.make_ready(parent)

    def begin_turn(self, s: Session) -> None:
        if self.ctx.now >= self.program.warmup:
            self.turns += 1
        attrs = s.attrs
        attrs[self.slot_turn] += 1
        s.last_token = None
        if s.row < len(s.rows):
            for slot, value in zip(self._row_slots, s.rows[s.row], strict=True):
                attrs[slot] = value
            s.row += 1
            attrs[self._slot_more] = 1.0 if s.row < len(s.rows) else 0.0
        elif s.rows:
            attrs[self._slot_more] = 0.0
        if self._turn_block:
            seed = stream_seed(self.program.seed, s.serial, int(attrs[self.slot_turn]), 1)
            self._immediate(self._turn_block, s, Rng(seed))

    def end_turn(self, s: Session) -> None:
        turn, now, warmup = s.turn, self.ctx.now, self.program.warmup
        if turn is None:
            return
        if turn.first is not None and turn.first >= warmup:
            self.client["ttft"].add(turn.first - turn.submitted, turn.first, turn.session, turn.number)
        if now >= warmup:
            self.client["response"].add(now - turn.submitted, now, turn.session, turn.number)
            if turn.tokens >= 2 and turn.first is not None:
                self.client["tpot"].add((now - turn.first) / (turn.tokens - 1), now, turn.session, turn.number)
        s.turn = None

    def resume(self, s: Session) -> None:
        """Let a session run until it waits or ends."""
        ctx = self.ctx
        before = ctx.session, ctx.rng, self._running
        ctx.session, ctx.rng, self._running = s, s.rng, s
        s.ready = False
        if ctx.now != self._wakeup_at:
            self._wakeup_at = ctx.now
            self._woken: dict[Session, int] = {}
        count = self._woken.get(s, 0) + 1
        self._woken[s] = count
        if count > _WAKEUPS:
            raise RunError("run-progress", f"session {s.serial} woke more than {_WAKEUPS} times at {ctx.now:g}")
        try:
            if s.gen is not None:
                next(s.gen)
        except StopIteration:
            s.gen = None
        finally:
            ctx.session, ctx.rng, self._running = before

    def run_now(self, s: Session) -> None:
        """Resume a ready session at once, through runs of zero work too, until it really waits or ends."""
        while s.ready:
            self._ready.remove(s)
            self.resume(s)

    def start_job(
        self, s: Session, stages: list[Any], work: float, mode: str, growing: PoolState | None, latency: float
    ) -> None:
        job = Job(s, stages, work, mode, self.ctx.now, growing=growing, latency=latency)
        s.job = job
        if latency > 0:
            for stage in stages:
                stage.delayed += 1
                stage.changed()
            self.schedule(self.ctx.now + latency, self._latency_over, job)
        else:
            stages[0].join(job)

    def _latency_over(self, job: Job) -> None:
        if job.gone:
            return
        for stage in job.stages:
            stage.delayed -= 1
            stage.changed()
        if job.work == 0 and job.session is not None:
            job.session.job = None
            self.make_ready(job.session)
            return
        job.stages[0].join(job)

    def job_done(self, job: Job) -> None:
        if job.session is not None:
            job.session.job = None
            self.make_ready(job.session)

    # --- holds --------------------------------------------------------------------------------------------------------

    def compile_hold(self, stmt: ir.Hold) -> CompiledHold:
        tainted: set[int] = set()
        for slot, expr in stmt.bindings:
            if reads_live_state(expr, frozenset(tainted)):
                tainted.add(slot)
        live = frozenset(tainted)
        fixed = [
            not reads_live_state(item.units, live)
            and (item.reserve is None or not reads_live_state(item.reserve, live))
            for item in stmt.pools
        ]
        return CompiledHold(
            refs=[self.pool_ref(item.pool) for item in stmt.pools],
            units=[self.function(item.units) for item in stmt.pools],
            reserves=[self.optional(item.reserve) for item in stmt.pools],
            fixed=fixed,
            reuse=self.optional(stmt.reuse),
            cache=self.optional(stmt.cache),
            bindings=[(slot, self.function(expr)) for slot, expr in stmt.bindings],
            prefix=[(self.function(key), self.function(length)) for key, length in stmt.prefix],
            private_from=stmt.private_from,
            lease_ref=None if stmt.lease is None else self.pool_ref(stmt.lease.pool),
            lease_time=None if stmt.lease is None else self.function(stmt.lease.time),
        )

    def _header(self, frame: HoldFrame) -> tuple[list[float], list[float]]:
        """Bindings, units and reserves, evaluated anew; whole blocks."""
        ctx, attrs, hold = self.ctx, frame.session.attrs, frame.hold
        ctx.session = frame.session
        for slot, binding in hold.bindings:
            attrs[slot] = binding(attrs)
        units, needs = [], []
        for pool, unit, reserve in zip(frame.pools, hold.units, hold.reserves, strict=True):
            size = pool.round_up(self.amount(unit(attrs), f"hold {pool.name}"))
            most = 0.0 if reserve is None else pool.round_up(self.amount(reserve(attrs), f"reserve of {pool.name}"))
            units.append(size)
            needs.append(max(size, most))
        return units, needs

    def rejects(self, frame: HoldFrame) -> bool:
        """Whether a demand that depends on attributes alone exceeds a capacity; counts the rejection."""
        if not any(frame.hold.fixed):
            return False
        _, needs = self._header(frame)
        for pool, need, fixed in zip(frame.pools, needs, frame.hold.fixed, strict=True):
            if fixed and need > pool.cap:
                pool.rejected += 1
                return True
        return False

    def join_queue(self, frame: HoldFrame) -> None:
        pool = frame.pools[0]
        frame.joined_at = self.ctx.now
        frame.order = self.next_order()
        frame.session.waiting_in = frame
        if pool.spec.queue_every is not None and pool.head() is None:
            self.schedule_tick(pool, pool.spec.queue_every)
        if frame.preempted and not frame.requeue_tail:
            pool.front.insert(0, frame)
        else:
            pool.waiting.append(frame)
        pool.changed()

    def waits_in_queue(self, s: Session) -> bool:
        return isinstance(s.waiting_in, HoldFrame)

    def try_admit(self, frame: HoldFrame) -> bool:
        """Admit the head if its demands fit in every pool."""
        before = self.ctx.session
        units, needs = self._header(frame)
        for i, (pool, need) in enumerate(zip(frame.pools, needs, strict=True)):
            twice = sum(n for other, n in zip(frame.pools[:i], needs[:i], strict=True) if other is pool)
            if not pool.fits(need + twice):
                self.ctx.session = before
                return False
        self._admit(frame, units, needs)
        self.ctx.session = before
        return True

    def _admit(self, frame: HoldFrame, units: list[float], needs: list[float]) -> None:
        s, hold, first = frame.session, frame.hold, frame.pools[0]
        first.leave_queue(frame)
        limit = math.inf if hold.reuse is None else self.amount(hold.reuse(s.attrs), "reuse")
        cached = 0.0
        for i, pool in enumerate(frame.pools):
            taken = pool.consume(s.root, limit) if hold.cache is not None else 0.0
            cached = max(cached, taken)
            frame.alloc[i], frame.position[i], frame.released[i] = units[i], taken, False
            pool.hold_units(frame, units[i])
            if pool.spec.reserve_held:
                frame.reserved[i] = max(needs[i] - units[i], 0.0)
                pool.reserve_total += frame.reserved[i]
            pool.admissions += 1
            pool.make_room()
            pool.changed()
        if self.ctx.now >= self.program.warmup:
            first.waits += self.ctx.now - frame.joined_at
            first.waits_counted += 1
        if hold.cache is not None:
            s.attrs[self.slot_cached] = cached
        frame.advanced = False
        self._admissions += 1
        s.admission = self._admissions
        s.holds.append(frame)
        self.make_ready(s)

    def end_hold(self, frame: HoldFrame, *, serve: bool) -> None:
        s, hold = frame.session, frame.hold
        limit = None if hold.cache is None else self.amount(hold.cache(s.attrs), "cache")
        leased = None if hold.lease_ref is None else hold.lease_ref(s.attrs)
        s.holds.remove(frame)
        for i, pool in enumerate(frame.pools):
            if frame.released[i]:
                continue
            computed = frame.position[i] if frame.advanced else frame.alloc[i]
            kept = None if limit is None else pool.round_down(min(limit, computed))
            if pool is leased and hold.lease_time is not None:
                self._begin_lease(frame, i, kept, self.amount(hold.lease_time(s.attrs), "lease"))
            else:
                self._give_back(frame, i, kept)
        if serve:
            self.serve_pools()

    def _give_back(self, frame: HoldFrame, i: int, kept: float | None) -> None:
        pool = frame.pools[i]
        frame.released[i] = True
        pool.reserve_total -= frame.reserved[i]
        frame.reserved[i] = 0.0
        pool.let_go(frame, frame.alloc[i])
        frame.alloc[i] = 0.0
        if kept is not None:
            pool.keep(frame.session.root, kept)
            pool.make_room()
        pool.changed()

    def _begin_lease(self, frame: HoldFrame, i: int, kept: float | None, time: float) -> None:
        pool, s = frame.pools[i], frame.session
        frame.released[i] = True
        pool.reserve_total -= frame.reserved[i]
        frame.reserved[i] = 0.0
        lease = Lease(pool, s, frame.alloc[i], kept)
        pool.let_go(frame, frame.alloc[i])
        pool.hold_units(lease, lease.units)
        pool.leases.append(lease)
        s.leases.append(lease)
        pool.changed()
        self.schedule(self.ctx.now + time, self._lease_over, lease)

    def _lease_over(self, lease: Lease) -> None:
        if lease in lease.pool.leases:
            self.end_lease(lease)

    def end_lease(self, lease: Lease) -> None:
        """The lease's units go back; what its `cache` keeps becomes the session's prefix."""
        pool = lease.pool
        lease.session.leases.remove(lease)
        if lease in pool.suspended:
            pool.suspended.remove(lease)
            return
        pool.leases.remove(lease)
        pool.let_go(lease, lease.units)
        if lease.kept is not None:
            pool.keep(lease.session.root, lease.kept)
            pool.make_room()
        pool.changed()

    def release(self, s: Session, pool: PoolState) -> None:
        found = s.innermost(pool)
        if found is not None:
            frame, i = found
            hold = frame.hold
            computed = frame.position[i] if frame.advanced else frame.alloc[i]
            kept = None
            if hold.cache is not None:
                kept = pool.round_down(min(self.amount(hold.cache(s.attrs), "cache"), computed))
            self._give_back(frame, i, kept)
        else:
            for lease in [lease for lease in s.leases if lease.pool is pool]:
                self.end_lease(lease)
        self.serve_pools()

    def shrink(self, s: Session, pool: PoolState, amount: float) -> None:
        found = s.innermost(pool)
        if found is None:
            raise RunError("run-amount", f"shrink {pool.name}: the session holds nothing of it")
        frame, i = found
        floor = pool.round_up(frame.position[i])
        less = min(pool.round_down(amount), max(frame.alloc[i] - floor, 0.0))
        frame.alloc[i] -= less
        pool.used -= less
        cut = min(frame.reserved[i], pool.round_down(amount))
        frame.reserved[i] -= cut
        pool.reserve_total -= cut
        pool.changed()
        self.serve_pools()

    def load(self, s: Session, pool: PoolState, amount: float) -> None:
        found = s.innermost(pool)
        if found is None:
            raise RunError("run-amount", f"load {pool.name}: the session holds nothing of it")
        frame, i = found
        frame.advanced = True
        frame.position[i] += amount
        if frame.position[i] > frame.alloc[i]:
            raise RunError(
                "run-amount", f"load {pool.name}: {frame.position[i]:g} is beyond the {frame.alloc[i]:g} held"
            )

    # --- growth and preemption ----------------------------------------------------------------------------------------

    def grow(self, frame: HoldFrame, i: int, amount: float) -> bool:
        """A `grow` statement: True when taken, False when it must wait; raises when the grower lost its own hold."""
        outcome = self._grow(frame.pools[i], frame, i, amount)
        if outcome == "lost":
            raise PreemptedError(self._lost)
        return outcome == "done"

    def grow_job(self, job: Job, pool: PoolState, frame: HoldFrame, i: int, amount: float) -> str:
        """A step job's growth: `done`, `wait` or `lost` (the grower itself was preempted)."""
        return self._grow(pool, frame, i, amount)

    def _grow(self, pool: PoolState, frame: HoldFrame, i: int, amount: float) -> str:
        kind = pool.spec.preempt.kind
        while not pool.take_growth(frame, i, amount):
            if kind == "by":
                victim = self._victim(pool)
                if victim is None:
                    return "wait"
                self.preempt(victim, pool)
                if victim.session is frame.session:
                    return "lost"
            elif kind == "leases" and pool.spec.preempt.every is None and pool.leases:
                self.end_lease(self._next_lease(pool))
            else:
                return "wait"
        return "done"

    def _next_lease(self, pool: PoolState) -> Lease:
        def key(lease: Lease) -> tuple[float, ...]:
            self.ctx.session = lease.session
            self.ctx.admission = float(lease.session.admission)
            return tuple([key(lease.session.attrs) for key in pool.victim_keys])

        before = self.ctx.session
        found = min(pool.leases, key=key)
        self.ctx.session = before
        return found

    def _victim(self, pool: PoolState) -> HoldFrame | None:
        """The hold to preempt: least keys, ties to the latest admitted."""
        candidates: list[tuple[tuple[float, ...], HoldFrame]] = []
        for s, job in self._candidates(pool):
            found = s.innermost(pool)
            if found is None or found[0].alloc[found[1]] <= 0:
                continue
            ctx = self.ctx
            ctx.session = s
            ctx.decoding = 1.0 if job is not None and job.mode == "decode" else 0.0
            ctx.admission = float(s.admission)
            ctx.position = found[0].position[found[1]]
            keys = tuple([key(s.attrs) for key in pool.victim_keys])
            candidates.append(((*keys, -float(s.admission)), found[0]))
        return min(candidates, key=lambda item: item[0])[1] if candidates else None

    @staticmethod
    def _candidates(pool: PoolState) -> list[tuple[Session, Job | None]]:
        if pool.engine is not None:
            return [(job.session, job) for job in pool.engine.in_order() if job.session is not None]
        return [(s, s.job) for s, _ in pool.holding.values() if s.holds]

    def preempt(self, frame: HoldFrame, pool: PoolState) -> None:
        """Take a hold from its session, which queues again (12.7)."""
        s = frame.session
        self._detach(s)
        pool.preemptions += 1
        at = frame.pools.index(pool)
        position = frame.position[at]
        s.attrs[self.slot_computed] = position
        if frame.preempted and position <= frame.last_position and not s.stuck:
            s.stuck = True
            pool.stuck += 1
        frame.last_position = position
        while s.holds[-1] is not frame:
            self._lose(s.holds[-1])
        self._lose(frame)
        if frame.hold.on_preempt:
            self._immediate(frame.hold.on_preempt, s, s.rng)
        frame.preempted = True
        frame.requeue_tail = pool.spec.preempt.requeue_tail
        if pool.engine is not None and pool.engine.forming:
            pool.engine.preempted += 1
        self._lost = frame
        if self._running is not s and s.gen is not None:
            self._throw(s, frame)

    def _throw(self, s: Session, frame: HoldFrame) -> None:
        ctx = self.ctx
        before = ctx.session, ctx.rng, self._running
        ctx.session, ctx.rng, self._running = s, s.rng, s
        try:
            if s.gen is not None:
                s.gen.throw(PreemptedError(frame))
        except StopIteration:
            s.gen = None
        finally:
            ctx.session, ctx.rng, self._running = before

    def _lose(self, frame: HoldFrame) -> None:
        """Give a preempted hold's units back; with a cache clause its computed part stays."""
        s, hold = frame.session, frame.hold
        before = self.ctx.session
        self.ctx.session = s
        limit = None if hold.cache is None else self.amount(hold.cache(s.attrs), "cache")
        self.ctx.session = before
        s.holds.remove(frame)
        for i, pool in enumerate(frame.pools):
            if not frame.released[i]:
                kept = None if limit is None else pool.round_down(min(limit, frame.position[i], frame.alloc[i]))
                self._give_back(frame, i, kept)

    def _detach(self, s: Session) -> None:
        """Take a session out of whatever it waits for."""
        job = s.job
        if job is not None:
            if s.turn is not None and isinstance(job.stages[0], EngineStage):
                s.turn.resumed_on = job.stages[0]
            if job.growing is not None:
                job.growing.growers = [grower for grower in job.growing.growers if grower.job is not job]
            job.stages[0].leave(job)
            s.job = None
        if s.ready:
            self._ready.remove(s)
            s.ready = False
        waiting = s.waiting_in
        if isinstance(waiting, HoldFrame):
            waiting.pools[0].leave_queue(waiting)
            waiting.pools[0].changed()
        elif waiting is not None:
            for pool in self.pools:
                pool.growers = [grower for grower in pool.growers if grower is not waiting]
        s.waiting_in = None

    def spill(self, pool: PoolState, entry: Entry, size: float) -> None:
        """Copy a completely evicted entry to the next tier."""
        spec = pool.spec.spill
        if spec is None or pool.spill_when is None or pool.spill_work is None:
            return
        ctx, attrs = self.ctx, entry.owner.attrs
        before = ctx.session
        ctx.session, ctx.size = entry.owner, size
        ctx.last, ctx.age = entry.released_at, ctx.now - entry.released_at
        when, work = pool.spill_when(attrs), pool.spill_work(attrs)
        tier: PoolState = self.pool_ref(spec.tier)(attrs)
        link: StageState = self.stage_ref(spec.via)(attrs)
        ctx.session = before
        if not when:
            return
        pool.spills += 1
        tier.make_room()
        tier.drop(entry.owner)
        tier.insert(entry.owner, size)
        tier.changed()
        if work > 0:
            link.join(Job(None, [link], work, "plain", ctx.now))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def serve_pools(self) -> None:
        for pool in self.pools:
            pool.serve()

    def _settle(self) -> None:
        while True:
            while self._ready:
                self.resume(self._ready.popleft())
            self.serve_pools()
            if not self._ready:
                return

    def _tick(self, pool: PoolState) -> None:
        pool.tick_at = -1.0
        if pool.spec.queue_every is not None:
            served = set(map(id, (*pool.front, *pool.waiting)))
            while (frame := pool.head()) is not None and id(frame) in served and self.try_admit(frame):
                self._settle()
            if pool.head() is not None:
                self.schedule_tick(pool, pool.spec.queue_every)
        if pool.spec.preempt.every is not None:
            self._lease_tick(pool, pool.spec.preempt.every)

    def _lease_tick(self, pool: PoolState, period: float) -> None:
        while pool.growers and pool.leases:
            grower = pool.growers[0]
            if pool.used + grower.amount <= pool.cap:
                break
            lease = self._next_lease(pool)
            pool.leases.remove(lease)
            pool.let_go(lease, lease.units)
            if pool.suspend_keys:
                pool.suspended.append(lease)
            else:
                lease.session.leases.remove(lease)
            if lease.kept is not None and not pool.suspend_keys:
                pool.keep(lease.session.root, lease.kept)
            pool.changed()
        pool.serve()
        self._resume_leases(pool)
        if pool.growers or pool.suspended:
            self.schedule_tick(pool, period)

    def _resume_leases(self, pool: PoolState) -> None:
        def key(lease: Lease) -> tuple[float, ...]:
            self.ctx.session = lease.session
            return tuple([key(lease.session.attrs) for key in pool.suspend_keys])

        for lease in sorted(pool.suspended, key=key):
            if pool.growers or not pool.fits(lease.units):
                return
            pool.suspended.remove(lease)
            pool.leases.append(lease)
            pool.hold_units(lease, lease.units)
            pool.make_room()
            pool.changed()

    def _iterate(self) -> bool:
        """Let idle engines form iterations, unless an event is due at this very instant."""
        changed = False
        for engine in self.engines:
            if self._heap and self._heap[0][0] == self.ctx.now:
                return changed
            if engine.has_work and engine.form():
                changed = True
                self._settle()
        return changed

    def _conclude(self) -> None:
        """Settle, iterate and reschedule after an event has been applied."""
        self._settle()
        while self._iterate():
            self._settle()
        if self.dirty_stages:
            for position in sorted(self.dirty_stages):
                self.stages[position].reschedule()
            self.dirty_stages.clear()
        if self.dirty_fabric and self.fabric is not None:
            self.dirty_fabric = False
            self.fabric.reschedule()
        for series, value in zip(self.gauges, self._gauge_functions, strict=True):
            series.record(self.ctx.now, value(self.no_attrs))

    def run(self) -> float:
        """Run to the end; returns the end time."""
        program = self.program
        horizon = program.horizon if program.horizon is not None else 0.0
        if program.warmup > 0:
            self.schedule(program.warmup, self._end_warmup, None, _WARMUP)
        self._first_arrivals()
        self._conclude()
        heap = self._heap
        while heap and self._stopped_at is None:
            time = heap[0][0]
            if time > horizon:
                break
            _, _, _, action, payload = heapq.heappop(heap)
            self.ctx.now = time
            self.events += 1
            action(payload)
            self._conclude()
        return self._finish(horizon)

    def _finish(self, horizon: float) -> float:
        wanted = self.program.arrivals
        if wanted is not None:
            if self._stopped_at is None:
                raise RunError(
                    "run-drain", f"{self.arrivals} of {wanted} sessions arrived, {self._live} have not ended"
                )
            if self._stopped_at <= self.program.warmup and self.program.warmup > 0:
                raise RunError("run-drain", "the run drained at or before the end of the warm-up")
            horizon = self._stopped_at
        self.ctx.now = horizon
        self._check_cycles()
        for s in self._sessions.values():
            if s.turn is not None and s.turn.first is not None and s.turn.first >= self.program.warmup:
                self.client["ttft"].add(s.turn.first - s.turn.submitted, s.turn.first, s.serial, s.turn.number)
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
                    raise RunError("run-cycle", note)

    def _end_warmup(self, _: None) -> None:
        now = self.ctx.now
        self.live.restart(now)
        for pool in self.pools:
            pool.restart_statistics(now)
        for stage in self.stages:
            stage.restart_statistics(now)

    def _first_arrivals(self) -> None:
        arrival = self.program.arrival
        if arrival.kind in ("closed", "batch"):
            for _ in range(int(arrival.value)):
                self.start_session()
        elif arrival.kind == "poisson":
            self.schedule(0.0, self._arrive, None)
        elif arrival.kind == "renewal":
            self.schedule(self._next_gap(), self._arrive, None)

    def _next_gap(self) -> float:
        arrival = self.program.arrival
        if arrival.kind == "poisson":
            return self._arrival_rng.exp(1.0 / arrival.value) if arrival.value > 0 else math.inf
        ctx = self.ctx
        rng, ctx.rng = ctx.rng, self._arrival_rng
        gap = self._gap(self.no_attrs) if self._gap is not None else math.inf
        ctx.rng = rng
        return self.amount(gap, "arrival gap")

    def _arrive(self, _: None) -> None:
        wanted = self.program.arrivals
        if wanted is None or self.arrivals + 1 < wanted:
            self.schedule(self.ctx.now + self._next_gap(), self._arrive, None)
        self.start_session()

    def over_cap(self, pool: PoolState) -> tuple[float, float] | None:
        """At the end of a run: the queue's length and the head's need, where the need exceeds the capacity."""
        frame = pool.head()
        if frame is None:
            return None
        _, needs = self._header(frame)
        need = max((n for held, n in zip(frame.pools, needs, strict=True) if held is pool), default=0.0)
        return (pool.q_queued(), need) if need > pool.cap else None

    @staticmethod
    def growers_stalled(pool: PoolState) -> bool:
        """Whether every holder is a waiting grower."""
        growing = {id(grower.session) for grower in pool.growers}
        return all(key in growing for key in pool.holding)

    # --- claims and traces --------------------------------------------------------------------------------------------

    def check_claims(self, engine: EngineStage) -> None:
        self.ctx.arrived = float(self.arrivals)
        for i, claim in enumerate(self.program.claims):
            test = self.claim_tests[i]
            if test is None or claim.stage != engine.position:
                continue
            self.claim_checked[i] += 1
            value = test(self.no_attrs)
            failed = value == 0
            self.claim_failures[i] += failed
            telling = failed if claim.kind == "every_iteration" else not failed
            if telling and self.claim_first[i] is None:
                self.claim_first[i] = self.ctx.now

    def note_iteration(self, engine: EngineStage) -> None:
        if self.iterations is not None and engine.running is not None:
            grants = [
                (job.session.serial, job.session.turn_no, "d" if job.mode == "decode" else "p", n)
                for job, n in engine.running
                if job.session is not None
            ]
            self.iterations.append((self.ctx.now, engine.name, grants))


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
