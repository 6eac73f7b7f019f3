"""What a row and a question may both know beyond shapes; where both know it, it must agree, strict or not.

`Runtime phase`, `Runtime batch_size`, `EP Size` and the request lengths of a row against the request grouping and the
parallel layout of a question.  A blank cell, and a fact the question does not carry, is not known and decides nothing.
Source: decision 002.30.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tensor_cast.files.decimal_text import parse_whole
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.parallel import ParallelConfig
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.shapes import split_slots

__all__ = ["agreement", "fact_names", "integers", "leaf_facts", "parse_ep_size", "regime_form", "row_fact"]

Reader = Callable[[str], object]
_UNKNOWN: Final = ("", "-1", "nan", "none", "unknown")


def parse_ep_size(cell: str | None) -> int | None:
    """A positive integer from an `EP Size` cell (integral floats allowed), else None."""
    value = None if cell is None else parse_whole(cell)
    return value if value is not None and value > 0 else None


def integers(cell: str | None) -> tuple[int, ...] | None:
    """The whole numbers of a cell such as `1,2;3`; None where one is none, or where there are none."""
    parts = [part for slot in split_slots(cell or "") for part in slot.split(",") if part.strip()]
    values = [parse_whole(part) for part in parts]
    return None if not values or None in values else tuple(value for value in values if value is not None)


def _phase(text: str) -> str | None:
    word = text.strip().lower()
    return None if word in _UNKNOWN else word


def _batch(text: str) -> int | None:
    value = parse_whole(text)
    return value if value is not None and value > 0 else None


_READERS: Final[Mapping[str, tuple[str, Reader]]] = {
    "phase": ("Runtime phase", _phase),
    "batch": ("Runtime batch_size", _batch),
    "ep_size": ("EP Size", parse_ep_size),
    "kv_lens": ("Runtime actual_seq_lengths_kv_values", integers),
}


def fact_names(table: TensorTable) -> tuple[str, ...]:
    """The facts that a table has a column for."""
    return tuple(name for name, (column, _) in _READERS.items() if column in table.extra)


def row_fact(table: TensorTable, row: int, name: str) -> object:
    """One fact of a row, or None where it is not known."""
    column, read = _READERS[name]
    text = table.cell(row, column)
    return None if text is None else read(text)


def leaf_facts(leaf: LeafOp, parallel: ParallelConfig) -> dict[str, object]:
    """The facts that a question carries."""
    requests = leaf.requests
    known = {
        "phase": None if requests is None else requests.phase,
        "batch": None if requests is None else requests.count,
        "ep_size": parallel.expert_parallel_size,
        "kv_lens": None if requests is None else requests.kv_lens,
    }
    return {name: value for name, value in known.items() if value is not None}


def regime_form(name: str, value: Any) -> object:
    """A fact as a regime holds it: lengths that are all alike are `equal`."""
    return "equal" if name == "kv_lens" and len(set(value)) == 1 else value


def agreement(table: TensorTable, leaf: LeafOp, parallel: ParallelConfig) -> Callable[[int], bool] | None:
    """Whether a row agrees with the question wherever both know a fact; None where the table knows none."""
    names = fact_names(table)
    if not names:
        return None
    asked = {name: value for name, value in leaf_facts(leaf, parallel).items() if name in names}
    if not asked:
        return None

    def agrees(row: int) -> bool:
        held = ((value, row_fact(table, row, name)) for name, value in asked.items())
        return all(fact is None or fact == value for value, fact in held)

    return agrees
