"""How tokens are spread over requests, read the same way from a row and from a leaf.

Ruling 6: always the number of requests and the block-table width; where both sides hold complete runtime values also
phase, split pattern of the query lengths, and KV lengths.  Source: phase 2 facts, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.decimal_text import parse_whole
from tensor_cast.leaf import LeafOp, Requests, Shape
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.shapes import split_slots

__all__ = ["Grouping", "leaf_grouping", "row_grouping"]


@dataclass(frozen=True, slots=True)
class Grouping:
    """`shapes` is (requests, block-table width); `requests` the complete lengths, or None where they are not known."""

    shapes: tuple[int, int]
    requests: Requests | None

    @property
    def values(self) -> tuple[object, ...] | None:
        """(phase, split pattern, KV lengths): the pattern leaves the token count free only for equal query lengths."""
        if self.requests is None or self.requests.query_lens is None:
            return None
        lengths = self.requests.query_lens
        pattern: object = "equal" if len(set(lengths)) == 1 else lengths
        return (self.requests.phase, pattern, self.requests.kv_lens)


def leaf_grouping(leaf: LeafOp, tokens: int) -> Grouping | Miss:
    """The grouping a leaf carries; a miss that names the field where it does not."""
    requests = leaf.requests
    table = requests.block_table_shape if requests is not None else None
    if table is None:
        role = leaf.role("block_table")
        table = role.shape if role is not None else None
    if table is None or len(table) != 2:
        hint = "give requests.block_table_shape (requests, blocks)"
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "block_table_shape", {"hint": hint})
    count = table[0] if requests is None or requests.count is None else requests.count
    if count != table[0]:
        hint = f"{count} requests but a block table for {table[0]}"
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "block_table_shape", {"hint": hint})
    if requests is None or requests.query_lens is None or requests.kv_lens is None:
        return Grouping((count, table[1]), None)
    if not _consistent(requests.query_lens, requests.kv_lens, tokens):
        hint = f"query lengths must add up to the {tokens} query tokens, each on a context of at least 1"
        return Miss(MissReason.SEMANTIC_FIELD_MISSING, "query_lens", {"hint": hint})
    return Grouping((count, table[1]), requests)


def row_grouping(table: TensorTable, row: int, slots: tuple[Shape, Shape, Shape], tokens: int) -> Grouping | str:
    """The grouping of a row whose query-length, KV-length and block-table slots have these shapes.

    Returns the rejection reason where shapes and runtime values contradict each other.
    """
    queries, contexts, blocks = slots
    if len(blocks) != 2 or queries != blocks[:1] or contexts != blocks[:1]:
        return "request_grouping_unextractable"
    shapes = (blocks[0], blocks[1])
    column = "Runtime metadata_completeness"
    if column in table.extra and table.cell(row, column) != "complete":
        return Grouping(shapes, None)
    cells = [table.cell(row, f"Runtime actual_seq_lengths_{name}") for name in ("values", "kv_values")]
    if None in cells:
        return Grouping(shapes, None)
    offsets, lengths = _integers(cells[0]), _integers(cells[1])
    if offsets is None or lengths is None:
        return "runtime_query_offsets_invalid"
    per_request = _per_request(offsets, tokens)
    if per_request is None or not len(lengths) == len(per_request) == blocks[0]:
        return "runtime_query_offsets_invalid"
    if not _consistent(per_request, lengths, tokens):
        return "runtime_workload_unextractable"
    return Grouping(shapes, Requests(per_request, lengths))


def _integers(cell: str | None) -> tuple[int, ...] | None:
    if cell is None:
        return None
    parts = [part for slot in split_slots(cell) for part in slot.split(",") if part.strip()]
    values = [parse_whole(part) for part in parts]
    return tuple(value for value in values if value is not None) if values and None not in values else None


def _per_request(offsets: tuple[int, ...], tokens: int) -> tuple[int, ...] | None:
    steps = tuple(high - low for low, high in zip((0, *offsets), offsets, strict=False))
    return steps if offsets[-1] == tokens and all(step >= 0 for step in steps) else None


def _consistent(query_lens: Shape, kv_lens: Shape, tokens: int) -> bool:
    """The lengths add up to the tokens, and whoever asks has a context."""
    pairs = zip(query_lens, kv_lens, strict=True)
    return sum(query_lens) == tokens and all(kv >= (query > 0) for query, kv in pairs)
