"""Staging of a step: what is prefill, how long the chunks are, and which rectangle of the buffer is real.

Source: vllm_rbln/v1/worker/rbln_model_runner.py, vllm_rbln/v1/core/utils.py at 0.11.3a21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from castq.shapes.refusals import ShapeError

__all__ = [
    "Chunk",
    "Staged",
    "base_tokens",
    "chunks_of",
    "request_is_prefill",
    "stage_decodes",
    "stage_prefill",
    "step_is_prefill",
]


@dataclass(frozen=True, slots=True)
class Staged:
    """The buffer of a step: rows x query length, of which `valid` (rows, columns) is real; the rest holds 0."""

    rows: int
    query_len: int
    valid: tuple[int, int]

    @property
    def physical_tokens(self) -> int:
        return self.rows * self.query_len

    @property
    def padded_tokens(self) -> int:
        """Tokens of the buffer that no request has."""
        return self.physical_tokens - self.valid[0] * self.valid[1]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One step of one request alone: `[start, start + tokens)`."""

    phase: Literal["prefill", "decode"]
    start: int
    tokens: int


def stage_prefill(width: int, chunk: int) -> Staged:
    """A lone prefill: one row of the compiled width.  Raises ShapeError for a chunk that is longer."""
    if chunk > width:
        raise ShapeError(
            "chunk_exceeds_compiled_width",
            f"a prefill chunk of {chunk} tokens: the compiled width is {width} (max_num_batched_tokens)",
            raised="RuntimeError",
        )
    return Staged(1, width, (1, chunk))


def stage_decodes(decodes: int, rows: int, query_len: int) -> Staged:
    """Decodes of one query length on the rows of their bucket."""
    return Staged(rows, query_len, (decodes, query_len))


def request_is_prefill(computed: int, known: int) -> bool:
    """The scheduler's definition: more than the last known token is to be computed."""
    return computed < known - 1


def base_tokens(scheduled: Mapping[str, int], drafts: Mapping[str, int]) -> dict[str, int]:
    """Scheduled tokens of each request without its drafts."""
    return {request: tokens - drafts.get(request, 0) for request, tokens in scheduled.items()}


def step_is_prefill(scheduled: Mapping[str, int], drafts: Mapping[str, int]) -> bool:
    """The runner's reading: some request has more than one token that is no draft."""
    return any(tokens > 1 for tokens in base_tokens(scheduled, drafts).values())


def chunks_of(width: int, prompt: int, cached: int) -> tuple[Chunk, ...]:
    """The steps of one request alone up to its first sampled token.

    A remainder of one token is a decode: it is the last known token.
    """
    steps: list[Chunk] = []
    start = cached
    while start < prompt:
        if not request_is_prefill(start, prompt):
            return (*steps, Chunk("decode", start, 1))
        tokens = min(width, prompt - start)
        steps.append(Chunk("prefill", start, tokens))
        start += tokens
    return tuple(steps)
