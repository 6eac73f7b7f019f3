"""Many alike decode iterations at once, as arrays.

The memory of a decoding engine grows on a fixed schedule: every job takes one block each time its tokens fill one.  So
the units in use, the cost and the end of every iteration up to the next event are arrays, and a leap over N iterations
takes a few numpy operations per job and O(N) arithmetic, instead of N evaluations.

`ahead` decides when a run of iterations is alike; a leap also needs a cost that reads nothing but the batch, no
claim, and a cache whose eviction is by age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from serq import ir
from serq.ir.arithmetic import total
from serq.ir.fold import parts
from serq.sim.columns import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from serq.sim.engine.stage import EngineStage
    from serq.sim.kernel import Kernel
    from serq.sim.pools import PoolState
    from serq.sim.stages import Job

__all__ = ["Leap", "adds_and_multiplies", "leapable", "worth_a_leap"]

_ARRAYS: Final = 250.0
_GROWTH: Final = 7.0
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


def worth_a_leap(engine: EngineStage, iterations: float) -> bool:
    """Whether so many iterations cost more one by one than the arrays do; the weights are microseconds, about."""
    memory = engine.memory
    block = 1.0 if memory is None or memory.block is None else memory.block
    return iterations * (1.0 + _GROWTH * min(1.0, len(engine.jobs) / block)) >= _ARRAYS


def adds_and_multiplies(expr: ir.Expr) -> bool:
    """Whether numbers and words are only added, subtracted and multiplied."""
    return all(
        isinstance(part, ir.Num | ir.Ctx) or (isinstance(part, ir.Binary) and part.op in "+-*") for part in parts(expr)
    )


class Leap:
    """One leap of one engine: at most `most` iterations end, each before `until`."""

    def __init__(self, kernel: Kernel, engine: EngineStage, jobs: list[Job], *, evict: bool, arithmetic: bool) -> None:
        self._kernel = kernel
        self._engine = engine
        self._jobs = jobs
        self._evict = evict
        self._growing = [job for job in jobs if job.frame is not None]
        self._arithmetic = arithmetic
        self.starts: list[float] = []

    def take(self, most: int, end: float, until: float) -> tuple[int, float, float]:
        """How many iterations ended, when the last of them did, and when the one then running will end."""
        import numpy as np

        pool = self._pool()
        if pool is None and self._growing:
            return 0, end, end
        count = min(most, _MOST)
        grown = np.cumsum(self._growth(pool, count))
        durations = self._durations(grown)
        ends = np.cumsum(np.concatenate(([end], durations)))
        if pool is not None:
            room = pool.cap - pool.used - (0.0 if self._evict and pool.block is not None else pool.cached)
            count = min(count, int(np.searchsorted(grown, room, side="right")))
        if not (durations > 0).all():
            count = min(count, int(np.argmin(durations > 0)))
        count = min(count, int(np.searchsorted(ends[:count], until)))
        if count < 1:
            return 0, end, end
        self._count(durations[:count], ends[: count + 1])
        if pool is not None:
            self._use(pool, grown[:count], ends[:count])
        if self._kernel.observer is not None:
            self.starts = ends[:count].tolist()
        return count, float(ends[count - 1]), float(ends[count])

    def _durations(self, grown: NDArray[np.float64]) -> NDArray[np.float64]:
        """What iterations cost after the memory in use grew by so much."""
        import numpy as np

        ctx, engine = self._kernel.ctx, self._engine
        if not engine.words.memory:
            return np.full(len(grown), engine.duration())
        before = ctx.kv_decode
        if self._arithmetic:
            ctx.kv_decode = before + grown  # type: ignore[assignment]  # the compiled cost adds and multiplies arrays, too
            found = engine.cost(self._kernel.no_attrs)
            ctx.kv_decode = before
            return np.broadcast_to(np.asarray(found, dtype=float), grown.shape)
        words: dict[str, Any] = {name: getattr(ctx, name) for name in _WORDS}
        words["kv_decode"] = before + grown
        return Columns(words).values(engine.step.cost, len(grown))

    def _pool(self) -> PoolState | None:
        """The one pool that all jobs grow, where its growth is regular."""
        pool = self._engine.memory
        if pool is None or any(job.growing is not pool for job in self._growing):
            return None
        plain = not pool.evict_keys and pool.spec.spill is None and not pool.reserve_total and not pool.chains.used
        if not plain or (pool.block or 1.0) % 1 or any(room % 1 for room in self._rooms()):
            return None
        return pool

    def _rooms(self) -> list[float]:
        """Units that each growing job has but does not use yet."""
        frames = [(job.frame, job.frame_index) for job in self._growing]
        return [frame.alloc[i] - frame.position[i] for frame, i in frames if frame is not None]

    def _growth(self, pool: PoolState | None, count: int) -> NDArray[np.float64]:
        """Units taken by the start of each of the next iterations: one block a job, every `block` of them."""
        import numpy as np

        if pool is None:
            return np.zeros(count)
        block = int(pool.block or 1)
        rows = -(-count // block)
        first = np.bincount(np.array(self._rooms(), dtype=int), minlength=rows * block + 1)[1 : rows * block + 1]
        return np.asarray(block * np.cumsum(first.reshape(rows, block), axis=0).ravel()[:count], dtype=float)

    def _count(self, durations: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
        """Iterations, batches and the gaps between tokens."""
        figures, warmup, jobs = self._engine.figures, self._kernel.program.warmup, len(self._jobs)
        late = int(ends[:-1].searchsorted(warmup))
        measured = durations[late:]
        figures.iterations += len(durations)
        figures.decode_batches += len(measured)
        figures.decode_total += float(jobs * len(measured))
        figures.decode_duration += total(measured.tolist())
        figures.decoded(self._jobs, float(ends[0]))
        figures.gaps.add_many(durations[max(late - 1, 0) : -1], jobs)

    def _use(self, pool: PoolState, grown: NDArray[np.float64], starts: NDArray[np.float64]) -> None:
        """Take the units, evict for them, and note the pool's figures at every change."""
        import numpy as np

        ctx, block, count = self._kernel.ctx, int(pool.block or 1), len(grown)
        changes = np.flatnonzero(np.diff(grown, prepend=0.0))
        if not len(changes):
            return
        used, times = pool.used + grown[changes], starts[changes]
        pool.mean_used.set_many(used, times)
        over = np.maximum(used + pool.cached - pool.cap, 0.0)
        cached = pool.cached - block * np.ceil(over / block)
        if over[-1]:
            pool.mean_cached.set_many(cached, times)
        if self._kernel.moving_gauges:
            self._record(pool, used.tolist(), cached.tolist(), times.tolist())
        for job, room in zip(self._growing, self._rooms(), strict=True):
            if job.frame is not None and room <= count:
                job.frame.alloc[job.frame_index] += block * ((count - int(room)) // block + 1)
        ctx.now = float(starts[-1])
        pool.used = float(used[-1])
        pool.make_room()

    def _record(self, pool: PoolState, used: list[float], cached: list[float], times: list[float]) -> None:
        """The gauges at every change of the pool."""
        before = pool.used, pool.cached
        for at, time in enumerate(times):
            self._kernel.ctx.now = time
            pool.used, pool.cached = used[at], cached[at]
            self._kernel.record_gauges()
        pool.used, pool.cached = before
