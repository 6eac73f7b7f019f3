"""A FIFO queue or a delay that sessions pass in the order of their coming."""

from __future__ import annotations

import math
from heapq import heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from serq.sim.stages import StageState
    from serq.sim.straight.flow import Flow

__all__ = ["Station", "overlap"]


class Station:
    """Who is present, and the statistics of those who left; time is linear in the sessions, with log of the servers."""

    def __init__(self, stage: StageState, warmup: float) -> None:
        self._stage = stage
        self._warmup = warmup
        self._free = [0.0] * stage.spec.servers if stage.spec.kind == "fifo" else []
        self._present: Flow | None = None
        self._started: NDArray[np.float64] | None = None
        self._ends: NDArray[np.float64] | None = None
        self._busy_until = 0.0
        self._number = self._idle = 0.0
        self.finished = 0

    def push(self, flow: Flow, works: NDArray[np.float64]) -> None:
        """Let sessions join, each with its work; no later one may join before them."""
        import numpy as np

        started, ends = self._served(flow.times, works)
        self._note_idle(flow.times, ends)
        if self._present is None or self._started is None or self._ends is None:
            self._present, self._started, self._ends = flow, started, ends
        else:
            self._present = self._present.then(flow)
            self._started = np.concatenate((self._started, started))
            self._ends = np.concatenate((self._ends, ends))

    def _served(
        self, joined: NDArray[np.float64], works: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When each starts and ends."""
        import numpy as np

        if not self._free:
            return joined, joined + works
        starts, free = [], self._free
        if len(free) == 1:
            (end,) = free
            for time, work in zip(joined.tolist(), works.tolist(), strict=True):
                start = time if time > end else end
                end = start + work
                starts.append(start)
            free[0] = end
        else:
            for time, work in zip(joined.tolist(), works.tolist(), strict=True):
                start = max(time, free[0])
                heapreplace(free, start + work)
                starts.append(start)
        started = np.array(starts)
        return started, started + works

    def _note_idle(self, joined: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
        """Add the time without anybody present, up to the last of these."""
        import numpy as np

        if len(joined):
            latest = np.maximum.accumulate(np.concatenate(([self._busy_until], ends)))
            self._idle += overlap(np.minimum(latest[:-1], joined), joined, self._warmup)
            self._busy_until = float(latest[-1])

    def pop(self, until: float) -> Flow | None:
        """Those who leave no later than `until`, in the order of leaving."""
        import numpy as np

        if self._present is None or self._started is None or self._ends is None:
            return None
        order = np.argsort(self._ends, kind="stable")
        gone, left = order[self._ends[order] <= until], np.flatnonzero(self._ends > until)
        leaving, started, ends = self._present.select(gone), self._started[gone], self._ends[gone]
        self._count(leaving.times, started, ends)
        self._present, self._started, self._ends = self._present.select(left), self._started[left], self._ends[left]
        leaving.times = ends
        return leaving

    def _count(self, joined: NDArray[np.float64], started: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
        stage = self._stage
        self.finished += len(ends)
        self._number += overlap(joined, ends, self._warmup)
        measured = ends >= self._warmup
        stage.completed += int(measured.sum())
        stage.wait_total += math.fsum((started - joined)[measured].tolist())
        stage.service_total += math.fsum((ends - started)[measured].tolist())

    def close(self, end: float) -> list[float]:
        """Enter the statistics of the stage as of `end`; when those still present had arrived."""
        import numpy as np

        start = self._warmup if end > self._warmup else 0.0
        arrived: list[float] = []
        if self._present is not None:
            self._number += overlap(self._present.times, np.full(len(self._present), end), self._warmup)
            arrived = self._present.arrived.tolist()
        idle = self._idle + max(end - max(self._busy_until, start), 0.0)
        self._stage.number.area, self._stage.number.since = self._number, end
        self._stage.busy_time.area, self._stage.busy_time.since = max(end - start - idle, 0.0), end
        return arrived


def overlap(low: NDArray[np.float64], high: NDArray[np.float64], start: float) -> float:
    """The total length of intervals, as far as they lie beyond `start`."""
    import numpy as np

    return math.fsum(np.maximum(high - np.maximum(low, start), 0.0).tolist())
