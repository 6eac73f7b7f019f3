"""RBLN's scheduler, step by step: a step is one prefill alone, or decodes only.

The tables are the worked examples R1 to R9 of the description of input shapes.
"""

from __future__ import annotations

import pytest

from castq.shapes.rbln.scheduler import RblnScheduler
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import SchedulerSettings
from shape_steps import starts_of, table


def steps(
    *arrivals: Arrival,
    slots: int = 4,
    budget: int = 128,
    block: int = 1024,
    blocks: int = 400,
    stages: int = 1,
    prefix_caching: bool = False,
    soft_cap: bool = True,
) -> list[Step]:
    settings = SchedulerSettings(
        max_num_seqs=slots,
        max_num_batched_tokens=budget,
        block_size=block,
        num_blocks=blocks,
        pipeline_parallel_size=stages,
        prefix_caching=prefix_caching,
    )
    return list(replay(RblnScheduler(settings, soft_cap=soft_cap), arrivals))


def test_r1_a_waiting_prefill_displaces_decodes() -> None:
    found = steps(Arrival("A", 100, 4), Arrival("B", 10, 3), Arrival("C", 300, 3, step=2))
    assert table(found) == [
        "A:p100*",
        "B:p10*",
        "C:p128",
        "C:p128",
        "C:p44*",
        "A:d1* B:d1* C:d1*",
        "A:d1* B:d1* C:d1*",
        "A:d1*",
    ]
    assert [step.ended for step in found[5:]] == [(), ("B", "C"), ("A",)]


def test_r2_a_takeover_has_the_whole_budget() -> None:
    found = steps(Arrival("A", 2, 3), Arrival("B", 4, 1, step=1), budget=4)
    assert table(found) == ["A:p2*", "B:p4*", "A:d1*", "A:d1*"]


def test_r3_without_a_slot_nothing_is_taken_over() -> None:
    found = steps(Arrival("A", 10, 5), Arrival("B", 10, 5), Arrival("C", 10, 2), slots=2)
    assert table(found) == ["A:p10*", "B:p10*", *["A:d1* B:d1*"] * 4, "C:p10*", "C:d1*"]
    assert [step.waiting for step in found] == [2, 1, 1, 1, 1, 1, 0, 0]


def test_r5_prompts_of_one_token_are_decodes() -> None:
    found = steps(Arrival("A", 1, 3), Arrival("B", 200, 2), Arrival("C", 1, 2))
    assert table(found) == ["A:d1*", "B:p128", "B:p72*", "A:d1* B:d1* C:d1*", "A:d1* C:d1*"]


def test_r7b_a_pipeline_shares_out_the_decodes_that_stand_ready() -> None:
    found = steps(Arrival("A", 20, 5), Arrival("B", 20, 5), Arrival("C", 20, 5), slots=8, stages=2)
    assert table(found) == ["A:p20*", "B:p20*", "C:p20*", *["A:d1* B:d1*", "C:d1*"] * 4, ""]
    assert [step.ended for step in found[-2:]] == [("A", "B"), ("C",)]


@pytest.mark.parametrize(
    ("soft_cap", "decodes"), [(True, ["A:d1* B:d1*", "C:d1* D:d1*"]), (False, ["A:d1* B:d1* C:d1*", "D:d1*"])]
)
def test_release_0_11_0_knew_the_hard_cap_only(soft_cap: bool, decodes: list[str]) -> None:
    found = steps(*(Arrival(name, 20, 2) for name in "ABCD"), slots=8, stages=2, soft_cap=soft_cap)
    assert table(found) == ["A:p20*", "B:p20*", "C:p20*", "D:p20*", *decodes, ""]


def test_r9_prefix_hits_are_whole_blocks_and_copied_sub_blocks() -> None:
    found = steps(
        Arrival("A", 500, 4, shared_group=1, shared_tokens=499),
        Arrival("B", 500, 3, step=8, shared_group=1, shared_tokens=499),
        Arrival("C", 385, 3, step=9, shared_group=1, shared_tokens=385),
        block=256,
        prefix_caching=True,
    )
    assert table(found) == [
        "A:p128",
        "A:p128",
        "A:p128",
        "A:p116*",
        "A:d1*",
        "A:d1*",
        "A:d1*",
        "",
        "B:p116*",
        "B:d1* C:d1*",
        "B:d1* C:d1*",
        "C:d1*",
    ]
    assert starts_of(found) == [("A", 0), ("B", 384), ("C", 384)]


def test_a_remainder_of_one_token_is_a_decode() -> None:
    found = steps(Arrival("A", 129, 2))
    assert table(found) == ["A:p128", "A:d1*", "A:d1*"]


def test_admission_wants_room_for_the_whole_length() -> None:
    found = steps(Arrival("A", 20, 4), Arrival("B", 40, 2), budget=16, block=16, blocks=5)
    assert table(found) == ["A:p16", "A:p4*", "A:d1*", "A:d1*", "A:d1*", "B:p16", "B:p16", "B:p8*", "B:d1*"]


def test_what_waits_for_blocks_that_never_come_stalls() -> None:
    found = steps(Arrival("A", 100, 2), budget=16, block=16, blocks=5)
    assert table(found) == [""]
    assert (found[0].stalled, found[0].waiting) == (True, 1)


@pytest.mark.parametrize(
    ("settings", "reason", "raised", "words"),
    [
        (
            SchedulerSettings(max_num_seqs=4, num_blocks=9, chunked_prefill=False),
            "chunked_prefill_required",
            "ValueError",
            "chunked prefill must be on",
        ),
        (
            SchedulerSettings(max_num_seqs=4, num_blocks=9, long_prefill_token_threshold=1),
            "chunk_clipped_to_one_token",
            "ValueError",
            "prefill chunks of one token are read as decodes: clip to 2 or more",
        ),
        (
            SchedulerSettings(max_num_seqs=2, num_blocks=9, pipeline_parallel_size=4),
            "ceiling_below_one",
            "AssertionError",
            "max_num_seqs 2 is below pipeline_parallel_size 4",
        ),
    ],
)
def test_refused_settings(settings: SchedulerSettings, reason: str, raised: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        RblnScheduler(settings)
    assert (refusal.value.reason, refusal.value.raised) == (reason, raised)
    assert words in str(refusal.value)


def test_a_refused_sub_block_is_refused_here_too() -> None:
    settings = SchedulerSettings(
        max_num_seqs=4, max_num_batched_tokens=128, block_size=256, num_blocks=9, prefix_caching=True
    )
    with pytest.raises(ShapeError, match="sub_block_size 100 must divide block_size 256"):
        RblnScheduler(settings, sub_block=100)
