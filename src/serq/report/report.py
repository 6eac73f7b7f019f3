"""What a run tells: plain attributes, and the same as JSON.

Source: docs/language.md, "The report".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, TypeVar

from serq.errors import unknown_name
from serq.report.rows import ClaimRow, GaugeRow, ObserveRow, PoolRow, Rows, StageRow
from serq.report.verdict import Verdict, judge
from serq.sim.selection import Selection

__all__ = ["TIME_UNIT", "Report"]

_Named = TypeVar("_Named", StageRow, PoolRow, ClaimRow)
_SHOWN: Final = 8
TIME_UNIT: Final = "the program's own: the unit of its costs, gaps and latencies"
"""The unit of every time in a report."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """A finished run.  `partial` marks one that was interrupted.  Times are in the program's own unit."""

    horizon: float
    end: float
    warmup: float
    seed: int
    events: int
    arrivals: int
    ended: int
    turns: int
    mean_live: float
    observes: Rows[ObserveRow]
    client: Rows[ObserveRow]
    gauges: Rows[GaugeRow]
    claims: tuple[ClaimRow, ...]
    stages: tuple[StageRow, ...]
    pools: tuple[PoolRow, ...]
    partial: bool = False
    iterations: tuple[Selection, ...] = ()

    def stage(self, name: str) -> StageRow:
        """The first stage of that name; raises `UnknownNameError`, with the nearest, where there is none."""
        return _named("stage", name, self.stages)

    def pool(self, name: str) -> PoolRow:
        """The first pool of that name; raises `UnknownNameError`, with the nearest, where there is none."""
        return _named("pool", name, self.pools)

    def claim(self, name: str) -> ClaimRow:
        """The claim of that name; raises `UnknownNameError`, with the nearest, where there is none."""
        return _named("claim", name, self.claims)

    @property
    def verdict(self) -> Verdict:
        """What came of the run, in one line."""
        return judge(self)

    def __repr__(self) -> str:
        """One line: what came of the run and the names of its rows, without their samples."""
        names = {
            kind: [row.name for row in rows]
            for kind, rows in (
                ("client", self.client.values()),
                ("observes", self.observes.values()),
                ("gauges", self.gauges.values()),
                ("stages", self.stages),
                ("pools", self.pools),
                ("claims", self.claims),
            )
        }
        shown = ", ".join(f"{kind}: {_few(found)}" for kind, found in names.items() if found)
        return f"<Report to {self.end:g}: {self.verdict.text}; {shown}>"

    def to_json(self, *, samples: bool = False) -> dict[str, Any]:
        """Plain JSON values; non-finite numbers are null; samples and change points only when asked for."""
        skipped = () if samples else ("samples", "times", "sessions", "turns", "values")
        document = {item.name: _plain(getattr(self, item.name), skipped) for item in fields(self)}
        if not samples:
            del document["iterations"]
        if not self.claims:
            del document["claims"]
        return {**document, "time_unit": TIME_UNIT, "verdict": _plain(self.verdict, ())}


def _named(kind: str, name: str, rows: Sequence[_Named]) -> _Named:
    for row in rows:
        if row.name == name:
            return row
    raise unknown_name(kind, name, [row.name for row in rows])


def _few(names: Sequence[str]) -> str:
    """The first names, each once, and how many more there are."""
    once = list(dict.fromkeys(names))
    return " ".join(once[:_SHOWN]) + (f" and {len(once) - _SHOWN} more" if len(once) > _SHOWN else "")


def _plain(value: Any, skipped: Sequence[str]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: _plain(getattr(value, item.name), skipped) for item in fields(value) if item.name not in skipped
        }
    if isinstance(value, dict):
        return {key: _plain(item, skipped) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, skipped) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
