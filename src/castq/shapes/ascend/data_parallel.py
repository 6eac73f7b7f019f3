"""What data-parallel ranks agree on: the lowest mode, and padding to the largest rank.

Source: vllm_ascend/worker/model_runner_v1.py at 0.27.1rc1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from castq.shapes.ascend.sequence_parallel import round_tokens
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import Scheduled, is_uniform_decode
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_dispatch import Descriptor, Graphs
from castq.shapes.vllm.graph_modes import RunMode

__all__ = ["RankStep", "agree", "exchange_skipped", "idle_rank"]


@dataclass(frozen=True, slots=True)
class RankStep:
    """A rank after the exchange: what it runs, and the tokens it believes every rank has."""

    sp_tokens: int
    run: Descriptor
    tokens_across_ranks: tuple[int, ...]


def idle_rank(settings: AscendSettings, *, external_launcher: bool = False) -> tuple[Scheduled, ...]:
    """The dummy that an idle rank runs: a decode with its drafts, of one token with the external launcher."""
    return (Scheduled(1, 1 if external_launcher else settings.query_len),)


def agree(
    ranks: Sequence[Sequence[Scheduled]], settings: AscendSettings, graphs: Graphs, *, exchange: bool = True
) -> tuple[RankStep, ...]:
    """Every rank's step; without the `exchange` each takes its own count for everybody's.  O(requests of all ranks)."""
    uniform = [is_uniform_decode(rank, settings) for rank in ranks]
    tokens = [
        round_tokens(sum(one.tokens for one in rank), settings.tensor_parallel_size, active=settings.rounds_tokens)
        for rank in ranks
    ]
    local = [graphs.dispatch(count, uniform=alike) for count, alike in zip(tokens, uniform, strict=True)]
    if not exchange:
        return tuple(RankStep(count, run, (run.tokens,) * len(ranks)) for count, run in zip(tokens, local, strict=True))
    mode = min(run.mode for run in local)
    counts = tuple(run.tokens for run in local)
    found = []
    for at, (count, run) in enumerate(zip(tokens, local, strict=True)):
        pads = run.mode is not RunMode.NONE or settings.rounds_tokens
        largest = max(counts)
        size = largest if pads else run.tokens
        agreed = _agreed(graphs, size, uniform[at], mode)
        believed = (largest,) * len(ranks) if pads else counts
        if pads and agreed.tokens != largest:
            believed = (agreed.tokens,) * len(ranks)
        found.append(RankStep(count, agreed, believed))
    return tuple(found)


def _agreed(graphs: Graphs, tokens: int, uniform: bool, mode: RunMode) -> Descriptor:
    """The graph of the agreed mode.  Raises ShapeError where a rank has none for it."""
    if mode is RunMode.NONE:
        return Descriptor(RunMode.NONE, tokens)
    found = graphs.dispatch(tokens, uniform=uniform, allowed=(mode,))
    if found.mode is not mode:
        raise ShapeError(
            "agreed_mode_without_key", f"no {mode.name} graph for {tokens} tokens", raised="AssertionError"
        )
    return found


def exchange_skipped(
    *,
    moe: bool,
    kv_consumer: bool,
    decode_method: str | None,
    prefill_method: str | None,
    separate_decodes: bool,
    recompute_scheduler: bool = False,
    hierarchy: bool = False,
    mega_moe: bool = False,
) -> bool:
    """Whether ranks keep their counts to themselves; the methods are those of the largest decode and prefill."""
    if hierarchy:
        return False
    if not moe:
        return True
    if mega_moe or not kv_consumer:
        return False
    fused = ("MC2", "FUSED_MC2")
    if decode_method not in fused:
        return False
    return recompute_scheduler or (prefill_method in fused and not separate_decodes)
