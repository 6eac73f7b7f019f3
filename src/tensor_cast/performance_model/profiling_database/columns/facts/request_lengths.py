"""Uniform request lengths: the tables measured batches in which every request is alike."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.operators.leaf import LeafOp, Phase, Requests
from tensor_cast.performance_model.profiling_database.columns.facts.facts import missing, refuse
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["UniformLengths", "measured_phase", "uniform_lengths"]


@dataclass(frozen=True, slots=True)
class UniformLengths:
    """`batch_size` requests, each bringing `isl` new tokens to a total context of `kv` tokens."""

    batch_size: int
    isl: int
    kv: int
    phase: Phase | None

    @property
    def step(self) -> int:
        """Tokens already in the cache."""
        return self.kv - self.isl


def uniform_lengths(leaf: LeafOp, tokens: int | None = None) -> UniformLengths:
    """The lengths all requests share.

    Refuses lengths that are unknown, differ between requests, or do not add up to `tokens` (the tokens of the query).
    """
    requests = leaf.requests
    if requests is None:
        raise missing("requests", "give the request lengths: requests.query_lens and requests.kv_lens")
    queries = _query_lens(requests, tokens)
    if requests.kv_lens is None:
        raise missing("kv_lens", "give requests.kv_lens, the total context of each request")
    isl = _common(queries, "query_lens")
    kv = _common(requests.kv_lens, "kv_lens")
    if isl < 1 or kv < isl:
        hint = f"each request needs 1 <= query length <= context, got {isl} and {kv}"
        raise refuse(MissReason.INVALID_SEQ_LENS, "query_lens", hint)
    if tokens is not None and isl * len(queries) != tokens:
        hint = f"{len(queries)} requests of {isl} tokens are not the query's {tokens} tokens"
        raise refuse(MissReason.INVALID_SEQ_LENS, "query_lens", hint)
    return UniformLengths(len(queries), isl, kv, requests.phase)


def measured_phase(lengths: UniformLengths) -> Phase:
    """`prefill` or `decode` of a dense attention call.

    Refuses what no dense table measured: a batch of both, a prefill on a cached prefix, a decode of several tokens.
    """
    phase = lengths.phase
    if phase == "prefill" and lengths.step == 0:
        return phase
    if phase == "decode" and lengths.isl == 1:
        return phase
    subject = phase or "unknown"
    hint = "measured are prefills without a cached prefix and decodes of one token per request"
    raise refuse(MissReason.PHASE_NOT_MEASURED, subject, hint, isl=lengths.isl, step=lengths.step)


def _query_lens(requests: Requests, tokens: int | None) -> tuple[int, ...]:
    if requests.query_lens is not None:
        return requests.query_lens
    count = requests.count
    if requests.explicit_phase == "decode" and count is not None and tokens == count:
        return (1,) * count
    raise missing("query_lens", "give requests.query_lens, the new tokens of each request")


def _common(lengths: tuple[int, ...], name: str) -> int:
    if not lengths:
        raise missing(name, f"requests.{name} is empty")
    if len(set(lengths)) > 1:
        hint = "the tables measured batches of equal requests; ask once per group of equal requests"
        spread = [min(lengths), max(lengths)]
        raise refuse(MissReason.REQUEST_LENGTHS_NOT_UNIFORM, name, hint, shortest_and_longest=spread)
    return lengths[0]
