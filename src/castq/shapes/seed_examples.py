"""The seed's four numbered examples, worked out by the functions they stand for."""

from __future__ import annotations

from dataclasses import dataclass

from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.sequence_parallel import round_tokens
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.step import Scheduled, ascend_step
from castq.shapes.rbln.buckets import decode_rows
from castq.shapes.rbln.data_parallel import Rank, agree
from castq.shapes.rbln.moe import gathered
from castq.shapes.rbln.staging import stage_prefill

__all__ = ["SeedExample", "seed_examples"]

_BUCKETS = (1, 2, 4, 8)
_WIDTH = 128


@dataclass(frozen=True, slots=True)
class SeedExample:
    """One line of the seed's table."""

    engine: str
    logical: str
    physical: str


def seed_examples() -> tuple[SeedExample, ...]:
    """The four examples in their order."""
    return (_buckets(), _prefill(), _peer_prefills(), _rounding())


def _buckets() -> SeedExample:
    found = decode_rows(_BUCKETS, 3)
    text = f"{found.rows} rows of query length 1, {found.dummy_rows} dummy row"
    return SeedExample("vllm-rbln, decode buckets 1, 2, 4, 8", "3 one-token decodes", text)


def _prefill() -> SeedExample:
    staged = stage_prefill(_WIDTH, 17)
    text = f"{staged.rows} row of {staged.query_len}, {staged.padded_tokens} tokens of padding; 17 tokens of progress"
    return SeedExample("vllm-rbln, prefill width 128", "a chunk of 17 tokens", text)


def _peer_prefills() -> SeedExample:
    [shape, _] = agree([Rank(3, 3), Rank(1, 17, prefill=True)], _BUCKETS, _WIDTH, specialized=True)
    tokens = shape.tokens or 0
    experts = gathered((3, 17), tokens)
    text = f"{shape.rows} rows and a token dimension of {tokens}; experts see {experts.rows} rows, {experts.valid} real"
    return SeedExample("vllm-rbln, specialised DP, a peer prefills 17 tokens", "3 local decodes", text)


def _rounding() -> SeedExample:
    settings = AscendSettings(max_num_seqs=64, tensor_parallel_size=4, sp=True, enforce_eager=True)
    step = ascend_step([Scheduled(10, 1)] * 5, settings, ascend_graphs(settings))
    tokens = round_tokens(5, 4, active=True)
    boundaries = ", ".join(map(str, step.boundaries))
    text = f"{tokens} tokens before graph and DP dispatch; eager boundaries {boundaries}; KV for {step.kv_write_tokens}"
    return SeedExample("vllm-ascend, sequence parallelism, TP 4", "5 scheduled tokens", text)
