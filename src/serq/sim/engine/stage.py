"""The step engine: iterations over residents, formed by a scheduler.  Source: docs/language.md, "The step engine"."""

from __future__ import annotations

import math
from bisect import insort
from typing import TYPE_CHECKING, Any

from serq import ir
from serq.errors import RunError
from serq.ir.arithmetic import total
from serq.sim.engine.figures import EngineFigures
from serq.sim.engine.words import EngineWords
from serq.sim.expr import Function
from serq.sim.selection import selection_of
from serq.sim.stages import Job, StageState

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.sessions import HoldFrame, Session

__all__ = ["EngineStage"]


class EngineStage(StageState):
    """Residents, the iteration that runs, and the one being formed.

    `jobs` stands in the order of service: by the session's latest admission, those without one last, by joining.
    """

    def __init__(self, kernel: Kernel, spec: ir.Stage, position: int) -> None:
        super().__init__(kernel, spec, position)
        if spec.step is None:
            raise RunError("run-amount", f"stage {spec.name} has no step")
        self.step: ir.Step = spec.step
        self.memory: PoolState | None = None
        self.queues: list[PoolState] = []
        self.running: list[Job] | None = None
        self.grants: list[Job] = []
        self.left = math.inf
        self.cap = math.inf
        self.budget = math.inf
        self.preempted = 0
        self.admitted = 0
        self.held_back = False
        self.forming = False
        self.served = 0.0
        self.idle_with_work = False
        self.formed_after = -1
        self.prefilling = 0
        self.figures = EngineFigures(self, kernel.program.warmup)

    def compile(self) -> None:
        function = self.kernel.function
        self.words = EngineWords(self.kernel, self)
        self._budget: Function = function(self.step.budget)
        self._chunk: Function = function(self.step.chunk)
        self.cost: Function = function(self.step.cost)
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
        self.figures.restart(now)

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
            alone = job.frame.distinct and job.session.holds == [job.frame]
            if alone and job.growing is self.memory and not job.session.leases and not job.session.legs:
                job.alone = job.frame
        if job.mode != "decode":
            self.prefilling += 1
        elif job.session is not None:
            job.session.decodes = True
            if job.session.turn is not None:
                job.session.turn.settled = True
        insort(self.jobs, job, key=_service_order)
        self.changed()

    def leave(self, job: Job) -> None:
        job.gone = True
        self._remove(job)
        if job in self.grants:
            self.grants.remove(job)
            self.left += job.granted
        job.granted = 0.0
        if self.running is not None and job in self.running:
            self.running.remove(job)

    def _remove(self, job: Job) -> None:
        self.jobs.remove(job)
        if job.mode != "decode":
            self.prefilling -= 1
        self.changed()

    # --- forming an iteration -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return self.running is None and (bool(self.jobs) or any(pool.front or pool.waiting for pool in self.queues))

    def form(self) -> bool:
        """Form and start an iteration; True if anything changed (an iteration, an admission, a preemption)."""
        try:
            return self._form()
        except RunError as error:
            raise self.at_fault(error) from None

    def at_fault(self, error: RunError) -> RunError:
        """The error, at the engine's declaration if it is at no other place."""
        places = self.kernel.program.places
        return error.located(None if places is None else places.stages[self.position])

    def _form(self) -> bool:
        kernel, ctx = self.kernel, self.kernel.ctx
        registers = list(kernel.registers)
        self.grants = []
        self.preempted = self.admitted = 0
        self.words.guards()
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

    def _guard(self, test: Function) -> bool:
        self.words.guards()
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
                self.words.guards()
                self.kernel.registers[item[1]] = item[2](self.kernel.no_attrs)

    def _words_of(self, job: Job) -> list[float]:
        ctx = self.kernel.ctx
        ctx.decoding = 1.0 if job.mode == "decode" else 0.0
        ctx.remaining = job.remaining
        ctx.admission = job.session.admission if job.session is not None else math.inf
        return job.session.attrs if job.session is not None else self.kernel.no_attrs

    def _serve(self, only: Function | None, keys: tuple[Function, ...]) -> None:
        for job in self._in_turn(keys):
            if self.left <= 0:
                return
            if job.mode == "decode" and only is None and not job.gone and not job.growing_waits:
                frame = job.frame
                if frame is None or frame.position[job.frame_index] + 1.0 <= frame.alloc[job.frame_index]:
                    job.granted = 1.0
                    self.grants.append(job)
                    self.left -= 1.0
                    continue
            if job.gone or job.granted or not self._selected(job, only):
                continue
            if not self.grant(job):
                return

    def _in_turn(self, keys: tuple[Function, ...]) -> list[Job]:
        """Residents without a grant, by the keys; linear, with log of their number where keys are evaluated."""
        order = [job for job in self.jobs if not job.granted]
        if not keys:
            return order
        self.words.residents()
        return sorted(order, key=lambda job: self._key_values(job, keys))

    def _key_values(self, job: Job, keys: tuple[Function, ...]) -> tuple[float, ...]:
        attrs = self._words_of(job)
        return tuple([key(attrs) for key in keys])

    def _selected(self, job: Job, only: Function | None) -> bool:
        if only is None:
            return True
        self.words.residents()
        return bool(only(self._words_of(job)))

    def grant(self, job: Job, budget: float | None = None) -> bool:
        """Give a resident its tokens of this iteration, growing its hold now.

        False when the job itself was preempted by its growth, which ends the scheduler's statement.
        """
        if job.mode == "decode":
            return job.growing_waits or self._take(job, 1.0, budget)
        n = min(job.remaining, self.cap, self.left if budget is None else budget)
        granule = self.step.granule
        if granule is not None and n < job.remaining:
            n = 0.0 if math.isinf(granule) else math.floor(n / granule) * granule
            if n <= 0:
                self.held_back = True
        return n <= 0 or job.growing_waits or self._take(job, n, budget)

    def _take(self, job: Job, n: float, budget: float | None) -> bool:
        """Grant `n` tokens if the hold can grow; False when the job lost its hold over it."""
        frame = job.frame
        if frame is not None and frame.position[job.frame_index] + n > frame.alloc[job.frame_index]:
            outcome = self._grow(job, frame, n)
            if outcome != "done":
                return outcome != "lost"
        job.granted = n
        self.grants.append(job)
        self.left = (self.left if budget is None else budget) - n
        return True

    def _grow(self, job: Job, frame: HoldFrame, n: float) -> str:
        pool, session, i = job.growing, job.session, job.frame_index
        if pool is None or session is None:
            return "done"
        need = pool.round_up(frame.position[i] + n) - frame.alloc[i]
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
        prefill = next((job for job in self.jobs if job.mode != "decode"), None)
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

    def _start(self) -> None:
        kernel, ctx = self.kernel, self.kernel.ctx
        self.words.batch(self.grants)
        duration = self.duration()
        self.idle_with_work = False
        self.running, self.grants = self.grants, []
        self._count_iteration(duration, 0)
        self.figures.begun(ctx.now, ctx.decoders, ctx.prefilled)
        self.formed_after = kernel.events
        kernel.schedule(ctx.now + duration, self.finished, self)

    def begin_again(self, now: float, decodes: int, ended: int) -> float:
        """Begin an iteration like the one that ends `now`, the last of `ended` + 1; returns its duration."""
        ctx = self.kernel.ctx
        ctx.now = now
        ctx.served, ctx.demand = self.served + (ended + 1) * decodes, float(decodes)
        duration = self.duration()
        self._count_iteration(duration, ended + 1)
        return duration

    def duration(self) -> float:
        """What an iteration of the batch in the context lasts."""
        kernel, ctx = self.kernel, self.kernel.ctx
        rng, ctx.rng = ctx.rng, kernel.machine_rng
        duration = self.cost(kernel.no_attrs)
        ctx.rng = rng
        if ctx.tokens and not duration > 0:
            raise RunError("run-cost", f"an iteration of {self.name} at {ctx.now:g} would last {duration:g}")
        return duration

    def _count_iteration(self, duration: float, ahead: int) -> None:
        """Note an iteration that begins `ahead` iterations after the positions of its jobs were written down."""
        kernel, ctx = self.kernel, self.kernel.ctx
        kernel.claims.check(self)
        if kernel.observer is not None:
            kernel.observer(selection_of(self, ctx.now, ahead))
        self.figures.count(ctx.now, ctx.decoders, duration)

    def finished(self, _: EngineStage) -> None:
        """The iteration ends: its jobs advance, in order, and those that are done let their sessions go on."""
        now = self.kernel.ctx.now
        self.figures.ended(now)
        batch, self.running = self.running or [], None
        decoding: list[Job] = []
        for job in batch:
            n, frame = job.granted, job.frame
            job.granted = 0.0
            job.remaining -= n
            self.served += n
            if frame is not None:
                frame.position[job.frame_index] += n
            if job.mode == "decode":
                decoding.append(job)
            elif job.remaining <= 0:
                self.figures.decoded(decoding, now)
                decoding = []
                self.figures.prefilled(job, now)
            if job.remaining <= 0:
                self.figures.decoded(decoding, now)
                decoding = []
                self._remove(job)
                self.finish(job)
        self.figures.decoded(decoding, now)

    # --- queries ------------------------------------------------------------------------------------------------------

    def q_busy(self) -> float:
        return float(len(self.running)) if self.running is not None else 0.0

    def q_work(self) -> float:
        return total(job.remaining for job in self.jobs)

    def q_budget_left(self) -> float:
        return self.left


def _service_order(job: Job) -> tuple[float, int]:
    """By the session's latest admission; those never admitted by a hold come last, in the order of joining."""
    session: Session | None = job.session
    admission = math.inf if session is None else session.admission
    return admission, job.order if admission == math.inf else 0
