"""What is legal in a step of vllm-rbln, each rule by its name.

The vendor tests the sum of a step only (`tokens % requests`); here every request is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from castq.shapes.planned import Work
from castq.shapes.rbln.metadata import RowMetadata
from castq.shapes.rbln.moe import GatheredTokens
from castq.shapes.refusals import ShapeError

__all__ = ["check_aligned", "check_alone", "check_dummies", "check_fits", "check_mask", "check_uniform"]


def check_alone(work: Sequence[Work]) -> None:
    """A prefill is the only request of its step."""
    prefills = [at for at, one in enumerate(work) if one.prefill]
    if prefills and len(work) > 1:
        raise ShapeError(
            "exclusive_prefill", f"the request in place {prefills[0]} prefills beside others: a prefill is alone"
        )


def check_uniform(work: Sequence[Work], query_len: int) -> None:
    """R-a: decodes are staged at one query length, which holds all that each schedules."""
    for at, one in enumerate(work):
        if one.tokens > query_len:
            raise ShapeError(
                "R-a",
                f"the request in place {at} schedules {one.tokens} tokens where decodes are staged at {query_len}",
                raised="AssertionError",
            )


def check_aligned(prefill: Work, width: int, *, multi_block_store: bool) -> None:
    """R-e: a chunk starts at a multiple of the width, unless the device stores several blocks at once."""
    if prefill.computed % width and not multi_block_store:
        raise ShapeError("R-e", f"a prefill chunk starts at {prefill.computed}, no multiple of the width {width}")


def check_fits(rows: int, query_len: int, requests: int, tokens: int | None) -> None:
    """R-c: rows hold the requests, and rows x query length the agreed token dimension."""
    if rows < requests:
        raise ShapeError("R-c", f"{requests} requests on {rows} rows", raised="AssertionError")
    if tokens is not None and rows * query_len > tokens:
        raise ShapeError(
            "R-c", f"{rows} rows of {query_len} tokens do not fit the token dimension {tokens}", raised="AssertionError"
        )


def check_dummies(metadata: RowMetadata, requests: int) -> None:
    """R-b: rows behind the requests start at 0 and name the null block only, so that they write for nobody."""
    for row, start in enumerate(metadata.start_positions[requests:], start=requests):
        if start:
            raise ShapeError("R-b", f"dummy row {row} starts at {start}, not at 0", raised="AssertionError")
    if any(metadata.dummy_row_block_ids):
        raise ShapeError("R-b", f"dummy rows name blocks {metadata.dummy_row_block_ids}", raised="AssertionError")


def check_mask(gathered: GatheredTokens, tokens_across_ranks: Sequence[int]) -> None:
    """R-d: the expert mask marks each rank's real tokens, no more and no fewer."""
    for rank, (marked, tokens) in enumerate(zip(gathered.valid_by_rank, tokens_across_ranks, strict=True)):
        if marked != tokens:
            raise ShapeError("R-d", f"{marked} tokens are marked of {tokens}", raised="AssertionError", rank=rank)
