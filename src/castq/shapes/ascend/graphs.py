"""Captured sizes and graphs of one rank.

Source: vllm_ascend/platform.py, vllm_ascend/utils.py, vllm_ascend/patch/worker/patch_cudagraph.py at 0.27.1rc1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_dispatch import Graphs
from castq.shapes.vllm.graph_modes import GraphMode, RunMode, resolve_mode
from castq.shapes.vllm.graph_sizes import SizeRules, capture_sizes, round_to_multiples

__all__ = ["ascend_graphs", "sampled"]

_RULES: Final = SizeRules(headroom=1)
_REDUCED: Final = 4


def ascend_graphs(settings: AscendSettings) -> Graphs:
    """The graphs that start-up captures.  Raises ShapeError for settings that it refuses."""
    eager = settings.enforce_eager or settings.mode is GraphMode.NONE
    sizes = () if eager else _sizes(settings)
    asked = settings.mode if sizes else GraphMode.NONE
    mode = resolve_mode(asked, settings.attention_support, settings.query_len, splits_attention=asked.splits_attention)
    if mode.decodes is RunMode.FULL and settings.query_len > 1:
        sizes = _for_drafts(sizes, settings)
    return Graphs(mode, sizes, settings.max_num_seqs, settings.query_len)


def _sizes(settings: AscendSettings) -> tuple[int, ...]:
    """The list before the mode is resolved."""
    found = capture_sizes(
        _RULES,
        settings.max_num_seqs,
        settings.query_len,
        settings.max_num_batched_tokens,
        sizes=settings.capture_sizes,
        maximum=settings.max_capture_size,
    )
    multiples = settings.rounds_tokens or settings.shared_expert_dp
    if multiples and settings.tensor_parallel_size > 1:
        found = tuple(size for size in found if size % settings.tensor_parallel_size == 0)
        if not found:
            raise ShapeError(
                "no_tp_multiple_capture_size",
                f"no capture size is a multiple of tensor_parallel_size {settings.tensor_parallel_size}",
                raised="AssertionError",
            )
    if settings.reduced_capture_device and settings.mode.mixed is RunMode.PIECEWISE:
        found = sampled(found, _REDUCED)
    if settings.stream_cap is not None and settings.layers is not None:
        found = sampled(found, settings.stream_cap // (settings.layers + 1) // (1 + settings.parallel_kinds))
    return found


def sampled(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """At most so many of the sizes, evenly from the first to the last."""
    if len(sizes) <= count:
        return tuple(sizes)
    if count < 2:
        return (sizes[-1],) if count else ()
    last = len(sizes) - 1
    return tuple(sizes[round(at * last / (count - 1))] for at in range(count))


def _for_drafts(sizes: tuple[int, ...], settings: AscendSettings) -> tuple[int, ...]:
    """Sizes that hold whole decodes of several tokens."""
    query, tp = settings.query_len, settings.tensor_parallel_size
    multiple = query
    if settings.rounds_tokens and tp > 1:
        if all(size % math.lcm(query, tp) == 0 for size in sizes):
            return sizes
        multiple = max(query, tp)
        if multiple % query or multiple % tp:
            raise ShapeError(
                "spec_tp_multiple_conflict",
                f"no capture size can be a multiple of both {query} tokens of a decode (num_spec_tokens + 1) and "
                f"tensor_parallel_size {tp}",
            )
    found = round_to_multiples(sizes, multiple, sizes[-1])
    if not found:
        raise ShapeError("no_size_after_spec_rounding", f"no capture size holds {multiple} tokens")
    return found
