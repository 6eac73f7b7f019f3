"""Decode iterations that are alike, run through together.

Between two events that change an engine's batch, every resident decodes one token per iteration, and only block
boundaries and the cost change.  `ahead` then passes from iteration to iteration without events: per iteration it takes
the growth that is due and, where that or something else matters to it, evaluates the cost; what each job has gained is
added once, at the end.  The result is that of the step-by-step simulation; only the order of some floating-point sums
differs.

Time per iteration does not depend on the batch, beyond the jobs that cross a block boundary in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapreplace
from typing import TYPE_CHECKING, Final

from serq import ir
from serq.errors import RunError
from serq.ir.fold import parts
from serq.sim.engine.leap import Leap, adds_and_multiplies, leapable, worth_a_leap
from serq.sim.selection import Batch

if TYPE_CHECKING:
    from serq.sim.engine.stage import EngineStage
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.sessions import HoldFrame
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
        self._plain = {i: leapable(program, i) for i in range(len(program.stages))}
        self._arithmetic = {
            i for i, stage in enumerate(program.stages) if stage.step and adds_and_multiplies(stage.step.cost)
        }
        self._engines = {i: _engine_steady(stage) for i, stage in enumerate(program.stages) if stage.step is not None}

    def ahead(self, engine: EngineStage) -> None:
        """Run the engine's current iteration and its like ahead, up to the next event, where that can be.

        Whoever waits must have been tried in vain since anything happened that could let him in.
        """
        kernel = self._kernel
        running, jobs, heap = engine.running, engine.jobs, kernel.heap
        if not running or engine.prefilling or len(running) != len(jobs) or not self._engines[engine.position]:
            return
        end, until = heap[0][0], min((item[0] for item in heap[1:3]), default=math.inf)
        until = min(until, kernel.horizon)
        if end >= until:
            return
        waiting = any(pool.front or pool.waiting or pool.growers for pool in kernel.pools)
        if waiting and not (kernel.offered and self._headers_steady and self._tried(engine)):
            return
        if len(kernel.engines) > 1 and any(other is not engine and other.has_work for other in kernel.engines):
            return
        left = min([job.remaining for job in jobs])
        if left >= _WORTH:
            run = _Ahead(kernel, engine, evict=not waiting, plain=self._plain[engine.position])
            try:
                run.take(left - 1, end, until, arithmetic=engine.position in self._arithmetic)
            except RunError as error:
                raise engine.at_fault(error) from None

    def _tried(self, engine: EngineStage) -> bool:
        """Whether those who wait for this engine were tried in vain when its iteration was formed, or nobody does."""
        if not any(pool.front or pool.waiting for pool in engine.queues):
            return True
        return engine.formed_after == self._kernel.events and not engine.preempted and not engine.admitted


class _Ahead:
    """One passage over alike iterations of one engine."""

    def __init__(self, kernel: Kernel, engine: EngineStage, *, evict: bool, plain: bool) -> None:
        self._kernel = kernel
        self._engine = engine
        self._evict = evict
        self._plain = plain
        self._jobs: list[Job] = list(engine.jobs)
        self._due: dict[int, list[Job]] = {}
        self._starts: list[float] = []

    def take(self, most: float, end: float, until: float, *, arithmetic: bool) -> None:
        """End at most `most` iterations, each before `until`; the one then running ends as an event."""
        kernel, engine = self._kernel, self._engine
        heap = kernel.heap
        engine.words.decodes(self._jobs)
        ends, last, then = 0, 0.0, end
        batch = None if kernel.observer is None or not self._plain else Batch.of(engine)
        if self._plain:
            duration = engine.duration()
            limit = min(most, (until - end) / duration + 2)
            if worth_a_leap(engine, limit):
                leap = Leap(kernel, engine, self._jobs, evict=self._evict, arithmetic=arithmetic)
                ends, last, then = leap.take(int(limit), end, until)
                self._starts = leap.starts
            if not ends:
                ends, last, then = self._alike(limit, duration, end, until)
        else:
            ends, last, then = self._one_by_one(most, end, until)
        if not ends:
            return
        if batch is not None and kernel.observer is not None:
            for selection in batch.selections(engine.name, self._starts):
                kernel.observer(selection)
        self._advance(ends, last)
        item = heap[0]
        heapreplace(heap, (then, item[1], kernel.next_sequence(), item[3], item[4]))
        kernel.events += ends
        engine.formed_after = kernel.events

    def _alike(self, most: float, duration: float, end: float, until: float) -> tuple[int, float, float]:
        """How many iterations ended, when the last of them did, and when the one then running will end.

        The cost depends on the batch alone, so it is evaluated anew only where the memory in use has grown.
        """
        engine, figures, n = self._engine, self._engine.figures, len(self._jobs)
        warmup, memory, noted = self._kernel.program.warmup, engine.words.memory, self._kernel.observer is not None
        due, ends, last, gap, gaps = self._dues(most), 0, 0.0, 0.0, 0
        while ends < most and end < until:
            before = duration
            if ends + 1 in due:
                grown = self._grow(ends + 1, end)
                if grown is None:
                    break
                if grown and memory:
                    self._kernel.ctx.kv_decode += grown
                    duration = engine.duration()
            if not ends:
                figures.decoded(self._jobs, end)
            elif end >= warmup:
                if before != gap and gaps:
                    figures.gaps.add(gap, gaps)
                    gaps = 0
                gap = before
                gaps += n
            figures.count(end, n, duration)
            if noted:
                self._starts.append(end)
            last = end
            end += duration
            ends += 1
        if gaps:
            figures.gaps.add(gap, gaps)
        return ends, last, end

    def _one_by_one(self, most: float, end: float, until: float) -> tuple[int, float, float]:
        """The same, where every iteration is evaluated."""
        engine, figures, n = self._engine, self._engine.figures, len(self._jobs)
        warmup = self._kernel.program.warmup
        due, ends, last = self._dues(most), 0, 0.0
        while ends < most and end < until:
            if ends + 1 in due:
                grown = self._grow(ends + 1, end)
                if grown is None:
                    break
                if engine.words.memory:
                    self._kernel.ctx.kv_decode += grown
            duration = engine.begin_again(end, n, ends)
            if not ends:
                figures.decoded(self._jobs, end)
            elif end >= warmup:
                figures.gaps.add(end - last, n)
            last = end
            end += duration
            ends += 1
        return ends, last, end

    def _dues(self, most: float) -> dict[int, list[Job]]:
        """By iteration, counted from the next, the jobs that must grow for it."""
        for job in self._jobs:
            frame = job.frame
            if frame is not None:
                room = frame.alloc[job.frame_index] - frame.position[job.frame_index]
                if room <= most:
                    self._due.setdefault(int(room), []).append(job)
        return self._due

    def _grow(self, step: int, now: float) -> float | None:
        """Let the jobs due for this iteration grow; the units by which the engine's memory in use grew.

        None, and nothing is taken, where they do not all fit.
        """
        wanted: list[tuple[HoldFrame, int, float]] = []
        needs: dict[PoolState, float] = {}
        for job in self._due[step]:
            frame, pool, i = job.frame, job.growing, job.frame_index
            if frame is None or pool is None or pool.reserve_total or pool.spec.spill is not None:
                return None
            units = max(pool.round_up(frame.position[i] + step + 1) - frame.alloc[i], 0.0)
            wanted.append((frame, i, units))
            needs[pool] = needs.get(pool, 0.0) + units
        for pool, units in needs.items():
            if pool.used + units + (0.0 if self._evict else pool.cached) > pool.cap:
                return None
        self._kernel.ctx.now = now
        due = self._due
        for job, (frame, i, units) in zip(due.pop(step), wanted, strict=True):
            frame.alloc[i] += units
            due.setdefault(max(int(frame.alloc[i] - frame.position[i]), step + 1), []).append(job)
        for pool, units in needs.items():
            pool.used += units
            pool.make_room()
            pool.mean_used.set(pool.used, now)
            pool.mean_cached.set(pool.cached, now)
        if self._kernel.gauges:
            self._kernel.record_gauges()
        memory = self._engine.memory
        return 0.0 if memory is None else needs.get(memory, 0.0)

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
