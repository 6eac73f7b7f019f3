"""Rows of tensors as columns, so that what is asked of every row costs no Python step of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from tensor_cast.operators.tensor import Shape, TensorSpec

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import IntArray

__all__ = ["Coded", "TensorColumns", "by_width"]

T = TypeVar("T", bound=Hashable)
_SHAPE, _DTYPE, _FORMAT = attrgetter("shape"), attrgetter("dtype"), attrgetter("format")


@dataclass(frozen=True)
class Coded(Generic[T]):
    """A column by its distinct values: row `i` holds `distinct[codes[i]]`."""

    distinct: list[T]
    codes: IntArray

    @classmethod
    def of(cls, column: list[T]) -> Coded[T]:
        """The column's values, each kept once."""
        import numpy as np

        places = {value: i for i, value in enumerate(set(column))}
        if len(places) == 1:
            return cls(list(places), np.zeros(len(column), dtype=np.int64))
        return cls(list(places), np.fromiter(map(places.__getitem__, column), np.int64, len(column)))


@dataclass(frozen=True)
class TensorColumns:
    """Rows that hold equally many tensors: their numbers, and per slot each row's tensor."""

    rows: Sequence[int]
    slots: tuple[tuple[TensorSpec, ...], ...]

    @cached_property
    def shapes(self) -> list[Coded[Shape]]:
        """Per slot the rows' shapes."""
        return [Coded.of(list(map(_SHAPE, slot))) for slot in self.slots]

    @cached_property
    def dtypes(self) -> list[Coded[str]]:
        """Per slot the rows' dtypes."""
        return [Coded.of(list(map(_DTYPE, slot))) for slot in self.slots]

    @cached_property
    def formats(self) -> list[Coded[str]]:
        """Per slot the rows' storage formats."""
        return [Coded.of(list(map(_FORMAT, slot))) for slot in self.slots]


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
