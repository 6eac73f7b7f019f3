"""Schedulers of vllm-ascend: vLLM V1's with another waiting queue, or held back by its data-parallel peers.

Source: vllm_ascend/core, vllm_ascend/patch/platform/patch_balance_schedule.py at 0.27.1rc1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from castq.shapes.ascend.batch_jobs import BatchJobQueue, BatchJobSettings
from castq.shapes.ascend.short_first import ShortFirstQueue
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Batch, Scheduler, SchedulerSettings

__all__ = ["BalancedScheduler", "batch_job_scheduler", "short_first_steps"]


def short_first_steps(
    settings: SchedulerSettings,
    arrivals: Sequence[Arrival],
    *,
    step_ms: float,
    threshold: int = 256,
    long_max_wait_ms: float = 0.0,
) -> Iterator[Step]:
    """The steps of short requests first, each `step_ms` long."""
    clock = [0.0]

    def tick(number: int) -> None:
        clock[0] = number * step_ms / 1000

    queue = ShortFirstQueue(lambda: clock[0], threshold=threshold, long_max_wait_ms=long_max_wait_ms)
    return replay(Scheduler(settings, queue), arrivals, before=tick)


def batch_job_scheduler(settings: SchedulerSettings, jobs: BatchJobSettings | None = None) -> Scheduler:
    """A scheduler whose queue knows of jobs."""

    def room() -> tuple[int, list[tuple[int, int]]]:
        return scheduler.pool.free, [(one.computed, one.arrival.prompt) for one in scheduler.running]

    queue = BatchJobQueue(room, settings.block_size, settings.max_num_batched_tokens, jobs)
    scheduler = Scheduler(settings, queue)
    return scheduler


class BalancedScheduler(Scheduler):
    """Admits nobody while some rank had every slot taken at the last exchange (`a_rank_is_full`)."""

    a_rank_is_full = False

    def admit(self, batch: Batch) -> None:
        if not self.a_rank_is_full:
            super().admit(batch)
