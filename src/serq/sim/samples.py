"""Samples of an observation: one by one up to a limit, then as a digest of constant size."""

from __future__ import annotations

import math
import operator
from array import array
from typing import TYPE_CHECKING, Final

from serq.sim.histogram import Histogram
from serq.sim.stats import BATCHES, KEPT, Summary, interval, summarise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Digest", "SampleList", "Totals"]

_BUFFER: Final = 8192
_MOST_RUNS: Final = 100 * BATCHES
_FIRST_RUN: Final = 32


class Totals:
    """What an `at end` claim asks about all samples of the run."""

    def __init__(self) -> None:
        self._figures = {"count": 0.0, "total": 0.0, "prefix_total": 0.0}
        self._largest = self._smallest = math.nan

    def add(self, value: float) -> None:
        figures = self._figures
        figures["count"] += 1.0
        figures["total"] += value
        figures["prefix_total"] += figures["total"]
        self._largest = value if not self._largest >= value else self._largest
        self._smallest = value if not self._smallest <= value else self._smallest

    def figure(self, kind: str) -> float:
        """`count`, `total`, `largest`, `smallest` or `prefix_total`, the sum of the running totals."""
        extremes = {"largest": self._largest, "smallest": self._smallest}
        return extremes[kind] if kind in extremes else self._figures[kind]


class Digest:
    """The statistics of samples that are no longer there.

    Mean and variance as exact as those of a list; the interval from the sums of runs of samples, each run twice as long
    whenever they become too many; percentiles to the error of a histogram's buckets.
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean = self._squares = 0.0
        self._values = Histogram()
        self._values.coarsen()
        self._size = _FIRST_RUN
        self._runs: list[float] = []
        self._open, self._missing = 0.0, _FIRST_RUN

    def fold(self, samples: array[float]) -> None:
        """Take samples in; time is linear in them."""
        import numpy as np

        values = np.frombuffer(samples, dtype=float)
        n, both = len(samples), self.count + len(samples)
        mean = math.fsum(samples) / n
        away = mean - self._mean
        self._squares += math.fsum(((values - mean) ** 2).tolist()) + away * away * self.count * n / both
        self._mean += away * n / both
        self.count = both
        self._values.add_many(values)
        self._fold_runs(samples)

    def _fold_runs(self, samples: array[float]) -> None:
        at = 0
        while at < len(samples):
            taken = samples[at : at + self._missing]
            self._open += math.fsum(taken)
            self._missing -= len(taken)
            at += len(taken)
            if not self._missing:
                self._runs.append(self._open)
                if len(self._runs) >= _MOST_RUNS:
                    self._runs = [a + b for a, b in zip(self._runs[::2], self._runs[1::2], strict=True)]
                    self._size *= 2
                self._open, self._missing = 0.0, self._size

    def summary(self) -> Summary:
        cv2 = self._squares / (self.count - 1) / self._mean**2 if self.count > 1 and self._mean else None
        ci = interval(self._runs, self._size, self.count)
        values = self._values
        return Summary(self.count, self._mean, ci, cv2, values.percentile(0.99), Histogram.WITHIN, values.max)


class SampleList:
    """Samples with the time, session and turn they were taken at.

    Beyond `KEPT` of them only a digest is left, unless `keep` asks for all.
    """

    def __init__(self, name: str, *, keep: bool = False, totals: Totals | None = None) -> None:
        self.name = name
        self.totals = totals
        self._limit = math.inf if keep else KEPT
        self._digest: Digest | None = None
        self._clear()

    def _clear(self) -> None:
        self.samples: array[float] = array("d")
        self.times: array[float] = array("d")
        self.sessions: array[int] = array("q")
        self.turns: array[int] = array("q")

    def add(self, value: float, time: float, session: int, turn: int) -> None:
        self.samples.append(value)
        if self._digest is None:
            self.times.append(time)
            self.sessions.append(session)
            self.turns.append(turn)
        if len(self.samples) > self._limit:
            self._fold()

    def extend(
        self,
        values: NDArray[np.float64],
        times: NDArray[np.float64],
        sessions: NDArray[np.int64],
        turns: NDArray[np.int64],
    ) -> None:
        """`add` for many samples."""
        self.samples.frombytes(values.astype("f8").tobytes())
        if self._digest is None:
            self.times.frombytes(times.astype("f8").tobytes())
            self.sessions.frombytes(sessions.astype("i8").tobytes())
            self.turns.frombytes(turns.astype("i8").tobytes())
        if len(self.samples) > self._limit:
            self._fold()

    def _fold(self) -> None:
        if self._digest is None:
            self._digest = Digest()
            self._limit = _BUFFER
        self._digest.fold(self.samples)
        self._clear()

    def sort_by_time(self) -> None:
        """Put what is kept in the order of time."""
        if all(map(operator.le, self.times, self.times[1:])):
            return
        order = sorted(range(len(self.times)), key=self.times.__getitem__)
        for name, kind in (("samples", "d"), ("sessions", "q"), ("turns", "q"), ("times", "d")):
            column = getattr(self, name)
            setattr(self, name, array(kind, [column[i] for i in order]))

    def summary(self) -> Summary:
        """The statistics of all samples; those that a digest has taken in are not listed any more."""
        if self._digest is None:
            return summarise(self.samples)
        if self.samples:
            self._fold()
        return self._digest.summary()
