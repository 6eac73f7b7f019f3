"""A step of vllm-ascend: padded to a captured size, or eager and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from castq.shapes.ascend.checks import check_step
from castq.shapes.ascend.data_parallel import agree, idle_rank
from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.sequence_parallel import round_tokens
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import Scheduled, ascend_step, is_uniform_decode
from castq.shapes.graph_warnings import graph_warnings, why_eager
from castq.shapes.planned import GraphCount, PlannedStep, Warned, Work, check_batch
from castq.shapes.vllm.graph_modes import RunMode

__all__ = ["AscendLayout", "AscendPlanner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendLayout:
    """Data-parallel ranks beside the one that is planned, all idle; what an idle rank runs is its launcher's."""

    data_parallel_size: int = 1
    external_launcher: bool = False


class AscendPlanner:
    """One busy rank of vllm-ascend."""

    vendor = "ascend"

    def __init__(self, settings: AscendSettings, layout: AscendLayout | None = None) -> None:
        self.settings, self.layout = settings, layout or AscendLayout()
        self.captured = ascend_graphs(settings)
        self.slots, self.query_len = settings.max_num_seqs, settings.query_len
        self.sizes = self.captured.sizes

    def plan(self, work: Sequence[Work]) -> PlannedStep:
        requests = [Scheduled(one.computed, one.tokens, one.known) for one in work]
        uniform = is_uniform_decode(requests, self.settings)
        tokens = sum(one.tokens for one in requests)
        check_batch(len(requests), tokens, self.settings)
        padded = round_tokens(tokens, self.settings.tensor_parallel_size, active=self.settings.rounds_tokens)
        run, peers = self.captured.dispatch(padded, uniform=uniform), self.layout.data_parallel_size - 1
        why = why_eager(self.captured, padded, uniform) if run.mode is RunMode.NONE else ""
        if peers:
            idle = idle_rank(self.settings, external_launcher=self.layout.external_launcher)
            agreed = agree([requests, *[idle] * peers], self.settings, self.captured)[0].run
            if agreed.mode is RunMode.NONE and run.mode is not RunMode.NONE:
                why = f"an idle rank's dummy of {sum(one.tokens for one in idle)} tokens runs eager, so every rank does"
            run = agreed
        step = ascend_step(requests, self.settings, self.captured, run=run)
        check_step(step, tokens)
        mode = "EAGER" if run.mode is RunMode.NONE else run.mode.name
        return PlannedStep(mode, len(requests), tokens, step.requests_padded, run.tokens, why)

    def graphs(self) -> GraphCount:
        return GraphCount(len(self.captured.full_keys) + len(self.captured.piecewise_keys))

    def warnings(self) -> tuple[Warned, ...]:
        return graph_warnings(self.captured, "cudagraph_capture_sizes")
