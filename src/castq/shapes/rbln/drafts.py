"""The shape of the draft model inside a step of speculative decoding.

Source: vllm_rbln/v1/worker/dp_utils.py and the proposers at 0.11.3a21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from castq.shapes.rbln.buckets import covering
from castq.shapes.rbln.data_parallel import Rank

__all__ = ["DraftShape", "draft_shape"]


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Rows and query length of a draft pass, its token dimension, and the real tokens of every rank.

    Both are None without data parallelism.
    """

    rows: int
    query_len: int
    tokens: int | None
    tokens_across_ranks: tuple[int, ...] | None


def draft_shape(
    ranks: Sequence[Rank],
    at: int,
    tokens: int,
    buckets: Sequence[int],
    width: int,
    *,
    specialized: bool,
    has_moe: bool,
    first_pass: bool,
) -> DraftShape:
    """The draft pass of rank `at`, which stages `tokens`.

    The first pass runs over the tokens of the step, later ones over one token of each request.  A draft model without
    MoE needs no agreement: it runs the rank's own rows.  One with MoE agrees on the rows of the busiest rank and on the
    longest query, where the graphs are specialised and nobody prefills; the top bucket where somebody does.
    """
    rank = ranks[at]
    query = tokens // rank.requests
    staged = rank.prefill and first_pass
    rows = rank.requests if staged else covering(buckets, rank.requests, rank=at)
    if len(ranks) == 1:
        return DraftShape(rows, query, None, None)
    across = tuple(other.tokens if first_pass else other.requests for other in ranks)
    if not has_moe:
        return DraftShape(rows, query, rows * query, across)
    if not specialized:
        return DraftShape(rows, query, width, across)
    if first_pass and any(other.prefill for other in ranks):
        return DraftShape(rows if staged else buckets[-1], query, width, across)
    longest = max(count // other.requests for count, other in zip(across, ranks, strict=True))
    agreed = covering(buckets, max(other.requests for other in ranks), rank=at)
    return DraftShape(agreed, query, agreed * longest, across)
