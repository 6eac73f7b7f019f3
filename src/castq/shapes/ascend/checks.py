"""What attention is told in a step of vllm-ascend, each rule by its name.  Source: fused attention, TND layout."""

from __future__ import annotations

from itertools import pairwise

from castq.shapes.ascend.step import AscendStep
from castq.shapes.refusals import ShapeError

__all__ = ["check_step"]


def check_step(step: AscendStep, tokens: int) -> None:
    """A-a to A-e for a step of so many real tokens.  Raises ShapeError with the rule as its reason."""
    falling = next((at for at, (low, high) in enumerate(pairwise(step.boundaries)) if high < low), None)
    if step.boundaries[0] != 0 or falling is not None:
        where = "the first" if falling is None else f"the one of request {falling}"
        raise ShapeError("A-a", f"boundaries {step.boundaries} start at 0 and never decrease: {where} does not")
    if step.boundary_padded and step.dummy_requests == 0 and not step.covers_padding and not step.by_coincidence:
        raise ShapeError("A-b", f"{step.run.tokens} physical tokens, and the last boundary is {step.boundaries[-1]}")
    if step.boundaries[-1] > step.run.tokens:
        raise ShapeError("A-a", f"the last boundary {step.boundaries[-1]} is beyond {step.run.tokens} physical tokens")
    if len(step.kv_lens) != step.requests_padded:
        raise ShapeError("A-d", f"{len(step.kv_lens)} KV lengths for {step.requests_padded} boundary intervals")
    if step.kv_write_tokens != tokens:
        raise ShapeError("A-e", f"KV is written for {step.kv_write_tokens} tokens, and {tokens} are real")
