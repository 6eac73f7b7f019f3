"""Holds: the queue for them, admission, and giving units back.

Source: docs/language.md, "Holds and admission".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from serq import ir
from serq.errors import RunError
from serq.ir.arithmetic import total
from serq.sim.chains import Chain, ChainTree, Reading
from serq.sim.expr import Function, reads_live_state
from serq.sim.pools import PoolState
from serq.sim.sessions import CompiledHold, HoldFrame, Session

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel

__all__ = ["Holds"]

_OWN = Chain((), math.inf)


class Holds:
    """Admits holds and ends them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._admissions = 0

    def compile(self, stmt: ir.Hold) -> CompiledHold:
        tainted: set[int] = set()
        for slot, expr in stmt.bindings:
            if reads_live_state(expr, frozenset(tainted)):
                tainted.add(slot)
        live = frozenset(tainted)

        def fixed(expr: ir.Expr | None) -> bool:
            return expr is not None and not reads_live_state(expr, live)

        return CompiledHold(
            refs=[self._kernel.pool_ref(item.pool) for item in stmt.pools],
            units=[self._kernel.function(item.units) for item in stmt.pools],
            reserves=[self._kernel.optional(item.reserve) for item in stmt.pools],
            fixed=[(fixed(item.units), fixed(item.reserve)) for item in stmt.pools],
            reuse=self._kernel.optional(stmt.reuse),
            cache=self._kernel.optional(stmt.cache),
            bindings=[(slot, self._kernel.function(expr)) for slot, expr in stmt.bindings],
            prefix=[(self._kernel.function(key), self._kernel.function(length)) for key, length in stmt.prefix],
            private_from=stmt.private_from,
            lease_ref=None if stmt.lease is None else self._kernel.pool_ref(stmt.lease.pool),
            lease_time=None if stmt.lease is None else self._kernel.function(stmt.lease.time),
            cached_of=None if stmt.cached_of is None else self._kernel.pool_ref(stmt.cached_of),
        )

    def header(self, frame: HoldFrame) -> tuple[list[float], list[float]]:
        """Bindings, units and reserves, evaluated anew; whole blocks."""
        attrs, hold = frame.session.attrs, frame.hold
        self._bind(frame)
        units, needs = [], []
        for pool, unit, reserve in zip(frame.pools, hold.units, hold.reserves, strict=True):
            size = self._units(unit(attrs), pool, "hold")
            units.append(size)
            needs.append(size if reserve is None else max(size, self._units(reserve(attrs), pool, "reserve of")))
        self._kernel.ctx.chain = None
        return units, needs

    def _bind(self, frame: HoldFrame) -> None:
        """Evaluate the bindings, in the context in which the amounts are read."""
        ctx, attrs = self._kernel.ctx, frame.session.attrs
        if frame.hold.cache is not None:
            ctx.chain = self._chain(frame)
        for slot, binding in frame.hold.bindings:
            attrs[slot] = binding(attrs)

    def asked(self, frame: HoldFrame, pool: PoolState) -> float:
        """The most that the hold would ask of a pool now, not rounded to blocks."""
        self._bind(frame)
        attrs, hold = frame.session.attrs, frame.hold
        functions = [
            function
            for held, unit, reserve in zip(frame.pools, hold.units, hold.reserves, strict=True)
            for function in (unit, reserve)
            if held is pool and function is not None
        ]
        most = max((function(attrs) for function in functions), default=0.0)
        self._kernel.ctx.chain = None
        return most

    def _units(self, amount: float, pool: PoolState, what: str) -> float:
        if not amount >= 0:
            self._kernel.amount(amount, f"{what} {pool.name}")
        return pool.round_up(amount)

    def _chain(self, frame: HoldFrame) -> Chain:
        """The chain whose content the hold reads and leaves; without `prefix`, the session's own."""
        if not frame.hold.prefix:
            return _OWN
        attrs, amount = frame.session.attrs, self._kernel.amount
        segments = [(key(attrs), amount(length(attrs), "prefix length")) for key, length in frame.hold.prefix]
        return ChainTree.of(segments, frame.hold.private_from)

    def _readings(self, frame: HoldFrame, units: list[float]) -> list[Reading | None]:
        """For each pool what the hold reads of a shared chain; None where the session's own prefix serves."""
        hold, s = frame.hold, frame.session
        if not hold.prefix:
            return [None] * len(frame.pools)
        chain, limit = self._chain(frame), self._limit(frame)
        return [
            None if pool.block is None else pool.chains.plan(chain, s.root, min(limit, size))
            for pool, size in zip(frame.pools, units, strict=True)
        ]

    def _limit(self, frame: HoldFrame) -> float:
        reuse, attrs = frame.hold.reuse, frame.session.attrs
        if reuse is None:
            return math.inf
        limit = reuse(attrs)
        return limit if limit > 0 else 0.0

    def rejects(self, frame: HoldFrame) -> bool:
        """Whether a demand that depends on attributes alone exceeds a capacity; counts the rejection."""
        if not any(units or reserve for units, reserve in frame.hold.fixed):
            return False
        hold, attrs = frame.hold, frame.session.attrs
        self._bind(frame)
        self._kernel.ctx.chain = None
        for pool, unit, reserve, fixed in zip(frame.pools, hold.units, hold.reserves, hold.fixed, strict=True):
            asked = self._units(unit(attrs), pool, "hold") if fixed[0] else 0.0
            if fixed[1] and reserve is not None:
                asked = max(asked, self._units(reserve(attrs), pool, "reserve of"))
            if asked > pool.cap:
                pool.rejected += 1
                return True
        return False

    def join(self, frame: HoldFrame) -> None:
        pool = frame.pools[0]
        frame.joined_at = self._kernel.ctx.now
        frame.order = self._kernel.next_order()
        frame.session.waiting_in = frame
        if pool.spec.queue_every is not None and pool.head() is None:
            self._kernel.schedule_tick(pool, pool.spec.queue_every)
        if frame.preempted and not frame.requeue_tail:
            pool.front.insert(0, frame)
        else:
            pool.waiting.append(frame)
        pool.changed()

    def waits_in_queue(self, s: Session) -> bool:
        return isinstance(s.waiting_in, HoldFrame)

    def try_admit(self, frame: HoldFrame) -> bool:
        """Admit the head if its demands fit in every pool."""
        try:
            units, needs = self.header(frame)
            readings = self._readings(frame, units)
        except RunError as error:
            self._kernel.population.fail(frame.session, error)
        for i, (pool, asked) in enumerate(zip(frame.pools, needs, strict=True)):
            reading, need = readings[i], asked
            if not frame.distinct:
                need += total(n for other, n in zip(frame.pools[:i], needs[:i], strict=True) if other is pool)
            if reading is not None:
                need -= reading.in_use
            if not pool.fits(need):
                return False
        frame.readings = readings
        self._admit(frame, units, needs)
        return True

    def _admit(self, frame: HoldFrame, units: list[float], needs: list[float]) -> None:
        s, hold, first = frame.session, frame.hold, frame.pools[0]
        first.leave_queue(frame)
        limit = self._limit(frame)
        cached, told = 0.0, None if hold.cached_of is None else hold.cached_of(s.attrs)
        for i, pool in enumerate(frame.pools):
            reading, taken = frame.readings[i], 0.0
            if reading is not None:
                taken = reading.total
            elif hold.cache is not None:
                taken = pool.consume(s.root, limit)
            if told is None or told is pool:
                cached = max(cached, taken)
            frame.alloc[i], frame.position[i], frame.released[i] = units[i], taken, False
            pool.hold_units(frame, units[i], reading)
            if pool.spec.reserve_held:
                frame.reserved[i] = max(needs[i] - units[i], 0.0)
                pool.reserve_total += frame.reserved[i]
            pool.admissions += 1
            pool.make_room()
            pool.changed()
        if self._kernel.ctx.now >= self._kernel.program.warmup:
            first.waits += self._kernel.ctx.now - frame.joined_at
            first.waits_counted += 1
        if hold.cache is not None:
            s.attrs[self._kernel.slot_cached] = cached
        frame.advanced = False
        self._admissions += 1
        s.admission = frame.admission = float(self._admissions)
        s.holds.append(frame)
        self._kernel.population.make_ready(s)

    def cache_limit(self, cache: Function, s: Session) -> float:
        """What a `cache` clause keeps at most; below 0 nothing is kept."""
        try:
            value = cache(s.attrs)
            return 0.0 if value < 0 else self._kernel.amount(value, "cache")
        except RunError as error:
            self._kernel.population.fail(s, error)

    def end(self, frame: HoldFrame, *, serve: bool) -> None:
        s, hold = frame.session, frame.hold
        limit = None if hold.cache is None else self.cache_limit(hold.cache, s)
        leased = None if hold.lease_ref is None else hold.lease_ref(s.attrs)
        s.holds.remove(frame)
        for i, pool in enumerate(frame.pools):
            if frame.released[i]:
                continue
            computed = frame.position[i] if frame.advanced else frame.alloc[i]
            kept = None if limit is None else pool.round_down(min(limit, computed))
            if pool is leased and hold.lease_time is not None:
                self._kernel.leases.begin(frame, i, kept, self._kernel.amount(hold.lease_time(s.attrs), "lease"))
            else:
                self.give_back(frame, i, kept)
        if serve:
            self._kernel.serve_pools()

    def give_back(self, frame: HoldFrame, i: int, kept: float | None) -> None:
        pool = frame.pools[i]
        frame.released[i] = True
        pool.reserve_total -= frame.reserved[i]
        frame.reserved[i] = 0.0
        pool.let_go(frame, frame.alloc[i], frame.readings[i])
        frame.alloc[i] = 0.0
        if kept is not None:
            pool.keep(frame.session.root, kept, frame.readings[i])
        pool.changed()

    def release(self, s: Session, pool: PoolState) -> None:
        found = s.innermost(pool)
        if found is not None:
            frame, i = found
            hold = frame.hold
            computed = frame.position[i] if frame.advanced else frame.alloc[i]
            kept = None
            if hold.cache is not None:
                kept = pool.round_down(min(self.cache_limit(hold.cache, s), computed))
            self.give_back(frame, i, kept)
        else:
            for lease in [lease for lease in s.leases if lease.pool is pool]:
                self._kernel.leases.end(lease)
        self._kernel.serve_pools()

    def shrink(self, s: Session, pool: PoolState, amount: float) -> None:
        found = s.innermost(pool)
        if found is None:
            raise RunError("run-amount", f"shrink {pool.name}: the session holds nothing of it")
        frame, i = found
        floor = pool.round_up(frame.position[i])
        less = min(pool.round_down(amount), max(frame.alloc[i] - floor, 0.0))
        frame.alloc[i] -= less
        pool.used -= less
        pool.changed()
        self._kernel.serve_pools()

    def load(self, s: Session, pool: PoolState, amount: float, counted: float) -> None:
        found = s.innermost(pool)
        if found is None:
            raise RunError("run-amount", f"load {pool.name}: the session holds nothing of it")
        frame, i = found
        if frame.position[i] + amount > frame.alloc[i]:
            had, held = f"{amount:g} on top of {frame.position[i]:g} computed", f"the {frame.alloc[i]:g} held"
            raise RunError("run-amount", f"load {pool.name}: {had} is beyond {held}")
        frame.advanced = True
        frame.position[i] += counted
