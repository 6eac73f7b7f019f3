"""Stages where time passes: FIFO servers, processor sharing, delays, and flows over shared links.

Source: docs/language.md, "How stages serve".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serq import ir
from serq.errors import RunError
from serq.ir.arithmetic import total
from serq.sim.stats import TimeAverage

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.sessions import HoldFrame, Session

__all__ = ["DelayStage", "FifoStage", "FlowFabric", "FlowStage", "Job", "PsStage", "StageState"]

_WEIGHT = 0.01


@dataclass(slots=True, eq=False)
class Job:
    """Work of one session on one stage (several for a flow)."""

    session: Session | None
    stages: list[StageState]
    work: float
    mode: str
    joined: float
    started: float = 0.0
    remaining: float = 0.0
    order: int = 0
    gone: bool = False
    latency: float = 0.0
    tag: float = 0.0
    rate: float = 0.0
    frame: HoldFrame | None = None
    frame_index: int = 0
    growing: PoolState | None = None
    growing_waits: bool = False
    granted: float = 0.0
    alone: HoldFrame | None = None


class StageState(ABC):
    """What every kind of stage keeps: jobs present, statistics, estimates."""

    def __init__(self, kernel: Kernel, spec: ir.Stage, position: int) -> None:
        self.kernel = kernel
        self.spec = spec
        self.name = spec.name
        self.position = position
        self.jobs: list[Job] = []
        self.delayed = 0
        self.number = TimeAverage()
        self.busy_time = TimeAverage()
        self.completed = 0
        self.wait_total = 0.0
        self.service_total = 0.0
        self.last_start: float | None = None
        self.gap: float | None = None
        self.service: float | None = None
        self.wait: float | None = None

    def compile(self) -> None:  # noqa: B027 - a hook that few kinds need
        """Compile expressions once every pool and stage exists."""

    def restart_statistics(self, now: float) -> None:
        self.number.restart(now)
        self.busy_time.restart(now)

    def changed(self) -> None:
        now, n = self.kernel.ctx.now, len(self.jobs)
        self.number.set(float(n + self.delayed), now)
        self.busy_time.set(1.0 if n else 0.0, now)

    @abstractmethod
    def join(self, job: Job) -> None:
        """Take a job in."""

    @abstractmethod
    def leave(self, job: Job) -> None:
        """Take a preempted job away."""

    def reschedule(self) -> None:  # noqa: B027 - a hook that few kinds need
        """Schedule the next finish, where that depends on who is present."""

    def count(self, job: Job) -> None:
        """Count a completed job."""
        now = self.kernel.ctx.now
        if now >= self.kernel.program.warmup:
            self.completed += 1
            self.wait_total += job.started - job.joined if self._waits else job.latency
            self.service_total += now - (job.started if self._waits else job.joined + job.latency)
        self._estimate(job, now)

    def finish(self, job: Job) -> None:
        """Count a completed job and let its session go on."""
        self.count(job)
        self.kernel.population.job_done(job)

    _waits = False

    def _estimate(self, job: Job, now: float) -> None:
        if self.last_start is not None:
            self.gap = _average(self.gap, job.started - self.last_start)
        self.last_start = job.started
        self.service = _average(self.service, now - job.started)
        self.wait = _average(self.wait, job.started - job.joined)

    # --- queries ------------------------------------------------------------------------------------------------------

    def q_queue(self) -> float:
        return float(len(self.jobs) + self.delayed)

    def q_busy(self) -> float:
        return float(len(self.jobs))

    def q_work(self) -> float:
        now = self.kernel.ctx.now
        return total(max(job.work - (now - job.started), 0.0) for job in self.jobs)

    def q_budget_left(self) -> float:
        return 0.0

    def q_est_lambda(self) -> float:
        return 1.0 / self.gap if self.gap else 0.0

    def q_est_rho(self) -> float:
        return min(0.99, self.q_est_lambda() * (self.service or 0.0))

    def q_est_wait(self) -> float:
        return self.wait or 0.0

    def q_price(self, hit: float, ds: float) -> float:
        """Expected cost of giving up a hit (13.7)."""
        rate, rho = self.q_est_lambda(), self.q_est_rho()
        miss = hit + ds
        return ds + rate * (miss**2 - hit**2) / (2 * (1 - rho)) + rate * self.q_est_wait() * ds / (1 - rho)


def _average(old: float | None, value: float) -> float:
    return value if old is None else _WEIGHT * value + (1.0 - _WEIGHT) * old


class FifoStage(StageState):
    """`servers` servers, jobs in joining order; service lasts exactly the work."""

    _waits = True

    def __init__(self, kernel: Kernel, spec: ir.Stage, position: int) -> None:
        super().__init__(kernel, spec, position)
        self.queue: deque[Job] = deque()
        self.serving: list[Job] = []

    def join(self, job: Job) -> None:
        self.jobs.append(job)
        if len(self.serving) < self.spec.servers:
            self._start(job)
        else:
            self.queue.append(job)
        self.changed()

    def _start(self, job: Job) -> None:
        job.started = self.kernel.ctx.now
        self.serving.append(job)
        self.kernel.schedule(job.started + job.work, self._finished, job)

    def _finished(self, job: Job) -> None:
        if job.gone:
            return
        self._remove(job)
        self.finish(job)

    def _remove(self, job: Job) -> None:
        self.jobs.remove(job)
        self.serving.remove(job)
        if self.queue:
            self._start(self.queue.popleft())
        self.changed()

    def leave(self, job: Job) -> None:
        job.gone = True
        if job in self.serving:
            self._remove(job)
        else:
            self.queue.remove(job)
            self.jobs.remove(job)
            self.changed()

    def q_busy(self) -> float:
        return float(len(self.serving))

    def q_work(self) -> float:
        now = self.kernel.ctx.now
        in_service = total(max(job.work - (now - job.started), 0.0) for job in self.serving)
        return in_service + total(job.work for job in self.queue)


class DelayStage(StageState):
    """Every job at rate 1."""

    def join(self, job: Job) -> None:
        job.started = self.kernel.ctx.now
        self.jobs.append(job)
        self.kernel.schedule(job.started + job.work, self._finished, job)
        self.changed()

    def _finished(self, job: Job) -> None:
        if not job.gone:
            self.jobs.remove(job)
            self.changed()
            self.finish(job)

    def leave(self, job: Job) -> None:
        job.gone = True
        self.jobs.remove(job)
        self.changed()


class PsStage(StageState):
    """Total speed shared equally, on a virtual clock (13.2)."""

    def __init__(self, kernel: Kernel, spec: ir.Stage, position: int) -> None:
        super().__init__(kernel, spec, position)
        self.virtual = 0.0
        self.since = 0.0
        self.rate = 0.0
        self.version = 0
        self.capacity: Any = None

    def compile(self) -> None:
        if self.spec.capacity is None:
            raise RunError("run-amount", f"stage {self.name} has no capacity")
        self.capacity = self.kernel.function(self.spec.capacity)

    def _advance(self) -> None:
        now = self.kernel.ctx.now
        self.virtual += (now - self.since) * self.rate
        self.since = now

    def join(self, job: Job) -> None:
        self._advance()
        job.started = self.kernel.ctx.now
        job.tag = self.virtual + job.work
        self.jobs.append(job)
        self._mark()

    def leave(self, job: Job) -> None:
        self._advance()
        job.gone = True
        self.jobs.remove(job)
        self._mark()

    def _mark(self) -> None:
        self.version += 1
        self.kernel.dirty_stages.add(self.position)
        self.changed()

    def reschedule(self) -> None:
        kernel, n = self.kernel, len(self.jobs)
        if not n:
            self.rate = 0.0
            return
        ctx = kernel.ctx
        rng, ctx.rng = ctx.rng, kernel.machine_rng
        ctx.present = float(n)
        speed = self.capacity(kernel.no_attrs)
        ctx.rng = rng
        self.rate = speed / n
        job = min(self.jobs, key=lambda item: item.tag)
        if self.rate > 0 and math.isfinite(job.tag):
            at = ctx.now + max(0.0, job.tag - self.virtual) / self.rate
            kernel.schedule(at, self._finished, (job, self.version))

    def _finished(self, payload: tuple[Job, int]) -> None:
        job, version = payload
        if version != self.version:
            return
        self._advance()
        self.virtual = max(self.virtual, job.tag)
        self.jobs.remove(job)
        self._mark()
        self.finish(job)

    def q_work(self) -> float:
        now = self.kernel.ctx.now
        virtual = self.virtual + (now - self.since) * self.rate
        return total(max(job.tag - virtual, 0.0) for job in self.jobs)


class FlowStage(StageState):
    """A `ps` stage of a flow fabric: its jobs are flows, which the fabric moves."""

    def __init__(self, kernel: Kernel, spec: ir.Stage, position: int, fabric: FlowFabric) -> None:
        super().__init__(kernel, spec, position)
        self.fabric = fabric
        self.load = TimeAverage()
        self.speed = spec.capacity.value if isinstance(spec.capacity, ir.Num) else 0.0

    def restart_statistics(self, now: float) -> None:
        super().restart_statistics(now)
        self.load.restart(now)

    def join(self, job: Job) -> None:
        self.fabric.join(job)

    def leave(self, job: Job) -> None:
        self.fabric.leave(job)

    def q_work(self) -> float:
        self.fabric.advance()
        return total(job.remaining for job in self.jobs)


class FlowFabric:
    """All stages joined by flows, under one sharing policy (13.6)."""

    def __init__(self, kernel: Kernel, policy: str) -> None:
        self.kernel = kernel
        self.policy = policy
        self.flows: list[Job] = []
        self.stages: list[FlowStage] = []
        self.since = 0.0
        self.version = 0

    def advance(self) -> None:
        now = self.kernel.ctx.now
        step = now - self.since
        if step > 0:
            for job in self.flows:
                job.remaining = max(job.remaining - job.rate * step, 0.0)
        self.since = now

    def join(self, job: Job) -> None:
        self.advance()
        job.started = self.kernel.ctx.now
        job.remaining = job.work
        self.flows.append(job)
        for stage in job.stages:
            stage.jobs.append(job)
            stage.changed()
        self._mark()

    def leave(self, job: Job) -> None:
        self.advance()
        job.gone = True
        self._remove(job)

    def _remove(self, job: Job) -> None:
        self.flows.remove(job)
        for stage in job.stages:
            stage.jobs.remove(job)
            stage.changed()
        self._mark()

    def _mark(self) -> None:
        self.version += 1
        self.kernel.dirty_fabric = True

    def reschedule(self) -> None:
        """New rates, and the next finish."""
        self.advance()
        if self.policy == "maxmin":
            self._max_min()
        else:
            for job in self.flows:
                job.rate = min(stage.speed / len(stage.jobs) for stage in self._links(job))
        now = self.kernel.ctx.now
        for stage in self.stages:
            stage.load.set(total(job.rate for job in stage.jobs) / stage.speed, now)
        moving = [job for job in self.flows if job.rate > 0]
        if moving:
            job = min(moving, key=lambda item: item.remaining / item.rate)
            self.kernel.schedule(now + job.remaining / job.rate, self._finished, (job, self.version))

    @staticmethod
    def _links(job: Job) -> list[FlowStage]:
        return [stage for stage in job.stages if isinstance(stage, FlowStage)]

    def _max_min(self) -> None:
        free = {stage.position: stage.speed for stage in self.stages}
        open_flows = list(self.flows)
        while open_flows:
            shares: dict[int, float] = {}
            for stage in self.stages:
                count = sum(1 for job in open_flows if stage in job.stages)
                if count:
                    shares[stage.position] = free[stage.position] / count
            tight = min(shares, key=lambda position: shares[position])
            rate = shares[tight]
            frozen = [job for job in open_flows if any(stage.position == tight for stage in job.stages)]
            for job in frozen:
                job.rate = rate
                for crossed in job.stages:
                    free[crossed.position] -= rate
            open_flows = [job for job in open_flows if job not in frozen]

    def _finished(self, payload: tuple[Job, int]) -> None:
        job, version = payload
        if version != self.version:
            return
        self.advance()
        job.remaining = 0.0
        self._remove(job)
        for other in job.stages[1:]:
            other.count(job)
        job.stages[0].finish(job)
