"""KV blocks with prefix caching: the free list is a queue, the block freed longest ago is evicted first.

Source: vllm/v1/core/block_pool.py, vllm/v1/core/kv_cache_manager.py at 0.27.1.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from castq.shapes.vllm.requests import Request

__all__ = ["BlockPool"]


class BlockPool:
    """The blocks of one rank; one of `num_blocks` is the null block and never handed out.

    Freed blocks keep their content and can be hit until they are handed out again.  Every operation is O(blocks of the
    request).
    """

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = False) -> None:
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._fresh, self._last = 1, num_blocks - 1  # blocks that were never handed out stand before the freed ones
        self._freed: OrderedDict[int, None] = OrderedDict()
        self._users: dict[int, int] = {}
        self._content: dict[int, Hashable] = {}
        self._holders: dict[Hashable, dict[int, None]] = {}

    @property
    def free(self) -> int:
        """Blocks that can be handed out, cached ones included."""
        return len(self._freed) + self._last - self._fresh + 1

    def needed(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-tokens // self.block_size)

    def hits(self, request: Request) -> list[int]:
        """The cached blocks at the head of a request: whole blocks, at most all but its last known token."""
        found: list[int] = []
        if not self.prefix_caching:
            return found
        for at in range((request.known - 1) // self.block_size):
            holders = self._holders.get(request.content(at, self.block_size))
            if not holders:
                break
            found.append(next(iter(holders)))
        return found

    def hit_tokens(self, request: Request, hits: list[int]) -> int:
        """Tokens that hits make computed."""
        return len(hits) * self.block_size

    def fits(self, request: Request, tokens: int, hits: list[int]) -> bool:
        """Whether `tokens` of the request have room, counting hits that nobody uses as taken."""
        fresh = self.needed(tokens) - len(request.blocks) - len(hits)
        return max(fresh, 0) + sum(not self._users.get(block) for block in hits) <= self.free

    def allocate(self, request: Request, tokens: int, hits: list[int]) -> None:
        """Give the request its hits and fresh blocks for `tokens`, and note the content of the full ones."""
        for block in hits:
            self._freed.pop(block, None)
            self._users[block] = self._users.get(block, 0) + 1
        request.blocks += hits
        request.cached = max(request.cached, len(hits))
        for _ in range(self.needed(tokens) - len(request.blocks)):
            request.blocks.append(self._take())
        if self.prefix_caching:
            self._note(request, min(tokens, request.known) // self.block_size)

    def _take(self) -> int:
        if self._fresh <= self._last:
            block = self._fresh
            self._fresh += 1
        else:
            block, _ = self._freed.popitem(last=False)
        self._users[block] = 1
        self.forget(block)
        return block

    def forget(self, block: int) -> None:
        """Drop the content of a block that is handed out anew."""
        content = self._content.pop(block, None)
        if content is not None:
            del self._holders[content][block]

    def _note(self, request: Request, full: int) -> None:
        for at in range(request.cached, full):
            block, content = request.blocks[at], request.content(at, self.block_size)
            if block not in self._content:
                self._content[block] = content
                self._holders.setdefault(content, {})[block] = None
        request.cached = max(request.cached, full)

    def release(self, request: Request) -> None:
        """Take back every block, the last one first, so that heads stay cached longest."""
        for block in reversed(request.blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._freed[block] = None
        request.blocks.clear()
        request.cached = 0
