"""vLLM's scheduler, step by step; the tables are the worked examples W1 to W10 of the description of input shapes."""

from __future__ import annotations

from typing import Any

import pytest

from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Scheduler, SchedulerSettings
from shape_steps import starts_of, table


def steps(*arrivals: Arrival, blocks: int = 400, **settings: Any) -> list[Step]:
    given = SchedulerSettings(num_blocks=blocks, **{"max_num_seqs": 3, "max_num_batched_tokens": 64, **settings})
    return list(replay(Scheduler(given), arrivals))


def test_w1_decodes_and_chunks_mix_in_one_batch() -> None:
    found = steps(Arrival("A", 100, 4), Arrival("B", 10, 3), Arrival("C", 30, 3, step=2))
    assert table(found) == ["A:p64", "A:p36* B:p10*", "A:d1* B:d1* C:p30*", "A:d1* B:d1* C:d1*", "A:d1* C:d1*"]
    assert [step.ended for step in found] == [(), (), (), ("B",), ("A", "C")]
    assert [step.free_blocks for step in found] == [395, 391, 389, 390, 399]


def test_w2_without_chunks_a_prompt_waits_for_a_budget_that_holds_it() -> None:
    found = steps(
        Arrival("A", 60, 3),
        Arrival("B", 10, 3),
        Arrival("C", 58, 3, step=1),
        chunked_prefill=False,
        max_model_len=64,
    )
    assert table(found) == ["A:p60*", "A:d1* B:p10*", "A:d1* B:d1* C:p58*", "B:d1* C:d1*", "C:d1*"]


def test_w4_the_last_running_request_is_preempted_and_keeps_its_tokens() -> None:
    found = steps(Arrival("A", 30, 20), Arrival("B", 30, 20), blocks=6)
    assert table(found) == [
        "A:p30* B:p30*",
        *["A:d1* B:d1*"] * 2,
        *["A:d1*"] * 17,
        "B:p33*",
        *["B:d1*"] * 16,
    ]
    assert [step.number for step in found if step.preempted] == [3]
    assert found[3].preempted == ("B",)
    assert (found[19].ended, found[36].ended) == (("A",), ("B",))


def test_w5_the_least_urgent_is_preempted() -> None:
    found = steps(Arrival("A", 30, 20, priority=5), Arrival("B", 30, 20), blocks=6, policy="priority")
    assert table(found)[:5] == ["B:p30* A:p30*", "B:d1* A:d1*", "B:d1* A:d1*", "B:d1*", "B:d1*"]
    assert found[3].preempted == ("A",)
    assert table(found)[20] == "A:p33*"


def test_w6_a_threshold_cuts_long_prefills() -> None:
    found = steps(Arrival("A", 100, 2), Arrival("B", 40, 2), long_prefill_token_threshold=16)
    assert table(found) == [
        "A:p16 B:p16",
        "A:p16 B:p16",
        "A:p16 B:p8*",
        "A:p16 B:d1*",
        "A:p16",
        "A:p16",
        "A:p4*",
        "A:d1*",
    ]


def test_w7_admission_waits_for_room_for_the_whole_prompt() -> None:
    found = steps(Arrival("A", 32, 6), Arrival("B", 100, 2), blocks=8)
    assert table(found) == ["A:p32*", *["A:d1*"] * 5, "B:p64", "B:p36*", "B:d1*"]
    assert not any(step.preempted for step in found)


def test_w8_admission_by_the_first_chunk_alone_computes_for_nothing() -> None:
    found = steps(Arrival("A", 32, 6), Arrival("B", 100, 2), blocks=8, reserve_full_length=False)
    assert table(found) == [
        "A:p32* B:p32",
        "A:d1*",
        "A:d1* B:p63",
        "A:d1*",
        "A:d1* B:p63",
        "A:d1*",
        "B:p64",
        "B:p36*",
        "B:d1*",
    ]
    assert [(step.number, step.preempted) for step in found if step.preempted] == [
        (1, ("B",)),
        (3, ("B",)),
        (5, ("B",)),
    ]


