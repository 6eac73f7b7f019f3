"""Where many rows of matrix products lie at once.

Rows whose tensors agree in rank, dtype and format share a regime, as `candidate` describes it; only M, K and N differ,
and those are read a column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.paths.path import AlikeRows
from tensor_cast.performance_model.profiling_database.tables.tensor_columns import Coded, TensorColumns, by_width

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import IntArray

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

    left, right = _matrices(columns.shapes[0]), _matrices(columns.shapes[1])
    m, k = left.T
    n = np.where(right[:, 0] == k, right[:, 1], np.where(right[:, 1] == k, right[:, 0], 0))
    plain = (m > 0) & (n > 0)
    numbers, signatures = np.asarray(columns.rows, dtype=np.int64), _signatures(columns)
    found = []
    for signature in np.unique(signatures[plain]).tolist():
        fits = plain & (signatures == signature)
        axes = {axis: values[fits].astype(np.float64) for axis, values in (("M", m), ("K", k), ("N", n))}
        found.append(AlikeRows(numbers[fits], axes))
    return found


def _matrices(shapes: Coded[Shape]) -> IntArray:
    """Each row's two dimensions, zeros for tensors of another rank."""
    import numpy as np

    sides = np.array([shape if len(shape) == 2 else (0, 0) for shape in shapes.distinct], dtype=np.int64)
    return sides[shapes.codes]


def _signatures(columns: TensorColumns) -> IntArray:
    """One number for each combination of ranks, dtypes and formats."""
    import numpy as np

    signature = np.zeros(len(columns.rows), dtype=np.int64)
    ranks = [Coded([len(shape) for shape in column.distinct], column.codes) for column in columns.shapes]
    parts = [np.array(column.distinct, dtype=np.int64)[column.codes] for column in ranks]
    parts += [column.codes for column in (*columns.dtypes, *columns.formats)]
    for part in parts:
        combined = signature * (int(part.max()) + 1) + part
        _, signature = np.unique(combined, return_inverse=True)
    return signature
