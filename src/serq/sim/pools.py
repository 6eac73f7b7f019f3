"""Pools: allocation, the queue of waiting holds, the cache of prefixes, growth, leases.

Source: docs/language.md, "How a run goes".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serq import ir
from serq.errors import RunError
from serq.sim.chains import ChainTree, Entry, Reading
from serq.sim.expr import Function
from serq.sim.stages import Job
from serq.sim.stats import TimeAverage

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel
    from serq.sim.sessions import HoldFrame, Session
    from serq.sim.stages import StageState

__all__ = ["Grower", "Lease", "PoolState"]


@dataclass(slots=True, eq=False)
class Lease:
    """An allocation that outlives its hold; `kept` of it becomes cache when it ends."""

    pool: PoolState
    session: Session
    units: float
    kept: float | None
    reading: Reading | None = None
    suspended: bool = False


@dataclass(slots=True, eq=False)
class Grower:
    """A growth that waits: of a statement, or of a step job."""

    session: Session
    frame: HoldFrame
    index: int
    amount: float
    job: Job | None


class PoolState:
    """One pool of one run."""

    def __init__(self, kernel: Kernel, spec: ir.Pool, position: int) -> None:
        self.kernel = kernel
        self.spec = spec
        self.name = spec.name
        self.position = position
        self.cap = spec.cap
        self.block = spec.block
        self.used = 0.0
        self.cached = 0.0
        self.reserve_total = 0.0
        self.entries: dict[int, Entry] = {}
        self.prefixes: dict[int, Entry] = {}
        self._places: list[Entry | None] = []
        self._free_places: list[int] = []
        self._own_places: dict[int, int] = {}
        self.chains = ChainTree(self)
        self.front: list[HoldFrame] = []
        self.waiting: list[HoldFrame] = []
        self.growers: list[Grower] = []
        self.leases: list[Lease] = []
        self.suspended: list[Lease] = []
        self.holding: dict[int, list[Any]] = {}
        self.engine: Any = None
        self.admit_via: Any = None
        self.tick_at = self.ticked_at = -1.0
        self._reset_statistics()
        self.queue_keys: tuple[Function, ...] = ()
        self.evict_keys: tuple[Function, ...] = ()
        self.victim_keys: tuple[Function, ...] = ()
        self.suspend_keys: tuple[Function, ...] = ()
        self.spill_when: Function | None = None
        self.spill_work: Function | None = None

    def _reset_statistics(self) -> None:
        self.mean_used, self.mean_cached = TimeAverage(), TimeAverage()
        self.mean_queue, self.mean_holders = TimeAverage(), TimeAverage()
        self.waits = 0.0
        self.waits_counted = 0
        self.admissions = 0
        self.evicted_entries = 0
        self.evicted_units = 0.0
        self.preemptions = 0
        self.spills = 0
        self.rejected = 0
        self.stuck = 0

    def compile(self) -> None:
        """Compile the keys once every pool and stage exists."""
        self.serves_itself = self.spec.admit_via is None and self.spec.queue_every is None
        keys = self.kernel.expressions.keys
        self.queue_keys = keys(self.spec.queue)
        self.evict_keys = keys(self.spec.evict)
        self.victim_keys = keys(self.spec.preempt.keys)
        self.suspend_keys = keys(self.spec.preempt.suspend)
        if self.spec.spill is not None:
            self.spill_when = self.kernel.function(self.spec.spill.when)
            self.spill_work = self.kernel.function(self.spec.spill.work)

    # --- queries ------------------------------------------------------------------------------------------------------

    def q_used(self) -> float:
        return self.used

    def q_free(self) -> float:
        return self.cap - self.used

    def q_holders(self) -> float:
        return float(len(self.holding))

    def q_queued(self) -> float:
        return float(len(self.front) + len(self.waiting))

    def q_cachedin(self, session: Session) -> float:
        return self.round_down(self.chains.available(self.kernel.ctx.chain, session.root))

    def q_allocated(self, session: Session) -> float:
        return session.allocated(self)

    # --- accounts -----------------------------------------------------------------------------------------------------

    def round_up(self, units: float) -> float:
        block = self.block
        if block is None or units - units != 0.0:  # infinite or undefined
            return units
        return block * math.ceil(units / block)

    def round_down(self, units: float) -> float:
        block = self.block
        if block is None or not math.isfinite(units):
            return units
        return block * math.floor(units / block)

    def changed(self) -> None:
        """Note the pool's figures after a change."""
        now = self.kernel.ctx.now
        self.mean_used.set(self.used, now)
        self.mean_cached.set(self.cached, now)
        self.mean_queue.set(float(len(self.front) + len(self.waiting)), now)
        self.mean_holders.set(float(len(self.holding)), now)

    def restart_statistics(self, now: float) -> None:
        """The end of the warm-up."""
        for average in (self.mean_used, self.mean_cached, self.mean_queue, self.mean_holders):
            average.restart(now)
        self.waits, self.waits_counted = 0.0, 0

    def hold_units(self, owner: Any, units: float, reading: Reading | None = None) -> None:
        """Allocate for a hold or lease (`owner` counts as a holder until it lets go)."""
        self.used += units
        if reading is not None:
            self.used -= reading.in_use
            self.chains.read(reading, owner.session.root)
        root = owner.session
        self.holding.setdefault(id(root), [root, 0])[1] += 1

    def let_go(self, owner: Any, units: float, reading: Reading | None = None) -> None:
        self.used -= units
        if reading is not None:
            self.used += reading.shared - self.chains.leave(reading)
        entry = self.holding[id(owner.session)]
        entry[1] -= 1
        if not entry[1]:
            del self.holding[id(owner.session)]

    def hand_over(self, owner: Any, other: Any) -> None:
        """Let `other` hold what `owner` held."""
        self.hold_units(other, 0.0)
        self.let_go(owner, 0.0)

    def reassign(self, lease: Lease, session: Session) -> None:
        """Let a lease belong to another session from now on."""
        if not lease.suspended:
            self.let_go(lease, 0.0)
        lease.session = session
        if not lease.suspended:
            self.hold_units(lease, 0.0)
        self.changed()

    def fits(self, units: float) -> bool:
        """Whether a new hold of `units` fits; cached units never prevent it."""
        return self.used + self.reserve_total + units <= self.cap

    # --- the queue ----------------------------------------------------------------------------------------------------

    def head(self) -> HoldFrame | None:
        """The hold that is tried next; keys are evaluated anew."""
        if self.front:
            return self.front[0]
        if not self.waiting:
            return None
        if not self.queue_keys or len(self.waiting) == 1:
            return self.waiting[0]
        return min(self.waiting, key=self._queue_key)

    def in_turn(self) -> Iterator[HoldFrame]:
        """Those who wait now, each once, in the order of the queue; keys are evaluated anew for each."""
        left = [*self.front, *self.waiting]
        front = len(self.front)
        while left:
            at = 0
            if front == 0 and self.queue_keys:
                at = min(range(len(left)), key=lambda i: self._queue_key(left[i]))
            front = max(front - 1, 0)
            yield left.pop(at)

    def _queue_key(self, frame: HoldFrame) -> tuple[float, ...]:
        ctx = self.kernel.ctx
        ctx.waited = ctx.now - frame.joined_at
        try:
            return (*(key(frame.session.attrs) for key in self.queue_keys), float(frame.order))
        except RunError as error:
            self.kernel.population.fail(frame.session, error)

    def leave_queue(self, frame: HoldFrame) -> None:
        queue = self.front if frame in self.front else self.waiting
        queue.remove(frame)

    def serve(self) -> None:
        """Waiting growers, then the queue, as far as they fit."""
        if self.growers:
            self._serve_growers()
        if not self.serves_itself:
            return
        while (frame := self.head()) is not None and self.kernel.holds.try_admit(frame):
            pass

    def _serve_growers(self) -> None:
        while self.growers:
            grower = self.growers[0]
            if not self.take_growth(grower.frame, grower.index, grower.amount):
                return
            self.growers.pop(0)
            grower.session.waiting_in = None
            if grower.job is None:
                self.kernel.population.make_ready(grower.session)
            else:
                grower.job.growing_waits = False

    def add_grower(self, session: Session, frame: HoldFrame, index: int, amount: float, job: Job | None) -> None:
        grower = Grower(session, frame, index, amount, job)
        self.growers.append(grower)
        if job is None:
            session.waiting_in = grower
        else:
            job.growing_waits = True

    # --- growth -------------------------------------------------------------------------------------------------------

    def take_growth(self, frame: HoldFrame, index: int, amount: float) -> bool:
        """Take `amount` more units for a hold if they fit; its own reservation is used up first."""
        own = min(frame.reserved[index], amount)
        if self.used + amount + self.reserve_total - own > self.cap:
            return False
        frame.reserved[index] -= own
        self.reserve_total -= own
        frame.alloc[index] += amount
        self.used += amount
        self.make_room()
        self.changed()
        return True

    # --- the cache ----------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Evict until used and cached units fit together."""
        while self.used + self.cached > self.cap:
            entry = self._victim_entry()
            if entry is None:
                return
            self._evict_from(entry, self.used + self.cached - self.cap)

    def _evict_from(self, entry: Entry, excess: float) -> None:
        piece = entry.size
        if self.block is not None:
            one_by_one = self.evict_keys or self.spec.spill is not None
            blocks = 1.0 if one_by_one else max(math.ceil(excess / self.block), 1)
            piece = min(piece, blocks * self.block)
        entry.size -= piece
        self.cached -= piece
        self.evicted_units += piece
        if entry.size <= 0:
            self.evicted_entries += 1
            self.remove_entry(entry)
        self._spill(entry, piece)

    def _victim_entry(self) -> Entry | None:
        """The entry to evict; a segment that is read, or has others below it, stays.

        Keys are evaluated entry by entry in the order of their places: a new entry takes the place its session's prefix
        had before it was consumed, or the place that was left last; so does what is left of a prefix and read no more.
        """
        if not self.evict_keys:
            return next((entry for entry in self.entries.values() if not entry.below and not entry.pins), None)
        kernel, ctx = self.kernel, self.kernel.ctx
        rng, ctx.rng = ctx.rng, kernel.eviction_rng
        best: tuple[tuple[float, ...], Entry] | None = None
        for entry in self._places:
            if entry is None or entry.below or entry.pins:
                continue
            self._entry_context(entry, entry.size)
            key = (*[key(entry.owner.attrs) for key in self.evict_keys], entry.order)
            if best is None or key < best[0]:
                best = (key, entry)
        ctx.rng = rng
        return None if best is None else best[1]

    def _entry_context(self, entry: Entry, size: float) -> None:
        ctx = self.kernel.ctx
        ctx.size, ctx.last = size, entry.released_at
        ctx.age = ctx.now - entry.released_at
        ctx.waiting = 1.0 if entry.live and self.kernel.holds.waits_in_queue(entry.owner) else 0.0

    def remove_entry(self, entry: Entry, *, in_use: bool = False) -> None:
        """Take an entry out; a prefix that its session consumes whole leaves its place to the next one."""
        if self.entries.pop(entry.order, None) is not None:
            self._places[entry.place] = None
            if in_use:
                self._own_places[entry.owner.serial] = entry.place
            else:
                self._free_places.append(entry.place)
        self.chains.detach(entry)
        if self.prefixes.get(entry.owner.serial) is entry:
            del self.prefixes[entry.owner.serial]

    def keep(self, owner: Session, size: float, reading: Reading | None = None) -> None:
        """Leave `size` units, if any, as the owner's prefix in place of an older one; along the chain that was read."""
        if reading is not None:
            self.chains.keep(reading.chain, owner, size)
        elif size > 0:
            self.drop(owner)
            self.insert(owner, size)
        elif owner.serial in self._own_places:
            self._free_places.append(self._own_places.pop(owner.serial))
        self.make_room()

    def new_entry(self, owner: Session, size: float, parent: Entry | None = None, *, live: bool = True) -> Entry:
        entry = Entry(owner, size, self.kernel.ctx.now, self.kernel.next_order(), live=live, parent=parent)
        if parent is not None:
            parent.below += 1
        self.entries[entry.order] = entry
        self._put(entry, self._own_places.pop(owner.serial, None) if live and parent is None else None)
        self.cached += size
        return entry

    def _put(self, entry: Entry, own: int | None = None) -> None:
        """Give an entry its own place, or else the one that was left last, or else a new one."""
        if own is not None or self._free_places:
            entry.place = self._free_places.pop() if own is None else own
            self._places[entry.place] = entry
        else:
            entry.place = len(self._places)
            self._places.append(entry)

    def renew(self, entry: Entry) -> None:
        """Make an entry the latest released."""
        del self.entries[entry.order]
        entry.released_at, entry.order = self.kernel.ctx.now, self.kernel.next_order()
        self.entries[entry.order] = entry

    def insert(self, owner: Session, size: float) -> None:
        self.prefixes[owner.serial] = self.new_entry(owner, size)

    def receive(self, evicted: Entry, size: float) -> None:
        """Take what another pool evicted of an entry, on top of what is here of it; what nobody could read stays so.

        Room is made for what was here before; what comes may exceed the capacity until the next eviction.
        """
        self.make_room()
        here = self.prefixes.get(evicted.owner.serial) if evicted.live else evicted.copied
        if here is not None and here.size > 0:
            here.size += size
            self.cached += size
            self.renew(here)
        elif evicted.live:
            self.insert(evicted.owner, size)
        else:
            evicted.copied = self.new_entry(evicted.owner, size, live=False)
        self.changed()

    def discard(self, entry: Entry) -> None:
        self.cached -= entry.size
        self.remove_entry(entry)
        self.changed()

    def drop(self, owner: Session) -> None:
        """Discard the owner's live prefix."""
        entry = self.prefixes.get(owner.serial)
        if entry is not None:
            self.discard(entry)

    def drop_last(self, owner: Session) -> None:
        """The `drop` statement: the owner's prefix, or what it owns of the chain it last held."""
        self.drop(owner)
        self.chains.drop(owner)

    def consume(self, owner: Session, most: float) -> float:
        """Take up to `most` units of the owner's prefix (whole blocks); what is left becomes a dead entry."""
        self.chains.forget(owner)
        entry = self.prefixes.get(owner.serial)
        if entry is None:
            return 0.0
        taken = self.round_down(min(entry.size, max(most, 0.0)))
        self.kill(entry, taken)
        return taken

    def kill(self, entry: Entry, taken: float) -> None:
        """Consume `taken` units of a session's entry; nobody can read the rest, which keeps its age."""
        serial = entry.owner.serial
        place = self.prefixes if entry.parent is None else entry.parent.private
        if place.get(serial) is entry:
            del place[serial]
        entry.live = False
        entry.size -= taken
        self.cached -= taken
        if entry.size <= 0:
            self.remove_entry(entry, in_use=entry.parent is None)
        elif entry.parent is None:
            self._own_places[serial] = entry.place
            self._places[entry.place] = None
            self._put(entry)

    # --- the next tier ------------------------------------------------------------------------------------------------

    def _spill(self, entry: Entry, size: float) -> None:
        """Copy what was evicted of an entry to the next tier."""
        spec = self.spec.spill
        if (
            spec is None
            or entry.parent is not None
            or entry.segment is not None
            or self.spill_when is None
            or self.spill_work is None
        ):
            return
        kernel, ctx, attrs = self.kernel, self.kernel.ctx, entry.owner.attrs
        self._entry_context(entry, size)
        when, work = self.spill_when(attrs), self.spill_work(attrs)
        tier: PoolState = kernel.pool_ref(spec.tier)(attrs)
        link: StageState = kernel.stage_ref(spec.via)(attrs)
        if not when:
            return
        self.spills += 1
        tier.receive(entry, size)
        if work > 0:
            link.join(Job(None, [link], work, "plain", ctx.now))
