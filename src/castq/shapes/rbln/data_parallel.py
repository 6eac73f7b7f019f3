"""The shape that data-parallel ranks agree on, step by step.

Source: vllm_rbln/v1/worker/dp_utils.py at 0.11.3a21; peer prefills as v0.11.0 had them by `keeps_local_bucket`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from castq.shapes.rbln.buckets import covering
from castq.shapes.refusals import ShapeError

__all__ = ["IDLE", "MAX_REQUESTS", "MAX_TOKENS", "Rank", "RankShape", "Route", "agree", "pack"]

MAX_TOKENS, MAX_REQUESTS = 65_535, 8_191  # what fits the exchanged word


class Route(StrEnum):
    """Which rule gave a rank its shape."""

    PINNED = "PINNED"
    LOCAL = "LOCAL"
    ALL_IDLE = "ALL_IDLE"
    UNSPECIALIZED = "UNSPECIALIZED"
    ANY_PREFILL = "ANY_PREFILL"
    QLEN_ASYM = "QLEN_ASYM"
    AGREED = "AGREED"


@dataclass(frozen=True, slots=True)
class Rank:
    """What a rank publishes: its requests, their tokens, whether it prefills, whether it idles."""

    requests: int
    tokens: int
    prefill: bool = False
    idle: bool = False


IDLE = Rank(1, 1, idle=True)


@dataclass(frozen=True, slots=True)
class RankShape:
    """Rows, query length and the separate token dimension of a rank; `tokens` is None where nobody pads them."""

    route: Route
    rows: int | None
    query_len: int | None
    tokens: int | None


def pack(rank: Rank) -> Rank:
    """The rank as its word carries it.  Raises ShapeError for counts that do not fit."""
    if rank.tokens > MAX_TOKENS or rank.requests > MAX_REQUESTS:
        raise ShapeError(
            "dp_transport_overflow",
            f"{rank.tokens} tokens of {rank.requests} requests: a rank publishes at most {MAX_TOKENS} tokens and "
            f"{MAX_REQUESTS} requests",
            raised="AssertionError",
        )
    return rank


def agree(
    ranks: Sequence[Rank],
    buckets: Sequence[int],
    width: int,
    *,
    specialized: bool,
    pinned: int | None = None,
    keeps_local_bucket: bool = False,
) -> tuple[RankShape, ...]:
    """The shape of every rank in one step; the first rank that refuses raises ShapeError.  O(ranks) for each rank.

    `width` is the compiled prefill width, `specialized` says that decode graphs for MoE are specialised, `pinned` a
    token dimension that warm-up asks for.
    """
    rules = _Rules(ranks, buckets, width, specialized, pinned, keeps_local_bucket)
    return tuple(rules.shape(at) for at in range(len(ranks)))


@dataclass(frozen=True, slots=True)
class _Rules:
    ranks: Sequence[Rank]
    buckets: Sequence[int]
    width: int
    specialized: bool
    pinned: int | None
    keeps_local_bucket: bool

    def shape(self, at: int) -> RankShape:
        rank = self.ranks[at]
        query = self._own_query(at)
        rows = rank.requests if rank.prefill else covering(self.buckets, rank.requests, rank=at)
        found = self._routed(rank, query, rows, at)
        if found.tokens is not None and found.rows is not None and found.query_len is not None:
            self._fits(found.rows, found.query_len, found.tokens, at)
        return found

    def _routed(self, rank: Rank, query: int, rows: int, at: int) -> RankShape:
        """The first rule that applies."""
        if self.pinned is not None:
            return RankShape(Route.PINNED, rows, query, self.pinned)
        if len(self.ranks) == 1:
            return RankShape(Route.LOCAL, rows, query, None)
        if all(other.idle for other in self.ranks):
            return RankShape(Route.ALL_IDLE, None, None, None)
        if not self.specialized:
            return RankShape(Route.UNSPECIALIZED, rows, query, self.width)
        if any(other.prefill for other in self.ranks):
            top = rows if rank.prefill or self.keeps_local_bucket else self.buckets[-1]
            return RankShape(Route.ANY_PREFILL, top, query, self.width)
        return self._decodes(query, at)

    def _decodes(self, query: int, at: int) -> RankShape:
        """Ranks that all decode."""
        busy = [other for other in self.ranks if not other.idle]
        queries = {self._peer_query(other, at) for other in busy}
        if len(queries) > 1:
            top = self.buckets[-1]
            return RankShape(Route.QLEN_ASYM, top, query, top * max(queries))
        [common] = queries
        rows = covering(self.buckets, max(other.requests for other in busy), rank=at)
        return RankShape(Route.AGREED, rows, common, rows * common)

    def _own_query(self, at: int) -> int:
        rank = self.ranks[at]
        if not rank.requests:
            raise ShapeError("no_requests", "a step without requests has no shape", raised="AssertionError", rank=at)
        if rank.tokens % rank.requests:
            raise ShapeError(
                "nonuniform_query_len",
                f"{rank.tokens} tokens over {rank.requests} requests: each request has the same query length",
                raised="AssertionError",
                rank=at,
            )
        return rank.tokens // rank.requests

    def _peer_query(self, other: Rank, at: int) -> int:
        if not other.requests:
            raise ShapeError(
                "peer_zero_requests", "a busy peer reports no requests", raised="ZeroDivisionError", rank=at
            )
        if other.tokens % other.requests:
            raise ShapeError(
                "peer_nonuniform_query_len",
                f"a peer reports {other.tokens} tokens over {other.requests} requests",
                raised="AssertionError",
                rank=at,
            )
        return other.tokens // other.requests

    def _fits(self, rows: int, query: int, tokens: int, at: int) -> None:
        if rows * query > tokens:
            raise ShapeError(
                "rows_exceed_token_dimension",
                f"{rows} rows of {query} tokens do not fit the token dimension {tokens}",
                raised="AssertionError",
                rank=at,
            )
