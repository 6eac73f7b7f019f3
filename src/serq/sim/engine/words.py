"""The totals over residents and batches that an engine's expressions read.

Source: docs/language.md, "What may be read where".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from serq import ir
from serq.ir.arithmetic import total
from serq.ir.fold import parts

if TYPE_CHECKING:
    from serq.sim.engine.stage import EngineStage
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.stages import Job

__all__ = ["EngineWords"]

_MEMORY: Final = frozenset({"kv_decode", "kv_prefill", "running_kv_decode", "running_kv_prefill"})
_AT_HAND: Final = frozenset({"running_preempted", "waiting_admitted"})


class EngineWords:
    """Puts an engine's totals into the context, those that any of its expressions reads."""

    def __init__(self, kernel: Kernel, engine: EngineStage) -> None:
        self._kernel = kernel
        self._engine = engine
        step = engine.step
        forming = _words((step.budget, step.chunk, *_of_items(step.iteration)))
        read = forming | _words(
            (step.cost, *(claim.test for claim in kernel.program.claims if claim.stage == engine.position))
        )
        self.memory = bool(read & _MEMORY)
        self._attention = "attention" in read
        self._demand = "demand" in read
        self._forming = bool(forming - _AT_HAND)

    def residents(self) -> None:
        """The totals over all residents; nothing is in a batch yet.  Linear in them where memory is read."""
        ctx, engine = self._kernel.ctx, self._engine
        jobs = engine.jobs
        ctx.residents, ctx.decoders = float(len(jobs)), float(len(jobs) - engine.prefilling)
        ctx.tokens = ctx.prefilled = ctx.attention = 0.0
        if self.memory:
            ctx.kv_decode, ctx.kv_prefill = self._memory_of(jobs)

    def guards(self) -> None:
        """What a guard, a `set` or a budget reads while an iteration is formed."""
        ctx, engine = self._kernel.ctx, self._engine
        ctx.running_preempted, ctx.waiting_admitted = float(engine.preempted), float(engine.admitted)
        if not self._forming:
            return
        self.residents()
        ctx.running_count, ctx.running_decoding = ctx.residents, ctx.decoders
        if self.memory:
            ctx.running_kv_decode, ctx.running_kv_prefill = ctx.kv_decode, ctx.kv_prefill
        ctx.waiting_count = float(sum(len(pool.front) + len(pool.waiting) for pool in engine.queues))
        ctx.batch_tokens = total(job.granted for job in engine.grants)
        ctx.batch_prefilled = total(job.granted for job in engine.grants if job.mode != "decode")

    def batch(self, jobs: Sequence[Job]) -> None:
        """The totals over a batch: what `cost` and the claims read."""
        ctx, engine = self._kernel.ctx, self._engine
        tokens = prefilled = attention = 0.0
        decoders = 0
        for job in jobs:
            n = job.granted
            tokens += n
            if job.mode == "decode":
                decoders += 1
            else:
                prefilled += n
                if self._attention:
                    attention += n * (_position(job) + n / 2)
        ctx.tokens, ctx.prefilled, ctx.attention = tokens, prefilled, attention
        ctx.decoders, ctx.residents = float(decoders), float(len(engine.jobs))
        if self.memory:
            ctx.kv_decode, ctx.kv_prefill = self._memory_of(jobs)
        ctx.served = engine.served
        if self._demand:
            cap = engine.cap
            ctx.demand = total(1.0 if job.mode == "decode" else min(job.remaining, cap) for job in engine.jobs)

    def decodes(self, jobs: Sequence[Job]) -> None:
        """The totals over a batch in which every job decodes."""
        ctx, n = self._kernel.ctx, float(len(jobs))
        ctx.tokens = ctx.decoders = ctx.residents = ctx.demand = n
        ctx.prefilled = ctx.attention = ctx.kv_prefill = 0.0
        if self.memory:
            ctx.kv_decode = self._memory_of(jobs)[0]

    def _memory_of(self, jobs: Sequence[Job]) -> tuple[float, float]:
        """Units of the engine's memory that decoding and prefilling jobs have."""
        memory = self._engine.memory
        decode = prefill = 0.0
        for job in jobs:
            frame = job.alone
            units = _held(job, memory) if frame is None else frame.alloc[job.frame_index]
            if job.mode == "decode":
                decode += units
            else:
                prefill += units
        return decode, prefill


def _held(job: Job, memory: PoolState | None) -> float:
    """Units of the memory that the job's session has."""
    if memory is None or job.session is None:
        return 0.0
    return job.session.allocated(memory)


def _words(exprs: Iterable[ir.Expr]) -> set[str]:
    return {part.name for expr in exprs for part in parts(expr) if isinstance(part, ir.Ctx)}


def _of_items(items: Iterable[ir.Iteration]) -> Iterator[ir.Expr]:
    for item in items:
        yield from (expr for expr in (item.only, item.gate, item.test, item.value, *item.keys) if expr is not None)
        yield from _of_items((*item.then, *item.otherwise))


def _position(job: Job) -> float:
    return 0.0 if job.frame is None else job.frame.position[job.frame_index]
