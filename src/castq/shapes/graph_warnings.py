"""What captured graphs leave out, in words, and the setting that mends it."""

from __future__ import annotations

from collections.abc import Iterable

from castq.shapes.planned import Warned
from castq.shapes.vllm.graph_dispatch import Graphs
from castq.shapes.vllm.graph_modes import GraphMode, RunMode

__all__ = ["graph_warnings", "in_ranges", "why_eager"]


def why_eager(graphs: Graphs, tokens: int, uniform: bool) -> str:
    """Why a batch of so many tokens meets no graph, in words that name no batch."""
    if graphs.mode is GraphMode.NONE:
        return "no graphs are captured"
    if tokens > graphs.largest:
        return f"above the largest captured size {graphs.largest}"
    if not uniform:
        return f"{graphs.mode.value} captures decodes only, and this batch is not uniform"
    return f"size {graphs.padded(tokens)} is captured for no decodes of {graphs.max_num_seqs} slots"


def graph_warnings(graphs: Graphs, setting: str) -> tuple[Warned, ...]:
    """Decode batches that run eager or as pieces, and sizes that no decode batch reaches."""
    found: list[Warned] = []
    if graphs.mode is GraphMode.NONE:
        return ()
    query, slots = graphs.query_len, graphs.max_num_seqs
    runs = {n: graphs.dispatch(n * query, uniform=True).mode for n in range(1, slots + 1)}
    for mode, how in ((RunMode.NONE, "run eager"), (RunMode.PIECEWISE, "run piecewise, not as a full graph")):
        batches = [n for n, run in runs.items() if run is mode and graphs.mode.decodes is not mode]
        if batches:
            text = f"decode batches of {in_ranges(batches)} {how}"
            found.append(Warned(text, f"{setting}: add {slots * query}, all {slots} slots of max_num_seqs"))
    if graphs.mode.mixed is RunMode.NONE:
        useless = [size for size in graphs.sizes if size > slots * query]
        if useless:
            text = f"sizes {in_ranges(useless)} are above the {slots * query} tokens that {slots} slots decode"
            found.append(Warned(text, f"{setting}: leave them out, or raise max_num_seqs"))
    return tuple(found)


def in_ranges(numbers: Iterable[int]) -> str:
    """`1..4, 7, 9..12`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)
