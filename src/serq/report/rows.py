"""The rows of a report: one observation, gauge, claim, stage or pool each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from serq.errors import unknown_name

__all__ = ["ClaimRow", "GaugeRow", "ObserveRow", "OverCap", "PoolRow", "Rows", "StageRow"]


@dataclass(frozen=True, slots=True)
class ObserveRow:
    """An observation's statistics and samples.

    The samples are those of a run that kept them: all of up to 100 000, of any number where they were asked for.
    Without them `p99` is exact to the relative error `p99_within`.  Times are in the program's own unit.
    """

    name: str
    count: int
    mean: float | None
    ci: float | None
    cv2: float | None
    p99: float | None
    p99_within: float
    max: float | None
    samples: tuple[float, ...] = field(default=(), repr=False)
    times: tuple[float, ...] = field(default=(), repr=False)
    sessions: tuple[int, ...] = field(default=(), repr=False)
    turns: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """A gauge's time average, interval, extremes and change points."""

    name: str
    mean: float | None
    ci: float | None
    min: float | None
    max: float | None
    times: tuple[float, ...] = field(default=(), repr=False)
    values: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim's outcome."""

    name: str
    kind: str
    result: str
    checked: int
    failures: int
    first: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage, or one member of a family."""

    name: str
    index: int | None
    mean_number: float
    utilization: float
    completed: int
    throughput: float
    mean_wait: float | None
    mean_service: float | None
    iterations: int
    prefill_only: float
    decode_only: float
    mixed: float
    mean_decodes: float
    mean_decode_batch: float | None
    mean_decode_step: float | None
    mean_itl: float | None
    itl_p50: float | None
    itl_p99: float | None
    itl_max: float | None
    idle_with_work: bool


@dataclass(frozen=True, slots=True)
class OverCap:
    """At the end of a run: the queue whose head asks for more than the capacity, and how much it asks for."""

    queue: str
    need: float


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool, or one member of a family."""

    name: str
    index: int | None
    mean_used: float
    mean_cached: float
    mean_queue: float
    mean_holders: float
    mean_wait: float | None
    admissions: int
    evicted_entries: int
    evicted_units: float
    preemptions: int
    spills: int
    rejected: int
    stuck: int
    over_cap: OverCap | None
    growing_at_end: int
    growing_stalled: bool


Row = TypeVar("Row")


class Rows(dict[str, Row]):
    """Rows by name, in the order of the program; another name raises `UnknownNameError`, with the nearest."""

    def __missing__(self, name: str) -> Row:
        raise unknown_name("row", name, self)
