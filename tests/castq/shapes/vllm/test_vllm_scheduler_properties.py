"""What holds of every scheduler whatever comes: tokens in the budget, requests in the slots, all work accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castq.shapes.ascend.schedulers import batch_job_scheduler, short_first_steps
from castq.shapes.rbln.scheduler import RblnScheduler
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Scheduler, SchedulerSettings

Run = Callable[[SchedulerSettings, list[Arrival]], list[Step]]
RUNS: dict[str, Run] = {
    "vllm": lambda given, arrivals: list(replay(Scheduler(given), arrivals)),
    "rbln": lambda given, arrivals: list(replay(RblnScheduler(given), arrivals)),
    "short first": lambda given, arrivals: list(
        short_first_steps(given, arrivals, step_ms=10, threshold=16, long_max_wait_ms=30)
    ),
    "batch jobs": lambda given, arrivals: list(replay(batch_job_scheduler(given), arrivals)),
}

setups = st.builds(
    SchedulerSettings,
    max_num_seqs=st.integers(2, 5),
    max_num_batched_tokens=st.integers(4, 40),
    block_size=st.sampled_from([4, 8]),
    num_blocks=st.integers(12, 40),
    policy=st.sampled_from(["fcfs", "priority"]),
    long_prefill_token_threshold=st.sampled_from([0, 0, 5]),
    reserve_full_length=st.booleans(),
    prefix_caching=st.booleans(),
    pipeline_parallel_size=st.integers(1, 2),
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Up to seven requests, some with a common prefix, some longer than the smallest pool holds."""
    found = []
    for at in range(draw(st.integers(1, 7))):
        prompt = draw(st.integers(1, 60))
        group = draw(st.sampled_from([None, "g"]))
        found.append(
            Arrival(
                f"r{at}",
                prompt,
                draw(st.integers(1, 8)),
                step=draw(st.integers(0, 10)),
                priority=draw(st.integers(0, 2)),
                shared_group=group,
                shared_tokens=draw(st.integers(0, prompt)) if group else 0,
            )
        )
    return found


every_run = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
some = settings(max_examples=60, deadline=None)


@every_run
@some
@given(given_=setups, coming=arrivals())
def test_a_step_stays_in_the_budget_and_the_slots(run: Run, given_: SchedulerSettings, coming: list[Arrival]) -> None:
    for step in run(given_, coming):
        names = [share.request.id for share in step.shares]
        assert step.tokens <= given_.max_num_batched_tokens
        assert len(set(names)) == len(names) <= given_.max_num_seqs
        assert len(step.running) <= given_.max_num_seqs
        assert all(share.tokens >= 1 for share in step.shares)


@every_run
@some
@given(given_=setups, coming=arrivals())
def test_every_request_ends_once_with_its_output_or_the_run_stalls_for_blocks(
    run: Run, given_: SchedulerSettings, coming: list[Arrival]
) -> None:
    steps = run(given_, coming)
    ended = Counter(name for step in steps for name in step.ended)
    assert set(ended.values()) <= {1}
    last = steps[-1]
    assert not any(step.stalled for step in steps[:-1])
    if last.stalled:
        assert len(ended) + len(last.running) + last.waiting == len(coming)
        longest = max(one.prompt + one.output for one in coming if one.id not in ended)
        assert longest > (given_.num_blocks - 1 - 8) * given_.block_size or last.running
    else:
        assert set(ended) == {one.id for one in coming}
        assert last.free_blocks == given_.num_blocks - 1
    for share in (share for step in steps for share in step.shares):
        one = share.request
        assert one.generated <= one.arrival.output
        assert one.id not in ended or one.generated == one.arrival.output


@every_run
@some
@given(given_=setups, coming=arrivals())
def test_progress_is_the_scheduled_real_tokens(run: Run, given_: SchedulerSettings, coming: list[Arrival]) -> None:
    """A request goes on where it stopped, and starts anew, at its prefix hit, only after a preemption."""
    reached: dict[str, int] = {}
    samples: Counter[str] = Counter()
    outputs = {one.id: one for one in coming}
    for step in run(given_, coming):
        for name in step.preempted:
            reached.pop(name, None)
        for share in step.shares:
            name = share.request.id
            if name in reached:
                assert share.start == reached[name]
            elif not given_.prefix_caching:
                assert share.start == 0
            reached[name] = share.start + share.tokens
            samples[name] += share.samples
            assert reached[name] <= outputs[name].prompt + samples[name]
        for name in step.ended:
            assert samples[name] == outputs[name].output


@every_run
@some
@given(given_=setups, coming=arrivals())
def test_the_same_input_gives_the_same_steps(run: Run, given_: SchedulerSettings, coming: list[Arrival]) -> None:
    def seen() -> list[object]:
        return [
            (
                step.number,
                [(share.request.id, share.start, share.tokens, share.samples) for share in step.shares],
                step.preempted,
                step.ended,
                step.running,
                step.waiting,
                step.free_blocks,
            )
            for step in run(given_, coming)
        ]

    assert seen() == seen()


@some
@given(given_=setups, coming=arrivals())
def test_a_step_of_rbln_is_one_prefill_or_decodes_of_one_token(
    given_: SchedulerSettings, coming: list[Arrival]
) -> None:
    for step in RUNS["rbln"](given_, coming):
        if any(share.prefill for share in step.shares):
            assert len(step.shares) == 1
        else:
            assert all(share.tokens == 1 for share in step.shares)
            assert len(step.shares) <= given_.max_num_seqs // given_.pipeline_parallel_size


@pytest.mark.parametrize("make", [Scheduler, RblnScheduler, batch_job_scheduler])
@some
@given(given_=setups, coming=arrivals())
def test_every_block_is_free_or_held_by_who_runs(
    make: Callable[[SchedulerSettings], Scheduler], given_: SchedulerSettings, coming: list[Arrival]
) -> None:
    scheduler = make(given_)
    for step in replay(scheduler, coming):
        held = {block for request in scheduler.running for block in request.blocks}
        assert len(held) + step.free_blocks == given_.num_blocks - 1
