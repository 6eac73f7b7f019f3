"""The step engine: iterations over residents, formed by a scheduler.  Specification, section 14."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from serq import ir
from serq.lowering.arithmetic import total
from serq.sim.context import RunError
from serq.sim.expr import Function
from serq.sim.histogram import Histogram
from serq.sim.stages import Job, StageState
from serq.sim.stats import TimeAverage

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.sessions import Session, TurnRecord

__all__ = ["EngineStage"]


class EngineStage(StageState):
    """Residents, the iteration that runs, and the one being formed."""

    def __init__(self, kernel: Kernel, spec: ir.Stage, position: int) -> None:
        super().__init__(kernel, spec, position)
        if spec.step is None:
            raise RunError("run-amount", f"stage {spec.name} has no step")
        self.step: ir.Step = spec.step
        self.memory: PoolState | None = None
        self.queues: list[PoolState] = []
        self.running: list[tuple[Job, float]] | None = None
        self.grants: list[Job] = []
        self.left = 0.0
        self.cap = math.inf
        self.budget = math.inf
        self.preempted = 0
        self.admitted = 0
        self.held_back = False
        self.forming = False
        self.served = 0.0
        self.idle_with_work = False
        self.formed_after = -1
        self._phase = ""
        self._statistics()

    def _statistics(self) -> None:
        self.iterations = 0
        self.phase_time = {"prefill": TimeAverage(), "decode": TimeAverage(), "mixed": TimeAverage()}
        self.decodes = TimeAverage()
        self.decode_batches = 0
        self.decode_total = 0.0
        self.decode_duration = 0.0
        self.gaps = Histogram()

    def compile(self) -> None:
        function = self.kernel.function
        self._budget: Function = function(self.step.budget)
        self._chunk: Function = function(self.step.chunk)
        self._cost: Function = function(self.step.cost)
        self._program = [self._compile(item) for item in self.step.iteration]

    def _compile(self, item: ir.Iteration) -> tuple[Any, ...]:
        kernel = self.kernel
        if item.kind == "serve":
            return ("serve", kernel.optional(item.only), kernel.expressions.keys(item.keys))
        if item.kind == "admit":
            return ("admit", kernel.optional(item.only), kernel.optional(item.gate))
        if item.kind == "branch":
            return (
                "branch",
                kernel.optional(item.test),
                [self._compile(inner) for inner in item.then],
                [self._compile(inner) for inner in item.otherwise],
            )
        return ("set", item.register, kernel.optional(item.value))

    def restart_statistics(self, now: float) -> None:
        super().restart_statistics(now)
        for average in (*self.phase_time.values(), self.decodes):
            average.restart(now)

    # --- residents ----------------------------------------------------------------------------------------------------

    def join(self, job: Job) -> None:
        job.started = self.kernel.ctx.now
        job.remaining = job.work
        job.order = self.kernel.next_order()
        if job.growing is not None and job.session is not None:
            found = job.session.innermost(job.growing)
            if found is None:
                raise RunError("run-amount", f"a run growing {job.growing.name} needs a hold on it")
            job.frame, job.frame_index = found
            job.frame.advanced = True
        self.jobs.append(job)
        self.changed()

    def leave(self, job: Job) -> None:
        job.gone = True
        self.jobs.remove(job)
        if job in self.grants:
            self.grants.remove(job)
            self.left += job.granted
            job.granted = 0.0
        if self.running is not None:
            self.running = [(item, n) for item, n in self.running if item is not job]
        self.changed()

    def in_order(self) -> list[Job]:
        """Residents by their session's latest admission, then by joining."""
        return sorted(self.jobs, key=_admission_order)

    def held(self, job: Job) -> float:
        """Units of the memory that the job's session has."""
        memory, session, frame = self.memory, job.session, job.frame
        if memory is None or session is None:
            return 0.0
        alone = frame is not None and frame.distinct and session.holds == [frame] and not session.leases
        if alone and frame is not None and job.growing is memory:
            return 0.0 if frame.released[job.frame_index] else frame.alloc[job.frame_index]
        return session.allocated(memory)

    # --- forming an iteration -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return self.running is None and (bool(self.jobs) or any(pool.head() is not None for pool in self.queues))

    def form(self) -> bool:
        """Form and start an iteration; True if anything changed (an iteration, an admission, a preemption)."""
        kernel, ctx = self.kernel, self.kernel.ctx
        registers = list(kernel.registers)
        self.grants = []
        self.preempted = self.admitted = 0
        self._guard_words()
        rng, ctx.rng = ctx.rng, kernel.machine_rng
        self.budget = self._budget(kernel.no_attrs)
        ctx.rng = rng
        chunk = self._chunk(kernel.no_attrs)
        self.cap = chunk if chunk > 0 else math.inf
        self.left = self.budget
        self.held_back = False
        self.forming = True
        if self.step.exclusive:
            self._exclusive()
        else:
            self._execute(self._program)
        self.forming = False
        if self.grants or self.preempted:
            self._start()
            return True
        self.idle_with_work = self.has_work
        if not self.admitted:
            kernel.registers[:] = registers
        return self.admitted > 0

    def _resident_totals(self) -> None:
        ctx = self.kernel.ctx
        decoders, kv_decode, kv_prefill = 0, 0.0, 0.0
        for job in self.jobs:
            if job.mode == "decode":
                decoders += 1
                kv_decode += self.held(job)
            else:
                kv_prefill += self.held(job)
        ctx.residents, ctx.decoders = float(len(self.jobs)), float(decoders)
        ctx.kv_decode, ctx.kv_prefill = kv_decode, kv_prefill
        ctx.tokens = ctx.prefilled = ctx.attention = 0.0

    def _guard_words(self) -> None:
        ctx = self.kernel.ctx
        self._resident_totals()
        ctx.running_count = ctx.residents
        ctx.running_decoding = ctx.decoders
        ctx.running_kv_decode, ctx.running_kv_prefill = ctx.kv_decode, ctx.kv_prefill
        ctx.running_preempted = float(self.preempted)
        ctx.waiting_count = float(sum(len(pool.front) + len(pool.waiting) for pool in self.queues))
        ctx.waiting_admitted = float(self.admitted)
        ctx.batch_tokens = total(job.granted for job in self.grants)
        ctx.batch_prefilled = total(job.granted for job in self.grants if job.mode != "decode")

    def _guard(self, test: Function) -> bool:
        self._guard_words()
        return self.kernel.guard(test(self.kernel.no_attrs))

    def _execute(self, program: list[tuple[Any, ...]]) -> None:
        for item in program:
            if item[0] == "serve":
                self._serve(item[1], item[2])
            elif item[0] == "admit":
                self._admit(item[1], item[2])
            elif item[0] == "branch":
                self._execute(item[2] if self._guard(item[1]) else item[3])
            else:
                self._guard_words()
                self.kernel.registers[item[1]] = item[2](self.kernel.no_attrs)

    def _words_of(self, job: Job) -> list[float]:
        ctx = self.kernel.ctx
        ctx.session = job.session
        ctx.decoding = 1.0 if job.mode == "decode" else 0.0
        ctx.remaining = job.remaining
        ctx.admission = float(job.session.admission) if job.session is not None else 0.0
        return job.session.attrs if job.session is not None else self.kernel.no_attrs

    def _serve(self, only: Function | None, keys: tuple[Function, ...]) -> None:
        order = [job for job in self.in_order() if job not in self.grants]
        if keys:
            self._resident_totals()
            order = sorted(order, key=lambda job: self._key_values(job, keys))
        for job in order:
            if self.left <= 0:
                return
            if job.gone or job in self.grants or not self._selected(job, only):
                continue
            if not self.grant(job):
                return

    def _key_values(self, job: Job, keys: tuple[Function, ...]) -> tuple[float, ...]:
        attrs = self._words_of(job)
        return tuple([key(attrs) for key in keys])

    def _selected(self, job: Job, only: Function | None) -> bool:
        if only is None:
            return True
        self._resident_totals()
        return bool(only(self._words_of(job)))

    def grant(self, job: Job, budget: float | None = None) -> bool:
        """Give a resident its tokens of this iteration, growing its hold now.

        False when the job itself was preempted by its growth, which ends the scheduler's statement.
        """
        left = self.left if budget is None else budget
        n = 1.0 if job.mode == "decode" else min(job.remaining, self.cap, left)
        granule = self.step.granule
        if job.mode != "decode" and granule is not None and n < job.remaining:
            n = 0.0 if math.isinf(granule) else math.floor(n / granule) * granule
            if n <= 0:
                self.held_back = True
        if n <= 0 or job.growing_waits:
            return True
        outcome = self._grow(job, n)
        if outcome == "done":
            job.granted = n
            self.grants.append(job)
            self.left = (self.left if budget is None else budget) - n
        return outcome != "lost"

    def _grow(self, job: Job, n: float) -> str:
        frame, pool, session = job.frame, job.growing, job.session
        if frame is None or pool is None or session is None:
            return "done"
        i = job.frame_index
        need = pool.round_up(frame.position[i] + n) - frame.alloc[i]
        if need <= 0:
            return "done"
        outcome = self.kernel.growth.grow_job(job, pool, frame, i, need)
        if outcome == "wait":
            pool.add_grower(session, frame, i, need, job)
        return outcome

    # --- admission ----------------------------------------------------------------------------------------------------

    def _admit(self, only: Function | None, gate: Function | None) -> None:
        while self.left > 0 and not self.held_back and (gate is None or self._guard(gate)):
            job = self._admit_head()
            if job is None:
                return
            if isinstance(job, Job) and self._selected(job, only) and not self.grant(job):
                return

    def _admit_head(self) -> Job | bool | None:
        """Admit the head of the first non-empty queue: its job here, True if it has none, None if nothing fits."""
        pool = next((pool for pool in self.queues if pool.head() is not None), None)
        if pool is None:
            return None
        frame = pool.head()
        if frame is None or not self.kernel.holds.try_admit(frame):
            return None
        self.admitted += 1
        session = frame.session
        self.kernel.population.run_now(session)
        job = session.job
        here = job is not None and self in job.stages and not job.gone and job in self.jobs
        return job if here and job is not None else True

    def _exclusive(self) -> None:
        prefill = next((job for job in self.in_order() if job.mode != "decode"), None)
        if prefill is not None:
            self.grant(prefill, self.budget)
            return
        self._serve(None, ())
        while self.left > 0 and not self.preempted:
            tentative = self.left
            self.left = self.budget
            job = self._admit_head()
            self.left = tentative
            if job is None:
                return
            if not isinstance(job, Job):
                continue
            if job.mode == "decode":
                self.grant(job)
                continue
            if min(job.remaining, self.cap, self.budget) >= 1:
                decodes, self.grants = self.grants, []
                for withdrawn in decodes:
                    withdrawn.granted = 0.0
                self.grant(job, self.budget)
                return

    # --- running an iteration -----------------------------------------------------------------------------------------

    def batch_totals(self, batch: list[Job]) -> None:
        """The words of a batch: what `cost` and the claims read."""
        ctx = self.kernel.ctx
        tokens = prefilled = kv_decode = kv_prefill = attention = 0.0
        decoders = 0
        for job in batch:
            n = job.granted
            tokens += n
            if job.mode == "decode":
                decoders += 1
                kv_decode += self.held(job)
            else:
                prefilled += n
                kv_prefill += self.held(job)
                attention += n * (self._position(job) + n / 2)
        ctx.tokens, ctx.prefilled, ctx.attention = tokens, prefilled, attention
        ctx.decoders, ctx.residents = float(decoders), float(len(self.jobs))
        ctx.kv_decode, ctx.kv_prefill = kv_decode, kv_prefill

    @staticmethod
    def _position(job: Job) -> float:
        return 0.0 if job.frame is None else job.frame.position[job.frame_index]

    def _start(self) -> None:
        kernel, ctx = self.kernel, self.kernel.ctx
        self.batch_totals(self.grants)
        duration = self._duration()
        self.idle_with_work = False
        ctx.served = self.served
        ctx.demand = total(1.0 if job.mode == "decode" else min(job.remaining, self.cap) for job in self.jobs)
        self.running = [(job, job.granted) for job in self.grants]
        self._count_iteration(duration)
        if ctx.prefilled and ctx.decoders:
            self._phase = "mixed"
        else:
            self._phase = "prefill" if ctx.prefilled else "decode" if ctx.decoders else ""
        if self._phase:
            self.phase_time[self._phase].set(1.0, ctx.now)
        self.decodes.set(ctx.decoders, ctx.now)
        self.grants = []
        self.formed_after = kernel.events
        kernel.schedule(ctx.now + duration, self.finished, self)

    def begin_again(self, now: float, decodes: int, ended: int) -> float:
        """Begin an iteration like the one that ends `now`, the last of `ended` + 1; returns its duration."""
        ctx = self.kernel.ctx
        ctx.now = now
        ctx.served, ctx.demand = self.served + (ended + 1) * decodes, float(decodes)
        duration = self._duration()
        self._count_iteration(duration)
        return duration

    def _duration(self) -> float:
        kernel, ctx = self.kernel, self.kernel.ctx
        rng, ctx.rng = ctx.rng, kernel.machine_rng
        duration = self._cost(kernel.no_attrs)
        ctx.rng = rng
        if ctx.tokens and not duration > 0:
            raise RunError("run-cost", f"an iteration of {self.name} at {ctx.now:g} would last {duration:g}")
        return duration

    def _count_iteration(self, duration: float) -> None:
        kernel, ctx = self.kernel, self.kernel.ctx
        self.iterations += 1
        kernel.claims.check(self)
        kernel.claims.note_iteration(self)
        if ctx.decoders and ctx.now >= kernel.program.warmup:
            self.decode_batches += 1
            self.decode_total += ctx.decoders
            self.decode_duration += duration

    def finished(self, _: EngineStage) -> None:
        now = self.kernel.ctx.now
        if self._phase:
            self.phase_time[self._phase].set(0.0, now)
        self.decodes.set(0.0, now)
        batch, self.running = self.running or [], None
        for job, n in batch:
            job.granted = 0.0
            job.remaining -= n
            self.served += n
            if job.frame is not None:
                job.frame.position[job.frame_index] += n
            if job.mode == "decode" or job.remaining <= 0:
                self.token(job, now)
            if job.remaining <= 0:
                self.jobs.remove(job)
                self.changed()
                self.finish(job)

    def token(self, job: Job, now: float) -> None:
        session = job.session
        if session is None:
            return
        if self._replaces_first(job, session.turn):
            session.last_token = None
        last = session.last_token
        if last is not None and now >= self.kernel.program.warmup:
            self.gaps.add(now - last, 1)
        session.last_token = now
        if session.turn is not None:
            self._note_token(job, session.turn, now)

    def _replaces_first(self, job: Job, turn: TurnRecord | None) -> bool:
        """Whether this prefill makes the turn's first token anew: nothing was decoded yet, and it is no recovery."""
        if turn is None or turn.first is None or job.mode == "decode":
            return False
        return not turn.decoded and turn.resumed_on is not self

    def _note_token(self, job: Job, turn: TurnRecord, now: float) -> None:
        if turn.first is None or self._replaces_first(job, turn):
            turn.first = now
            turn.tokens = max(turn.tokens, 1)
        else:
            turn.tokens += 1
        if job.mode == "decode":
            turn.decoded = True
        elif turn.resumed_on is self:
            turn.resumed_on = None

    # --- queries ------------------------------------------------------------------------------------------------------

    def q_busy(self) -> float:
        return float(len(self.running)) if self.running is not None else 0.0

    def q_work(self) -> float:
        return total(job.remaining for job in self.jobs)

    def q_budget_left(self) -> float:
        return self.left if self.forming else self.budget


def _admission_order(job: Job) -> tuple[float, int]:
    session: Session | None = job.session
    admission = session.admission if session is not None else 0
    return (float(admission), 0) if admission else (0.0, job.order)
