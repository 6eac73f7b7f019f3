"""How tokens are spread over requests, read the same way from a row and from a leaf.

Two views that never mix.  Values on both sides: phase, split pattern of the query lengths, KV lengths.  No values on
either side: number of requests and width of the block table.
Source: RFC 4.3.1; decision 002.6; docs/facts/interpolation.md, "Requests of a row".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from tensor_cast.operators.leaf import LeafOp, Phase, Requests
from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.exact.agreement import integers
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

__all__ = ["Grouping", "leaf_grouping", "row_grouping"]

_COMPLETENESS: Final = "Runtime metadata_completeness"
_LENGTHS: Final = ("Runtime actual_seq_lengths_values", "Runtime actual_seq_lengths_kv_values")
_PHASES: Final[tuple[Phase, ...]] = get_args(Phase)


@dataclass(frozen=True, slots=True)
class Grouping:
    """`shapes` is (requests, block-table width), `requests` the complete lengths; None where not known.

    `phase` is that of the lengths, or the recorded one where there are none.
    """

    shapes: tuple[int, int] | None
    requests: Requests | None
    phase: Phase | None

    @property
    def values(self) -> tuple[object, ...] | None:
        """(phase, split pattern, KV lengths): the pattern leaves the token count free only for equal query lengths."""
        if self.requests is None or self.requests.query_lens is None:
            return None
        lengths = self.requests.query_lens
        pattern: object = "equal" if len(set(lengths)) == 1 else lengths
        return (self.phase, pattern, self.requests.kv_lens)


def leaf_grouping(leaf: LeafOp, tokens: int) -> Grouping | Miss:
    """The grouping a leaf carries; a miss that names the field where it is absent, incomplete or contradictory."""
    requests = leaf.requests or Requests()
    role = leaf.role("block_table")
    table = requests.block_table_shape or (None if role is None else role.shape)
    if table is not None and (len(table) != 2 or requests.count not in (None, table[0])):
        hint = f"(requests, blocks) needed, got {list(table)} for {requests.count} requests"
        return _missing("block_table_shape", hint)
    shapes = None if table is None else (table[0], table[1])
    if requests.query_lens is None and requests.kv_lens is None:
        if shapes is None:
            return _missing("block_table_shape", "give requests.block_table_shape (requests, blocks), or the lengths")
        return Grouping(shapes, None, requests.phase)
    if requests.query_lens is None or requests.kv_lens is None:
        absent = "query_lens" if requests.query_lens is None else "kv_lens"
        return _missing(absent, "query and KV lengths belong together")
    if not _consistent(requests.query_lens, requests.kv_lens, tokens):
        hint = f"query lengths must add up to the {tokens} query tokens, each on a context of at least 1"
        return _missing("query_lens", hint)
    if _contradicts(requests):
        return _missing("phase", f"{requests.explicit_phase} contradicts the lengths")
    return Grouping(shapes, requests, requests.phase)


def _missing(field: str, hint: str) -> Miss:
    return Miss(MissReason.SEMANTIC_FIELD_MISSING, field, {"hint": hint})


def row_grouping(table: TensorTable, row: int, slots: tuple[Shape, Shape, Shape], tokens: int) -> Grouping | str:
    """The grouping of a row whose query-length, KV-length and block-table slots have these shapes.

    Returns the rejection reason where the record is incomplete, or where shapes and values contradict each other.
    """
    queries, contexts, blocks = slots
    if len(blocks) != 2 or queries != blocks[:1] or contexts != blocks[:1]:
        return "request_grouping_unextractable"
    shapes = (blocks[0], blocks[1])
    recorded = (table.cell(row, "Runtime phase") or "").strip().lower()
    phase = next((known for known in _PHASES if known == recorded), None)
    cells = [table.cell(row, name) for name in _LENGTHS]
    word = _completeness(table, row, cells)
    if word == "profile_shapes_only":
        return Grouping(shapes, None, phase)
    if word != "complete" or None in cells:
        return "runtime_metadata_incomplete"
    offsets, lengths = integers(cells[0]), integers(cells[1])
    if offsets is None or lengths is None:
        return "runtime_query_offsets_invalid"
    per_request = _per_request(offsets, tokens)
    if per_request is None or not len(lengths) == len(per_request) == blocks[0]:
        return "runtime_query_offsets_invalid"
    if not _consistent(per_request, lengths, tokens):
        return "runtime_workload_unextractable"
    requests = Requests(per_request, lengths, phase)
    return "runtime_phase_contradicts_lengths" if _contradicts(requests) else Grouping(shapes, requests, requests.phase)


def _completeness(table: TensorTable, row: int, cells: list[str | None]) -> str:
    """What the row says of its record; a table without that column speaks by its length cells."""
    if _COMPLETENESS in table.extra:
        return table.cell(row, _COMPLETENESS) or ""
    return "profile_shapes_only" if cells == [None, None] else "complete"


def _contradicts(requests: Requests) -> bool:
    """Whether a stated phase is not that of the lengths; one token on a context of one is prefill and decode alike."""
    stated = requests.explicit_phase
    derived = Requests(requests.query_lens, requests.kv_lens).phase
    if stated is None or derived in (None, "mixed") or stated == derived:
        return False
    return not (stated == "decode" and derived == "prefill" and set(requests.query_lens or ()) <= {0, 1})


def _per_request(offsets: tuple[int, ...], tokens: int) -> tuple[int, ...] | None:
    steps = tuple(high - low for low, high in zip((0, *offsets), offsets, strict=False))
    return steps if offsets[-1] == tokens and all(step >= 0 for step in steps) else None


def _consistent(query_lens: Shape, kv_lens: Shape, tokens: int) -> bool:
    """The lengths add up to the tokens, and whoever asks has a context."""
    pairs = zip(query_lens, kv_lens, strict=True)
    return sum(query_lens) == tokens and all(kv >= (query > 0) for query, kv in pairs)
