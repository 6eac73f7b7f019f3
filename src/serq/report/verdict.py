"""What came of a run, in one line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from serq.report.rows import ObserveRow, PoolRow, StageRow

__all__ = ["Judged", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`failed` where the run served nobody, or some session got stuck; `text` says what came of it, in one line."""

    failed: bool
    text: str


class Judged(Protocol):
    """What a verdict reads of a run."""

    @property
    def arrivals(self) -> int: ...
    @property
    def ended(self) -> int: ...
    @property
    def partial(self) -> bool: ...
    @property
    def warmup(self) -> float: ...
    @property
    def pools(self) -> Sequence[PoolRow]: ...
    @property
    def stages(self) -> Sequence[StageRow]: ...
    @property
    def client(self) -> Mapping[str, ObserveRow]: ...
    @property
    def observes(self) -> Mapping[str, ObserveRow]: ...


def judge(report: Judged) -> Verdict:
    """The verdict on a run: what failed first, then what else deserves a look, then how many sessions ended."""
    failures = list(_failures(report))
    return Verdict(bool(failures), "; ".join((*failures, *_oddities(report), _ended(report))))


def _failures(report: Judged) -> Iterator[str]:
    rejected = [pool for pool in report.pools if pool.rejected]
    if rejected and _count(rejected, "rejected") >= report.arrivals:
        yield f"every session was rejected: it asks more of {_names(rejected)} than there is"
    stuck = [pool for pool in report.pools if pool.stuck]
    if stuck:
        sessions = _sessions(_count(stuck, "stuck"))
        yield f"{sessions} stuck: preempted at {_names(stuck)} again without having got further"


def _oddities(report: Judged) -> Iterator[str]:
    rejected = [pool for pool in report.pools if pool.rejected]
    count = _count(rejected, "rejected")
    if 0 < count < report.arrivals:
        yield f"{count} of {report.arrivals} sessions rejected: they ask more of {_names(rejected)} than there is"
    for pool in report.pools:
        if pool.over_cap is not None:
            over = pool.over_cap
            yield f"at the end the head of {over.queue} asks {over.need:g} of {_name(pool)}, more than there is"
        if pool.growing_stalled:
            yield f"at the end every holder of {_name(pool)} waits to grow"
    idle = [stage.name for stage in report.stages if stage.idle_with_work]
    if idle:
        yield f"at the end {' and '.join(dict.fromkeys(idle))} could schedule nothing of the work that waits"
    for row in (*report.client.values(), *report.observes.values()):
        if row.mean is not None and math.isnan(row.mean):
            yield f"samples of {row.name} are no numbers, so its mean is none"


def _ended(report: Judged) -> str:
    if not report.arrivals:
        return "no session arrived"
    if sum(pool.rejected for pool in report.pools) >= report.arrivals:
        return "nobody was served"
    if report.partial:
        return f"interrupted: {report.ended} of {_sessions(report.arrivals)} ended"
    since = f" since {report.warmup:g}" if report.warmup else ""
    return f"{report.ended} of {_sessions(report.arrivals)} ended{since}"


def _count(pools: Sequence[PoolRow], what: str) -> int:
    return sum(getattr(pool, what) for pool in pools)


def _sessions(count: int) -> str:
    return f"{count} session{'s' * (count != 1)}"


def _names(pools: Sequence[PoolRow]) -> str:
    return " and ".join(dict.fromkeys(_name(pool) for pool in pools))


def _name(pool: PoolRow) -> str:
    return pool.name if pool.index is None else f"{pool.name}[{pool.index}]"
