"""Random streams, bit for bit as the specification's section 16.1 gives them.

ChaCha with 12 rounds over a key expanded from a 64-bit seed.  One block is worked out in plain Python; runs of blocks,
and the first blocks of many streams, in numpy.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from serq.lowering.arithmetic import total

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Rng", "StreamBank", "mix", "seed_key", "stream_seed"]

_M32: Final = 0xFFFFFFFF
_M64: Final = 0xFFFFFFFFFFFFFFFF
_CONSTANTS: Final = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_UNIT: Final = 2.0**-53
_MOST_BLOCKS: Final = 4096
_QUARTERS: Final = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


def mix(z: int) -> int:
    """The 64-bit finaliser behind the derivation of streams."""
    z = (z + 0x9E3779B97F4A7C15) & _M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _M64
    return z ^ (z >> 31)


def stream_seed(run_seed: int, serial: int, turn: int, kind: int) -> int:
    """The seed of a session's stream: `sub` of the specification."""
    h = mix(run_seed & _M64)
    h = mix(h ^ serial)
    h = mix(h ^ turn)
    return mix(h ^ kind)


def seed_key(seed: int) -> tuple[int, ...]:
    """The eight key words a seed expands to."""
    words = []
    s = seed & _M64
    for _ in range(8):
        s = (s * 6364136223846793005 + 11634580027462260723) & _M64
        x = (((s >> 18) ^ s) >> 27) & _M32
        turn = s >> 59
        words.append(((x >> turn) | (x << (-turn & 31))) & _M32)
    return tuple(words)


def _block(key: Sequence[int], counter: int) -> list[int]:
    start = [*_CONSTANTS, *key, counter & _M32, counter >> 32, 0, 0]
    x = list(start)
    for _ in range(6):
        for i, j, k, m in _QUARTERS:
            a, b, c, d = x[i], x[j], x[k], x[m]
            a = (a + b) & _M32
            d ^= a
            d = ((d << 16) | (d >> 16)) & _M32
            c = (c + d) & _M32
            b ^= c
            b = ((b << 12) | (b >> 20)) & _M32
            a = (a + b) & _M32
            d ^= a
            d = ((d << 8) | (d >> 24)) & _M32
            c = (c + d) & _M32
            b ^= c
            b = ((b << 7) | (b >> 25)) & _M32
            x[i], x[j], x[k], x[m] = a, b, c, d
    return [(now + then) & _M32 for now, then in zip(x, start, strict=True)]


def _blocks(keys: NDArray[np.uint32], counters: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """(n, 16) output words for n keys (n, 8) and counters."""
    import numpy as np

    n = len(counters)
    state = np.empty((16, n), dtype=np.uint32)
    state[:4] = np.array(_CONSTANTS, dtype=np.uint32)[:, None]
    state[4:12] = keys.T
    state[12] = (counters & np.uint64(_M32)).astype(np.uint32)
    state[13] = (counters >> np.uint64(32)).astype(np.uint32)
    state[14:] = 0
    a, b, c, d = (state[i : i + 4].copy() for i in (0, 4, 8, 12))
    one, two, three = (np.array(order) for order in ((1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)))
    for _ in range(6):
        a, b, c, d = _quarter(a, b, c, d)
        b, c, d = b[one], c[two], d[three]
        a, b, c, d = _quarter(a, b, c, d)
        b, c, d = b[three], c[two], d[one]
    return (np.concatenate([a, b, c, d]) + state).T


def _rotate(x: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    import numpy as np

    return np.asarray((x << by) | (x >> (32 - by)), dtype=np.uint32)


def _quarter(
    a: NDArray[np.uint32], b: NDArray[np.uint32], c: NDArray[np.uint32], d: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


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
            self._words = _block(self._key, self._counter)
            self._counter += 1
        else:
            import numpy as np

            count = min(_MOST_BLOCKS, 8 * self._counter)
            keys = np.tile(np.array(self._key, dtype=np.uint32), (count, 1))
            counters = np.arange(self._counter, self._counter + count, dtype=np.uint64)
            self._words = _blocks(keys, counters).ravel().tolist()
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
        h = _mixed(np.uint64(mix(self._seed & _M64)) ^ serials)
        h = _mixed(_mixed(h ^ np.uint64(turn)) ^ np.uint64(self._kind))
        first = _blocks(_keys(h), np.zeros(self._BATCH, dtype=np.uint64))
        if len(self._batches) >= self._KEPT:
            self._batches.popitem(last=False)
        found = self._batches[turn, batch] = (h.tolist(), first.tolist())
        return found


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of many values; products wrap at 64 bits."""
    import numpy as np

    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def _keys(seeds: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """`seed_key` of many seeds: (n, 8)."""
    import numpy as np

    words = np.empty((len(seeds), 8), dtype=np.uint32)
    s = seeds.copy()
    for i in range(8):
        s = s * np.uint64(6364136223846793005) + np.uint64(11634580027462260723)
        x = (((s >> np.uint64(18)) ^ s) >> np.uint64(27)).astype(np.uint32)
        turn = (s >> np.uint64(59)).astype(np.uint32)
        words[:, i] = (x >> turn) | (x << ((np.uint32(32) - turn) & np.uint32(31)))
    return words
