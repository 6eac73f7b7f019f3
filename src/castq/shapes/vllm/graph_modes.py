"""Which kinds of graphs run: what was asked for, and what the attention backend can capture.

Source: vllm/config/compilation.py, vllm/v1/cudagraph_dispatcher.py at 0.27.1.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from castq.shapes.refusals import ShapeError

__all__ = ["AttentionSupport", "GraphMode", "RunMode", "resolve_mode"]


class RunMode(IntEnum):
    """How one batch runs; data-parallel ranks agree on the lowest."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


class GraphMode(StrEnum):
    """What is captured."""

    NONE = "NONE"
    PIECEWISE = "PIECEWISE"
    FULL = "FULL"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"

    @property
    def decodes(self) -> RunMode:
        """How uniform decodes run."""
        return self._runs[0]

    @property
    def mixed(self) -> RunMode:
        """How any other batch runs."""
        return self._runs[1]

    @property
    def separate_decodes(self) -> bool:
        """Whether uniform decodes have graphs of their own."""
        return self in (GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE)

    @property
    def splits_attention(self) -> bool:
        """Whether the compiled pieces leave attention out."""
        return self in (GraphMode.PIECEWISE, GraphMode.FULL_AND_PIECEWISE)

    @property
    def _runs(self) -> tuple[RunMode, RunMode]:
        match self:
            case GraphMode.NONE:
                return RunMode.NONE, RunMode.NONE
            case GraphMode.PIECEWISE:
                return RunMode.PIECEWISE, RunMode.PIECEWISE
            case GraphMode.FULL:
                return RunMode.FULL, RunMode.FULL
            case GraphMode.FULL_DECODE_ONLY:
                return RunMode.FULL, RunMode.NONE
            case GraphMode.FULL_AND_PIECEWISE:
                return RunMode.FULL, RunMode.PIECEWISE


class AttentionSupport(StrEnum):
    """Batches whose attention a backend can capture: none, decodes of one token, uniform ones, or every one."""

    NEVER = "NEVER"
    UNIFORM_SINGLE_TOKEN_DECODE = "UNIFORM_SINGLE_TOKEN_DECODE"
    UNIFORM_BATCH = "UNIFORM_BATCH"
    ALWAYS = "ALWAYS"


def resolve_mode(asked: GraphMode, support: AttentionSupport, query_len: int, *, splits_attention: bool) -> GraphMode:
    """The mode that runs; full graphs that attention cannot be part of become piecewise ones, or none where attention
    is not split.  Raises ShapeError for FULL on a backend that captures nothing.
    """
    mode = asked
    if mode is GraphMode.FULL and support is not AttentionSupport.ALWAYS:
        if support is AttentionSupport.NEVER:
            raise ShapeError("full_graph_unsupported", "the attention backend captures no full graph")
        mode = GraphMode.FULL_AND_PIECEWISE if splits_attention else GraphMode.FULL_DECODE_ONLY
    narrow = support is AttentionSupport.UNIFORM_SINGLE_TOKEN_DECODE and query_len > 1
    if mode.decodes is RunMode.FULL and (narrow or support is AttentionSupport.NEVER):
        return GraphMode.PIECEWISE if splits_attention else GraphMode.NONE
    return mode
