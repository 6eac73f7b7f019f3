"""Rows of tensors as columns, so that what is asked of every row costs no Python step of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

from tensor_cast.leaf import Shape, TensorSpec

__all__ = ["TensorColumns", "by_width", "grouped", "of_distinct"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_SHAPE, _DTYPE, _FORMAT = attrgetter("shape"), attrgetter("dtype"), attrgetter("format")


@dataclass(frozen=True)
class TensorColumns:
    """Rows that hold equally many tensors: their numbers, and per slot each row's tensor."""

    rows: Sequence[int]
    slots: tuple[tuple[TensorSpec, ...], ...]

    @cached_property
    def shapes(self) -> list[list[Shape]]:
        """Per slot each row's shape."""
        return [list(map(_SHAPE, slot)) for slot in self.slots]

    def dtypes(self, key: Callable[[str], str] | None = None) -> list[list[str]]:
        """Per slot each row's dtype, or what `key` makes of it."""
        found = [list(map(_DTYPE, slot)) for slot in self.slots]
        return found if key is None else [of_distinct(key, column) for column in found]

    def formats(self) -> list[list[str]]:
        """Per slot each row's storage format."""
        return [list(map(_FORMAT, slot)) for slot in self.slots]


def by_width(specs: Sequence[tuple[TensorSpec, ...]], rows: Sequence[int]) -> Iterator[TensorColumns]:
    """The given rows, those of equally many tensors together, in order; rows without tensors are left out."""
    chosen = specs if len(rows) == len(specs) else [specs[row] for row in rows]
    widths = set(map(len, chosen))
    for width in sorted(widths - {0}):
        if len(widths) == 1:
            yield TensorColumns(rows, tuple(zip(*chosen, strict=True)))
            return
        alike = [i for i, tensors in enumerate(chosen) if len(tensors) == width]
        yield TensorColumns([rows[i] for i in alike], tuple(zip(*(chosen[i] for i in alike), strict=True)))


def of_distinct(make: Callable[[K], T], column: Sequence[K]) -> list[T]:
    """`make` of each value, called once per distinct value."""
    made = {value: make(value) for value in set(column)}
    return list(map(made.__getitem__, column))


def grouped(keys: Iterable[K], rows: Iterable[int]) -> dict[K, list[int]]:
    """Rows by key, in order."""
    found: dict[K, list[int]] = {}
    for key, row in zip(keys, rows, strict=True):
        found.setdefault(key, []).append(row)
    return found
