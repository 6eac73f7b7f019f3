"""The tensors of many rows, kept slot by slot: a row is put together when it is looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar, overload

from tensor_cast.operators.tensor import TensorSpec

__all__ = ["SlotRows", "Slots"]

Slots = tuple[TensorSpec | None, ...]
R = TypeVar("R", bound="Slots | None", covariant=True)


class SlotRows(Sequence[R]):
    """Rows in the order they were added.  Hundreds of thousands are a few lists, which a collector walks at once."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[Sequence[R]] = []
        self._length = 0

    def add_columns(self, columns: Sequence[Sequence[TensorSpec]]) -> None:
        """Rows that fill the same slots, one sequence per slot."""
        self._add(_Columns(columns))  # type: ignore[arg-type]  # a row of tensors alone is one of any kind

    def add_rows(self, rows: Sequence[R]) -> None:
        """Rows as they are."""
        if self._parts and isinstance(self._parts[-1], list):
            self._parts[-1].extend(rows)
            self._length += len(rows)
        else:
            self._add(list(rows))

    def _add(self, part: Sequence[R]) -> None:
        self._starts.append(self._length)
        self._parts.append(part)
        self._length += len(part)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, row: int) -> R: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[R]: ...
    def __getitem__(self, row: int | slice) -> R | Sequence[R]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(self._length))]
        at = row + self._length if row < 0 else row
        if not 0 <= at < self._length:
            raise IndexError(row)
        part = bisect_right(self._starts, at) - 1
        return self._parts[part][at - self._starts[part]]

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self._parts)


class _Columns(Sequence[Slots]):
    def __init__(self, columns: Sequence[Sequence[TensorSpec]]) -> None:
        self._columns = tuple(columns)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, row: int) -> Slots: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Slots]: ...
    def __getitem__(self, row: int | slice) -> Slots | Sequence[Slots]:
        if isinstance(row, slice):
            return list(self)[row]
        return tuple([column[row] for column in self._columns])

    def __iter__(self) -> Iterator[Slots]:
        return zip(*self._columns, strict=True)
