"""What an engine reports: iterations by phase, decodes, and the tokens of turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serq.sim.histogram import Histogram
from serq.sim.stats import TimeAverage

if TYPE_CHECKING:
    from serq.sim.engine.stage import EngineStage
    from serq.sim.stages import Job

__all__ = ["EngineFigures"]


class EngineFigures:
    """The figures of one engine."""

    def __init__(self, engine: EngineStage, warmup: float) -> None:
        self._engine = engine
        self._warmup = warmup
        self.iterations = 0
        self.phase_time = {"prefill": TimeAverage(), "decode": TimeAverage(), "mixed": TimeAverage()}
        self.decodes = TimeAverage()
        self.decode_batches = 0
        self.decode_total = 0.0
        self.decode_duration = 0.0
        self.gaps = Histogram()
        self._phase: TimeAverage | None = None

    def restart(self, now: float) -> None:
        """The end of the warm-up."""
        for average in (*self.phase_time.values(), self.decodes):
            average.restart(now)

    def begun(self, now: float, decoders: float, prefilled: float) -> None:
        """An iteration begins, with so many decodes and prefilled tokens."""
        kind = ("mixed" if prefilled else "decode") if decoders else ("prefill" if prefilled else "")
        self._phase = self.phase_time[kind] if kind else None
        if self._phase is not None:
            self._phase.set(1.0, now)
        self.decodes.set(decoders, now)

    def ended(self, now: float) -> None:
        if self._phase is not None:
            self._phase.set(0.0, now)
        self.decodes.set(0.0, now)

    def count(self, now: float, decoders: float, duration: float) -> None:
        """Count an iteration that starts now."""
        self.iterations += 1
        if decoders and now >= self._warmup:
            self.decode_batches += 1
            self.decode_total += decoders
            self.decode_duration += duration

    # --- tokens -------------------------------------------------------------------------------------------------------

    def decoded(self, jobs: list[Job], now: float) -> None:
        """A token of every one of these decoding jobs; gaps of the same length are counted together."""
        measured = now >= self._warmup
        before: float | None = None
        count = 0
        for job in jobs:
            session = job.session
            if session is None:
                continue
            last = session.last_token
            session.last_token = now
            if last == before:
                count += 1
            else:
                if measured and before is not None:
                    self.gaps.add(now - before, count)
                before, count = last, 1
            turn = session.turn
            if turn is not None:
                if turn.first is None:
                    turn.first, turn.made_by = now, self._engine
                    turn.tokens = max(turn.tokens, 1)
                else:
                    turn.tokens += 1
        if measured and before is not None:
            self.gaps.add(now - before, count)

    def prefilled(self, job: Job, now: float) -> None:
        """The token at the end of a prefill.

        Until a decode of the turn begins it is the turn's first token anew, unless it resumes after a preemption here.
        It follows the session's last token, or comes in its place where the session (or leg) began no decode and did
        not return to the engine of the first token after a preemption.
        """
        session = job.session
        if session is None:
            return
        turn = session.turn
        resumes = turn is None or turn.resumed_on is self._engine
        again = session.preempted and turn is not None and turn.made_by is self._engine
        last = session.last_token if turn is None or session.decodes or again else None
        session.preempted = False
        if last is not None and now >= self._warmup:
            self.gaps.add(now - last, 1)
        session.last_token = now
        if turn is None:
            return
        if turn.first is None or not (turn.settled or resumes):
            turn.first, turn.made_by = now, self._engine
            turn.tokens = max(turn.tokens, 1)
        else:
            turn.tokens += 1
        if resumes:
            turn.resumed_on = None
