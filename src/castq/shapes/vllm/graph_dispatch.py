"""Which captured graph a batch meets, and what it is padded to.

Source: vllm/v1/cudagraph_dispatcher.py at 0.27.1 (the first runner, and vllm-ascend's).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from castq.shapes.vllm.graph_modes import GraphMode, RunMode

__all__ = ["Descriptor", "GraphKey", "Graphs"]


@dataclass(frozen=True, slots=True)
class GraphKey:
    """One captured shape; `requests` is None where any number fits."""

    tokens: int
    requests: int | None
    uniform: bool


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a batch runs as: its mode, tokens after padding, and the graph's requests, None where they are free."""

    mode: RunMode
    tokens: int
    requests: int | None = None
    uniform: bool = False


@dataclass(frozen=True, slots=True)
class Graphs:
    """The graphs of a rank: what is captured at `sizes` for decodes of `query_len` tokens."""

    mode: GraphMode
    sizes: tuple[int, ...]
    max_num_seqs: int
    query_len: int = 1

    @property
    def largest(self) -> int:
        return self.sizes[-1] if self.sizes else 0

    @property
    def full_keys(self) -> tuple[GraphKey, ...]:
        """Shapes that run as one graph."""
        if self.mode is GraphMode.FULL:
            return tuple(GraphKey(size, min(size, self.max_num_seqs), False) for size in self.sizes)
        if not self.mode.separate_decodes:
            return ()
        return tuple(GraphKey(size, self._rows(size), True) for size in self.sizes if self._holds_decodes(size))

    @property
    def piecewise_keys(self) -> tuple[GraphKey, ...]:
        """Shapes that run as pieces around attention."""
        captured = self.sizes if self.mode.mixed is RunMode.PIECEWISE else ()
        return tuple(GraphKey(size, None, False) for size in captured)

    def _rows(self, size: int) -> int:
        return min(size // self.query_len, self.max_num_seqs)

    def _holds_decodes(self, size: int) -> bool:
        return self.query_len <= size <= self.query_len * self.max_num_seqs

    def padded(self, tokens: int) -> int | None:
        """The smallest size that holds the tokens, or None above the largest."""
        at = bisect_left(self.sizes, tokens)
        return self.sizes[at] if at < len(self.sizes) else None

    def dispatch(
        self, tokens: int, *, uniform: bool, allowed: tuple[RunMode, ...] = (RunMode.FULL, RunMode.PIECEWISE)
    ) -> Descriptor:
        """What a batch of so many tokens runs as; eager, and not padded, where no allowed graph fits.  O(log sizes)."""
        size = self.padded(tokens) if self.mode is not GraphMode.NONE else None
        if size is None:
            return Descriptor(RunMode.NONE, tokens)
        if RunMode.FULL in allowed:
            if uniform and self.mode.separate_decodes and self._holds_decodes(size):
                return Descriptor(RunMode.FULL, size, self._rows(size), True)
            if self.mode is GraphMode.FULL:
                return Descriptor(RunMode.FULL, size, min(size, self.max_num_seqs))
        if RunMode.PIECEWISE in allowed and self.mode.mixed is RunMode.PIECEWISE:
            return Descriptor(RunMode.PIECEWISE, size)
        return Descriptor(RunMode.NONE, tokens)
