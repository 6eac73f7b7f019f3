"""The draft pass of speculative decoding on RBLN, buckets 1, 2, 4, 8 and width 128."""

from __future__ import annotations

import pytest

from castq.shapes.rbln.data_parallel import Rank
from castq.shapes.rbln.drafts import DraftShape, draft_shape
from castq.shapes.refusals import ShapeError

DECODES = (Rank(3, 12), Rank(2, 4))
BESIDE_PREFILL = (Rank(3, 12), Rank(1, 17, prefill=True))


def drafted(
    ranks: tuple[Rank, ...],
    at: int,
    tokens: int,
    *,
    specialized: bool = True,
    has_moe: bool = True,
    first_pass: bool = True,
) -> DraftShape:
    return draft_shape(
        ranks, at, tokens, (1, 2, 4, 8), 128, specialized=specialized, has_moe=has_moe, first_pass=first_pass
    )


def test_one_rank_alone_has_no_token_dimension() -> None:
    assert drafted((Rank(3, 12),), 0, 12) == DraftShape(4, 4, None, None)
    assert drafted((Rank(3, 12),), 0, 3, first_pass=False) == DraftShape(4, 1, None, None)


def test_a_dense_draft_model_runs_the_rows_of_its_own_rank() -> None:
    assert drafted(DECODES, 0, 12, has_moe=False) == DraftShape(4, 4, 16, (12, 4))
    assert drafted(DECODES, 1, 4, has_moe=False) == DraftShape(2, 2, 4, (12, 4))


def test_one_with_experts_agrees_on_the_busiest_rank_and_the_longest_query() -> None:
    assert drafted(DECODES, 0, 12) == DraftShape(4, 4, 16, (12, 4))
    assert drafted(DECODES, 1, 4) == DraftShape(4, 2, 16, (12, 4))


def test_later_passes_run_one_token_of_each_request() -> None:
    assert drafted(DECODES, 0, 3, first_pass=False) == DraftShape(4, 1, 4, (3, 2))
    assert drafted(DECODES, 1, 2, first_pass=False) == DraftShape(4, 1, 4, (3, 2))


def test_unspecialised_graphs_pad_to_the_width() -> None:
    assert drafted(DECODES, 1, 4, specialized=False) == DraftShape(2, 2, 128, (12, 4))


def test_beside_a_prefill_the_first_pass_takes_the_top_bucket() -> None:
    assert drafted(BESIDE_PREFILL, 0, 12) == DraftShape(8, 4, 128, (12, 17))
    assert drafted(BESIDE_PREFILL, 1, 17) == DraftShape(1, 17, 128, (12, 17))


def test_after_the_first_pass_a_prefill_drafts_like_a_decode() -> None:
    assert drafted(BESIDE_PREFILL, 1, 1, first_pass=False) == DraftShape(4, 1, 4, (3, 1))


def test_too_many_decodes_are_refused_whatever_the_draft_model() -> None:
    for has_moe in (False, True):
        with pytest.raises(ShapeError, match="rank 1: 9 decodes: the largest compiled bucket has 8 rows"):
            drafted((Rank(1, 1), Rank(9, 9)), 1, 9, has_moe=has_moe)
