"""Rows by key, built from columns: a few array passes instead of one dictionary entry a row.

A key is a tuple of parts.  Each distinct part has a number, a key is the mix of its parts' numbers, and rows are kept
in the order of their mixes.  Two keys may mix to the same number, so what is found is to be compared with what was
asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Codes = NDArray[np.uint64]

__all__ = ["KeyIndex"]

_FACTOR: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1
_FEW: Final = 16


class KeyIndex:
    """Rows filed under keys; finding them costs a bisection, whatever their number."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {None: 0}
        self._mixes: list[Codes] = []
        self._rows: list[NDArray[np.int64]] = []
        self._sorted: tuple[Codes, NDArray[np.int64]] | None = None
        self._listed: tuple[list[int], list[int]] | None = None
        self._asked = 0

    def codes(self, parts: Sequence[Hashable]) -> Codes:
        """The number of each part of a column; 0 stands for a part that is None, whose rows are then not filed."""
        import numpy as np

        distinct = set(parts)
        for part in distinct:
            self._codes.setdefault(part, len(self._codes))
        if len(distinct) == 1:
            return np.full(len(parts), self._codes[parts[0]], dtype=np.uint64)
        return np.fromiter(map(self._codes.__getitem__, parts), np.uint64, len(parts))

    def file(self, columns: Sequence[Codes], rows: Sequence[int]) -> None:
        """File rows under the keys whose parts' numbers stand in the columns."""
        import numpy as np

        numbers = np.asarray(rows, dtype=np.int64)
        mix = np.zeros(len(numbers), dtype=np.uint64)
        whole = np.ones(len(numbers), dtype=bool)
        for column in columns:
            mix = (mix ^ column) * np.uint64(_FACTOR)
            mix ^= mix >> np.uint64(29)
            whole &= column > 0
        self._mixes.append(mix[whole])
        self._rows.append(numbers[whole])

    def seal(self) -> KeyIndex:
        """The index, ready to be asked."""
        import numpy as np

        mixes = np.concatenate(self._mixes) if self._mixes else np.zeros(0, dtype=np.uint64)
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, dtype=np.int64)
        order = np.lexsort((rows, mixes))
        self._sorted = (mixes[order], rows[order])
        self._mixes, self._rows = [], []
        return self

    def get(self, key: Iterable[Hashable]) -> list[int]:
        """The rows filed under a key, ascending, and now and then one of another key."""
        mix = 0
        for part in key:
            code = self._codes.get(part)
            if code is None:
                return []
            mix = ((mix ^ code) * _FACTOR) & _MASK
            mix ^= mix >> 29
        return self._between(mix) if self._listed is None else _run(*self._listed, mix)

    def _between(self, mix: int) -> list[int]:
        """The rows of a mix, found in the arrays; who asks often is answered from lists, which bisect faster."""
        import numpy as np

        if self._sorted is None:
            return []
        mixes, rows = self._sorted
        self._asked += 1
        if self._asked > _FEW:
            self._listed = (mixes.tolist(), rows.tolist())
        low, high = (int(mixes.searchsorted(np.uint64(mix), side=side)) for side in ("left", "right"))
        found: list[int] = rows[low:high].tolist()
        return found


def _run(mixes: list[int], rows: list[int], mix: int) -> list[int]:
    low = high = bisect_left(mixes, mix)
    while high < len(mixes) and mixes[high] == mix:
        high += 1
    return rows[low:high]
