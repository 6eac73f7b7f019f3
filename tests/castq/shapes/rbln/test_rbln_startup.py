"""What start-up on RBLN refuses, and sub-blocks of prefix hits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from castq.shapes.rbln.startup import Slots, check_startup, sub_block_size
from castq.shapes.refusals import ShapeError


@pytest.mark.parametrize(
    ("slots", "stages", "ceiling", "unused"), [(8, 1, 8, 0), (8, 2, 4, 0), (9, 2, 4, 1), (7, 4, 1, 3), (1, 1, 1, 0)]
)
def test_slots_that_no_step_can_use(slots: int, stages: int, ceiling: int, unused: int) -> None:
    assert check_startup(slots, 128, pipeline_parallel_size=stages) == Slots(ceiling, unused)


def test_data_parallelism_with_a_budget_of_whole_slots_is_accepted() -> None:
    assert check_startup(8, 128, data_parallel_size=4, expert_parallel=True) == Slots(8, 0)


@pytest.mark.parametrize(
    ("start", "reason", "words"),
    [
        (lambda: check_startup(8, 128, lora=True), "lora_unsupported", "LoRA is not supported"),
        (
            lambda: check_startup(8, 128, chunked_prefill=False),
            "chunked_prefill_required",
            "chunked prefill must be on",
        ),
        (
            lambda: check_startup(8, 128, data_parallel_size=2, moe_token_mask=False),
            "moe_mask_required",
            "needs the MoE token mask",
        ),
        (
            lambda: check_startup(8, 128, expert_parallel=True, moe_token_mask=False),
            "moe_mask_required",
            "needs the MoE token mask",
        ),
        (
            lambda: check_startup(6, 128, data_parallel_size=2),
            "dp_budget_not_divisible_by_slots",
            "max_num_batched_tokens 128 is no multiple of max_num_seqs 6",
        ),
        (
            lambda: check_startup(3, 128, pipeline_parallel_size=4),
            "slots_below_pp",
            "max_num_seqs 3 is below pipeline_parallel_size 4",
        ),
    ],
)
def test_a_refused_configuration_says_why(start: Callable[[], Slots], reason: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        start()
    assert (refusal.value.reason, refusal.value.raised) == (reason, "ValueError")
    assert words in str(refusal.value)


def test_what_one_rank_may_do_that_several_may_not() -> None:
    assert check_startup(6, 128) == Slots(6, 0)
    assert check_startup(8, 128, moe_token_mask=False) == Slots(8, 0)


def test_of_several_faults_the_vendors_first_is_told() -> None:
    with pytest.raises(ShapeError, match="LoRA"):
        check_startup(3, 128, lora=True, chunked_prefill=False, pipeline_parallel_size=4)


@pytest.mark.parametrize(
    ("block", "width", "asked", "size"),
    [
        (256, 128, None, 128),
        (1024, 128, None, 128),
        (128, 128, None, None),
        (64, 128, None, None),
        (300, 128, None, None),
        (1024, 128, 128, 128),
    ],
)
def test_a_sub_block_is_the_width_where_a_block_holds_several(
    block: int, width: int, asked: int | None, size: int | None
) -> None:
    assert sub_block_size(block, width, asked) == size


def test_hits_are_whole_blocks_where_either_cache_is_off() -> None:
    assert sub_block_size(1024, 128, None, prefix_caching=False) is None
    assert sub_block_size(1024, 128, None, sub_block_cache=False) is None


def test_a_device_that_stores_several_blocks_may_go_below_the_width() -> None:
    assert sub_block_size(1024, 128, 64, multi_block_store=True) == 64


@pytest.mark.parametrize(
    ("ask", "reason", "words"),
    [
        (
            lambda: sub_block_size(1024, 128, 128, prefix_caching=False),
            "sub_block_requested_but_disabled",
            "sub_block_size 128 needs prefix caching",
        ),
        (
            lambda: sub_block_size(1024, 128, 128, sub_block_cache=False),
            "sub_block_requested_but_disabled",
            "sub-block cache, one of which is off",
        ),
        (
            lambda: sub_block_size(1024, 128, 256),
            "sub_block_order_violated",
            "sub_block_size 256 <= max_num_batched_tokens 128 <= block_size 1024 does not hold",
        ),
        (lambda: sub_block_size(64, 128, 32), "sub_block_order_violated", "128 <= block_size 64 does not hold"),
        (
            lambda: sub_block_size(128, 128, 128),
            "sub_block_ineligible_spec",
            "must divide block_size 128 and be smaller",
        ),
        (
            lambda: sub_block_size(300, 128, 128),
            "sub_block_ineligible_spec",
            "sub_block_size 128 must divide block_size 300",
        ),
        (
            lambda: sub_block_size(1024, 128, 64),
            "sub_block_needs_multi_block_store",
            "sub_block_size 64 below the width 128 needs a device that stores several blocks at once",
        ),
    ],
)
def test_a_refused_sub_block_says_why(ask: Callable[[], int | None], reason: str, words: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        ask()
    assert refusal.value.reason == reason
    assert words in str(refusal.value)
