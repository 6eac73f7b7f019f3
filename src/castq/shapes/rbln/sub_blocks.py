"""Prefix hits below a block: the tokens of cached sub-blocks are copied into a request's own block.

Source: `vllm_rbln/v1/core/rbln_kv_cache_manager.py` at 0.11.3a21.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from castq.shapes.vllm.blocks import BlockPool
from castq.shapes.vllm.requests import Request

__all__ = ["SubBlockPool"]


class SubBlockPool(BlockPool):
    """A pool that also finds sub-blocks, in full blocks and in the last one of a request.

    The block that is copied from is held from admission until the step has run, so it cannot be handed out meanwhile,
    and it is then the last to be evicted. Content is entered when it is computed, which `enter` is told.
    """

    def __init__(self, num_blocks: int, block_size: int, sub_block: int) -> None:
        super().__init__(num_blocks, block_size, prefix_caching=True)
        self.sub_block = sub_block
        self._parts: dict[int, list[Hashable]] = {}
        self._sources: dict[Hashable, dict[int, None]] = {}
        self._match: int | None = None
        self._copied: list[int] = []
        self._entered: dict[str, int] = {}

    def hit_tokens(self, request: Request, hits: list[int]) -> int:
        """Tokens of whole-block hits and of sub-blocks behind them, fewer than a block and not the last known token."""
        tokens, size = super().hit_tokens(request, hits), self.sub_block
        stop = min(tokens + self.block_size - size, request.known - 1)
        self._match = None
        while tokens + size <= stop:
            blocks = self._sources.get(request.content(tokens // size, size))
            if not blocks:
                break
            self._match = next(iter(blocks))
            tokens += size
        return tokens

    def fits(self, request: Request, tokens: int, hits: list[int]) -> bool:
        """Whether there is room beside the block that is copied from, which the last `hit_tokens` found."""
        source = self._match if not request.blocks else None
        held = source is not None and source not in hits and not self._users.get(source)
        return super().fits(request, tokens, hits) and (not held or self._left_for(request, tokens, hits) >= 1)

    def _left_for(self, request: Request, tokens: int, hits: list[int]) -> int:
        """Free blocks that remain once a request has its hits and its own."""
        fresh = max(0, self.needed(tokens) - len(request.blocks) - len(hits))
        return self.free - fresh - sum(not self._users.get(block) for block in hits)

    def allocate(self, request: Request, tokens: int, hits: list[int]) -> None:
        """Blocks for `tokens`; on admission the block that is copied from is held."""
        source = self._match if not request.blocks else None
        if source is not None:
            self._freed.pop(source, None)
            self._users[source] = self._users.get(source, 0) + 1
            self._copied.append(source)
        super().allocate(request, tokens, hits)
        self._match = None

    def decline(self) -> None:
        """The request that `hit_tokens` was last asked of is not admitted; what it would copy was used all the same."""
        if self._match is not None and self._match in self._freed:
            self._freed.move_to_end(self._match)
        self._match = None

    def copies(self) -> list[int]:
        """The blocks that the step being formed copies from; it must `let_go` of them when it has run."""
        copied, self._copied = self._copied, []
        return copied

    def let_go(self, copied: Iterable[int]) -> None:
        """The copies are done."""
        for block in copied:
            self._users[block] -= 1
            if not self._users[block]:
                self._freed[block] = None

    def enter(self, request: Request) -> None:
        """Enter the sub-blocks of a request that were computed since it was last entered."""
        per_block = self.block_size // self.sub_block
        computed = min(request.computed, len(request.blocks) * self.block_size) // self.sub_block
        before, self._entered[request.id] = self._entered.get(request.id, 0), computed
        for part in range(before, computed):
            block, content = request.blocks[part // per_block], request.content(part, self.sub_block)
            sources = self._sources.setdefault(content, {})
            if block not in sources:
                sources[block] = None
                self._parts.setdefault(block, []).append(content)

    def release(self, request: Request) -> None:
        """Take back every block of a request; what it computed can be hit until they are handed out again."""
        self.enter(request)
        del self._entered[request.id]
        super().release(request)

    def forget(self, block: int) -> None:
        """Drop the content of a block that is handed out anew."""
        super().forget(block)
        for content in self._parts.pop(block, ()):
            del self._sources[content][block]
