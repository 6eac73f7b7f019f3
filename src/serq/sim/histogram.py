"""How often each value was seen: exactly while there are few values, then to a known relative error."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from serq.ir.arithmetic import total

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Histogram"]

_DISTINCT: Final = 1 << 16
_FEW: Final = 100
_PARTS: Final = 1024
_SPAN: Final = 4 * _PARTS


class Histogram:
    """Counts by value.

    Up to 65 536 different values are told apart.  Beyond, values are counted in buckets whose middle is at most 1/1024
    off, so memory does not grow with the number of values.
    """

    WITHIN: Final = 1.0 / _PARTS
    """The largest relative error of a percentile once values share buckets."""

    def __init__(self) -> None:
        self.exact = True
        self._counts: dict[float, int] = {}
        self.max: float | None = None
        """The largest value, exactly; None without values."""

    def add(self, value: float, count: int) -> None:
        """Count a value; constant time."""
        if self.max is None or value > self.max:
            self.max = value
        key = value if self.exact else _bucket(value)
        self._counts[key] = self._counts.get(key, 0) + count
        if self.exact and len(self._counts) > _DISTINCT:
            self.coarsen()

    def add_many(self, values: NDArray[np.float64], weight: int = 1) -> None:
        """Count every value `weight` times."""
        import numpy as np

        if len(values) < _FEW:
            for value in values.tolist():
                self.add(value, weight)
            return
        self.max = max(float(values.max()), -math.inf if self.max is None else self.max)
        keys = values if self.exact else _buckets(values)
        starts = np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))
        if 4 * len(starts) < len(keys):
            found, counts = keys[starts], np.diff(starts, append=len(keys))
        else:
            found, counts = np.unique(keys, return_counts=True)
        for key, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._counts[key] = self._counts.get(key, 0) + count * weight
        if self.exact and len(self._counts) > _DISTINCT:
            self.coarsen()

    def coarsen(self) -> None:
        """Use buckets from now on, for what was counted before as well."""
        counts, self._counts, self.exact = self._counts, {}, False
        for value, count in counts.items():
            self.add(value, count)

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def _value(self, key: float) -> float:
        return key if self.exact else _middle(key)

    def mean(self) -> float | None:
        """The mean of the values, to the error of the buckets."""
        count = self.count
        return total(self._value(key) * n for key, n in self._counts.items()) / count if count else None

    def percentile(self, q: float) -> float | None:
        """The value at rank ceil(q n) in ascending order; time is linear in the different values."""
        rank = max(math.ceil(q * self.count), 1)
        for value, count in sorted((self._value(key), count) for key, count in self._counts.items()):
            rank -= count
            if rank <= 0:
                return value
        return None


def _bucket(value: float) -> float:
    """The number of a value's bucket: 512 to a power of two, on either side of zero."""
    if not math.isfinite(value):
        return value
    mantissa, exponent = math.frexp(value)
    return float(exponent * _SPAN + math.floor(mantissa * _PARTS))


def _buckets(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    mantissas, exponents = np.frexp(values)
    numbers = exponents.astype(float) * _SPAN + np.floor(mantissas * _PARTS)
    return np.where(np.isfinite(values), numbers, values)


def _middle(key: float) -> float:
    if not math.isfinite(key):
        return key
    exponent = math.floor((key + _SPAN / 2) / _SPAN)
    part = key - exponent * _SPAN
    return math.ldexp((part + 0.5) / _PARTS, exponent) if part else 0.0
