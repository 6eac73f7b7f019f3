"""Which words may name what (section 5.1 of the language)."""

from __future__ import annotations

from serq.lowering.arithmetic import FUNCTIONS
from serq.lowering.moments import POOL_QUERIES, STAGE_QUERIES

__all__ = [
    "BUILTINS",
    "DISTRIBUTIONS",
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

DISTRIBUTIONS = {"exp": 1, "det": 1, "uniform": 2, "erlang": 2, "h2": 2, "bernoulli": 1}
"""Every distribution with the number of its parameters."""

_STATEMENTS = """
use let def stage pool device engine queue server gauge claim workload session run set observe hold grow shrink load
drop release transfer if else while loop fork join choose mark end turn fifo ps delay step cost
"""
_KEYWORDS = frozenset(_STATEMENTS.split())

RETIRED_NAMES = frozenset({"branch", "enter", "keep", "fit", "where", "admit"})
"""Retired words that name no attribute or constant in the split edition."""

_QUEUE_WORDS = """
set observe hold grow shrink load drop release run tool transfer if while loop fork join choose mark end turn route
gateway prefill decode agg link l2
"""
QUEUE_WORDS = frozenset(_QUEUE_WORDS.split())
"""Statement and role words, which name no queue."""

NO_DEFINITION = (
    RESERVED | _KEYWORDS | frozenset(FUNCTIONS) | frozenset(DISTRIBUTIONS) | POOL_QUERIES | STAGE_QUERIES
) | {"pow", "sum", "blocksize"}
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
