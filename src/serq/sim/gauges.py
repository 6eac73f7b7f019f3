"""Gauges: the values of an expression over time, change by change up to a limit, then window by window."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from serq.ir.arithmetic import total
from serq.sim.stats import BATCHES, KEPT, half_width

__all__ = ["GaugeSeries"]

_BUFFER: Final = 8192
_MOST_WINDOWS: Final = 200 * BATCHES

Piece = tuple[float, float, float]


class GaugeSeries:
    """A gauge's values after each instant at which it changed.

    Beyond `KEPT` changes only the areas under them are left, window by window, unless `keep` asks for all changes.
    """

    def __init__(self, name: str, start: float, *, keep: bool = False) -> None:
        self.name = name
        self.times: list[float] = []
        self.values: list[float] = []
        self._start = start
        self._limit = math.inf if keep else KEPT
        self._windows: _Windows | None = None

    @property
    def whole(self) -> bool:
        """Whether every change is kept."""
        return self._windows is None

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
            if len(self.times) > self._limit:
                self._fold()

    def _fold(self) -> None:
        """Leave the last two changes only: the next record may still alter them."""
        if self._windows is None:
            self._windows = _Windows(self._start, self.times[-2])
            self._limit = _BUFFER
        for piece in _pieces(self.times[:-1], self.values, self._start, self.times[-2]):
            self._windows.add(piece)
        self.times, self.values = self.times[-2:], self.values[-2:]

    def statistics(self, start: float, end: float) -> tuple[float | None, float | None, float | None, float | None]:
        """Mean, interval, minimum and maximum over [start, end], where `start` is that of the measured time."""
        if end <= start or not self.times or (self._windows is not None and end <= self._start):
            return None, None, None, None
        pieces = list(_pieces(self.times, self.values, start, end))
        areas = _spread(self._areas(start, end, pieces), start, end)
        width, values = (end - start) / BATCHES, [value for _, _, value in pieces]
        area = total((high - low) * value for low, high, value in pieces)
        if self._windows is not None:
            area += self._windows.area
            values += [self._windows.least, self._windows.largest]
        return area / (end - start), half_width([a / width for a in areas]), min(values), max(values)

    def _areas(self, start: float, end: float, pieces: Sequence[Piece]) -> Iterator[Piece]:
        if self._windows is not None:
            yield from self._windows.pieces()
        yield from pieces


class _Windows:
    """Areas over equal windows, each twice as wide whenever they become too many."""

    def __init__(self, start: float, until: float) -> None:
        self.area = 0.0
        self.least, self.largest = math.inf, -math.inf
        self._start = self._until = start
        span = until - start
        self._width = span / (_MOST_WINDOWS / 2) if span > 0 else math.inf
        self._areas: list[float] = [0.0]

    def add(self, piece: Piece) -> None:
        low, high, value = piece
        if math.isinf(self._width):
            self._width = (high - self._start) / (_MOST_WINDOWS / 2)
        self.area += (high - low) * value
        self.least, self.largest = min(self.least, value), max(self.largest, value)
        self._until = high
        while high - self._start > self._width * _MOST_WINDOWS:
            padded = [*self._areas, 0.0][: len(self._areas) + len(self._areas) % 2]
            self._areas = [a + b for a, b in zip(padded[::2], padded[1::2], strict=True)]
            self._width *= 2
        last = int((high - self._start) / self._width)
        self._areas.extend([0.0] * (last + 1 - len(self._areas)))
        _cover(self._areas, low - self._start, high - self._start, value, self._width)

    def pieces(self) -> Iterator[Piece]:
        """The windows as steps of their mean values."""
        for i, area in enumerate(self._areas):
            low = self._start + i * self._width
            high = min(low + self._width, self._until)
            if high > low:
                yield low, high, area / (high - low)


def _pieces(times: Sequence[float], values: Sequence[float], start: float, end: float) -> Iterator[Piece]:
    """(from, until, value) of every value that lasted within [start, end]."""
    for i, time in enumerate(times):
        until = times[i + 1] if i + 1 < len(times) else end
        low, high = max(time, start), min(until, end)
        if high > low:
            yield low, high, values[i]


def _spread(pieces: Iterable[Piece], start: float, end: float) -> list[float]:
    """The areas over the windows of the interval."""
    areas, width = [0.0] * BATCHES, (end - start) / BATCHES
    for low, high, value in pieces:
        _cover(areas, low - start, high - start, value, width)
    return areas


def _cover(areas: list[float], low: float, high: float, value: float, width: float) -> None:
    """Add `value` from `low` to `high` to the windows it touches."""
    most = len(areas) - 1
    for i in range(min(int(low / width), most), min(int(high / width), most) + 1):
        piece = min(high, (i + 1) * width if i < most else high) - max(low, i * width)
        if piece > 0:
            areas[i] += piece * value
