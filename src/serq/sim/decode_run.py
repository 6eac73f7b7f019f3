"""Decode iterations that are alike, run through together.

Between two events that change an engine's batch, every resident decodes one token per iteration, and only block
boundaries and the cost change.  `run_ahead` then passes from iteration to iteration without events: per iteration it
takes the growth that is due and evaluates the cost; what each job has gained is added once, at the end.  The result is
that of the step-by-step simulation; only the order of some floating-point sums differs.

Time per iteration does not depend on the batch, beyond the jobs that cross a block boundary in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapreplace
from typing import TYPE_CHECKING, Final

from serq import ir
from serq.lowering.arithmetic import total
from serq.lowering.fold import parts
from serq.sim.decode_leap import LEAST, Leap, leapable

if TYPE_CHECKING:
    from serq.sim.engine import EngineStage
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.stages import Job

__all__ = ["DecodeRuns"]

_DRIFTING_WORDS: Final = frozenset({"now", "waited", "position", "remaining", "age", "last"})
_DRIFTING_QUERIES: Final = frozenset({"work", "est_lambda", "est_rho", "est_wait", "price"})
_MOVING_QUERIES: Final = frozenset({"used", "free"})
_WORTH: Final = 3


class DecodeRuns:
    """Which engines of a program can be run ahead, and the running ahead itself."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        program = kernel.program
        self._headers_steady = all(_steady(expr, moving=True) for expr in _headers(program))
        observed = [gauge.value for gauge in program.gauges]
        self.possible = all(_steady(expr) for expr in observed)
        kernel.moving_gauges = not all(_steady(expr, moving=True) for expr in observed)
        self._leapable = {i: leapable(program, i) for i in range(len(program.stages))}
        self._engines = {i: _engine_steady(stage) for i, stage in enumerate(program.stages) if stage.step is not None}

    def ahead(self, engine: EngineStage) -> bool:
        """Run the engine's current iteration and its like ahead, up to the next event; False where it cannot be.

        Nothing may have happened since the iteration was formed: whoever waits was then tried in vain.
        """
        kernel = self._kernel
        running, jobs = engine.running, engine.jobs
        if not running or len(running) != len(jobs) or not self._engines[engine.position]:
            return False
        if engine.formed_after != kernel.events or engine.preempted or engine.admitted:
            return False
        if any(job.mode != "decode" or job.session is None or job.growing_waits for job in jobs):
            return False
        waiting = any(pool.front or pool.waiting or pool.growers for pool in kernel.pools)
        if waiting and not self._headers_steady:
            return False
        if any(other is not engine and other.has_work for other in kernel.engines):
            return False
        left = min(job.remaining for job in jobs)
        leap = self._leapable[engine.position] and kernel.claims.iterations is None
        return left >= _WORTH and _Ahead(kernel, engine, evict=not waiting).run(left - 1, leap=leap)


