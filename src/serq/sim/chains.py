"""Prefixes that sessions share: a tree of segments in a pool's cache.

A chain of (key, length) segments names content.  Its shared segments are nodes of the tree, each the property of no
session; from the first private segment on, the content belongs to the session at that place of the tree.  Reading pins
shared segments: they count as used, once for all readers, and cannot be evicted.
Source: docs/language.md, "Shared prefixes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serq.ir.arithmetic import total

if TYPE_CHECKING:
    from serq.sim.pools import PoolState
    from serq.sim.sessions import Session

__all__ = ["Chain", "ChainTree", "Entry", "Reading"]

Segment = tuple[float, float]


@dataclass(slots=True, eq=False)
class Entry:
    """Cached content: a session's prefix, or a segment of a chain.

    `order` tells when it was released, `place` where it stands among the entries, which decides the order of draws.
    `owner` can read it while it is live; a dead entry only waits to be evicted, `copied` to the next tier.  `below`
    counts the entries beneath it in the tree, `pins` what each reader reads of it.
    """

    owner: Session
    size: float
    released_at: float
    order: int
    place: int = 0
    live: bool = True
    copied: Entry | None = None
    parent: Entry | None = None
    segment: Segment | None = None
    below: int = 0
    children: dict[Segment, Entry] = field(default_factory=dict)
    private: dict[int, Entry] = field(default_factory=dict)
    pins: list[float] = field(default_factory=list)

    @property
    def pinned(self) -> float:
        """Units in use by readers; readers of the same units count once."""
        return max(self.pins, default=0.0)


@dataclass(frozen=True, slots=True)
class Chain:
    """The segments a hold names: the shared ones, and the length of the private rest (0 where all are shared)."""

    shared: tuple[Segment, ...]
    private: float


@dataclass(slots=True, eq=False)
class Reading:
    """What one hold reads along its chain: units of shared entries, and of the session's own."""

    chain: Chain
    pieces: list[tuple[Entry, float]]
    own: float
    complete: bool

    @property
    def shared(self) -> float:
        return total(units for _, units in self.pieces)

    @property
    def total(self) -> float:
        return self.shared + self.own

    @property
    def in_use(self) -> float:
        """Units read that other readers already keep in use."""
        return total(min(entry.pinned, units) for entry, units in self.pieces)


class ChainTree:
    """The shared segments of one pool.  Every operation is linear in the length of the chain."""

    def __init__(self, pool: PoolState) -> None:
        self._pool = pool
        self._children: dict[Segment, Entry] = {}
        self._last: dict[int, Chain] = {}

    @property
    def used(self) -> bool:
        """Whether any chain is cached."""
        return bool(self._children)

    def _path(self, chain: Chain) -> list[Entry]:
        """The cached beginning of the shared part; only its last segment may be there in part."""
        path: list[Entry] = []
        children = self._children
        for segment in chain.shared:
            entry = children.get(segment)
            if entry is None:
                break
            path.append(entry)
            if entry.size < segment[1]:
                break
            children = entry.children
        return path

    def _own(self, chain: Chain, path: list[Entry], owner: Session) -> Entry | None:
        if len(path) < len(chain.shared) or (path and path[-1].size < chain.shared[-1][1]):
            return None
        place = path[-1].private if path else self._pool.prefixes
        return place.get(owner.serial)

    def forget(self, owner: Session) -> None:
        """The session's next content stands by itself again, or the session has left."""
        self._last.pop(owner.serial, None)

    def available(self, chain: Chain | None, owner: Session) -> float:
        """Units cached along a chain, by default the one the session last held."""
        chain = chain or self._last.get(owner.serial)
        if chain is None:
            entry = self._pool.prefixes.get(owner.serial)
            return 0.0 if entry is None else entry.size
        path = self._path(chain)
        own = self._own(chain, path, owner)
        return total(entry.size for entry in path) + (0.0 if own is None else min(own.size, chain.private))

    def plan(self, chain: Chain, owner: Session, most: float) -> Reading:
        """What a hold of the chain would read: at most `most` units, whole blocks in total."""
        left = self._pool.round_down(min(self.available(chain, owner), max(most, 0.0)))
        pieces: list[tuple[Entry, float]] = []
        path = self._path(chain)
        for entry in path:
            units = min(entry.size, left)
            if units > 0:
                pieces.append((entry, units))
            left -= units
        shared = total(length for _, length in chain.shared)
        complete = total(units for _, units in pieces) >= shared
        return Reading(chain, pieces, left if complete else 0.0, complete)

    def read(self, reading: Reading, owner: Session) -> None:
        """Pin the shared units and consume the session's own; the unread rest of those dies."""
        pool = self._pool
        self._last[owner.serial] = reading.chain
        for entry, units in reading.pieces:
            before = entry.pinned
            entry.pins.append(units)
            pool.cached -= entry.pinned - before
        if not reading.complete:
            return
        own = self._own(reading.chain, self._path(reading.chain), owner)
        if own is not None:
            pool.kill(own, reading.own)

    def leave(self, reading: Reading) -> float:
        """Unpin; returns the units that are no longer in use and so are cached again."""
        freed = 0.0
        for entry, units in reading.pieces:
            before = entry.pinned
            entry.pins.remove(units)
            freed += before - entry.pinned
        self._pool.cached += freed
        return freed

    def keep(self, chain: Chain, owner: Session, size: float) -> None:
        """Cache the first `size` units of the chain; the private part replaces the session's older one here."""
        pool, left = self._pool, size
        parent: Entry | None = None
        for segment in chain.shared:
            units = min(segment[1], left)
            if units <= 0:
                break
            children = self._children if parent is None else parent.children
            entry = children.get(segment)
            if entry is None:
                entry = pool.new_entry(owner, units, parent)
                entry.segment = segment
                children[segment] = entry
            else:
                pool.cached += max(units - entry.size, 0.0)
                entry.size = max(units, entry.size)
                pool.renew(entry)
            left -= units
            parent = entry
        self._replace_own(chain, owner, min(left, chain.private))

    def _replace_own(self, chain: Chain, owner: Session, size: float) -> None:
        pool = self._pool
        path = self._path(chain)
        older = self._own(chain, path, owner)
        if older is not None:
            pool.discard(older)
        if size > 0 and (path or not chain.shared):
            parent = path[-1] if path else None
            entry = pool.new_entry(owner, size, parent)
            (pool.prefixes if parent is None else parent.private)[owner.serial] = entry

    def detach(self, entry: Entry) -> None:
        """Take a removed entry out of the tree."""
        parent = entry.parent
        if parent is not None:
            parent.below -= 1
            if parent.private.get(entry.owner.serial) is entry:
                del parent.private[entry.owner.serial]
        if entry.segment is not None:
            children = self._children if parent is None else parent.children
            del children[entry.segment]

    def drop(self, owner: Session) -> None:
        """Discard what the session owns at the end of the chain it last held."""
        chain = self._last.get(owner.serial)
        if chain is not None:
            own = self._own(chain, self._path(chain), owner)
            if own is not None:
                self._pool.discard(own)

    @staticmethod
    def of(segments: list[Segment], private_from: int | None) -> Chain:
        """The chain of evaluated segments; `private_from` is the first that belongs to the session."""
        at = len(segments) if private_from is None else private_from
        shared = tuple(segment for segment in segments[:at] if segment[1] > 0)
        private = math.fsum(length for _, length in segments[at:]) if at < len(segments) else 0.0
        return Chain(shared, private)
