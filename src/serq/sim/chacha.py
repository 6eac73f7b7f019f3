"""ChaCha with 12 rounds, and the keys of streams.  Source: docs/facts/random-streams.md.

One block is worked out in plain Python; runs of blocks, and the first blocks of many streams, in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["block", "blocks", "mix", "seed_key", "stream_blocks", "stream_seed"]

_M32: Final = 0xFFFFFFFF
_M64: Final = 0xFFFFFFFFFFFFFFFF
_CONSTANTS: Final = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
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
    """The seed of a session's stream (docs/facts/random-streams.md, "Seeds of streams")."""
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


def block(key: Sequence[int], counter: int) -> list[int]:
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


def blocks(keys: NDArray[np.uint32], counters: NDArray[np.uint64]) -> NDArray[np.uint32]:
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


def stream_blocks(
    run_seed: int, serials: NDArray[np.uint64], turn: int, kind: int, counter: int = 0
) -> tuple[list[int], NDArray[np.uint32]]:
    """The seeds of the streams of (serial, turn, kind), and one block of each: (n, 16)."""
    import numpy as np

    h = _mixed(np.uint64(mix(run_seed & _M64)) ^ serials)
    h = _mixed(_mixed(h ^ np.uint64(turn)) ^ np.uint64(kind))
    return h.tolist(), blocks(_keys(h), np.full(len(serials), counter, dtype=np.uint64))
