"""The phase label of a batch, and where its decodes end.

Source: vllm_ascend/worker/model_runner_v1.py, vllm_ascend/attention at 0.27.1rc1; vllm/v1/attention/backends/utils.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

__all__ = ["AttentionState", "BatchLabel", "batch_label", "split_decodes"]


class AttentionState(StrEnum):
    """Which attention kernels a batch meets."""

    PREFILL_NO_CACHE = "PrefillNoCache"
    PREFILL_CACHE_HIT = "PrefillCacheHit"
    DECODE_ONLY = "DecodeOnly"
    CHUNKED_PREFILL = "ChunkedPrefill"
    SPEC_DECODING = "SpecDecoding"


@dataclass(frozen=True, slots=True)
class BatchLabel:
    """The label, and the one that kernels are told: speculation other than mtp is chunked prefill to them."""

    state: AttentionState
    kernels: AttentionState

    @property
    def with_prefill(self) -> bool:
        return self.state not in (AttentionState.DECODE_ONLY, AttentionState.SPEC_DECODING)


def batch_label(
    computed: Sequence[int], scheduled: Sequence[int], valid: Sequence[int], *, method: str | None, chunked: bool = True
) -> BatchLabel:
    """The label of a batch; `valid` are scheduled tokens without drafts, `method` the way of speculation or None."""
    state = _state(computed, scheduled, valid, method, chunked)
    hidden = state is AttentionState.SPEC_DECODING and method != "mtp"
    return BatchLabel(state, AttentionState.CHUNKED_PREFILL if hidden else state)


def _state(
    computed: Sequence[int], scheduled: Sequence[int], valid: Sequence[int], method: str | None, chunked: bool
) -> AttentionState:
    if not any(computed):
        return AttentionState.PREFILL_NO_CACHE
    if all(tokens == 1 for tokens in scheduled):
        return AttentionState.SPEC_DECODING if method == "mtp" else AttentionState.DECODE_ONLY
    if all(tokens == 1 for tokens in valid):
        return AttentionState.SPEC_DECODING if method else AttentionState.CHUNKED_PREFILL
    return AttentionState.CHUNKED_PREFILL if chunked else AttentionState.PREFILL_CACHE_HIT


def split_decodes(
    query_lens: Sequence[int], threshold: int, *, require_uniform: bool = False, longest: int | None = None
) -> tuple[int, int, int, int]:
    """Decodes, prefills and the tokens of each, in a batch with its decodes first; a decode has at most `threshold`
    tokens, and with `require_uniform` as many as the first one (padding of 0 tokens aside).  `longest` is the longest
    real query where dummies follow: where that is a decode, everything counts as decode, dummies included.
    """
    total = sum(query_lens)
    if longest is not None and longest <= threshold and not require_uniform:
        return len(query_lens), 0, total, 0
    if not query_lens or query_lens[0] > threshold:
        return 0, len(query_lens), 0, total
    first = query_lens[0]
    if require_uniform and all(length in (first, 0) for length in query_lens):
        return len(query_lens), 0, total, 0
    if require_uniform:
        front = list(takewhile(lambda length: length == first, query_lens))
    else:
        front = list(takewhile(lambda length: length <= threshold, query_lens))
    return len(front), len(query_lens) - len(front), sum(front), total - sum(front)