class _Ahead:
    """One passage over alike iterations of one engine."""

    def __init__(self, kernel: Kernel, engine: EngineStage, *, evict: bool) -> None:
        self._kernel = kernel
        self._engine = engine
        self._evict = evict
        self._jobs: list[Job] = list(engine.jobs)
        self._due: defaultdict[int, list[tuple[Job, float]]] = defaultdict(list)

    def run(self, most: float, *, leap: bool) -> bool:
        """End at most `most` iterations, each before the next event; the one then running ends as an event."""
        kernel, engine = self._kernel, self._engine
        heap = kernel.heap
        end, until = heap[0][0], min((item[0] for item in heap[1:3]), default=math.inf)
        until = min(until, kernel.horizon)
        if end >= until:
            return False
        engine.batch_totals(self._jobs)
        ends, last = 0, 0.0
        if leap and most >= LEAST:
            ends, last, end = Leap(kernel, engine, self._jobs, evict=self._evict).take(most, end, until)
        if not ends:
            ends, last, end = self._one_by_one(most, end, until)
        if not ends:
            return False
        self._advance(ends, last)
        item = heap[0]
        heapreplace(heap, (end, item[1], kernel.next_sequence(), item[3], item[4]))
        kernel.events += ends
        engine.formed_after = kernel.events
        return True

    def _one_by_one(self, most: float, end: float, until: float) -> tuple[int, float, float]:
        """How many iterations ended, when the last of them did, and when the one then running will end."""
        kernel, engine, ctx = self._kernel, self._engine, self._kernel.ctx
        for job in self._jobs:
            if job.frame is not None:
                room = job.frame.alloc[job.frame_index] - job.frame.position[job.frame_index]
                self._due[max(math.floor(room), 0)].append((job, room))
        warmup, ends, last = kernel.program.warmup, 0, 0.0
        while ends < most and end < until:
            grown = self._grow(ends + 1, end)
            if grown is None:
                break
            ctx.kv_decode += grown
            duration = engine.begin_again(end, len(self._jobs), ends)
            self._ended(ends, end, last, warmup)
            if grown:
                kernel.record_gauges()
            last = end
            end += duration
            ends += 1
        return ends, last, end

    def _grow(self, step: int, now: float) -> float | None:
        """The units that the jobs of this iteration grow by, taken; None (and nothing taken) where they do not fit."""
        due = self._due.get(step)
        if due is None:
            return 0.0
        wanted: list[tuple[Job, PoolState, float]] = []
        for job, _ in due:
            frame, pool = job.frame, job.growing
            if frame is None or pool is None or pool.reserve_total or pool.spec.spill is not None:
                return None
            position = frame.position[job.frame_index] + step + 1
            wanted.append((job, pool, max(pool.round_up(position) - frame.alloc[job.frame_index], 0.0)))
        for pool in {id(pool): pool for _, pool, _ in wanted}.values():
            wanting = pool.used + total(units for _, grown, units in wanted if grown is pool)
            if wanting + (0.0 if self._evict else pool.cached) > pool.cap:
                return None
        del self._due[step]
        self._kernel.ctx.now = now
        return total(self._take(job, pool, units, step) for job, pool, units in wanted)

    def _take(self, job: Job, pool: PoolState, units: float, step: int) -> float:
        """Grow one job's hold; the units by which the engine's memory in use grew."""
        frame, i = job.frame, job.frame_index
        if frame is None or not pool.take_growth(frame, i, units):
            raise AssertionError("growth that was found to fit did not")
        room = frame.alloc[i] - frame.position[i]
        self._due[max(math.floor(room), step + 1)].append((job, room))
        return units if pool is self._engine.memory else 0.0

    def _ended(self, ends: int, now: float, last: float, warmup: float) -> None:
        """The tokens of one iteration, which ended `now`: the first by job, the later ones all alike."""
        if ends == 0:
            for job in self._jobs:
                self._engine.token(job, now)
        elif now >= warmup:
            self._engine.gaps.add(now - last, len(self._jobs))

    def _advance(self, ends: int, last: float) -> None:
        engine = self._engine
        engine.served += ends * len(self._jobs)
        for job in self._jobs:
            job.remaining -= ends
            if job.frame is not None:
                job.frame.position[job.frame_index] += ends
            session = job.session
            if session is not None:
                session.last_token = last
                if session.turn is not None:
                    session.turn.tokens += ends - 1


def _headers(program: ir.Program) -> Iterator[ir.Expr]:
    """What decides whether a waiting hold or a newcomer gets further."""
    for pool in program.pools:
        yield from pool.queue
    for block in program.blocks:
        for stmt in block:
            if isinstance(stmt, ir.Hold):
                yield from (value for _, value in stmt.bindings)
                for item in stmt.pools:
                    yield item.units
                    if item.reserve is not None:
                        yield item.reserve
                if stmt.reuse is not None:
                    yield stmt.reuse
    for stage in program.stages:
        if stage.step is not None:
            yield from _gates(stage.step.iteration)


def _gates(items: Iterable[ir.Iteration]) -> Iterator[ir.Expr]:
    for item in items:
        if item.gate is not None:
            yield item.gate


def _steady(expr: ir.Expr, *, moving: bool = False) -> bool:
    """Whether a value stays while an engine only decodes; `moving` excludes what growth changes, too."""
    for part in parts(expr):
        if isinstance(part, ir.Sample):
            return False
        if isinstance(part, ir.Ctx) and (part.name in _DRIFTING_WORDS or (moving and "kv" in part.name)):
            return False
        if isinstance(part, ir.Call) and part.name in _DRIFTING_QUERIES:
            return False
        if isinstance(part, ir.Call) and moving and part.name in _MOVING_QUERIES:
            return False
    return True


def _engine_steady(stage: ir.Stage) -> bool:
    step = stage.step
    if step is None or not isinstance(step.budget, ir.Num) or not isinstance(step.chunk, ir.Num):
        return False
    plain = all(item.kind in ("serve", "admit") and item.only is None for item in step.iteration)
    keys = all(_steady(key) for item in step.iteration for key in item.keys)
    drawn = any(isinstance(part, ir.Sample) for part in parts(step.cost))
    queried = any(isinstance(part, ir.Call) and part.name in _DRIFTING_QUERIES for part in parts(step.cost))
    return plain and keys and not drawn and not queried
