"""What data-parallel ranks of Ascend agree on, by an exchange or without one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.ascend.data_parallel import RankStep, agree, exchange_skipped, idle_rank
from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import Scheduled
from castq.shapes.vllm.graph_dispatch import Descriptor
from castq.shapes.vllm.graph_modes import GraphMode, RunMode

NONE, PIECEWISE, FULL = RunMode.NONE, RunMode.PIECEWISE, RunMode.FULL


def decodes(count: int, tokens: int = 1) -> tuple[Scheduled, ...]:
    return (Scheduled(40, tokens, 8),) * count


def prefill(tokens: int) -> tuple[Scheduled, ...]:
    return (Scheduled(0, tokens, tokens),)


def agreed(*ranks: tuple[Scheduled, ...], exchange: bool = True, **settings: Any) -> tuple[RankStep, ...]:
    given_ = AscendSettings(**{"max_num_seqs": 16, **settings})
    return agree(ranks, given_, ascend_graphs(given_), exchange=exchange)


def test_decodes_beside_a_long_prefill_run_its_tokens_eager() -> None:
    decoding, prefilling = agreed(decodes(5), prefill(100))
    assert decoding == RankStep(5, Descriptor(NONE, 100), (100, 100))
    assert prefilling == RankStep(100, Descriptor(NONE, 100), (8, 100))


def test_decodes_alike_run_the_graph_of_the_busiest() -> None:
    found = agreed(decodes(5), decodes(2))
    assert [one.run for one in found] == [Descriptor(FULL, 8, 8, True)] * 2
    assert [one.tokens_across_ranks for one in found] == [(8, 8)] * 2


def test_a_rank_in_pieces_sends_the_others_to_pieces() -> None:
    found = agreed(decodes(5), prefill(13))
    assert [one.run for one in found] == [Descriptor(PIECEWISE, 16)] * 2


def test_with_sequence_parallelism_an_eager_rank_pads_too() -> None:
    found = agreed(decodes(5), prefill(100), sp=True, tensor_parallel_size=4)
    assert found[0] == RankStep(8, Descriptor(NONE, 100), (100, 100))
    assert found[1] == RankStep(100, Descriptor(NONE, 100), (100, 100))


def test_without_the_exchange_everybody_takes_its_own_count_for_all() -> None:
    decoding, prefilling = agreed(decodes(5), prefill(100), exchange=False)
    assert decoding == RankStep(5, Descriptor(FULL, 8, 8, True), (8, 8))
    assert prefilling == RankStep(100, Descriptor(NONE, 100), (100, 100))


def test_an_idle_rank_runs_a_decode_with_its_drafts_and_keeps_the_graph() -> None:
    settings = AscendSettings(max_num_seqs=16, num_spec_tokens=3)
    assert [one.tokens for one in idle_rank(settings)] == [4]
    found = agreed(decodes(3, tokens=4), idle_rank(settings), num_spec_tokens=3)
    assert [one.run for one in found] == [Descriptor(FULL, 16, 4, True)] * 2


def test_with_the_external_launcher_speculation_loses_the_full_graph() -> None:
    settings = AscendSettings(max_num_seqs=16, num_spec_tokens=3)
    idle = idle_rank(settings, external_launcher=True)
    assert [one.tokens for one in idle] == [1]
    found = agreed(decodes(3, tokens=4), idle, num_spec_tokens=3)
    assert {one.run.mode for one in found} == {PIECEWISE}
    decode_only = agreed(decodes(3, tokens=4), idle, num_spec_tokens=3, mode=GraphMode.FULL_DECODE_ONLY)
    assert [one.run for one in decode_only] == [Descriptor(NONE, 16), Descriptor(NONE, 1)]
    alone = AscendSettings(max_num_seqs=16)
    assert idle_rank(alone, external_launcher=True) == idle_rank(alone)


def skipped(**given_: Any) -> bool:
    usual: dict[str, Any] = {
        "moe": True,
        "kv_consumer": True,
        "decode_method": "MC2",
        "prefill_method": "MC2",
        "separate_decodes": False,
    }
    return exchange_skipped(**{**usual, **given_})


@pytest.mark.parametrize(
    ("given_", "skips"),
    [
        ({}, True),
        ({"moe": False, "kv_consumer": False}, True),
        ({"moe": False, "hierarchy": True}, False),
        ({"hierarchy": True}, False),
        ({"mega_moe": True}, False),
        ({"kv_consumer": False}, False),
        ({"decode_method": "ALLTOALL"}, False),
        ({"prefill_method": "ALLTOALL"}, False),
        ({"prefill_method": "FUSED_MC2"}, True),
        ({"separate_decodes": True}, False),
        ({"separate_decodes": True, "recompute_scheduler": True}, True),
        ({"prefill_method": "ALLTOALL", "recompute_scheduler": True}, True),
        ({"decode_method": "ALLTOALL", "recompute_scheduler": True}, False),
    ],
)
def test_when_ranks_keep_their_counts_to_themselves(given_: dict[str, Any], skips: bool) -> None:
    assert skipped(**given_) is skips


ranks_ = st.lists(
    st.one_of(st.builds(decodes, st.integers(1, 16)), st.builds(prefill, st.integers(1, 300))), min_size=1, max_size=6
)


@given(ranks_, st.booleans(), st.sampled_from([1, 4]))
def test_ranks_share_mode_and_largest_count_and_never_drop_a_token(
    ranks: list[tuple[Scheduled, ...]], sp: bool, tp: int
) -> None:
    found = agreed(*ranks, sp=sp, tensor_parallel_size=tp)
    assert len({one.run.mode for one in found}) == 1
    assert len({max(one.tokens_across_ranks) for one in found}) == 1
    for rank, one in zip(ranks, found, strict=True):
        assert one.run.tokens >= one.sp_tokens >= sum(request.tokens for request in rank)
    assert found == agreed(*ranks, sp=sp, tensor_parallel_size=tp)
