"""Growing a hold, and what gives way when it does not fit.

Source: docs/language.md, "Growth, preemption, leases".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serq.sim.pools import PoolState
from serq.sim.sessions import HoldFrame, PreemptedError, Session
from serq.sim.stages import Job

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel

__all__ = ["Growth"]


class Growth:
    """Takes growth, preempting holds or ending leases as the pool says."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

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
                victim = self._victim(pool, frame)
                if victim is None:
                    return "wait"
                self.preempt(victim, pool)
                if victim.session is frame.session:
                    return "lost"
            elif kind == "leases" and pool.leases:
                self._kernel.leases.take(pool)
            else:
                return "wait"
        return "done"

    def _victim(self, pool: PoolState, grower: HoldFrame) -> HoldFrame | None:
        """The hold to preempt: least keys, ties to the latest admitted; of those with units, and the grower."""
        candidates: list[tuple[tuple[float, ...], HoldFrame]] = []
        for s, job in self._candidates(pool):
            found = s.innermost(pool)
            if found is None or (found[0].alloc[found[1]] <= 0 and found[0] is not grower):
                continue
            ctx = self._kernel.ctx
            ctx.decoding = 1.0 if job is not None and job.mode == "decode" else 0.0
            ctx.admission = found[0].admission
            ctx.position = found[0].position[found[1]]
            keys = tuple([key(s.attrs) for key in pool.victim_keys])
            candidates.append(((*keys, -ctx.admission), found[0]))
        return min(candidates, key=lambda item: item[0])[1] if candidates else None

    @staticmethod
    def _candidates(pool: PoolState) -> list[tuple[Session, Job | None]]:
        if pool.engine is not None:
            return [(job.session, job) for job in pool.engine.jobs if job.session is not None]
        return [(s, s.job) for s, _ in pool.holding.values() if s.holds]

    def preempt(self, frame: HoldFrame, pool: PoolState) -> None:
        """Take a hold from its session, which queues again (12.7)."""
        s = frame.session
        self.detach(s)
        s.preempted = True
        pool.preemptions += 1
        at = frame.pools.index(pool)
        position = frame.position[at]
        s.attrs[self._kernel.slot_computed] = position
        if frame.preempted and position <= frame.last_position and not s.stuck:
            s.stuck = True
            pool.stuck += 1
        frame.last_position = position
        while s.holds[-1] is not frame:
            self._lose(s.holds[-1])
        self._lose(frame)
        if frame.hold.on_preempt:
            self._kernel.population.immediate(frame.hold.on_preempt, s, s.rng)
        frame.preempted = True
        frame.requeue_tail = pool.spec.preempt.requeue_tail
        if pool.engine is not None and pool.engine.forming:
            pool.engine.preempted += 1
        self._lost = frame
        if self._kernel.population.running is not s and s.gen is not None:
            self._throw(s, frame)

    def _throw(self, s: Session, frame: HoldFrame) -> None:
        ctx = self._kernel.ctx
        before = ctx.rng, self._kernel.population.running
        ctx.rng, self._kernel.population.running = s.rng, s
        try:
            if s.gen is not None:
                s.gen.throw(PreemptedError(frame))
        except StopIteration:
            s.gen = None
        finally:
            ctx.rng, self._kernel.population.running = before

    def _lose(self, frame: HoldFrame) -> None:
        """Give a preempted hold's units back; with a cache clause its computed part stays."""
        s, hold = frame.session, frame.hold
        limit = None if hold.cache is None else self._kernel.holds.cache_limit(hold.cache, s)
        s.holds.remove(frame)
        for i, pool in enumerate(frame.pools):
            if not frame.released[i]:
                kept = None if limit is None else pool.round_down(min(limit, frame.position[i]))
                self._kernel.holds.give_back(frame, i, kept)

    def detach(self, s: Session) -> None:
        """Take a session out of whatever it waits for."""
        job = s.job
        if job is not None:
            if s.turn is not None and s.turn.made_by is job.stages[0]:
                s.turn.resumed_on = job.stages[0]
            if job.growing is not None:
                job.growing.growers = [grower for grower in job.growing.growers if grower.job is not job]
            job.stages[0].leave(job)
            s.job = None
        if s.ready:
            self._kernel.population.ready.remove(s)
            s.ready = False
        waiting = s.waiting_in
        if isinstance(waiting, HoldFrame):
            waiting.pools[0].leave_queue(waiting)
            waiting.pools[0].changed()
        elif waiting is not None:
            for pool in self._kernel.pools:
                pool.growers = [grower for grower in pool.growers if grower is not waiting]
        s.waiting_in = None
