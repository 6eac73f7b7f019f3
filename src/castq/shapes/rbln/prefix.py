"""Prefix hits below a block: content is copied in units of a sub-block.

Source: vllm_rbln/v1/core, sub-block prefix caching, at 0.11.3a21.
"""

from __future__ import annotations

from collections.abc import Hashable

from castq.shapes.vllm.blocks import BlockPool
from castq.shapes.vllm.requests import Request

__all__ = ["SubBlockPool"]


class SubBlockPool(BlockPool):
    """A pool that also remembers the content of sub-blocks, in blocks that are not full as well."""

    def __init__(self, num_blocks: int, block_size: int, sub_block: int) -> None:
        super().__init__(num_blocks, block_size, prefix_caching=True)
        self._sub_block = sub_block
        self._parts: dict[int, list[Hashable]] = {}
        self._held: dict[Hashable, dict[int, None]] = {}

    def hit_tokens(self, request: Request, hits: list[int]) -> int:
        """Whole blocks, then sub-blocks of the next one, copied; at most all but the last known token."""
        tokens, size = super().hit_tokens(request, hits), self._sub_block
        stop = min(tokens + self.block_size, request.known - 1)
        while tokens + size <= stop and self._held.get(request.content(tokens // size, size)):
            tokens += size
        return tokens

    def allocate(self, request: Request, tokens: int, hits: list[int]) -> None:
        before = min(request.computed, len(request.blocks) * self.block_size) // self._sub_block
        super().allocate(request, tokens, hits)
        per_block = self.block_size // self._sub_block
        for part in range(before, min(tokens, request.known) // self._sub_block):
            block, content = request.blocks[part // per_block], request.content(part, self._sub_block)
            holders = self._held.setdefault(content, {})
            if block not in holders:
                holders[block] = None
                self._parts.setdefault(block, []).append(content)

    def forget(self, block: int) -> None:
        super().forget(block)
        for content in self._parts.pop(block, ()):
            del self._held[content][block]
