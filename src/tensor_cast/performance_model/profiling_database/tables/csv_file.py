"""A CSV table as records: one header line, required columns, and the line each record ends on."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Final

from tensor_cast.errors import DataFileError
from tensor_cast.files.text import TextLines
from tensor_cast.performance_model.profiling_database.tables.kernel_table import LoadReport

__all__ = ["CsvFile", "in_another_unit"]

_OTHER_UNIT: Final = re.compile(r"Duration\s*\((?!us\))\w+\)")
_CHUNK: Final = 16_384  # records held as text at a time
_SEPARATORS: Final = {"\t": "tabs", ";": "semicolons", "|": "bars"}


class CsvFile:
    """The header at once, the records when iterated, once.  Raises DataFileError for a file that is no such table.

    Codes: `no_header`, `missing_column`, `duplicate_column`, `separator`, `csv_syntax`, and those of the line reader.
    """

    def __init__(self, path: Path, required: tuple[str, ...]) -> None:
        self.path = path
        self._lines = TextLines(path)
        self._records = csv.reader(self._lines)
        self.header = self._read_header(required)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of every record that is not blank."""
        for lines, records in self.chunks():
            yield from zip(lines, records, strict=True)

    def chunks(self) -> Iterator[tuple[list[int], list[list[str]]]]:
        """The same, many at once: the lines and the records."""
        before, records = self._records.line_num, self._next_chunk()
        while records:
            lines = _lines_of(records, before, self._records.line_num)
            if not all(records):
                lines = [line for line, cells in zip(lines, records, strict=True) if cells]
                records = [cells for cells in records if cells]
            if records:
                yield lines, records
            before, records = self._records.line_num, self._next_chunk()

    def _next_chunk(self) -> list[list[str]]:
        try:
            return list(islice(self._records, _CHUNK))
        except csv.Error as error:
            raise DataFileError(self.path, str(error), line=self._records.line_num, code="csv_syntax") from None

    def note_cut(self, report: LoadReport, last_line: int) -> bool:
        """Whether the record that ends on `last_line` ends without a line end, which the report then says.

        A file cut inside its last cell holds a shorter number there that nothing else would show.
        """
        if self._lines.cut_line is None or self._lines.cut_line != last_line:
            return False
        report.notes.append(f"last line {last_line} has no line end: its row may be cut off and is flagged suspect_row")
        return True

    def _read_header(self, required: tuple[str, ...]) -> list[str]:
        try:
            header = [cell.strip() for cell in next(self._records)]
        except StopIteration:
            raise DataFileError(self.path, "is empty: expected a header line", code="no_header") from None
        except csv.Error as error:
            raise DataFileError(self.path, str(error), line=1, code="csv_syntax") from None
        for column in required:
            if column not in header:
                raise self._without(column, header)
        repeated = next((name for name in header if name and header.count(name) > 1), None)
        if repeated:
            raise DataFileError(self.path, f"column {repeated!r} appears twice", line=1, code="duplicate_column")
        return header

    def _without(self, column: str, header: list[str]) -> DataFileError:
        for separator, name in _SEPARATORS.items():
            if column in [cell.strip() for cell in ",".join(header).split(separator)]:
                problem = f"columns are separated by {name}; expected commas"
                return DataFileError(self.path, problem, line=1, code="separator")
        problem = f"column {column!r} is missing{in_another_unit(header)}"
        return DataFileError(self.path, problem, line=1, code="missing_column")


def in_another_unit(header: list[str]) -> str:
    """Which columns hold durations in another unit than microseconds, to be said of a table that has no other."""
    found = [name for name in header if _OTHER_UNIT.search(name)]
    return f"; {', '.join(found)}: durations must be in microseconds, (us)" if found else ""


def _lines_of(records: list[list[str]], before: int, after: int) -> list[int]:
    """The line each record ends on: one line each, unless a quoted cell holds line ends."""
    if after - before == len(records):
        return list(range(before + 1, after + 1))
    lengths = (1 + sum(cell.count("\n") for cell in cells) for cells in records)
    return [before + length for length in accumulate(lengths)]
