"""A step of vllm-rbln: a prefill of one compiled width, or decodes on the rows of their bucket."""

from __future__ import annotations

from collections.abc import Sequence

from castq.shapes.planned import GraphCount, PlannedStep, Warned, Work
from castq.shapes.rbln.checks import check_aligned, check_alone, check_dummies, check_fits, check_uniform
from castq.shapes.rbln.data_parallel import IDLE, Rank, agree
from castq.shapes.rbln.metadata import decode_metadata
from castq.shapes.rbln.settings import RblnSettings
from castq.shapes.rbln.staging import stage_prefill
from castq.shapes.rbln.warmup import FIXED_WINDOW, reserved_bytes, warmup_graphs
from castq.shapes.refusals import ShapeError

__all__ = ["RblnPlanner"]


class RblnPlanner:
    """One busy rank of vllm-rbln; with data parallelism its peers are idle."""

    vendor = "rbln"

    def __init__(self, settings: RblnSettings) -> None:
        self.settings = settings
        self.sizes = settings.buckets.buckets(settings.ceiling)
        self.slots = settings.ceiling
        self.query_len = settings.num_spec_tokens + 1

    def plan(self, work: Sequence[Work]) -> PlannedStep:
        if not work:
            raise ShapeError("no_requests", "a step without requests has no shape", raised="AssertionError")
        check_alone(work)
        tokens = sum(one.tokens for one in work)
        if work[0].prefill:
            check_aligned(
                work[0], self.settings.max_num_batched_tokens, multi_block_store=self.settings.multi_block_store
            )
            staged = stage_prefill(self.settings.max_num_batched_tokens, tokens)
            return PlannedStep("PREFILL", 1, tokens, 1, staged.physical_tokens)
        window = self._window(work)
        check_uniform(work, window)
        shape = agree(
            [Rank(len(work), len(work) * window), *[IDLE] * (self.settings.data_parallel_size - 1)],
            self.sizes,
            self.settings.max_num_batched_tokens,
            specialized=self.settings.specialized,
            keeps_local_bucket=self.settings.rules.keeps_local_bucket,
        )[0]
        rows, query = shape.rows or 0, shape.query_len or 0
        check_fits(rows, query, len(work), shape.tokens)
        check_dummies(decode_metadata([one.computed for one in work], rows), len(work))
        return PlannedStep("DECODE", len(work), tokens, rows, rows * query, token_dimension=shape.tokens)

    def _window(self, work: Sequence[Work]) -> int:
        """Tokens that every decode is staged at."""
        settings = self.settings
        fixed = settings.num_spec_tokens > 0 and settings.method in FIXED_WINDOW
        return self.query_len if fixed or any(one.drafts for one in work) else 1

    def graphs(self) -> GraphCount:
        settings = self.settings
        graphs = warmup_graphs(
            self.sizes,
            settings.max_num_batched_tokens,
            num_spec_tokens=settings.num_spec_tokens,
            method=settings.method,
            specialized=settings.specialized,
        )
        size = reserved_bytes(len(graphs), devices_per_rank=settings.devices_per_rank, rebel=settings.rebel)
        return GraphCount(len(graphs), size, size, "256 MiB a graph and device, the vendor's static estimate")

    def warnings(self) -> tuple[Warned, ...]:
        settings, found = self.settings, []
        if len(self.sizes) == 1 and self.slots > 1:
            text = f"one bucket: a single decode runs on {self.sizes[0]} rows"
            found.append(Warned(text, f"decode_batch_bucket_limit: {self.slots.bit_length()} or more"))
        unused = settings.max_num_seqs - self.slots * settings.pipeline_parallel_size
        if unused:
            text = f"{unused} of max_num_seqs {settings.max_num_seqs} slots are used by no step"
            found.append(Warned(text, f"max_num_seqs: {self.slots * settings.pipeline_parallel_size}"))
        return tuple(found)
