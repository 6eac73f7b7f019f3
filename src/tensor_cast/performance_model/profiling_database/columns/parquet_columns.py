"""Columns of a parquet file as numpy arrays, without pandas: pyarrow's own conversions import it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tensor_cast.errors import DataFileError
from tensor_cast.files.text import is_lfs_pointer
from tensor_cast.performance_model.profiling_database.columns.column_rows import Coded, checked_names
from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import BoolArray, FloatArray

__all__ = ["ParquetColumns"]


class ParquetColumns:
    """The columns of one parquet file that a layout reads."""

    def __init__(self, path: Path, layout: TableLayout, max_rows: int) -> None:
        """Raises DataFileError with code `lfs_pointer`, `not_a_file`, `unreadable`, `parquet_unreadable`,
        `missing_column`, `duplicate_column` or `too_many_rows`; the last without reading a row.
        """
        self.path = path
        self._table = _read_table(path, layout, max_rows)
        self.names: tuple[str, ...] = tuple(self._table.column_names)
        self.count: int = self._table.num_rows

    def number(self, name: str) -> FloatArray:
        column = self._table.column(name)
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataFileError(self.path, f"column {name!r} holds {kind}, expected numbers", code="column_type")
        values: FloatArray = _values(column.cast(pa.float64(), safe=False), np.float64)
        values[~_valid(column)] = np.nan
        return values

    def coded(self, name: str) -> Coded:
        column = self._table.column(name)
        if pa.types.is_nested(column.type):
            raise DataFileError(self.path, f"column {name!r} holds {column.type}, expected scalars", code="column_type")
        encoded, valid = column.combine_chunks().dictionary_encode(), _valid(column)
        codes = np.where(valid, _values(encoded.indices.cast(pa.int64()), np.int64), 0)
        return Coded(codes, tuple(encoded.dictionary.to_pylist()) or (None,), valid)


def _valid(column: Any) -> BoolArray:
    """Where a column has a value."""
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    valid: BoolArray = _values(column.is_valid().cast(pa.uint8()), np.uint8).astype(bool)
    return valid


def _values(column: Any, kind: Any) -> Any:
    """The values of a column, copied out of its buffer; whatever stands there where a cell is empty."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(array):
        return np.zeros(0, dtype=kind)
    return np.frombuffer(array.buffers()[1], dtype=kind)[array.offset : array.offset + len(array)].copy()


def _read_table(path: Path, layout: TableLayout, max_rows: int) -> Any:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataFileError(path, "is not a file: expected a parquet table", code="not_a_file")
        if is_lfs_pointer(path):
            problem = "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"
            raise DataFileError(path, problem, code="lfs_pointer")
    except OSError as error:
        raise DataFileError(path, f"cannot be read: {error.strerror or error}", code="unreadable") from None
    try:
        with pq.ParquetFile(path) as file:
            wanted = checked_names(path, file.schema_arrow.names, layout)
            count = file.metadata.num_rows
            if count > max_rows:
                problem = f"has {count} rows, more than the {max_rows} that are read; CASTQ_MAX_ROWS raises the limit"
                raise DataFileError(path, problem, code="too_many_rows")
            return file.read(columns=list(wanted))
    except (pa.ArrowException, OSError) as error:
        problem = f"is truncated or no parquet file: {str(error).splitlines()[0]}"
        raise DataFileError(path, problem, code="parquet_unreadable") from None
