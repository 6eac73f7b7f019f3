"""When an expression is evaluated and what it may read then, as a table.

Source: docs/language.md, "What may be read where".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CONTEXT_WORDS", "MOMENTS", "POOL_QUERIES", "STAGE_QUERIES", "Moment"]

POOL_QUERIES = frozenset({"used", "free", "cachedin", "allocated", "holders", "queued"})
STAGE_QUERIES = frozenset({"queue", "busy", "work", "budget_left", "est_lambda", "est_rho", "est_wait", "price"})
_ALL = POOL_QUERIES | STAGE_QUERIES
_SHARED = _ALL - {"cachedin", "allocated", "work", "budget_left"}
_COUNTS = frozenset({"queue", "busy", "used", "free", "holders", "queued"})

_RESIDENT_TOTALS = frozenset({"decoders", "residents", "kv_decode", "kv_prefill"})
_BATCH_TOTALS = _RESIDENT_TOTALS | {"tokens", "prefilled", "attention"}

_WORDS = """
waited size age last waiting present decoding admission remaining position demand served arrived
"""
CONTEXT_WORDS = frozenset(_WORDS.split()) | _BATCH_TOTALS
"""Every word that exists only at some moments; `now` is apart because nearly every moment has it."""

_RESIDENT_NAMES = {
    "running.count": "residents",
    "running.decoding": "decoders",
    "running.kv_decode": "kv_decode",
    "running.kv_prefill": "kv_prefill",
    "waiting.count": "waiting_count",
}
_GUARD_NAMES = {
    "running.count": "running_count",
    "running.decoding": "running_decoding",
    "running.kv_decode": "running_kv_decode",
    "running.kv_prefill": "running_kv_prefill",
    "running.preempted": "running_preempted",
    "waiting.count": "waiting_count",
    "waiting.admitted": "waiting_admitted",
    "batch.tokens": "batch_tokens",
    "batch.prefilled": "batch_prefilled",
}
_WORKER_NAMES = {
    "batch.tokens": "tokens",
    "batch.prefilled": "prefilled",
    "batch.decoding": "decoders",
    "batch.kv_decode": "kv_decode",
    "batch.kv_prefill": "kv_prefill",
    "batch.attention": "attention",
}


@dataclass(frozen=True)
class Moment:
    """What may be read at one moment.

    `words` are its context words; `dotted` maps the engine's words of the split edition to the context words they mean.
    """

    name: str
    words: frozenset[str] = frozenset()
    attributes: bool = False
    hidden: bool = False
    queries: frozenset[str] = frozenset()
    draws: bool = False
    now: bool = True
    registers: bool = False
    dotted: Mapping[str, str] = field(default_factory=dict)


_TABLE = (
    Moment("a constant", now=False),
    Moment("a statement", attributes=True, hidden=True, queries=_ALL, draws=True),
    Moment("an admission", attributes=True, queries=_ALL, registers=True),
    Moment("a queue key", frozenset({"waited"}), attributes=True, queries=_ALL, registers=True),
    Moment("an eviction key", frozenset({"size", "age", "last", "waiting"}), True, queries=_SHARED, draws=True),
    Moment("a spill", frozenset({"size", "age", "last", "waiting"}), True, queries=_SHARED),
    Moment("a capacity", frozenset({"present"}), draws=True),
    Moment("a budget", _RESIDENT_TOTALS, queries=_COUNTS, draws=True, registers=True, dotted=_RESIDENT_NAMES),
    Moment("a chunk", _RESIDENT_TOTALS, queries=_COUNTS, registers=True, dotted=_RESIDENT_NAMES),
    Moment(
        "an order",
        _RESIDENT_TOTALS | {"decoding", "admission", "remaining"},
        True,
        queries=_COUNTS,
        registers=True,
        dotted=_RESIDENT_NAMES,
    ),
    Moment("a victim key", frozenset({"decoding", "position", "admission"}), True, queries=_COUNTS),
    Moment("a step cost", _BATCH_TOTALS, queries=_SHARED, draws=True, registers=True, dotted=_WORKER_NAMES),
    Moment("a guard", queries=_SHARED | {"budget_left"}, now=False, registers=True, dotted=_GUARD_NAMES),
    Moment("a gauge", queries=_SHARED, now=False, registers=True),
    Moment("an iteration claim", _BATCH_TOTALS | {"demand", "served", "arrived"}, queries=_COUNTS, registers=True),
    Moment("an end claim", registers=True),
    Moment("a given clause", attributes=True, now=False),
    Moment("an arrival gap", draws=True),
)

MOMENTS: Mapping[str, Moment] = {moment.name.split(" ", 1)[1]: moment for moment in _TABLE}
"""`constant statement admission 'queue key' 'eviction key' spill capacity budget chunk order ...`"""
