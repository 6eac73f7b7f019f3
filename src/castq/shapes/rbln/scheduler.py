"""RBLN's native scheduler: a step is one prefill alone, or decodes only.

Source: vllm_rbln/v1/core/rbln_scheduler.py at 0.11.3a21; v0.11.0 knows the hard cap only (`soft_cap=False`).
"""

from __future__ import annotations

from collections import deque

from castq.shapes.rbln.pipeline import decode_caps
from castq.shapes.rbln.startup import sub_block_size
from castq.shapes.rbln.sub_blocks import SubBlockPool
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
        if 1 in (settings.long_prefill_token_threshold, settings.max_num_batched_tokens):
            raise ShapeError(
                "chunk_clipped_to_one_token", "prefill chunks of one token are read as decodes: clip to 2 or more"
            )
        self._copies: deque[list[int]] = deque()
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

    def schedule(self) -> Batch:
        """The next step; the blocks that it copies from stay held until its outputs arrive."""
        batch = super().schedule()
        if isinstance(self.pool, SubBlockPool):
            self._copies.append(self.pool.copies())
        return batch

    def complete(self, batch: Batch) -> list[Request]:
        """The outputs arrive: what the step computed can be hit, what it copied from is let go."""
        ended = super().complete(batch)
        if isinstance(self.pool, SubBlockPool):
            for share in batch.shares:
                if share.request.blocks:
                    self.pool.enter(share.request)
            self.pool.let_go(self._copies.popleft())
        return ended

    def serve_running(self, batch: Batch) -> None:
        """The prefill that runs, alone (it can only be the last), or decodes up to both caps."""
        at = len(self.running) - 1 if self.running and self.running[-1].is_prefill else 0
        cap = self._decode_cap()
        while at < len(self.running) and batch.left > 0 and len(batch.shares) < cap:
            request = self.running[at]
            tokens = self.wanted(request, batch.left)
            if tokens > 0:
                if not self.make_room(request, tokens, batch):
                    return
                batch.give(request, tokens)
            at = self.running.index(request) + 1

    def _decode_cap(self) -> int:
        """Decodes of this step: the compiled ceiling, and this stage's share of those that stand ready."""
        given = self.settings
        if not self._soft_cap:
            return self.hard_cap
        demand = sum(not request.is_prefill for request in self.running)
        return decode_caps(given.max_num_seqs, given.pipeline_parallel_size, demand).admitted(soft=True)

    def admit(self, batch: Batch) -> None:
        """Requests that are ready to decode join; one waiting prefill takes the step from the decodes.

        A prefill waits where somebody joined in this step, which is decided before its prefix is looked for.
        """
        if any(share.prefill for share in batch.shares):
            return
        joined = False
        while batch.left > 0 and len(self.running) < self.settings.max_num_seqs and len(batch.shares) < self.hard_cap:
            request = self.waiting.head()
            if request is None or (joined and request.is_prefill):
                return
            if not self._admit_head(request, batch) or request.is_prefill:
                return
            joined = True

    def _admit_head(self, request: Request, batch: Batch) -> bool:
        """Admit the head of the queue if its whole known length has room; a prefill takes over the step."""
        hits = self.pool.hits(request)
        request.computed = self.pool.hit_tokens(request, hits)
        if not self.pool.fits(request, request.known, hits):
            request.computed = 0
            if isinstance(self.pool, SubBlockPool):
                self.pool.decline()
            return False
        if request.is_prefill:
            batch.shares.clear()
            batch.left = self.settings.max_num_batched_tokens
        self.enter(request, min(self.clipped(request.known - request.computed), batch.left), hits, batch)
        return True
