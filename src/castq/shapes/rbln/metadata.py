"""Attention metadata: start positions and block tables of padded rows, and the window of speculative decodes.

Source: vllm_rbln/v1/attention, vllm_rbln/v1/worker/rbln_model_runner.py at 0.11.3a21; the sliding window of v0.11.0 by
`slides_back`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from castq.shapes.refusals import ShapeError

__all__ = ["RowMetadata", "Window", "decode_metadata", "decode_window", "prefill_metadata", "prefill_window"]


@dataclass(frozen=True, slots=True)
class RowMetadata:
    """What the kernel is told of the rows: where each starts, and the dimensions of the block table.

    A dummy row starts at 0 and its block-table row is the null block: what it writes belongs to no request.
    """

    start_positions: tuple[int, ...]
    block_table_dims: int
    dummy_rows: int

    @property
    def dummy_row_block_ids(self) -> tuple[int, ...]:
        """Distinct block ids of dummy rows."""
        return (0,) if self.dummy_rows else ()


def decode_metadata(computed: Sequence[int], rows: int) -> RowMetadata:
    """Decodes on the rows of their bucket."""
    dummies = rows - len(computed)
    return RowMetadata((*computed, *(0,) * dummies), 2, dummies)


def prefill_metadata(computed: int) -> RowMetadata:
    """The lone prefill: a block table of one dimension, no dummy row."""
    return RowMetadata((computed,), 1, 0)


@dataclass(frozen=True, slots=True)
class Window:
    """The query windows of a step: a lone prefill's chunk, or decodes that are all staged alike.

    `front_pad` positions before the computed tip are fed again, `back_pad` stand behind the scheduled tokens;
    `logits_rows` are the flat rows that are sampled from, `seq_lens` the real lengths after the step.
    """

    query_lens: tuple[int, ...]
    front_pad: tuple[int, ...]
    back_pad: tuple[int, ...]
    first_positions: tuple[int, ...]
    seq_lens: tuple[int, ...]
    logits_rows: tuple[int, ...]

    @property
    def query_start_loc(self) -> tuple[int, ...]:
        return tuple(accumulate(self.query_lens, initial=0))


def prefill_window(computed: int, chunk: int) -> Window:
    """The lone prefill: its chunk as it is, sampled from at its last token."""
    return Window((chunk,), (0,), (0,), (computed,), (computed + chunk,), (chunk - 1,))


def decode_window(
    computed: Sequence[int],
    scheduled: Sequence[int],
    drafts: Sequence[int],
    *,
    num_spec_tokens: int,
    max_model_len: int,
    fixed: bool,
    slides_back: bool = False,
) -> Window:
    """Windows of K + 1 tokens where speculation is `fixed` or any request has drafts, else of one token; `drafts` are
    among the scheduled tokens.

    The slack stands behind the scheduled tokens and goes before the tip only where the window would pass
    `max_model_len`; v0.11.0 (`slides_back`) puts all of it before the tip.  Raises ShapeError for a request that
    schedules more than its window.
    """
    width = num_spec_tokens + 1 if fixed or any(drafts) else 1
    if max(scheduled, default=0) > width:
        raise ShapeError(
            "scheduled_exceeds_decode_window",
            f"request {scheduled.index(max(scheduled))} schedules {max(scheduled)} tokens: the window has {width}",
            raised="AssertionError",
        )
    slack = [width - tokens for tokens in scheduled]
    over = [max(start + width - max_model_len, 0) for start in computed]
    front = [min(gap, start) if slides_back else more for gap, more, start in zip(slack, over, computed, strict=True)]
    rows = [
        row * width + pad + place
        for row, (pad, tokens) in enumerate(zip(front, scheduled, strict=True))
        for place in range(tokens)
    ]
    return Window(
        (width,) * len(scheduled),
        tuple(front),
        tuple(gap - pad for gap, pad in zip(slack, front, strict=True)),
        tuple(start - pad for start, pad in zip(computed, front, strict=True)),
        tuple(start + tokens for start, tokens in zip(computed, scheduled, strict=True)),
        tuple(rows),
    )
