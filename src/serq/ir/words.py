"""Which words may name what.  Source: docs/language.md, "Names"."""

from __future__ import annotations

from serq.ir.arithmetic import FUNCTIONS
from serq.ir.moments import POOL_QUERIES, STAGE_QUERIES

__all__ = [
    "AGGREGATES",
    "BUILTINS",
    "CALLED",
    "DISTRIBUTIONS",
    "KEYWORDS",
    "NO_DEFINITION",
    "QUEUE_WORDS",
    "RESERVED",
    "RETIRED_NAMES",
    "RETIRED_WORDS",
    "TRACE_ATTRIBUTES",
]

BUILTINS = ("cached", "serial", "turn_no", "new", "out", "think", "more", "forced", "computed")
"""The attributes every session has, in the order of their slots."""

TRACE_ATTRIBUTES = frozenset({"turn_no", "new", "out", "think", "more", "forced"})

_RESERVED = """
admission admitted age arrived attention batch decoders decoding demand inf kv_decode kv_prefill last now position
preempted prefilled present remaining request residents running self served size tokens waited waiting
"""
RESERVED = frozenset(_RESERVED.split())
"""Words no program may use as a name."""

AGGREGATES = frozenset({"count", "total", "largest", "smallest", "prefix_total"})
"""What an `at end` claim asks of an observation."""

DISTRIBUTIONS = {"exp": 1, "det": 1, "uniform": 2, "erlang": 2, "h2": 2, "bernoulli": 1}
"""Every distribution with the number of its parameters."""

_KEYWORDS = """
admit advance arrivals arrive at batch bernoulli block budget by cache cap choose chunk claim closed connector cost
decode def delay device drop each else end engine every evict exclusive fifo fn fork forward from gauge given granule
grow growing held hidden hold horizon if in init iteration join latency lease leases let lifo link load loop lru mark
memory most none observe of on only ordered per_token poisson pool preempt prefill prefix ps queue release renewal
reply requeue reserve reuse run save scheduler seed send serve server session set shrink some spill stage state step
sum suspend tail taking to tool trace transfer turn use via warmup when while worker workload Cost
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words of the grammar that name no device, engine, capacity or definition."""

RETIRED_NAMES = frozenset({"branch", "enter", "keep", "fit", "where", "admit"})
"""Retired words that name no attribute, constant or claim in the split edition."""

_QUEUE_WORDS = """
set observe hold grow shrink load drop release run tool transfer if while loop fork join choose mark end turn
gateway prefill decode agg link l2 kvt
"""
QUEUE_WORDS = frozenset(_QUEUE_WORDS.split())
"""Statement and role words, which name no queue."""

CALLED = frozenset(FUNCTIONS) | frozenset(DISTRIBUTIONS) | POOL_QUERIES | STAGE_QUERIES | AGGREGATES | {"blocksize"}
"""Words that are called: they name no definition, and no capacity of a device."""

NO_DEFINITION = RESERVED | KEYWORDS | CALLED | RETIRED_NAMES | {"main"}
"""Words that may not name a definition or one of its parameters."""

RETIRED_WORDS = {
    "ntok": "tokens",
    "npre": "prefilled",
    "ndec": "decoders",
    "nres": "residents",
    "kvb": "kv_decode",
    "kvp": "kv_prefill",
    "attn": "attention",
}
"""Retired context words and their replacements."""
