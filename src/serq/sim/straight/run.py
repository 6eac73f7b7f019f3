"""Moves sessions through their steps, some thousands at a time, and keeps the statistics of the event loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from serq.errors import RunError
from serq.sim.columns import Columns
from serq.sim.rng import PER_BLOCK, uniforms
from serq.sim.straight.flow import Flow
from serq.sim.straight.plan import Assign, Note, Plan, Step, TurnBegins, Visit
from serq.sim.straight.station import Station, overlap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from serq import ir
    from serq.sim.kernel import Kernel
    from serq.sim.samples import SampleList

__all__ = ["NotStraightError", "StraightRun"]

_AT_A_TIME: Final = 8192


class NotStraightError(Exception):
    """Something the event loop must decide: a session does not pass a queue, or an amount is refused."""


class StraightRun:
    """One run of one straight program; memory is linear in the sessions present."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self._kernel = kernel
        self._plan = plan
        program = kernel.program
        self._warmup = program.warmup
        self._horizon = program.horizon if program.horizon is not None else 0.0
        self._visits = [step for step in plan.steps if isinstance(step, Visit)]
        self._stations = [Station(kernel.stages[step.stage], self._warmup) for step in self._visits]
        self._segments = list(_segments(plan.steps))
        self._next_arrival = 0.0 if program.arrival.kind == "poisson" else self._gaps(1)[0]
        self._live = 0.0
        self._last_left = 0.0

    def run(self, watch: Callable[[float], None] | None = None) -> float:
        """Run to the end; returns the end time.  Raises NotStraightError where the event loop must run instead."""
        kernel, population = self._kernel, self._kernel.population
        try:
            while (times := self._arrivals()) is not None:
                kernel.ctx.now = float(times[-1])
                self._move(self._arriving(times), kernel.ctx.now)
                if watch is not None:
                    watch(kernel.fraction(self._horizon))
            self._move(None, self._horizon)
        except KeyboardInterrupt:
            self._close(kernel.ctx.now)
            raise
        if not population.count and population.arrivals == kernel.program.arrivals:
            kernel.stopped_at = self._last_left
        end = self._horizon if kernel.stopped_at is None else kernel.stopped_at
        self._close(end)
        return kernel.finish(self._horizon)

    # --- arrivals -----------------------------------------------------------------------------------------------------

    def _arrivals(self) -> NDArray[np.float64] | None:
        """The next arrival times; None when no more come."""
        import numpy as np

        kernel, population = self._kernel, self._kernel.population
        wanted = math.inf if kernel.program.arrivals is None else kernel.program.arrivals
        most = min(_AT_A_TIME, wanted - population.arrivals)
        times, time, horizon = [], self._next_arrival, self._horizon
        for gap in self._gaps(int(most)):
            if time > horizon:
                break
            times.append(time)
            time += gap
        self._next_arrival = time
        return np.array(times) if times else None

    def _gaps(self, count: int) -> list[float]:
        try:
            return self._kernel.gaps(count)
        except RunError:
            raise NotStraightError from None

    def _arriving(self, times: NDArray[np.float64]) -> Flow:
        import numpy as np

        population, n = self._kernel.population, len(times)
        first = population.arrivals
        population.arrivals += n
        population.count += n
        serials = np.arange(first, first + n)
        attrs = {population.slot_serial: serials.astype(float), population.slot_turn: np.zeros(n)}
        return Flow(times, serials, times, times, attrs, self._drawn(serials))

    def _drawn(self, serials: NDArray[np.int64]) -> NDArray[np.float64]:
        """Every uniform number that the sessions will draw."""
        import numpy as np

        found = np.empty((len(serials), len(self._plan.draws)))
        blocks: dict[tuple[tuple[int, int], int], NDArray[np.float64]] = {}
        for i, (stream, position) in enumerate(self._plan.draws):
            number, place = divmod(position, PER_BLOCK)
            if (stream, number) not in blocks:
                blocks[stream, number] = uniforms(self._kernel.program.seed, serials.astype(np.uint64), stream, number)
            found[:, i] = blocks[stream, number][:, place]
        return found

    # --- steps --------------------------------------------------------------------------------------------------------

    def _move(self, flow: Flow | None, until: float) -> None:
        """Let sessions arrive, and all go as far as they get by `until`."""
        for segment, step, station in zip(self._segments, self._visits, self._stations, strict=False):
            if flow is not None:
                for inner in segment:
                    self._take(flow, inner)
                station.push(flow, self._works(flow, step))
            flow = station.pop(until)
        if flow is not None:
            for inner in self._segments[-1]:
                self._take(flow, inner)
            self._leave(flow)

    def _works(self, flow: Flow, step: Visit) -> NDArray[np.float64]:
        import numpy as np

        works = self._values(flow, step.work, step.at)
        if not (np.isfinite(works) & (works > 0)).all():
            raise NotStraightError
        return works

    def _values(self, flow: Flow, value: ir.Expr, at: int) -> NDArray[np.float64]:
        columns = iter(flow.uniforms.T[at:])
        return Columns({"now": flow.times}, flow.attrs, lambda: next(columns)).values(value, len(flow))

    def _take(self, flow: Flow, step: Step) -> None:
        kernel, population = self._kernel, self._kernel.population
        match step:
            case Assign(slot, value, at):
                flow.attrs[slot] = self._values(flow, value, at)
            case Note(observe, value, at):
                self._sample(kernel.samples[observe], flow, self._values(flow, value, at))
            case TurnBegins(submitted):
                flow.attrs[population.slot_turn] = flow.attrs[population.slot_turn] + 1.0
                population.turns += int((flow.times >= self._warmup).sum())
                if submitted:
                    flow.submitted = flow.times
            case _:
                self._sample(population.client["response"], flow, flow.times - flow.submitted)

    def _sample(self, samples: SampleList, flow: Flow, values: NDArray[np.float64]) -> None:
        measured = flow.times >= self._warmup
        turns = flow.attrs[self._kernel.population.slot_turn].astype(int)
        samples.extend(values[measured], flow.times[measured], flow.serials[measured], turns[measured])

    def _leave(self, flow: Flow) -> None:
        population = self._kernel.population
        population.count -= len(flow)
        population.ended += int((flow.times >= self._warmup).sum())
        self._live += overlap(flow.arrived, flow.times, self._warmup)
        if len(flow):
            self._last_left = float(flow.times[-1])

    # --- the end ------------------------------------------------------------------------------------------------------

    def _close(self, end: float) -> None:
        """Enter the statistics as of `end`."""
        kernel, live = self._kernel, self._live
        for station in self._stations:
            live += math.fsum(max(end - max(arrived, self._warmup), 0.0) for arrived in station.close(end))
        kernel.population.live.area, kernel.population.live.since = live, end
        finished = sum(station.finished for station in self._stations)
        kernel.events = kernel.population.arrivals + finished + (1 if 0 < self._warmup <= end else 0)


def _segments(steps: list[Step]) -> Iterator[list[Step]]:
    """The steps between visits: before the first, between two, after the last."""
    segment: list[Step] = []
    for step in steps:
        if isinstance(step, Visit):
            yield segment
            segment = []
        else:
            segment.append(step)
    yield segment
