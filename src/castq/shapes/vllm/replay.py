"""Requests through a scheduler, step by step, with as many batches in flight as the pipeline has stages.

Source: vllm/v1/engine/core.py at 0.27.1, the queue of batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from castq.shapes.vllm.requests import Arrival, Request
from castq.shapes.vllm.scheduler import Batch, Scheduler, Share

__all__ = ["Step", "replay"]


@dataclass(frozen=True, slots=True)
class Step:
    """One scheduling step, and how things stand once the batch that completes with it has come back.

    `stalled` says that nothing can ever be selected again although requests wait: the first of them does not fit.
    """

    number: int
    shares: tuple[Share, ...]
    preempted: tuple[str, ...]
    ended: tuple[str, ...]
    running: tuple[str, ...]
    waiting: int
    free_blocks: int
    stalled: bool = False

    @property
    def tokens(self) -> int:
        """Real tokens of the step."""
        return sum(share.tokens for share in self.shares)


def replay(
    scheduler: Scheduler, arrivals: Sequence[Arrival], *, before: Callable[[int], None] | None = None
) -> Iterator[Step]:
    """Every step until the last request has ended, or none can go on; `before` is told each number beforehand.

    A step without work is a step too.  O(running + admitted) a step.
    """
    coming = deque(
        Request(one, order) for order, one in sorted(enumerate(arrivals), key=lambda pair: (pair[1].step, pair[0]))
    )
    in_flight: deque[Batch] = deque()
    number = 0
    while coming or scheduler.busy:
        if before is not None:
            before(number)
        while coming and coming[0].arrival.step <= number:
            scheduler.waiting.add(coming.popleft())
        batch = scheduler.schedule()
        in_flight.append(batch)
        full = len(in_flight) >= scheduler.settings.pipeline_parallel_size
        working = batch.preempted or any(one.shares for one in in_flight)
        ended = scheduler.complete(in_flight.popleft()) if full else []
        stalled = not working and not coming and scheduler.busy
        yield _step(number, batch, ended, scheduler, stalled)
        if stalled:
            return
        number += 1


def _step(number: int, batch: Batch, ended: Sequence[Request], scheduler: Scheduler, stalled: bool) -> Step:
    return Step(
        number,
        tuple(batch.shares),
        tuple(request.id for request in batch.preempted),
        tuple(request.id for request in ended),
        tuple(request.id for request in scheduler.running),
        len(scheduler.waiting),
        scheduler.pool.free,
        stalled,
    )
