"""How tokens are spread over requests, read the same way from a row and from a leaf.

Ruling 6: always the number of requests and the block-table width; where both sides hold complete runtime values also
phase, split pattern of the query lengths, and KV lengths.  Source: phase 2 facts, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    known = requests if requests is not None and _consistent(requests, tokens) else None
    return Grouping((count, table[1]), known)


def row_grouping(table: TensorTable, row: int, slots: tuple[Shape, Shape, Shape], tokens: int) -> Grouping | str:
    """The grouping of a row whose query-length, KV-length and block-table slots have these shapes.

    Returns the rejection reason where shapes and runtime values contradict each other.
    """
    queries, contexts, blocks = slots
    if len(blocks) != 2 or len(queries) != 1 or len(contexts) != 1 or queries[0] != blocks[0]:
        return "request_grouping_unextractable"
    completeness = table.cell(row, "Runtime metadata_completeness")
    if completeness is not None and completeness != "complete":
        return Grouping((blocks[0], blocks[1]), None)
    offsets = _integers(table.cell(row, "Runtime actual_seq_lengths_values"))
    lengths = _integers(table.cell(row, "Runtime actual_seq_lengths_kv_values"))
    if offsets is None or lengths is None:
        return Grouping((blocks[0], blocks[1]), None)
    per_request = _per_request(offsets, tokens)
    if per_request is None or len(lengths) != len(per_request) or len(lengths) != blocks[0]:
        return "runtime_query_offsets_invalid"
    if any(query > 0 and kv <= 0 for query, kv in zip(per_request, lengths, strict=True)):
        return "runtime_workload_unextractable"
    return Grouping((blocks[0], blocks[1]), Requests(per_request, lengths))


def _integers(cell: str | None) -> tuple[int, ...] | None:
    if cell is None:
        return None
    parts = [part for slot in split_slots(cell) for part in slot.split(",") if part.strip()]
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return None
    return tuple(int(value) for value in values) if values and all(v.is_integer() for v in values) else None


def _per_request(offsets: tuple[int, ...], tokens: int) -> tuple[int, ...] | None:
    steps = tuple(high - low for low, high in zip((0, *offsets), offsets, strict=False))
    return steps if offsets[-1] == tokens and all(step >= 0 for step in steps) else None


def _consistent(requests: Requests, tokens: int) -> bool:
    return (
        requests.query_lens is not None
        and requests.kv_lens is not None
        and sum(requests.query_lens) == tokens
        and all(kv > 0 for query, kv in zip(requests.query_lens, requests.kv_lens, strict=True) if query > 0)
    )
