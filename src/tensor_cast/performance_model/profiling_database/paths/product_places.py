"""Where many rows of matrix products lie at once.

Rows whose tensors agree in rank, dtype and format share a regime, as `candidate` describes it; only M, K and N differ,
and those are read a column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from tensor_cast.leaf import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.paths.path import AlikeRows
from tensor_cast.performance_model.profiling_database.tensor_columns import TensorColumns, by_width, grouped

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.kernel_table import IntArray

__all__ = ["product_places"]


def product_places(specs: Sequence[tuple[TensorSpec, ...]], rows: Sequence[int]) -> list[AlikeRows]:
    """Rows that multiply two plain matrices, by their common regime; others are left to be described one by one."""
    found: list[AlikeRows] = []
    for columns in by_width(specs, rows):
        if len(columns.slots) >= 2:
            found += _alike(columns)
    return found


def _alike(columns: TensorColumns) -> list[AlikeRows]:
    import numpy as np

    shapes = columns.shapes
    ranks = [list(map(len, column)) for column in shapes]
    signatures = zip(*ranks, *columns.dtypes(), *columns.formats(), strict=True)
    numbers = np.asarray(columns.rows)
    found = []
    for signature, places in grouped(signatures, range(len(columns.rows))).items():
        if signature[:2] != (2, 2):
            continue
        left, right = (_matrix([column[i] for i in places]) for column in shapes[:2])
        k = left[:, 1]
        n = np.where(right[:, 0] == k, right[:, 1], np.where(right[:, 1] == k, right[:, 0], 0))
        fits = n > 0
        axes = {"M": left[fits, 0], "K": k[fits], "N": n[fits]}
        if fits.any():
            real = {axis: values.astype(np.float64) for axis, values in axes.items()}
            found.append(AlikeRows(numbers[np.asarray(places)[fits]], real))
    return found


def _matrix(shapes: list[Shape]) -> IntArray:
    import numpy as np

    return np.fromiter(chain.from_iterable(shapes), np.int64, 2 * len(shapes)).reshape(-1, 2)
