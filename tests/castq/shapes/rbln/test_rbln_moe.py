"""Experts of RBLN under data parallelism: padded slots are gathered, no padding reaches an expert."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.data_parallel import IDLE, Rank, agree
from castq.shapes.rbln.moe import GatheredTokens, gathered


def test_every_rank_brings_a_slot_of_the_token_dimension() -> None:
    found = gathered([3, 17], 128)
    assert found == GatheredTokens(rows=256, valid_by_rank=(3, 17))
    assert found.valid == 20


def test_the_one_token_of_an_idle_rank_counts() -> None:
    found = gathered([4, 1, 1], 4)
    assert (found.rows, found.valid, found.valid_by_rank) == (12, 6, (4, 1, 1))


def test_a_mask_is_never_longer_than_its_slot() -> None:
    assert gathered([9, 2], 4) == GatheredTokens(rows=8, valid_by_rank=(4, 2))


@given(st.lists(st.integers(1, 8), min_size=1, max_size=7))
def test_dummy_rows_reach_no_expert(decodes: list[int]) -> None:
    ranks = [*(Rank(count, count) for count in decodes), IDLE]
    shapes = agree(ranks, (1, 2, 4, 8), 128, specialized=True)
    assert shapes[0].tokens is not None
    found = gathered([rank.tokens for rank in ranks], shapes[0].tokens)
    assert found.valid == sum(decodes) + 1
    assert found.rows == len(ranks) * shapes[0].tokens
