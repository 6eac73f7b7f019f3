"""Many alike decode iterations at once, as arrays.

The memory of a decoding engine grows on a fixed schedule: every job takes one block each time its tokens fill one.  So
the units in use, the cost and the end of every iteration up to the next event are arrays, and a leap over N iterations
takes a few numpy operations per job and O(N) arithmetic, instead of N evaluations.

`decode_run` decides when a run of iterations is alike; a leap also needs a cost that reads nothing but the batch, no
claim and no record of iterations, and a cache whose eviction is by age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from serq import ir
from serq.lowering.arithmetic import total
from serq.lowering.fold import parts
from serq.sim.columns import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from serq.sim.engine import EngineStage
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.stages import Job

__all__ = ["LEAST", "Leap", "leapable"]

LEAST: Final = 24
"""Fewer iterations than this are not worth the arrays."""
_MOST: Final = 4096
_WORDS: Final = frozenset({"tokens", "prefilled", "decoders", "residents", "kv_decode", "kv_prefill", "attention"})


def leapable(program: ir.Program, position: int) -> bool:
    """Whether an engine's cost is a function of its batch alone, and nothing reads every iteration."""
    step = program.stages[position].step
    if step is None or any(claim.stage == position for claim in program.claims):
        return False
    for part in parts(step.cost):
        if isinstance(part, ir.Ctx) and part.name not in _WORDS:
            return False
        if isinstance(part, ir.Sample | ir.Reg | ir.Attr | ir.Agg) or (isinstance(part, ir.Call) and part.ref):
            return False
    return True


class Leap:
    """One leap of one engine: at most `most` iterations end, each before `until`."""

    def __init__(self, kernel: Kernel, engine: EngineStage, jobs: Sequence[Job], *, evict: bool) -> None:
        self._kernel = kernel
        self._engine = engine
        self._jobs = jobs
        self._evict = evict
        self._growing = [job for job in jobs if job.frame is not None]

    def take(self, most: float, end: float, until: float) -> tuple[int, float, float]:
        """How many iterations ended, when the last of them did, and when the one then running will end."""
        import numpy as np

        pool = self._pool()
        if pool is None and self._growing:
            return 0, end, end
        first = float(self._durations(np.zeros(1))[0])
        count = int(min(most, _MOST, (until - end) / first + 2 if first > 0 else 0))
        if count < LEAST:
            return 0, end, end
        grown = self._growth(pool, count)
        durations = self._durations(np.cumsum(grown))
        ends = np.cumsum(np.concatenate(([end], durations)))
        good = (durations > 0) & (ends[:-1] < until)
        if pool is not None:
            room = pool.cap - pool.used - (0.0 if self._evict and pool.block is not None else pool.cached)
            good &= np.cumsum(grown) <= room
        count = count if good.all() else int(np.argmin(good))
        if count < 1:
            return 0, end, end
        self._count(durations[:count], ends[: count + 1])
        if pool is not None:
            self._use(pool, grown[:count], ends[:count])
        return count, float(ends[count - 1]), float(ends[count])

    def _durations(self, grown: NDArray[np.float64]) -> NDArray[np.float64]:
        """What iterations cost after the memory in use grew by so much."""
        ctx = self._kernel.ctx
        words: dict[str, Any] = {name: getattr(ctx, name) for name in _WORDS}
        words["kv_decode"] = ctx.kv_decode + grown
        return Columns(words).values(self._engine.step.cost, len(grown))

    def _pool(self) -> PoolState | None:
        """The one pool that all jobs grow, where its growth is regular."""
        pool = self._engine.memory
        if pool is None or any(job.growing is not pool for job in self._growing):
            return None
        plain = not pool.evict_keys and pool.spec.spill is None and not pool.reserve_total and not pool.chains.used
        whole = all(
            (job.frame.alloc[job.frame_index] - job.frame.position[job.frame_index]) % 1 == 0
            for job in self._growing
            if job.frame is not None
        )
        return pool if plain and whole else None

    def _dues(self) -> list[tuple[Job, int]]:
        """For each job the iteration, counted from the next, for which it must grow first."""
        found: list[tuple[Job, int]] = []
        for job in self._growing:
            if job.frame is not None:
                room = job.frame.alloc[job.frame_index] - job.frame.position[job.frame_index]
                found.append((job, max(int(room), 1)))
        return found

    def _growth(self, pool: PoolState | None, count: int) -> NDArray[np.float64]:
        """Units taken at the start of each of the next iterations."""
        import numpy as np

        grown = np.zeros(count)
        if pool is not None:
            block = pool.block or 1.0
            for _, due in self._dues():
                grown[due - 1 :: int(block)] += block
        return grown

    def _count(self, durations: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
        """Iterations, batches and the gaps between tokens."""
        engine, warmup, jobs = self._engine, self._kernel.program.warmup, len(self._jobs)
        measured = durations[ends[:-1] >= warmup]
        engine.iterations += len(durations)
        engine.decode_batches += len(measured)
        engine.decode_total += float(jobs * len(measured))
        engine.decode_duration += total(measured.tolist())
        for job in self._jobs:
            engine.token(job, float(ends[0]))
        later = ends[1:-1]
        engine.gaps.add_many((later - ends[:-2])[later >= warmup], jobs)

    def _use(self, pool: PoolState, grown: NDArray[np.float64], starts: NDArray[np.float64]) -> None:
        """Take the units, evict for them, and note the pool's figures at every change."""
        import numpy as np

        ctx, block = self._kernel.ctx, pool.block or 1.0
        used = pool.used + np.cumsum(grown)
        over = np.maximum(used + pool.cached - pool.cap, 0.0)
        cached = pool.cached - block * np.ceil(over / block)
        changes = np.flatnonzero(grown)
        pool.mean_used.set_many(used[changes], starts[changes])
        pool.mean_cached.set_many(cached[changes], starts[changes])
        before = pool.used, pool.cached
        if self._kernel.moving_gauges:
            for at in changes.tolist():
                ctx.now = float(starts[at])
                pool.used, pool.cached = float(used[at]), float(cached[at])
                self._kernel.record_gauges()
        pool.used, pool.cached = before
        for job, due in self._dues():
            if job.frame is not None and due <= len(grown):
                job.frame.alloc[job.frame_index] += block * ((len(grown) - due) // int(block) + 1)
        ctx.now = float(starts[-1])
        pool.used = float(used[-1])
        pool.make_room()
