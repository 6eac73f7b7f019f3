"""Columns of a CSV file: numbers where every cell is one, text elsewhere."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tensor_cast.errors import DataFileError
from tensor_cast.files.text import TextLines
from tensor_cast.performance_model.profiling_database.columns.column_rows import Coded, checked_names
from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import FloatArray

__all__ = ["CsvColumns"]

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_TRUTHS: Final = {"true": True, "True": True, "false": False, "False": False}


class CsvColumns:
    """The columns of one CSV file that a layout reads; a blank cell is empty."""

    def __init__(self, path: Path, layout: TableLayout, max_rows: int) -> None:
        """Raises DataFileError as `TextLines` does, and with code `no_header`, `missing_column`, `duplicate_column`,
        `row_length`, `csv_syntax` or `too_many_rows`.
        """
        self.path = path
        self._cells, self._lines = _read_cells(path, layout, max_rows)
        self.names: tuple[str, ...] = tuple(self._cells)
        self.count = len(self._cells[layout.latency])

    def number(self, name: str) -> FloatArray:
        cells = self._cells[name]
        for i, cell in enumerate(cells):
            if cell and not _NUMBER.fullmatch(cell):
                problem = f"column {name!r} holds {cell[:40]!r}, expected a number"
                raise DataFileError(self.path, problem, line=self._lines[i], code="column_type")
        return np.array([float(cell) if cell else np.nan for cell in cells], dtype=np.float64)

    def coded(self, name: str) -> Coded:
        cells = self._cells[name]
        places: dict[str, int] = {cell: i for i, cell in enumerate(dict.fromkeys(cell for cell in cells if cell))}
        codes = np.array([places.get(cell, 0) for cell in cells], dtype=np.int64)
        return Coded(codes, _typed(tuple(places)) or (None,), np.array([bool(cell) for cell in cells], dtype=bool))


def _typed(texts: tuple[str, ...]) -> tuple[object, ...]:
    """The distinct cells of a column as whole numbers, numbers or truths where all of them are, else as text."""
    if all(_WHOLE.fullmatch(text) for text in texts):
        return tuple(map(int, texts))
    if all(_NUMBER.fullmatch(text) for text in texts):
        return tuple(map(float, texts))
    return tuple(_TRUTHS[text] for text in texts) if all(text in _TRUTHS for text in texts) else texts


def _read_cells(path: Path, layout: TableLayout, max_rows: int) -> tuple[dict[str, list[str]], list[int]]:
    """The cells of the columns read, and the line each row stands on."""
    rows = csv.reader(TextLines(path), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        if not header:
            raise DataFileError(path, "has no header line", line=1, code="no_header")
        places = {name: header.index(name) for name in checked_names(path, header, layout)}
        cells: dict[str, list[str]] = {name: [] for name in places}
        lines: list[int] = []
        for row in rows:
            if not row:
                continue
            if len(lines) >= max_rows:
                problem = f"has more than the {max_rows} rows that are read; CASTQ_MAX_ROWS raises the limit"
                raise DataFileError(path, problem, code="too_many_rows")
            if len(row) != len(header):
                problem = f"has {len(row)} cells, the header has {len(header)}"
                raise DataFileError(path, problem, line=rows.line_num, code="row_length")
            lines.append(rows.line_num)
            for name, place in places.items():
                cells[name].append(row[place].strip())
    except csv.Error as error:
        raise DataFileError(path, f"is no CSV table: {error}", line=rows.line_num, code="csv_syntax") from None
    return cells, lines
