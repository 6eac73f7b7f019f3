"""From the three cells of one side of a row (shapes, dtypes, formats) to its tensors; equal texts are read once.

Source: docs/facts/database-layout.md, "Shape cells", "Names of dtypes", "Formats".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from tensor_cast.dtypes import canonical_ascend_dtype
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.tables.shapes import (
    ShapeTextError,
    parse_shape_slots,
    split_slots,
)
from tensor_cast.performance_model.profiling_database.tables.slot_rows import Slots

__all__ = ["TensorCells"]

# Most shapes: digits and commas, no dimension and no product near a limit.
_PLAIN_SHAPE: Final = re.compile(r"[0-9]{1,15}(?:,[0-9]{1,15})*")
_PLAIN_ELEMENTS: Final = 2**62
_Known = dict[str, TensorSpec]


class TensorCells:
    """Reads cells of one table.  Most rows repeat the names and many of the slots of rows before them."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, str], Slots | str] = {}
        self._layouts: dict[tuple[str, str, int], tuple[_Known, ...] | None] = {}

    @property
    def plain(self) -> bool:
        """Whether no tensor of a row without empty slots is a scalar or a tile."""
        layouts = (slot for layout in self._layouts.values() if layout is not None for slot in layout)
        specs = (spec for slot in layouts for spec in slot.values())
        return all(spec.shape and spec.format != "FRACTAL_NZ" for spec in specs)

    def read(self, shapes: str, dtypes: str, formats: str) -> Slots | str:
        """Tensors by slot, None for an empty one, or the reason why the row is rejected."""
        texts = shapes.split(";") if '"' not in shapes else split_slots(shapes)
        key = (dtypes, formats, len(texts))
        known = self._layouts[key] if key in self._layouts else self._layout(key)
        if known is None:
            return self._whole((shapes, dtypes, formats))
        try:
            return tuple([slot[text] for slot, text in zip(known, texts, strict=True)])
        except KeyError:
            pass
        found = self._whole((shapes, dtypes, formats))
        if isinstance(found, str) or len(found) != len(texts) or None in found:
            return found
        pairs = zip(known, texts, found, strict=True)
        return tuple([slot.setdefault(text, spec) for slot, text, spec in pairs if spec is not None])

    def read_alike(
        self, shapes: Sequence[str], dtypes: Sequence[str], formats: Sequence[str]
    ) -> list[list[TensorSpec]] | None:
        """Rows of equal names and equally many slots, each holding a tensor, slot by slot; None for any others."""
        if '"' in "".join(shapes) or len(set(dtypes)) != 1 or len(set(formats)) != 1:
            return None
        if len(set(map(str.count, shapes, repeat(";")))) != 1:
            return None
        count = shapes[0].count(";") + 1
        slots = ";".join(shapes).split(";")
        return self._read_slots((dtypes[0], formats[0], count), [slots[i::count] for i in range(count)])

    def read_many(self, shapes: Sequence[str], dtypes: Sequence[str], formats: Sequence[str]) -> list[Slots | str]:
        """`read` of each row: rows of equal names and as many slots together."""
        quoted = '"' in "".join(shapes)
        texts = [split_slots(cell) for cell in shapes] if quoted else [cell.split(";") for cell in shapes]
        groups: dict[tuple[str, str, int], list[int]] = {}
        for i, key in enumerate(zip(dtypes, formats, map(len, texts), strict=True)):
            groups.setdefault(key, []).append(i)
        found: list[Slots | str] = [""] * len(shapes)
        for key, rows in groups.items():
            columns = self._read_slots(key, list(zip(*(texts[i] for i in rows), strict=True)))
            together: list[Slots | str] = [] if columns is None else list(zip(*columns, strict=True))
            read = together or [self.read(shapes[i], dtypes[i], formats[i]) for i in rows]
            for i, row in zip(rows, read, strict=True):
                found[i] = row
        return found

    def _read_slots(self, key: tuple[str, str, int], columns: Sequence[Sequence[str]]) -> list[list[TensorSpec]] | None:
        """Rows of one layout, slot by slot; None where one of them cannot be read so."""
        known = self._layouts[key] if key in self._layouts else self._layout(key)
        if not known:
            return None
        named = _aligned(key[0], key[1], [()] * key[2])
        for slot, column, name, layout in zip(known, columns, *(named or ((), ())), strict=True):
            for text in set(column) - slot.keys():
                spec = _one(text, name, layout)
                if spec is None:
                    return None
                slot[text] = spec
        return [list(map(slot.__getitem__, column)) for slot, column in zip(known, columns, strict=True)]

    def _layout(self, key: tuple[str, str, int]) -> tuple[_Known, ...] | None:
        """Tensors by text for each slot of rows that leave none empty; None where the names do not fit so many."""
        dtypes, formats, count = key
        filled: list[Shape | None] = [()] * count
        fits = _aligned(dtypes, formats, filled) is not None
        found = tuple(_Known() for _ in range(count)) if fits else None
        self._layouts[key] = found
        return found

    def _whole(self, key: tuple[str, str, str]) -> Slots | str:
        """A row read slot by slot, kept where its cells are likely to return."""
        found = self._cells.get(key)
        if found is None:
            found = _parse(*key)
            if isinstance(found, str) or None in found or not found:
                self._cells[key] = found
        return found


