"""One rank's step: tokens to a graph, and the boundaries that attention is told.

Source: vllm_ascend/worker/model_runner_v1.py at 0.27.1rc1, fused attention in the TND layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from castq.shapes.ascend.attention import split_decodes
from castq.shapes.ascend.sequence_parallel import round_tokens
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.graph_dispatch import Descriptor, Graphs
from castq.shapes.vllm.graph_modes import GraphMode, RunMode

__all__ = ["AscendStep", "Scheduled", "ascend_step", "is_uniform_decode"]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request of a step: tokens computed before, tokens scheduled, length of its prompt."""

    computed: int
    tokens: int
    prompt: int = 0


@dataclass(frozen=True, slots=True)
class AscendStep:
    """What runs and what attention is told.

    `boundaries` are cumulative query lengths from 0, one interval for each request and dummy; `kv_lens` and the rows of
    the block table have one entry for each interval.  Dummies own no KV: what is written is `kv_write_tokens`, the
    slots of the padding are -1.
    """

    sp_tokens: int
    run: Descriptor
    boundary_padded: bool
    boundaries: tuple[int, ...]
    kv_lens: tuple[int, ...]
    dummy_requests: int
    kv_write_tokens: int
    decodes: int
    prefills: int
    decode_tokens: int = 1

    @property
    def requests_padded(self) -> int:
        """Requests that attention is told of."""
        return len(self.boundaries) - 1

    @property
    def covers_padding(self) -> bool:
        """Whether the last boundary reaches the physical tokens."""
        return self.boundaries[-1] == self.run.tokens

    @property
    def by_coincidence(self) -> bool:
        """Rule A-c: the padded tokens happen to be whole decodes of the requests, so that nothing is appended."""
        return self.decode_tokens * self.requests_padded == self.run.tokens

    @property
    def padded_slots(self) -> int:
        return self.run.tokens - self.kv_write_tokens

    @property
    def dummy_row_block_ids(self) -> tuple[int, ...]:
        """Distinct block ids in dummy rows: the null block."""
        return (0,) if self.dummy_requests else ()


def is_uniform_decode(requests: Sequence[Scheduled], settings: AscendSettings) -> bool:
    """Whether every request continues with the tokens of a decode.

    A request without computed tokens is no decode, however short; older releases look only with speculation.
    """
    query = settings.query_len
    if not requests or any(one.tokens != query for one in requests):
        return False
    if settings.rules.new_requests_are_decodes and query == 1:
        return True
    return all(one.computed > 0 for one in requests)


def ascend_step(
    requests: Sequence[Scheduled], settings: AscendSettings, graphs: Graphs, *, run: Descriptor | None = None
) -> AscendStep:
    """The step of one rank; `run` replaces its own dispatch by what the ranks agreed on.  O(requests)."""
    tokens = sum(one.tokens for one in requests)
    sp_tokens = round_tokens(tokens, settings.tensor_parallel_size, active=settings.rounds_tokens)
    found = run or graphs.dispatch(sp_tokens, uniform=is_uniform_decode(requests, settings))
    padded = found.mode is RunMode.FULL or settings.rounds_tokens
    boundaries = _boundaries(requests, found, settings, graphs) if padded else _plain(requests)
    dummies = len(boundaries) - 1 - len(requests)
    fits = len(requests) < settings.max_num_seqs
    lengths = [one.computed + one.tokens for one in requests]
    queries = [high - low for low, high in pairwise(boundaries)]
    longest = max((one.tokens for one in requests), default=0)
    decodes, prefills, *_ = split_decodes(queries, settings.query_len, longest=longest)
    return AscendStep(
        sp_tokens,
        found,
        padded,
        boundaries,
        (*lengths, *((0 if fits else 1,) * dummies)),
        dummies,
        tokens,
        decodes,
        prefills,
        settings.query_len,
    )


def _plain(requests: Sequence[Scheduled]) -> tuple[int, ...]:
    return tuple(accumulate((one.tokens for one in requests), initial=0))


def _boundaries(
    requests: Sequence[Scheduled], run: Descriptor, settings: AscendSettings, graphs: Graphs
) -> tuple[int, ...]:
    """Real boundaries, then the padding: dummies of one decode each in a uniform batch, else one dummy of it all."""
    real, query = _plain(requests), settings.query_len
    rows = run.requests if run.requests is not None and run.uniform else len(requests)
    if run.tokens == rows * query and graphs.mode is not GraphMode.FULL:
        extra = rows - len(requests)
        return (*real, *(real[-1] + query * (at + 1) for at in range(extra)))
    if rows != len(requests):
        raise ShapeError(
            "padded_requests_differ",
            f"{rows} padded requests for {len(requests)} in a batch that is not uniform",
            raised="AssertionError",
        )
    return real if real[-1] == run.tokens else (*real, run.tokens)
