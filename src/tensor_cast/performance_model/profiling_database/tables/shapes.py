"""Shape strings of profiling rows and the shape rules shared by lookup and interpolation.

Source: docs/facts/database-layout.md, "Shape cells", "Formats"; docs/facts/exact-lookup.md, "Padding".
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from tensor_cast.operators.tensor import Shape

__all__ = [
    "ShapeTextError",
    "is_padded",
    "parse_shape_slots",
    "restore_nd",
    "shape_is_padded",
    "split_slots",
    "strip_leading_one",
    "to_nd",
]

_MAX_DIMENSION = 2**53
_MAX_ELEMENTS = 2**63 - 1
_MAX_DIGITS = 20
_INTEGER = re.compile(r"[+-]?[0-9]+")


class ShapeTextError(ValueError):
    """A shape cell cannot be read; `code` is the rejection reason."""

    def __init__(self, text: str, code: str) -> None:
        self.code = code
        super().__init__(f"{code}: {text!r}")


def split_slots(cell: str) -> list[str]:
    """The `;`-separated slots of a cell, outer quotes and blanks removed, empty slots kept."""
    bare = cell.strip().strip('"').strip()
    return [slot.strip() for slot in bare.split(";")] if bare else []


def parse_shape_slots(cell: str) -> list[Shape | None]:
    """One shape per slot, None for an empty slot; `()` is the scalar shape.

    Raises ShapeTextError with code `shape_unparsable` or `dimension_not_positive`.
    """
    return [_parse_shape(slot) if slot else None for slot in split_slots(cell)]


@lru_cache(maxsize=1 << 16)
def _parse_shape(slot: str) -> Shape:
    if slot == "()":
        return ()
    dims = []
    for text in slot.split(","):
        bare = text.strip()
        if len(bare) > _MAX_DIGITS or not _INTEGER.fullmatch(bare):
            raise ShapeTextError(slot, "shape_unparsable")
        dim = int(bare)
        if dim <= 0:
            raise ShapeTextError(slot, "dimension_not_positive")
        if dim > _MAX_DIMENSION:
            raise ShapeTextError(slot, "shape_unparsable")
        dims.append(dim)
    if math.prod(dims) > _MAX_ELEMENTS:
        raise ShapeTextError(slot, "shape_unparsable")
    return tuple(dims)


def restore_nd(shape: Shape) -> Shape:
    """The logical shape of a FRACTAL_NZ tile `(...batch, H, W, bh, bw)`: `(...batch, H*bw, W*bh)`.

    Shapes below rank 4 carry the label but are logical already and stay as they are.
    """
    if len(shape) < 4:
        return shape
    *batch, height, width, block_h, block_w = shape
    return (*batch, height * block_w, width * block_h)


def to_nd(shape: Shape, storage: str) -> Shape:
    """`shape` as logical ND, whatever the storage format."""
    return restore_nd(shape) if storage == "FRACTAL_NZ" else shape


def strip_leading_one(shape: Shape, min_rank: int = 2) -> Shape:
    """`shape` without one leading 1, for ranks of at least `min_rank`; rank-1 shapes are never touched."""
    return shape[1:] if len(shape) >= min_rank and shape[0] == 1 else shape


def is_padded(target: int, measured: int) -> bool:
    """Whether `target` is `measured` rounded up to a block of 16, 32 or 64 (or 8, from 64 upward).

    One-directional: the asked-for dimension is the padded one.
    """
    gap = target - measured
    if gap <= 0 or target % 8 or gap >= 64:
        return False
    for block in (16, 32, 64):
        if target % block == 0 and gap < block:
            return True
    return measured >= 64 and gap < 8


def shape_is_padded(target: Shape, measured: Shape) -> bool:
    """Whether every dimension is equal or padded and at least one is padded."""
    if len(target) != len(measured):
        return False
    padded = False
    for asked, held in zip(target, measured, strict=True):
        if asked == held:
            continue
        if not is_padded(asked, held):
            return False
        padded = True
    return padded
