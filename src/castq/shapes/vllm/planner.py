"""A step of vLLM on GPU: padded to a captured size, or eager and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from castq.shapes.graph_warnings import graph_warnings, why_eager
from castq.shapes.planned import GraphCount, PlannedStep, Warned, Work, check_batch
from castq.shapes.vllm.gpu_graphs import GpuBatch, GpuGraphs, GpuSettings
from castq.shapes.vllm.graph_modes import RunMode

__all__ = ["GpuPlanner"]

_GIB: Final = 1 << 30


class GpuPlanner:
    """One rank of vLLM on GPU."""

    vendor = "vllm"

    def __init__(self, settings: GpuSettings) -> None:
        self.settings = settings
        self.captured = GpuGraphs(settings)
        self.slots, self.query_len = settings.max_num_seqs, settings.query_len
        self.sizes = self.captured.sizes

    def plan(self, work: Sequence[Work]) -> PlannedStep:
        tokens = sum(one.tokens for one in work)
        check_batch(len(work), tokens, self.settings)
        longest = max((one.tokens for one in work), default=0)
        batch = GpuBatch(len(work), tokens, longest, not any(one.prefill for one in work))
        run = self.captured.dispatch(batch)
        if run.mode is RunMode.NONE:
            why = why_eager(self.captured.graphs, tokens, batch.uniform(self.query_len))
            return PlannedStep("EAGER", len(work), tokens, len(work), tokens, why)
        rows = run.requests if run.requests is not None else len(work)
        return PlannedStep(run.mode.name, len(work), tokens, max(rows, len(work)), run.tokens)

    def graphs(self) -> GraphCount:
        count = len(self.captured.full) + len(self.captured.piecewise)
        if not count:
            return GraphCount(0, 0, 0)
        return GraphCount(count, 0, _GIB, "measured by difference: up to 1.0 GiB in all, 0.36 and 0.73 in newer logs")

    def warnings(self) -> tuple[Warned, ...]:
        return graph_warnings(self.captured.graphs, "cudagraph_capture_sizes")