def _one(text: str, name: str, layout: str) -> TensorSpec | None:
    """The tensor of one slot, or None for an empty slot or one that cannot be read."""
    if _PLAIN_SHAPE.fullmatch(text):
        dims = tuple(map(int, text.split(",")))
        return _tensor(dims, name, layout) if math.prod(dims) <= _PLAIN_ELEMENTS and 0 not in dims else None
    try:
        shapes = parse_shape_slots(text)
    except ShapeTextError:
        return None
    shape = shapes[0] if len(shapes) == 1 else None
    return None if shape is None else _tensor(shape, name, layout)


def _tensor(shape: Shape, name: str, layout: str) -> TensorSpec:
    return TensorSpec(shape, canonical_ascend_dtype(name), layout.strip().upper() or "ND")


def _parse(shapes: str, dtypes: str, formats: str) -> Slots | str:
    """Names align with the non-empty slots or with all slots."""
    try:
        slots = parse_shape_slots(shapes)
    except ShapeTextError as error:
        return error.code
    named = _aligned(dtypes, formats, slots)
    if named is None:
        return "dtype_count_mismatch" if _align(split_slots(dtypes), slots) is None else "format_count_mismatch"
    return tuple(
        None if shape is None else _tensor(shape, name, layout)
        for shape, name, layout in zip(slots, *named, strict=True)
    )


def _aligned(dtypes: str, formats: str, slots: list[Shape | None]) -> tuple[list[str], list[str]] | None:
    names = _align(split_slots(dtypes), slots)
    storage = _align(split_slots(formats), slots) if formats.strip(' "') else ["ND"] * len(slots)
    return None if names is None or storage is None else (names, storage)


def _align(names: list[str], slots: list[Shape | None]) -> list[str] | None:
    """One name per slot.  Exports may leave out trailing empty slots on either side, and name empty ones or not."""
    filled = [i for i, shape in enumerate(slots) if shape is not None]
    names = _without_trailing(names, len(slots))
    by_slot = len(names) == len(slots)
    if by_slot and all(names[i] for i in filled):
        return names
    names = _without_trailing(names, len(filled))
    if len(names) != len(filled):
        padded = names + [""] * (len(slots) - len(names))
        return padded if by_slot or (len(padded) == len(slots) and _names_its_slots(padded, slots)) else None
    aligned = [""] * len(slots)
    for i, name in zip(filled, names, strict=True):
        aligned[i] = name
    return aligned


def _names_its_slots(names: list[str], slots: list[Shape | None]) -> bool:
    """Whether each tensor has a name and each empty slot none."""
    return all((name.upper() in _ABSENT) is (shape is None) for name, shape in zip(names, slots, strict=True))


def _without_trailing(names: list[str], count: int) -> list[str]:
    """At most `count` names, as long as those beyond are blank or stand for an absent slot."""
    while len(names) > count and names[-1].upper() in _ABSENT:
        names = names[:-1]
    return names


_ABSENT = ("", "DT_UNDEFINED", "NULL")
