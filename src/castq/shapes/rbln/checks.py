"""What is legal in a step of vllm-rbln, each rule by its name.

The vendor tests the sum of a step only (`tokens % requests`); here every request is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from castq.shapes.planned import Work
from castq.shapes.refusals import ShapeError

__all__ = ["check_aligned", "check_alone", "check_fits", "check_uniform"]


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
