"""Means, intervals, percentiles and time averages.  Source: docs/language.md, "Warm-up and statistics"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from serq.ir.arithmetic import total

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BATCHES", "KEPT", "Summary", "TimeAverage", "half_width", "interval", "summarise"]

BATCHES: Final = 20
"""Batches, or windows, behind an interval."""
KEPT: Final = 100_000
"""How many samples of an observation, or changes of a gauge, are kept one by one when not all were asked for."""
_T_95: Final = 2.093
_MIN_SAMPLES: Final = 40


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, mean, half-width of the 95 % interval, squared coefficient of variation, 99th percentile,
    largest value; None: none.

    `p99_within` is the largest relative error of `p99`: 0 where every sample was kept.
    """

    count: int
    mean: float | None = None
    ci: float | None = None
    cv2: float | None = None
    p99: float | None = None
    p99_within: float = 0.0
    max: float | None = None


def half_width(batches: Sequence[float]) -> float:
    """Half of a 95 % interval from the means of equal batches."""
    mean = total(batches) / len(batches)
    variance = total((value - mean) ** 2 for value in batches) / (len(batches) - 1)
    return _T_95 * math.sqrt(variance) / math.sqrt(len(batches))


def interval(sums: Sequence[float], size: int, count: int) -> float | None:
    """The interval of `count` samples by batch means, from the sums of runs of `size` samples; none for few samples."""
    runs = len(sums) // BATCHES
    if count < _MIN_SAMPLES or not runs:
        return None
    return half_width([total(sums[i * runs : (i + 1) * runs]) / (runs * size) for i in range(BATCHES)])


def summarise(samples: Sequence[float]) -> Summary:
    """The statistics of a sample list; the interval is by batch means, absent below 40 samples."""
    n = len(samples)
    if n == 0:
        return Summary(0)
    mean = total(samples) / n
    cv2 = None
    if n > 1 and mean != 0:
        cv2 = total((value - mean) ** 2 for value in samples) / (n - 1) / mean**2
    p99 = sorted(samples)[max(math.ceil(0.99 * n) - 1, 0)]
    return Summary(n, mean, interval(samples, 1, n), cv2, p99, max=max(samples))


class TimeAverage:
    """The integral of a step function over the measured time."""

    __slots__ = ("area", "since", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.since = 0.0
        self.area = 0.0

    def set(self, value: float, now: float) -> None:
        if value != self.value:
            self.area += self.value * (now - self.since)
            self.since = now
            self.value = value

    def set_many(self, values: NDArray[np.float64], times: NDArray[np.float64]) -> None:
        """`set` for ascending times."""
        if len(values):
            self.area += self.value * (float(times[0]) - self.since)
            self.area += total((values[:-1] * (times[1:] - times[:-1])).tolist())
            self.value, self.since = float(values[-1]), float(times[-1])

    def restart(self, now: float) -> None:
        """Forget what lies before `now`."""
        self.area = 0.0
        self.since = now

    def mean(self, start: float, end: float) -> float:
        span = end - start
        return (self.area + self.value * (end - self.since)) / span if span > 0 else 0.0
