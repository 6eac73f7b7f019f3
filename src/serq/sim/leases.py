"""Allocations that outlive their hold.  Specification, sections 12.7 and 12.8."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def least(self, pool: PoolState) -> Lease:
        def key(lease: Lease) -> tuple[float, ...]:
            self._kernel.ctx.session = lease.session
            self._kernel.ctx.admission = float(lease.session.admission)
            return tuple([key(lease.session.attrs) for key in pool.victim_keys])

        before = self._kernel.ctx.session
        found = min(pool.leases, key=key)
        self._kernel.ctx.session = before
        return found

    def tick(self, pool: PoolState, period: float) -> None:
        while pool.growers and pool.leases:
            grower = pool.growers[0]
            if pool.used + grower.amount <= pool.cap:
                break
            lease = self.least(pool)
            pool.leases.remove(lease)
            pool.let_go(lease, lease.units, lease.reading)
            if pool.suspend_keys:
                lease.reading = None
                pool.suspended.append(lease)
            else:
                lease.session.leases.remove(lease)
            if lease.kept is not None and not pool.suspend_keys:
                pool.keep(lease.session.root, lease.kept, lease.reading)
            pool.changed()
        pool.serve()
        self._resume(pool)
        if pool.growers or pool.suspended:
            self._kernel.schedule_tick(pool, period)

    def _resume(self, pool: PoolState) -> None:
        def key(lease: Lease) -> tuple[float, ...]:
            self._kernel.ctx.session = lease.session
            return tuple([key(lease.session.attrs) for key in pool.suspend_keys])

        for lease in sorted(pool.suspended, key=key):
            if pool.growers or not pool.fits(lease.units):
                return
            pool.suspended.remove(lease)
            pool.leases.append(lease)
            pool.hold_units(lease, lease.units)
            pool.make_room()
            pool.changed()
