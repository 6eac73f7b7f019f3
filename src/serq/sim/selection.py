"""What one iteration of an engine executes: real requests and their token intervals, before any padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from serq.sim.engine.stage import EngineStage
    from serq.sim.stages import Job

__all__ = ["Batch", "Observer", "Phase", "SelectedRequest", "Selection", "selection_of"]

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class SelectedRequest:
    """One request of an iteration: the tokens `[context, context + tokens)` of its sequence.

    `request` is the serial of the session and `turn` its turn.  `context` counts the tokens whose memory stands before
    the iteration, None where the program keeps no memory for the request.  `blocks` counts the blocks that it holds
    once these tokens have their place, None where the memory has no blocks.
    """

    request: int
    turn: int
    phase: Phase
    tokens: float
    context: float | None = None
    blocks: float | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """One iteration: its number on its engine from 0, when it starts, and whom it serves, in the order of service."""

    step: int
    time: float
    engine: str
    requests: tuple[SelectedRequest, ...]

    @property
    def tokens(self) -> float:
        """Real tokens of the iteration."""
        return sum(one.tokens for one in self.requests)


Observer = Callable[[Selection], None]


def selection_of(engine: EngineStage, now: float, ahead: int) -> Selection:
    """The iteration that an engine begins, `ahead` iterations after the state of its requests was written down."""
    jobs = engine.running or ()
    requests = tuple([_selected(job, ahead) for job in jobs if job.session is not None])
    return Selection(engine.figures.iterations, now, engine.name, requests)


@dataclass(frozen=True, slots=True)
class Batch:
    """Decodes that are about to be run through together, with what each holds before."""

    step: int
    held: tuple[tuple[Job, float], ...]

    @classmethod
    def of(cls, engine: EngineStage) -> Batch:
        """The batch that an engine runs, before any of its iterations ends."""
        jobs = [job for job in engine.running or () if job.session is not None]
        held = tuple([(job, 0.0 if job.frame is None else job.frame.alloc[job.frame_index]) for job in jobs])
        return cls(engine.figures.iterations, held)

    def selections(self, engine: str, starts: Sequence[float]) -> Iterator[Selection]:
        """The iterations that follow the one now running, by the times at which they begin."""
        for k, start in enumerate(starts):
            requests = tuple([_selected(job, k + 1, held) for job, held in self.held])
            yield Selection(self.step + k, start, engine, requests)


def _selected(job: Job, ahead: int, held: float | None = None) -> SelectedRequest:
    """A request `ahead` iterations on; `held` are units it had when its position was written down."""
    session, frame, i = job.session, job.frame, job.frame_index
    assert session is not None
    phase: Phase = "decode" if job.mode == "decode" else "prefill"
    if frame is None:
        return SelectedRequest(session.serial, session.turn_no, phase, job.granted)
    pool = frame.pools[i]
    units = max(held, pool.round_up(frame.position[i] + ahead + 1)) if held is not None else frame.alloc[i]
    blocks = None if pool.block is None else units / pool.block
    return SelectedRequest(session.serial, session.turn_no, phase, job.granted, frame.position[i] + ahead, blocks)
