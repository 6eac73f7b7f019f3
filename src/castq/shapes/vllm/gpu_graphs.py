"""CUDA graphs of vLLM on GPU: settings to captured sizes, batches to graphs, by version and model runner.

Source: vllm/config, vllm/v1/cudagraph_dispatcher.py, vllm/v1/worker/gpu/cudagraph_utils.py at 0.27.1 and 0.33.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_dispatch import Descriptor, Graphs
from castq.shapes.vllm.graph_modes import GraphMode, RunMode, resolve_mode
from castq.shapes.vllm.graph_settings import GraphSettings
from castq.shapes.vllm.graph_sizes import SIZE_RULES, capture_sizes, round_to_multiples

__all__ = ["GpuBatch", "GpuGraphs", "GpuSettings", "derived_sizes"]

_RUNNERS = ("v1", "v2")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings(GraphSettings):
    """The settings that decide on graphs, with vLLM's defaults.  Raises ShapeError for what is not described."""

    performance_mode: str = "balanced"
    blackwell: bool = False
    version: str = "0.27.1"
    runner: str = "v1"

    def __post_init__(self) -> None:
        if self.version not in SIZE_RULES:
            known = ", ".join(SIZE_RULES)
            raise ShapeError("unknown_version", f"vLLM version {self.version!r}: described are {known}")
        if self.runner not in _RUNNERS:
            raise ShapeError("unknown_runner", f"runner {self.runner!r}: one of {', '.join(_RUNNERS)}")


@dataclass(frozen=True, slots=True)
class GpuBatch:
    """A batch as the runner sees it; `decodes_only` says that every row is a decode, where that is known."""

    requests: int
    tokens: int
    longest_query: int
    decodes_only: bool = True

    def uniform(self, query_len: int) -> bool:
        """Whether every request has the tokens of a decode."""
        return self.longest_query == query_len and self.tokens == self.requests * query_len


def derived_sizes(settings: GpuSettings) -> tuple[int, ...]:
    """The captured sizes before any rounding for speculation; none where everything runs eager."""
    if settings.enforce_eager or settings.mode is GraphMode.NONE:
        return ()
    return capture_sizes(
        SIZE_RULES[settings.version],
        settings.max_num_seqs,
        settings.query_len,
        settings.max_num_batched_tokens,
        sizes=settings.capture_sizes,
        maximum=settings.max_capture_size,
        blackwell=settings.blackwell,
        dense=settings.performance_mode == "interactivity",
    )


class GpuGraphs:
    """The graphs of one engine, derived once; `dispatch` is O(log sizes)."""

    def __init__(self, settings: GpuSettings) -> None:
        self.settings = settings
        sizes = derived_sizes(settings)
        mode = GraphMode.NONE if not sizes else settings.mode
        self.mode = resolve_mode(mode, settings.attention_support, settings.query_len, splits_attention=True)
        self._second = settings.runner == "v2"
        query = settings.query_len
        decodes = round_to_multiples(sizes, query, sizes[-1]) if query > 1 and sizes else sizes
        rounded = self.mode.decodes is RunMode.FULL and not self._second
        self.sizes = decodes if rounded else sizes
        self.graphs = Graphs(self.mode, self.sizes, settings.max_num_seqs, query)
        self._decodes = Graphs(self.mode, decodes, settings.max_num_seqs, query)

    @property
    def full(self) -> tuple[int, ...]:
        """Token counts captured as whole graphs."""
        keys = self._decodes.full_keys if self.mode.separate_decodes else self.graphs.full_keys
        return tuple(key.tokens for key in keys)

    @property
    def piecewise(self) -> tuple[int, ...]:
        """Token counts captured as pieces around attention."""
        return tuple(key.tokens for key in self.graphs.piecewise_keys)

    def dispatch(self, batch: GpuBatch) -> Descriptor:
        """What a batch runs as."""
        uniform = batch.uniform(self.settings.query_len)
        if not self._second:
            return self.graphs.dispatch(batch.tokens, uniform=uniform)
        found = self._second_runner(batch, uniform)
        return found if found.mode is not RunMode.NONE else Descriptor(RunMode.NONE, batch.tokens, batch.requests)

    def _second_runner(self, batch: GpuBatch, uniform: bool) -> Descriptor:
        """0.27.1 looks at the smallest captured count of either kind only; 0.33.0 looks for each kind by itself."""
        each = self.settings.version == "0.33.0"
        uniform = uniform and (batch.decodes_only or not each)
        full, piecewise = _at_least(self.full, batch.tokens), _at_least(self.piecewise, batch.tokens)
        if not each:
            nearest = min((size for size in (full, piecewise) if size is not None), default=None)
            full, piecewise = (size if size == nearest else None for size in (full, piecewise))
        if full is not None and (uniform or not self.mode.separate_decodes):
            rows = full // self.settings.query_len if self.mode.separate_decodes else full
            return Descriptor(RunMode.FULL, full, min(rows, self.settings.max_num_seqs))
        if piecewise is not None:
            return Descriptor(RunMode.PIECEWISE, piecewise)
        return Descriptor(RunMode.NONE, batch.tokens)


def _at_least(sizes: Sequence[int], tokens: int) -> int | None:
    at = bisect_left(sizes, tokens)
    return sizes[at] if at < len(sizes) else None
