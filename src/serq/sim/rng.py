"""Random streams, bit for bit as docs/facts/random-streams.md gives them."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from serq.ir.arithmetic import total
from serq.sim.chacha import block, blocks, seed_key, stream_blocks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PER_BLOCK", "Rng", "StreamBank", "uniforms"]

PER_BLOCK: Final = 8
"""Uniform numbers in a block of a stream."""
_M32: Final = 0xFFFFFFFF
_UNIT: Final = 2.0**-53
_MOST_BLOCKS: Final = 4096


class Rng:
    """One stream: uniform integers and doubles, and the language's distributions."""

    __slots__ = ("_at", "_counter", "_key", "_seed", "_words")

    def __init__(self, seed: int, words: list[int] | None = None) -> None:
        self._seed = seed
        self._key: tuple[int, ...] | None = None
        self._words: list[int] = words if words is not None else []
        self._counter = 1 if words is not None else 0
        self._at = 0

    def next_u32(self) -> int:
        if self._at == len(self._words):
            self._refill()
        word = self._words[self._at]
        self._at += 1
        return word

    def _refill(self) -> None:
        if self._key is None:
            self._key = seed_key(self._seed)
        if self._counter < 2:
            self._words = block(self._key, self._counter)
            self._counter += 1
        else:
            import numpy as np

            count = min(_MOST_BLOCKS, 8 * self._counter)
            keys = np.tile(np.array(self._key, dtype=np.uint32), (count, 1))
            counters = np.arange(self._counter, self._counter + count, dtype=np.uint64)
            self._words = blocks(keys, counters).ravel().tolist()
            self._counter += count
        self._at = 0

    def next_u64(self) -> int:
        low = self.next_u32()
        return low | (self.next_u32() << 32)

    def random(self) -> float:
        """A double in [0, 1)."""
        at = self._at
        words = self._words
        if at + 1 < len(words):
            self._at = at + 2
            return ((words[at] | (words[at + 1] << 32)) >> 11) * _UNIT
        return (self.next_u64() >> 11) * _UNIT

    def randoms(self, count: int) -> list[float]:
        """The next `count` doubles."""
        found: list[float] = []
        while len(found) < count:
            at, words = self._at, self._words
            pairs = min(count - len(found), (len(words) - at) // 2)
            if not pairs:
                found.append(self.random())
                continue
            self._at = at + 2 * pairs
            low, high = words[at : self._at : 2], words[at + 1 : self._at : 2]
            found.extend([((a | (b << 32)) >> 11) * _UNIT for a, b in zip(low, high, strict=True)])
        return found

    def range_u32(self, low: int, high: int) -> int:
        """A whole number in low..high, both included."""
        n = high - low + 1
        m = self.next_u32() * n
        result, rest = m >> 32, m & _M32
        if rest > (1 << 32) - n:
            extra = (self.next_u32() * n) >> 32
            if rest + extra >= 1 << 32:
                result += 1
        return low + result

    def exp(self, mean: float) -> float:
        return -mean * math.log(1.0 - self.random())

    def det(self, value: float) -> float:
        return value

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def erlang(self, k: float, mean: float) -> float:
        stages = max(1, math.floor(k)) if math.isfinite(k) else 1
        return total(self.exp(mean / stages) for _ in range(stages))

    def h2(self, mean: float, cv2: float) -> float:
        v = max(cv2, 1.0)
        p = (1.0 + math.sqrt((v - 1.0) / (v + 1.0))) / 2.0
        branch = mean / (2.0 * p) if self.random() < p else mean / (2.0 * (1.0 - p))
        return self.exp(branch)

    def bernoulli(self, p: float) -> float:
        return 1.0 if self.random() < p else 0.0


class StreamBank:
    """Streams by (serial, turn) of one kind, whose first blocks are worked out together, a batch of serials at a time.

    Memory is bounded: the least recently used batches are worked out anew when they are needed again.
    """

    _BATCH: Final = 512
    _KEPT: Final = 32

    def __init__(self, run_seed: int, kind: int) -> None:
        self._seed = run_seed
        self._kind = kind
        self._batches: OrderedDict[tuple[int, int], tuple[list[int], list[list[int]]]] = OrderedDict()

    def stream(self, serial: int, turn: int) -> Rng:
        batch, at = divmod(serial, self._BATCH)
        found = self._batches.get((turn, batch))
        if found is None:
            found = self._fill(turn, batch)
        return Rng(found[0][at], found[1][at])

    def _fill(self, turn: int, batch: int) -> tuple[list[int], list[list[int]]]:
        import numpy as np

        serials = np.arange(batch * self._BATCH, (batch + 1) * self._BATCH, dtype=np.uint64)
        seeds, first = stream_blocks(self._seed, serials, turn, self._kind)
        if len(self._batches) >= self._KEPT:
            self._batches.popitem(last=False)
        found = self._batches[turn, batch] = (seeds, first.tolist())
        return found


def uniforms(run_seed: int, serials: NDArray[np.uint64], stream: tuple[int, int], number: int) -> NDArray[np.float64]:
    """The doubles in [0, 1) of one block of the streams of many serials; `stream` is (turn, kind): (n, 8)."""
    import numpy as np

    words = stream_blocks(run_seed, serials, *stream, number)[1].astype(np.uint64)
    joined = words[:, ::2] | (words[:, 1::2] << np.uint64(32))
    return (joined >> np.uint64(11)).astype(float) * _UNIT
