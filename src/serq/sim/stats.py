"""Sample lists, time averages and gauges.  Definitions: specification, section 16.5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GaugeSeries", "SampleList", "Summary", "TimeAverage", "percentile", "summarise"]

_BATCHES: Final = 20
_T_95: Final = 2.093
_MIN_SAMPLES: Final = 40


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, mean, half-width of the 95 % interval, squared coefficient of variation, 99th percentile; None: none."""

    count: int
    mean: float | None = None
    ci: float | None = None
    cv2: float | None = None
    p99: float | None = None


def percentile(ordered: Sequence[float], q: float) -> float:
    """`sorted[ceil(q n) - 1]`."""
    return ordered[max(math.ceil(q * len(ordered)) - 1, 0)]


def _half_width(batches: Sequence[float]) -> float:
    mean = sum(batches) / len(batches)
    variance = sum((value - mean) ** 2 for value in batches) / (len(batches) - 1)
    return _T_95 * math.sqrt(variance) / math.sqrt(len(batches))


def summarise(samples: Sequence[float]) -> Summary:
    """The statistics of a sample list; the interval is by batch means, absent below 40 samples."""
    n = len(samples)
    if n == 0:
        return Summary(0)
    mean = sum(samples) / n
    cv2 = None
    if n > 1 and mean != 0:
        cv2 = sum((value - mean) ** 2 for value in samples) / (n - 1) / mean**2
    size = n // _BATCHES
    ci = None
    if n >= _MIN_SAMPLES:
        ci = _half_width([sum(samples[i * size : (i + 1) * size]) / size for i in range(_BATCHES)])
    return Summary(n, mean, ci, cv2, percentile(sorted(samples), 0.99))


@dataclass
class SampleList:
    """Samples with the time, session and turn they were taken at."""

    name: str
    samples: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    whole_run: list[float] = field(default_factory=list)

    def add(self, value: float, time: float, session: int, turn: int) -> None:
        self.samples.append(value)
        self.times.append(time)
        self.sessions.append(session)
        self.turns.append(turn)


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
            self.area += float((values[:-1] * (times[1:] - times[:-1])).sum())
            self.value, self.since = float(values[-1]), float(times[-1])

    def restart(self, now: float) -> None:
        """Forget what lies before `now`."""
        self.area = 0.0
        self.since = now

    def mean(self, start: float, end: float) -> float:
        span = end - start
        return (self.area + self.value * (end - self.since)) / span if span > 0 else 0.0


class GaugeSeries:
    """A gauge's values after each instant at which it changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[float] = []
        self.values: list[float] = []

    def record(self, time: float, value: float) -> None:
        """The value after the events of `time`; a later value at the same instant replaces it."""
        if self.times and self.times[-1] == time:
            self.values[-1] = value
            if len(self.values) > 1 and self.values[-2] == value:
                self.times.pop()
                self.values.pop()
        elif not self.values or self.values[-1] != value:
            self.times.append(time)
            self.values.append(value)

    def statistics(self, start: float, end: float) -> tuple[float | None, float | None, float | None, float | None]:
        """Mean, interval, minimum and maximum over [start, end]."""
        if end <= start or not self.times:
            return None, None, None, None
        pieces = list(self._pieces(start, end))
        mean = sum((high - low) * value for low, high, value in pieces) / (end - start)
        width = (end - start) / _BATCHES
        areas = [0.0] * _BATCHES
        for low, high, value in pieces:
            self._spread(areas, low - start, high - start, value, width)
        values = [value for low, high, value in pieces if high > low]
        return mean, _half_width([area / width for area in areas]), min(values), max(values)

    def _pieces(self, start: float, end: float) -> list[tuple[float, float, float]]:
        found = []
        for i, (time, value) in enumerate(zip(self.times, self.values, strict=True)):
            until = self.times[i + 1] if i + 1 < len(self.times) else end
            low, high = max(time, start), min(until, end)
            if high > low:
                found.append((low, high, value))
        return found

    @staticmethod
    def _spread(areas: list[float], low: float, high: float, value: float, width: float) -> None:
        first = min(int(low / width), _BATCHES - 1)
        last = min(int(high / width), _BATCHES - 1)
        for i in range(first, last + 1):
            piece = min(high, (i + 1) * width if i < _BATCHES - 1 else high) - max(low, i * width)
            if piece > 0:
                areas[i] += piece * value
