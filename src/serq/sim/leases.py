"""Allocations that outlive their hold.

Source: docs/language.md, "Growth, preemption, leases".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serq.sim.expr import Function
from serq.sim.pools import Lease, PoolState
from serq.sim.sessions import HoldFrame

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel

__all__ = ["Leases"]


class Leases:
    """Begins and ends leases, and takes them away where a pool grows at their expense."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def begin(self, frame: HoldFrame, i: int, kept: float | None, time: float) -> None:
        pool, s = frame.pools[i], frame.session
        frame.released[i] = True
        pool.reserve_total -= frame.reserved[i]
        frame.reserved[i] = 0.0
        lease = Lease(pool, s, frame.alloc[i], kept, frame.readings[i])
        pool.hand_over(frame, lease)
        pool.leases.append(lease)
        s.leases.append(lease)
        pool.changed()
        self._kernel.schedule(self._kernel.ctx.now + time, self._over, lease)

    def _over(self, lease: Lease) -> None:
        if lease in lease.pool.leases:
            self.end(lease)

    def end(self, lease: Lease) -> None:
        """The lease's units go back; what its `cache` keeps becomes the session's prefix."""
        pool = lease.pool
        lease.session.leases.remove(lease)
        if lease in pool.suspended:
            pool.suspended.remove(lease)
            return
        pool.leases.remove(lease)
        pool.let_go(lease, lease.units, lease.reading)
        if lease.kept is not None:
            pool.keep(lease.session.root, lease.kept, lease.reading)
        pool.changed()

    def take(self, pool: PoolState) -> None:
        """Take the lease with the least keys away: it ends, or is set aside until a tick finds room for it."""
        lease = self._least(pool)
        pool.preemptions += 1
        period = pool.spec.preempt.every
        if period is None or not pool.suspend_keys:
            self.end(lease)
            return
        pool.leases.remove(lease)
        pool.let_go(lease, lease.units, lease.reading)
        lease.reading, lease.suspended = None, True
        pool.suspended.append(lease)
        pool.changed()
        self._kernel.schedule_tick(pool, period, later=False)

    def _least(self, pool: PoolState) -> Lease:
        return min(pool.leases, key=lambda lease: self._key(lease, pool.victim_keys))

    def _key(self, lease: Lease, keys: tuple[Function, ...]) -> tuple[float, ...]:
        ctx = self._kernel.ctx
        ctx.admission = lease.session.admission
        return tuple([key(lease.session.attrs) for key in keys])

    def tick(self, pool: PoolState, period: float) -> None:
        """Give leases that were set aside back, in `suspend` order, as far as they fit."""
        for lease in sorted(pool.suspended, key=lambda lease: self._key(lease, pool.suspend_keys)):
            if not pool.fits(lease.units):
                break
            pool.suspended.remove(lease)
            lease.suspended = False
            pool.leases.append(lease)
            pool.hold_units(lease, lease.units)
            pool.make_room()
            pool.changed()
        if pool.suspended:
            self._kernel.schedule_tick(pool, period)
