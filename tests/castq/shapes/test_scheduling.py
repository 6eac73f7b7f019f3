"""Schedulers: worked examples by hand, and what holds for any arrivals (docs/shapes.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castq.shapes.ascend.batch_jobs import DecodeLengths, best_fit, job_of, job_order
from castq.shapes.ascend.schedulers import BalancedScheduler, batch_job_scheduler, short_first_steps
from castq.shapes.rbln.scheduler import RblnScheduler
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Scheduler, SchedulerSettings


def given_settings(slots: int, budget: int, blocks: int = 400, block_size: int = 16, **more: Any) -> SchedulerSettings:
    return SchedulerSettings(
        max_num_seqs=slots,
        max_num_batched_tokens=budget,
        num_blocks=blocks,
        block_size=block_size,
        **more,
    )


def told(steps: Sequence[Step]) -> list[str]:
    """`A:p64` for 64 prefill tokens of A, `d` for a decode, `*` where a token is sampled."""
    return [
        " ".join(
            f"{one.request.id}:{'p' if one.prefill else 'd'}{one.tokens}{'*' if one.samples else ''}"
            for one in step.shares
        )
        for step in steps
    ]


W1 = [Arrival("A", 100, 4), Arrival("B", 10, 3), Arrival("C", 30, 3, 2)]


def test_prefills_and_decodes_share_a_step() -> None:
    steps = list(replay(Scheduler(given_settings(3, 64)), W1))
    assert told(steps) == ["A:p64", "A:p36* B:p10*", "A:d1* B:d1* C:p30*", "A:d1* B:d1* C:d1*", "A:d1* C:d1*"]
    assert [step.ended for step in steps] == [(), (), (), ("B",), ("A", "C")]


def test_the_last_one_is_preempted_and_starts_again_with_what_it_made() -> None:
    steps = list(replay(Scheduler(given_settings(3, 64, 6)), [Arrival("A", 30, 20), Arrival("B", 30, 20)]))
    assert [step.number for step in steps if step.preempted] == [3]
    assert told(steps)[3:20] == ["A:d1*"] * 17
    assert told(steps)[20] == "B:p33*"


def test_a_waiting_prefill_takes_the_step_from_the_decodes() -> None:
    arrivals = [Arrival("A", 100, 4), Arrival("B", 10, 3), Arrival("C", 300, 3, 2)]
    steps = list(replay(RblnScheduler(given_settings(4, 128, 400, 1024)), arrivals))
    assert told(steps) == [
        "A:p100*",
        "B:p10*",
        "C:p128",
        "C:p128",
        "C:p44*",
        "A:d1* B:d1* C:d1*",
        "A:d1* B:d1* C:d1*",
        "A:d1*",
    ]


def test_a_pipeline_shares_its_decodes_out() -> None:
    """Three decodes over two stages: the soft cap is 2, although the hard one is 4."""
    arrivals = [Arrival(name, 20, 4) for name in "ABC"]
    steps = list(replay(RblnScheduler(given_settings(8, 128, 400, 1024, pipeline_parallel_size=2)), arrivals))
    decodes = [
        sorted(one.request.id for one in step.shares) for step in steps if step.shares and not step.shares[0].prefill
    ]
    assert decodes[:4] == [["A", "B"], ["C"], ["A", "B"], ["C"]]


def test_a_long_request_overtakes_after_its_limit() -> None:
    arrivals = [Arrival("L", 60, 1), *(Arrival(f"s{n}", 5, 1) for n in range(9))]
    steps = list(short_first_steps(given_settings(1, 64), arrivals, step_ms=10, threshold=16, long_max_wait_ms=50))
    order = [step.shares[0].request.id for step in steps if step.shares]
    assert order.index("L") == 5


def test_nobody_is_admitted_while_a_rank_is_full() -> None:
    scheduler = BalancedScheduler(given_settings(4, 64))
    scheduler.a_rank_is_full = True
    assert next(replay(scheduler, [Arrival("A", 10, 1)])).shares == ()


def test_a_first_request_that_never_fits_is_said_to_stall() -> None:
    [only] = replay(Scheduler(given_settings(1, 64, 4)), [Arrival("A", 100, 1)])
    assert (only.stalled, only.waiting) == (True, 1)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"chunked_prefill": False, "max_model_len": 128}, "chunking_off_needs_budget_at_least_max_model_len"),
        ({"policy": "lifo"}, "unknown_policy"),
        ({"pipeline_parallel_size": 0}, "not_positive"),
    ],
)
def test_settings_that_start_up_refuses(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeError) as caught:
        given_settings(4, 64, **more)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("more", "words"), [({"chunked_prefill": False}, "chunked"), ({"long_prefill_token_threshold": 1}, "decodes")]
)
def test_what_rbln_refuses(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        RblnScheduler(given_settings(4, 64, **more))


SCHEDULERS: dict[str, Callable[[SchedulerSettings], Scheduler]] = {
    "vllm": Scheduler,
    "rbln": RblnScheduler,
    "batch_job": batch_job_scheduler,
}
ARRIVALS = st.lists(
    st.tuples(st.integers(1, 90), st.integers(1, 12), st.integers(0, 12), st.integers(0, 2), st.integers(0, 60)),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("kind", SCHEDULERS)
@settings(deadline=None, max_examples=40)
@given(
    arrivals=ARRIVALS,
    slots=st.integers(1, 5),
    blocks=st.integers(8, 40),
    caching=st.booleans(),
    pp=st.sampled_from([1, 1, 2]),
)
def test_what_holds_for_any_arrivals(
    kind: str, arrivals: list[tuple[int, ...]], slots: int, blocks: int, caching: bool, pp: int
) -> None:
    """Tokens stay in the budget, requests in the slots, blocks are conserved, and progress is the real tokens."""
    pp = min(pp, slots)
    chosen = given_settings(slots, 32, blocks, prefix_caching=caching, pipeline_parallel_size=pp)
    scheduler = SCHEDULERS[kind](chosen)
    requests = [
        Arrival(f"r{at}", prompt, output, step, shared_group=group, shared_tokens=min(shared, prompt))
        for at, (prompt, output, step, group, shared) in enumerate(arrivals)
    ]
    sampled: Counter[str] = Counter()
    for step in replay(scheduler, requests):
        assert step.tokens <= 32
        assert len(step.running) <= slots
        assert len({one.request.id for one in step.shares}) == len(step.shares)
        for one in step.shares:
            assert one.tokens > 0
            sampled[one.request.id] += one.samples
        held = {block for request in scheduler.running for block in request.blocks}
        assert len(held) + step.free_blocks == blocks - 1
        if kind == "rbln" and any(one.prefill for one in step.shares):
            assert len(step.shares) == 1
        if step.stalled:
            return
    assert scheduler.running == []
    if pp == 1:
        assert all(sampled[one.id] == one.output for one in requests)


def test_the_parts_of_the_batch_job_queue() -> None:
    assert job_of("#job_name[nightly]#7") == "nightly"
    assert job_of("7") == ""
    lengths = DecodeLengths()
    assert lengths.predict("a") == 128
    for length in (100, 0, 50):
        lengths.observe("a", length)
    assert lengths.predict("a") == 86  # 0.1 x 50 + 0.9 x (0.1 x 0 + 0.9 x 100)
    assert job_order({"a": 10, "b": 20, "c": 100, "d": 300}, 4096) == ("b", "a", "d", "c")
    assert job_order({"a": 32, "b": 33}, 4097) == ("b", "a")
    assert best_fit([30, 10, 20, 20], 25) == 2
    assert best_fit([], 25) is None
