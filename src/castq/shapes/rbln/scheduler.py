"""RBLN's native scheduler: a step is one prefill alone, or decodes only.

Source: vllm_rbln/v1/core/rbln_scheduler.py at 0.11.3a21; v0.11.0 knows the hard cap only (`soft_cap=False`).
"""

from __future__ import annotations

from castq.shapes.rbln.pipeline import decode_caps
from castq.shapes.rbln.prefix import SubBlockPool
from castq.shapes.rbln.startup import sub_block_size
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.blocks import BlockPool
from castq.shapes.vllm.requests import Request
from castq.shapes.vllm.scheduler import Batch, Scheduler, SchedulerSettings

__all__ = ["RblnScheduler"]


class RblnScheduler(Scheduler):
    """vLLM's scheduler with exclusive prefill: a waiting prefill takes over the step of the decodes.

    Admission always wants room for the whole known length.
    """

    def __init__(self, settings: SchedulerSettings, *, sub_block: int | None = None, soft_cap: bool = True) -> None:
        self._asked_sub_block, self._soft_cap = sub_block, soft_cap
        if not settings.chunked_prefill:
            raise ShapeError("chunked_prefill_required", "chunked prefill must be on")
        if settings.long_prefill_token_threshold == 1:
            raise ShapeError(
                "threshold_of_one", "long_prefill_token_threshold 1 makes prefill chunks that are read as decodes"
            )
        super().__init__(settings)
        self.hard_cap = decode_caps(settings.max_num_seqs, settings.pipeline_parallel_size, 0).hard

    def _make_pool(self) -> BlockPool:
        given = self.settings
        size = sub_block_size(
            given.block_size, given.max_num_batched_tokens, self._asked_sub_block, prefix_caching=given.prefix_caching
        )
        if size is None:
            return super()._make_pool()
        return SubBlockPool(given.num_blocks, given.block_size, size)

    def serve_running(self, batch: Batch) -> None:
        """The prefill that runs, alone, or decodes up to both caps."""
        if self.running and self.running[-1].is_prefill:
            self._serve(self.running[-1], batch)
            return
        cap = self._decode_cap()
        at = 0
        while at < len(self.running) and batch.left > 0 and len(batch.shares) < cap:
            request = self.running[at]
            if self.wanted(request, batch.left) > 0 and not self._serve(request, batch):
                return
            at = self.running.index(request) + 1

    def _decode_cap(self) -> int:
        """Decodes of this step: the compiled ceiling, and this stage's share of those that stand ready."""
        given = self.settings
        if not self._soft_cap:
            return self.hard_cap
        demand = sum(not request.is_prefill for request in self.running)
        caps = decode_caps(given.max_num_seqs, given.pipeline_parallel_size, demand)
        return caps.admitted(soft=True)

    def _serve(self, request: Request, batch: Batch) -> bool:
        tokens = self.wanted(request, batch.left)
        if tokens <= 0:
            return True
        if not self.make_room(request, tokens, batch):
            return False
        batch.give(request, tokens)
        return True

    def admit(self, batch: Batch) -> None:
        """Requests that are ready to decode join; one waiting prefill takes the step from the decodes."""
        if any(share.prefill for share in batch.shares):
            return
        joined = False
        while batch.left > 0 and len(self.running) < self.settings.max_num_seqs:
            request = self.waiting.head()
            if request is None:
                return
            hits = self.pool.hits(request)
            request.computed = self.pool.hit_tokens(request, hits)
            prefills = request.is_prefill
            if (prefills and joined) or not self._fits(request, hits, batch):
                request.computed = 0
                return
            if prefills:
                batch.shares.clear()
                batch.left = self.settings.max_num_batched_tokens
            tokens = min(self.clipped(request.known - request.computed), batch.left)
            self.enter(request, tokens, hits, batch)
            if prefills:
                return
            joined = True

    def _fits(self, request: Request, hits: list[int], batch: Batch) -> bool:
        """Whether a waiting request may run now: a row below the hard cap, a prefill too, and room for its length."""
        return len(batch.shares) < self.hard_cap and self.pool.fits(request, request.known, hits)