def test_w9_a_prefix_of_whole_blocks_is_reused_after_its_owner_ended() -> None:
    shared: dict[str, Any] = {"shared_group": 1, "shared_tokens": 32}
    found = steps(
        Arrival("A", 64, 2),
        Arrival("B", 64, 2, step=3, **shared),
        Arrival("C", 64, 2, step=5, **shared),
        prefix_caching=True,
    )
    assert table(found) == ["A:p64*", "A:d1*", "", "B:p64*", "B:d1*", "C:p32*", "C:d1*"]
    assert starts_of(found) == [("A", 0), ("B", 0), ("C", 32)]


def test_a_prefix_that_covers_the_prompt_leaves_its_last_block_to_compute() -> None:
    shared: dict[str, Any] = {"shared_group": 1, "shared_tokens": 64}
    found = steps(Arrival("A", 64, 1, **shared), Arrival("B", 64, 1, step=1, **shared), prefix_caching=True)
    assert table(found) == ["A:p64*", "B:p16*"]
    assert starts_of(found) == [("A", 0), ("B", 48)]


def test_w10_two_batches_in_flight_leave_every_other_step_empty() -> None:
    found = steps(Arrival("A", 20, 3), Arrival("B", 20, 3), Arrival("C", 20, 3), pipeline_parallel_size=2)
    assert table(found) == ["A:p20* B:p20* C:p20*", "", "A:d1* B:d1* C:d1*", "", "A:d1* B:d1* C:d1*", ""]
    assert found[-1].ended == ("A", "B", "C")


def test_a_request_preempted_with_its_last_token_in_flight_ends_when_it_comes() -> None:
    found = steps(Arrival("A", 32, 3), Arrival("B", 32, 1, step=1), blocks=5, pipeline_parallel_size=2)
    assert table(found) == ["A:p32*", "B:p32*", "A:d1*", "", "A:d1*", ""]
    assert [step.preempted for step in found] == [(), (), ("B",), (), (), ()]
    assert [step.ended for step in found] == [(), (), ("B",), (), (), ("A",)]
    assert (found[2].waiting, found[-1].free_blocks) == (0, 4)


def test_a_request_ends_at_the_longest_sequence() -> None:
    found = steps(Arrival("A", 10, 8), Arrival("B", 10, 2), max_model_len=13)
    assert table(found) == ["A:p10* B:p10*", "A:d1* B:d1*", "A:d1*"]
    assert [step.ended for step in found] == [(), ("B",), ("A",)]


def test_a_head_that_does_not_fit_is_not_passed_over_and_stalls() -> None:
    found = steps(Arrival("A", 100, 1), Arrival("B", 1, 1), blocks=6)
    assert table(found) == [""]
    assert (found[0].stalled, found[0].waiting, found[0].free_blocks) == (True, 2, 5)


def test_a_request_longer_than_all_blocks_stalls_without_the_reserve_too() -> None:
    found = steps(Arrival("A", 100, 1), blocks=6, reserve_full_length=False)
    assert table(found) == [""]
    assert found[0].stalled


@pytest.mark.parametrize(
    ("settings", "reason", "words"),
    [
        ({"max_num_seqs": 0}, "not_positive", "max_num_seqs 0: at least 1"),
        ({"max_num_batched_tokens": 0}, "not_positive", "max_num_batched_tokens 0: at least 1"),
        ({"block_size": 0}, "not_positive", "block_size 0: at least 1"),
        ({"pipeline_parallel_size": 0}, "not_positive", "pipeline_parallel_size 0: at least 1"),
        ({"num_blocks": 1}, "no_blocks", "num_blocks 1: at least 2, one is the null block"),
        ({"policy": "lifo"}, "unknown_policy", "policy 'lifo': one of fcfs, priority"),
        (
            {"chunked_prefill": False, "max_num_batched_tokens": 64, "max_model_len": 65},
            "chunking_off_needs_budget_at_least_max_model_len",
            "max_num_batched_tokens 64 is below max_model_len 65",
        ),
    ],
)
def test_refused_settings(settings: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        SchedulerSettings(**{"max_num_seqs": 3, "num_blocks": 9, **settings})
    assert refusal.value.reason == reason
    assert words in str(refusal.value)
