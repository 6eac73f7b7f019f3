"""What data-parallel ranks of RBLN agree on: each route by hand, buckets 1, 2, 4, 8 and width 128."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.data_parallel import IDLE, Rank, RankShape, Route, agree, pack
from castq.shapes.refusals import ShapeError

BUCKETS = (1, 2, 4, 8)
PREFILL = Rank(1, 17, prefill=True)


def shapes(*ranks: Rank, specialized: bool = True, pinned: int | None = None) -> tuple[RankShape, ...]:
    return agree(ranks, BUCKETS, 128, specialized=specialized, pinned=pinned)


def test_a_pinned_token_dimension_goes_before_every_other_rule() -> None:
    assert shapes(Rank(3, 3), PREFILL, pinned=256) == (
        RankShape(Route.PINNED, 4, 1, 256),
        RankShape(Route.PINNED, 1, 17, 256),
    )


def test_one_rank_alone_pads_no_token_dimension() -> None:
    assert shapes(Rank(3, 3)) == (RankShape(Route.LOCAL, 4, 1, None),)
    assert shapes(Rank(3, 12)) == (RankShape(Route.LOCAL, 4, 4, None),)


def test_nothing_runs_where_every_rank_idles() -> None:
    assert shapes(IDLE, IDLE) == (RankShape(Route.ALL_IDLE, None, None, None),) * 2


def test_without_specialised_decode_graphs_the_token_dimension_is_the_width() -> None:
    assert shapes(Rank(3, 3), Rank(5, 5), specialized=False) == (
        RankShape(Route.UNSPECIALIZED, 4, 1, 128),
        RankShape(Route.UNSPECIALIZED, 8, 1, 128),
    )


def test_a_prefill_anywhere_sends_decodes_to_the_top_bucket() -> None:
    assert shapes(Rank(3, 3), PREFILL, Rank(2, 4)) == (
        RankShape(Route.ANY_PREFILL, 8, 1, 128),
        RankShape(Route.ANY_PREFILL, 1, 17, 128),
        RankShape(Route.ANY_PREFILL, 8, 2, 128),
    )


def test_release_0_11_0_keeps_the_local_bucket_beside_a_prefill() -> None:
    decoding, prefilling = agree([Rank(3, 3), PREFILL], BUCKETS, 128, specialized=True, keeps_local_bucket=True)
    assert decoding == RankShape(Route.ANY_PREFILL, 4, 1, 128)
    assert prefilling == RankShape(Route.ANY_PREFILL, 1, 17, 128)


def test_ranks_of_different_query_length_take_the_top_bucket_of_the_longest() -> None:
    assert shapes(Rank(3, 3), Rank(2, 8)) == (
        RankShape(Route.QLEN_ASYM, 8, 1, 32),
        RankShape(Route.QLEN_ASYM, 8, 4, 32),
    )


def test_ranks_that_decode_alike_take_the_bucket_of_the_busiest() -> None:
    assert shapes(Rank(1, 1), Rank(3, 3)) == (RankShape(Route.AGREED, 4, 1, 4),) * 2
    assert shapes(Rank(1, 4), Rank(3, 12)) == (RankShape(Route.AGREED, 4, 4, 16),) * 2


def test_the_dummy_of_an_idle_rank_is_padded_to_the_agreed_bucket_and_query_length() -> None:
    busy, idle = shapes(Rank(3, 12), IDLE)
    assert busy == idle == RankShape(Route.AGREED, 4, 4, 16)


def test_an_idle_rank_beside_a_prefill_or_beside_unlike_decodes_keeps_its_one_token() -> None:
    assert shapes(PREFILL, IDLE)[1] == RankShape(Route.ANY_PREFILL, 8, 1, 128)
    assert shapes(Rank(1, 1), Rank(1, 4), IDLE)[2] == RankShape(Route.QLEN_ASYM, 8, 1, 32)
    assert shapes(Rank(3, 3), IDLE, specialized=False)[1] == RankShape(Route.UNSPECIALIZED, 1, 1, 128)


def test_eight_ranks_follow_the_one_with_five_decodes() -> None:
    ranks = [Rank(count, count) for count in (1, 0, 2, 5, 3, 0, 4, 1)]
    found = shapes(*(rank if rank.requests else IDLE for rank in ranks))
    assert found == (RankShape(Route.AGREED, 8, 1, 8),) * 8


@pytest.mark.parametrize(
    ("ranks", "specialized", "reason", "raised", "rank", "words"),
    [
        ((Rank(2, 3), Rank(1, 1)), True, "nonuniform_query_len", "AssertionError", 0, "3 tokens over 2 requests"),
        ((Rank(0, 0), Rank(1, 1)), True, "no_requests", "AssertionError", 0, "a step without requests has no shape"),
        (
            (Rank(1, 1), Rank(2, 3)),
            True,
            "peer_nonuniform_query_len",
            "AssertionError",
            0,
            "a peer reports 3 tokens over 2 requests",
        ),
        ((Rank(1, 1), Rank(0, 0)), True, "peer_zero_requests", "ZeroDivisionError", 0, "a busy peer reports no"),
        ((Rank(1, 1), Rank(9, 9)), False, "no_covering_bucket", "ValueError", 1, "9 decodes: the largest"),
        ((Rank(9, 9), PREFILL), True, "no_covering_bucket", "ValueError", 0, "9 decodes: the largest"),
        (
            (Rank(8, 136), Rank(1, 1)),
            False,
            "rows_exceed_token_dimension",
            "AssertionError",
            0,
            "8 rows of 17 tokens do not fit the token dimension 128",
        ),
    ],
)
def test_the_first_rank_that_refuses_is_named(
    ranks: tuple[Rank, ...], specialized: bool, reason: str, raised: str, rank: int, words: str
) -> None:
    with pytest.raises(ShapeError) as refusal:
        shapes(*ranks, specialized=specialized)
    assert (refusal.value.reason, refusal.value.raised, refusal.value.rank) == (reason, raised, rank)
    assert words in str(refusal.value)


def test_what_a_rank_publishes_has_to_fit_one_word() -> None:
    assert pack(Rank(8191, 65_535)) == Rank(8191, 65_535)
    for rank in (Rank(1, 65_536), Rank(8192, 8192)):
        with pytest.raises(ShapeError, match="at most 65535 tokens and 8191 requests") as refusal:
            pack(rank)
        assert (refusal.value.reason, refusal.value.raised) == ("dp_transport_overflow", "AssertionError")


busy_ranks = st.one_of(
    st.builds(lambda count, query: Rank(count, count * query), st.integers(1, 8), st.integers(1, 4)),
    st.builds(lambda tokens: Rank(1, tokens, prefill=True), st.integers(2, 128)),
)


@given(st.lists(st.one_of(busy_ranks, st.just(IDLE)), min_size=2, max_size=8), st.booleans())
def test_every_rank_runs_in_one_token_dimension_that_holds_its_rows(ranks: list[Rank], specialized: bool) -> None:
    found = shapes(*ranks, specialized=specialized)
    assert len({one.tokens for one in found}) == 1
    assert len({one.route for one in found}) == 1
    if found[0].tokens is None:
        assert all(rank.idle for rank in ranks)
        return
    for rank, one in zip(ranks, found, strict=True):
        assert one.rows is not None
        assert one.query_len is not None
        assert one.query_len >= 1
        assert one.rows >= rank.requests
        assert rank.tokens <= one.rows * one.query_len <= found[0].tokens


@given(st.lists(st.one_of(busy_ranks, st.just(IDLE)), min_size=2, max_size=8))
def test_the_order_of_ranks_only_orders_the_answer(ranks: list[Rank]) -> None:
    assert shapes(*reversed(ranks)) == tuple(reversed(shapes(*ranks)))
