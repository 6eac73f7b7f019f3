"""Waiting queues of vllm-ascend: short requests first, and batch jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from castq.shapes.ascend.batch_jobs import (
    BatchJobQueue,
    BatchJobSettings,
    DecodeLengths,
    best_fit,
    job_of,
    job_order,
    reserved_blocks,
)
from castq.shapes.ascend.schedulers import BalancedScheduler, batch_job_scheduler, short_first_steps
from castq.shapes.ascend.short_first import ShortFirstQueue
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival, Request
from castq.shapes.vllm.scheduler import SchedulerSettings
from shape_steps import table


def short_first(slots: int, *arrivals: Arrival, blocks: int = 400, wait_ms: float = 0) -> list[Step]:
    settings = SchedulerSettings(max_num_seqs=slots, max_num_batched_tokens=64, num_blocks=blocks)
    return list(short_first_steps(settings, arrivals, step_ms=10, threshold=16, long_max_wait_ms=wait_ms))


def request(name: str, prompt: int) -> Request:
    return Request(Arrival(name, prompt, 2), 0)


def test_s1_short_prompts_go_first() -> None:
    found = short_first(2, Arrival("L", 60, 2), Arrival("S1", 10, 2), Arrival("S2", 10, 2))
    assert table(found) == ["S1:p10* S2:p10*", "S1:d1* S2:d1*", "L:p60*", "L:d1*"]


def test_s2_a_long_prompt_that_waited_50_ms_overtakes() -> None:
    shorts = [Arrival(f"S{at}", 10, 2, step=at) for at in range(1, 9)]
    found = short_first(1, Arrival("X", 10, 3), Arrival("L", 60, 2), *shorts, wait_ms=50)
    assert table(found)[:9] == [
        "X:p10*",
        "X:d1*",
        "X:d1*",
        "S1:p10*",
        "S1:d1*",
        "L:p60*",
        "L:d1*",
        "S2:p10*",
        "S2:d1*",
    ]
    assert [step.ended[0] for step in found if step.ended] == ["X", "S1", "L", *(f"S{at}" for at in range(2, 9))]


def test_s3_a_preempted_request_is_next_however_long() -> None:
    found = short_first(3, Arrival("A", 30, 20), Arrival("B", 30, 20), Arrival("S", 5, 2, step=1), blocks=6)
    assert found[3].preempted == ("B",)
    assert table(found)[20] == "B:p33*"


def test_who_was_looked_at_stays_the_head_until_taken() -> None:
    queue = ShortFirstQueue(lambda: 0.0, threshold=16)
    long, short = request("L", 60), request("S", 10)
    queue.add(long)
    assert queue.head() is long
    queue.add(short)
    assert queue.head() is long
    assert queue.pop() is long
    assert queue.head() is short


def test_a_prompt_of_the_threshold_is_short() -> None:
    queue = ShortFirstQueue(lambda: 0.0, threshold=16)
    for one in (request("L", 17), request("S", 16)):
        queue.add(one)
    assert queue.pop().id == "S"
    assert queue.pop().id == "L"
    assert queue.head() is None


def test_who_has_ended_leaves_whichever_lane_it_stands_in() -> None:
    queue = ShortFirstQueue(lambda: 0.0, threshold=16)
    long, short, begun = request("L", 60), request("S", 10), request("B", 60)
    queue.add(long)
    queue.add(short)
    queue.put_back(begun)
    assert queue.head() is begun
    assert queue.take_out(begun)
    assert not queue.take_out(begun)
    assert queue.head() is short
    assert len(queue) == 2


@pytest.mark.parametrize(
    ("name", "job"), [("#job_name[night]#7", "night"), ("#job_name[]#7", ""), ("7", ""), ("x#job_name[night]#", "")]
)
def test_the_job_that_a_request_names(name: str, job: str) -> None:
    assert job_of(name) == job


def test_decode_lengths_are_a_moving_average() -> None:
    lengths = DecodeLengths()
    assert lengths.predict("night") == 128
    lengths.observe("night", 100)
    assert lengths.predict("night") == 100
    lengths.observe("night", 200)
    assert lengths.predict("night") == 110
    lengths.observe("night", 10)
    assert lengths.predict("night") == 100


def test_ten_observations_are_enough() -> None:
    lengths = DecodeLengths()
    for _ in range(10):
        lengths.observe("night", 50)
    lengths.observe("night", 5000)
    assert lengths.predict("night") == 50


def test_one_job_too_many_is_refused() -> None:
    lengths = DecodeLengths(BatchJobSettings(max_jobs=1))
    lengths.observe("night", 50)
    lengths.observe("night", 60)
    with pytest.raises(ShapeError, match=r"job 'day': at most 1 jobs \(max_jobs\)") as refusal:
        lengths.observe("day", 50)
    assert (refusal.value.reason, refusal.value.raised) == ("max_jobs_exceeded", "RuntimeError")


@pytest.mark.parametrize(
    ("lengths", "budget", "order"),
    [
        ({"a": 10, "b": 32, "c": 33, "d": 200}, 4097, ("d", "c", "b", "a")),
        ({"a": 10, "b": 32, "c": 33, "d": 200}, 4096, ("b", "a", "d", "c")),
        ({"a": 10, "b": 32}, 4097, ("b", "a")),
        ({"a": 32, "b": 10}, 4096, ("b", "a")),
        ({"c": 33, "d": 200}, 4097, ("d", "c")),
        ({"d": 200, "c": 33}, 4096, ("c", "d")),
    ],
)
def test_the_order_of_jobs(lengths: dict[str, int], budget: int, order: tuple[str, ...]) -> None:
    assert job_order(lengths, budget) == order


@pytest.mark.parametrize(
    ("prompts", "budget", "at"),
    [([10, 50, 30], 40, 2), ([10, 50, 30], 5, 0), ([40, 40], 40, 0), ([90, 60, 60], 50, 1), ([], 50, None)],
)
def test_the_longest_prompt_that_fits_or_the_shortest(prompts: Sequence[int], budget: int, at: int | None) -> None:
    assert best_fit(prompts, budget) == at


@pytest.mark.parametrize(
    ("running", "blocks"),
    [
        ([], 2),
        ([(20, 10)], 2),
        ([(30, 10)], 2),
        ([(31, 10)], 3),
        ([(0, 100)], 4),
        ([(0, 100)] * 4, 8),
    ],
)
def test_blocks_kept_for_what_runs(running: list[tuple[int, int]], blocks: int) -> None:
    """Blocks of 16, budget 36; the step after this one: (31, 10) goes to 32 and then to 33; (0, 100) to 36 and 72."""
    assert reserved_blocks(running, 16, 36) == blocks


def test_the_first_three_of_a_job_go_before_any_order() -> None:
    settings = SchedulerSettings(max_num_seqs=1, max_num_batched_tokens=64, num_blocks=400)
    names = [f"#job_name[{job}]#{at}" for at in range(4) for job in "ab"]
    arrivals = [Arrival(name, 10 + at, 1) for at, name in enumerate(names)]
    ended = [step.ended[0] for step in replay(batch_job_scheduler(settings), arrivals) if step.ended]
    assert [name[10] + name[-1] for name in ended] == ["a0", "a1", "a2", "b0", "b1", "b2", "a3", "b3"]


def test_without_an_admission_budget_nobody_is_the_head() -> None:
    queue = BatchJobQueue(lambda: (2, []), 16, 64)
    one = request("7", 10)
    queue.add(one)
    assert (queue.admission_budget(), queue.head()) == (0, None)
    roomy = BatchJobQueue(lambda: (5, []), 16, 64)
    roomy.add(one)
    assert (roomy.admission_budget(), roomy.head()) == (48, one)
    assert roomy.take_out(one)
    assert not roomy.take_out(one)
    assert len(roomy) == 0


def test_a_full_rank_holds_back_the_admissions_of_all() -> None:
    scheduler = BalancedScheduler(SchedulerSettings(max_num_seqs=2, num_blocks=9))
    scheduler.waiting.add(request("A", 10))
    scheduler.a_rank_is_full = True
    assert scheduler.schedule().shares == []
    scheduler.a_rank_is_full = False
    assert [share.request.id for share in scheduler.schedule().shares] == ["A"]
