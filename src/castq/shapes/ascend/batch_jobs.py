"""Waiting requests of batch jobs: the decode lengths of a job are learnt, and admission keeps blocks in reserve.

Source: vllm_ascend/core, batch_job_sched_config, at 0.27.1rc1.  Where the vendor's docstring and code differ, the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.requests import Request
from castq.shapes.vllm.waiting import take_from

__all__ = ["BatchJobQueue", "BatchJobSettings", "DecodeLengths", "best_fit", "job_of", "job_order", "reserved_blocks"]

_NAME: Final = re.compile(r"^#job_name\[(.*?)\]#")
_NEW, _OLD, _OBSERVATIONS, _SAMPLES = 0.1, 0.9, 10, 3


@dataclass(frozen=True, slots=True)
class BatchJobSettings:
    """The vendor's defaults.  A decode longer than `short_decode_tokens` is long."""

    max_jobs: int = 20
    margin_blocks: int = 2
    most_reserved_blocks: int = 8
    low_available_tokens: int = 4096
    short_decode_tokens: int = 32
    unseen_length: int = 128


def job_of(request_id: str) -> str:
    """The job that a request names in its id, `#job_name[NAME]#...`; requests that name none are one job."""
    found = _NAME.match(request_id)
    return found.group(1) if found else ""


class DecodeLengths:
    """What is known of each job's decode length: a moving average over its first observations."""

    def __init__(self, settings: BatchJobSettings | None = None) -> None:
        self._settings = settings or BatchJobSettings()
        self._lengths: dict[str, tuple[float, int]] = {}

    def observe(self, job: str, length: int) -> None:
        """A request of the job that stopped of its own accord.  Raises ShapeError for one job too many."""
        most = self._settings.max_jobs
        if job not in self._lengths and len(self._lengths) >= most:
            raise ShapeError("max_jobs_exceeded", f"job {job!r}: at most {most} jobs (max_jobs)", raised="RuntimeError")
        old, count = self._lengths.get(job, (float(length), 0))
        if count < _OBSERVATIONS:
            self._lengths[job] = (_NEW * length + _OLD * old if count else float(length), count + 1)

    def predict(self, job: str) -> int:
        """Tokens that a request of the job is expected to generate."""
        return int(self._lengths.get(job, (float(self._settings.unseen_length), 0))[0])


def job_order(
    lengths: Mapping[str, int], admission_budget: int, settings: BatchJobSettings | None = None
) -> tuple[str, ...]:
    """Jobs in the order they are served, by predicted decode length.

    With short and long jobs waiting both classes go longest first, the long ones in front where the budget is high; of
    one class the longest is first where the budget is high, else the shortest.
    """
    given = settings or BatchJobSettings()
    high = admission_budget > given.low_available_tokens
    long = [job for job, length in lengths.items() if length > given.short_decode_tokens]
    short = [job for job, length in lengths.items() if length <= given.short_decode_tokens]
    if long and short:
        classes = (long, short) if high else (short, long)
        return tuple(job for jobs in classes for job in _longest_first(jobs, lengths))
    if high:
        return tuple(_longest_first(lengths, lengths))
    return tuple(sorted(lengths, key=lambda job: lengths[job]))


def _longest_first(jobs: Iterable[str], lengths: Mapping[str, int]) -> list[str]:
    return sorted(jobs, key=lambda job: -lengths[job])


def best_fit(prompts: Sequence[int], budget: int) -> int | None:
    """The place of the longest prompt within the budget, else of the shortest; None without prompts."""
    if not prompts:
        return None
    within = [at for at, length in enumerate(prompts) if length <= budget]
    if within:
        return max(within, key=lambda at: (prompts[at], -at))
    return min(range(len(prompts)), key=lambda at: (prompts[at], at))


def reserved_blocks(
    running: Iterable[tuple[int, int]],
    block_size: int,
    budget: int,
    *,
    lookahead: int = 0,
    settings: BatchJobSettings | None = None,
) -> int:
    """Blocks kept back: what running requests (computed, prompt) take in the step after this one, and a margin."""
    given = settings or BatchJobSettings()
    wanted = sum(_next_blocks(computed, prompt, block_size, budget, lookahead) for computed, prompt in running)
    return min(wanted + given.margin_blocks, given.most_reserved_blocks)


def _next_blocks(computed: int, prompt: int, block_size: int, budget: int, lookahead: int) -> int:
    after = computed + _chunk(computed, prompt, budget)
    later = after + _chunk(after, prompt, budget)
    return -(-(later + lookahead) // block_size) + -(after + lookahead) // block_size


def _chunk(computed: int, prompt: int, budget: int) -> int:
    return min(prompt - computed, budget) if computed < prompt else 1


class BatchJobQueue:
    """Waiting requests by job; `room` tells free blocks and what runs, which the admission budget is made of.

    Jobs stand in the order in which their waiting requests came; the first three requests of a job come before any
    other.
    """

    def __init__(
        self,
        room: Callable[[], tuple[int, Sequence[tuple[int, int]]]],
        block_size: int,
        budget: int,
        settings: BatchJobSettings | None = None,
    ) -> None:
        self.settings = settings or BatchJobSettings()
        self.lengths = DecodeLengths(self.settings)
        self._room, self._block_size, self._budget = room, block_size, budget
        self._jobs: dict[str, list[Request]] = {}
        self._sampled: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def add(self, request: Request) -> None:
        self._jobs.setdefault(job_of(request.id), []).append(request)

    def put_back(self, request: Request) -> None:
        self._jobs.setdefault(job_of(request.id), []).insert(0, request)

    def admission_budget(self) -> int:
        """Tokens that admissions may take."""
        free, running = self._room()
        reserve = reserved_blocks(running, self._block_size, self._budget, settings=self.settings)
        return max(free - reserve, 0) * self._block_size

    def head(self) -> Request | None:
        budget = self.admission_budget() if self._jobs else 0
        if not budget:
            return None
        for job, requests in self._jobs.items():
            if self._sampled.get(job, 0) < _SAMPLES:
                return requests[0]
        lengths = {job: self.lengths.predict(job) for job in self._jobs}
        requests = self._jobs[job_order(lengths, budget, self.settings)[0]]
        at = best_fit([request.arrival.prompt for request in requests], budget)
        return None if at is None else requests[at]

    def pop(self) -> Request:
        request = self.head()
        assert request is not None, "nobody to take"
        self.take_out(request)
        job = job_of(request.id)
        self._sampled[job] = self._sampled.get(job, 0) + 1
        return request

    def take_out(self, request: Request) -> bool:
        job = job_of(request.id)
        found = take_from(self._jobs.get(job, []), request)
        if found and not self._jobs[job]:
            del self._jobs[job]
        return found
