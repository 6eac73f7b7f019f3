"""The Ascend layout: one CSV per kernel, tensors as `;`-separated shape cells.

Source: profiling database facts, sections 2 to 4.  A row that cannot be used is counted under a reason with its first
line as example; a file that cannot be used raises DataFileError.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from tensor_cast.dtypes import canonical_ascend_dtype
from tensor_cast.errors import DataFileError
from tensor_cast.leaf import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.kernel_table import (
    CANDIDATE_LATENCY_COLUMNS,
    EXACT_LATENCY_COLUMNS,
    LEGACY_LATENCY_COLUMNS,
    LoadReport,
    TensorTable,
)
from tensor_cast.performance_model.profiling_database.readers.text_source import read_lines
from tensor_cast.performance_model.profiling_database.shapes import (
    ShapeTextError,
    parse_shape_slots,
    split_slots,
)

__all__ = ["parse_latency", "read_rows", "read_tensor_table"]

_REQUIRED: Final = ("Input Shapes", "Input Data Types")
_LATENCY_COLUMNS: Final = tuple(
    dict.fromkeys((*EXACT_LATENCY_COLUMNS, *CANDIDATE_LATENCY_COLUMNS, *LEGACY_LATENCY_COLUMNS))
)
_EXTRA_PREFIXES: Final = ("Runtime ",)
_EXTRA_COLUMNS: Final = (
    "EP Size",
    "avg_seq_len",
    "API Path",
    "aicore_time(us)",
    "aiv_time(us)",
    "Accelerator Core",
)

Slots = tuple[TensorSpec | None, ...]


def read_tensor_table(path: Path, *, synthetic: bool = False) -> TensorTable:
    """Read `<Kernel>.csv`.

    Raises DataFileError (codes `missing_column`, `duplicate_column`, `no_header`, `csv_syntax`, and those of the line
    reader).  Rows are rejected, with a count, as `short_row`, `long_row`, `shape_unparsable`, `dimension_not_positive`,
    `dtype_count_mismatch`, `format_count_mismatch` or `input_shapes_missing`; a row without usable latency is kept out
    as `latency_blank`, `latency_zero` or `latency_invalid`.
    """
    rows = read_rows(path, _REQUIRED)
    header = next(rows).cells
    reader = _TensorRows(path.stem, header, LoadReport(path.stem, path.name))
    if not reader.latency_columns:
        raise DataFileError(
            path,
            f"no latency column; expected one of {', '.join(EXACT_LATENCY_COLUMNS)}",
            line=1,
            code="missing_column",
        )
    for row in rows:
        reader.add(row)
    return reader.table(synthetic)


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One record and the line it ends on."""

    line: int
    cells: list[str]


def read_rows(path: Path, required: tuple[str, ...]) -> Iterator[CsvRow]:
    """The header, then every non-blank record.  Raises DataFileError for a file that is no such table."""
    records = csv.reader(read_lines(path))
    try:
        header = [cell.strip() for cell in next(records)]
    except StopIteration:
        raise DataFileError(path, "is empty: expected a header line", code="no_header") from None
    except csv.Error as error:
        raise DataFileError(path, str(error), line=1, code="csv_syntax") from None
    for column in required:
        if column not in header:
            raise DataFileError(path, f"column {column!r} is missing", line=1, code="missing_column")
    repeated = next((name for name in header if name and header.count(name) > 1), None)
    if repeated:
        raise DataFileError(path, f"column {repeated!r} appears twice", line=1, code="duplicate_column")
    yield CsvRow(1, header)
    try:
        for cells in records:
            if cells:
                yield CsvRow(records.line_num, cells)
    except csv.Error as error:
        raise DataFileError(path, str(error), line=records.line_num, code="csv_syntax") from None


class _TensorRows:
    """Collects accepted rows; equal cells are parsed once."""

    def __init__(self, kernel: str, header: list[str], report: LoadReport) -> None:
        self._kernel = kernel
        self._report = report
        self._width = len(header)
        self._at = {name: i for i, name in enumerate(header)}
        self.latency_columns: dict[str, int] = {}
        for name in _LATENCY_COLUMNS:  # legacy spellings come last and never replace the current one
            if name in self._at:
                self.latency_columns.setdefault(LEGACY_LATENCY_COLUMNS.get(name, name), self._at[name])
        self._extra_at = {
            name: i for name, i in self._at.items() if name.startswith(_EXTRA_PREFIXES) or name in _EXTRA_COLUMNS
        }
        self._slots: dict[tuple[str, str, str], Slots | str] = {}
        self._lines: list[int] = []
        self._inputs: list[Slots] = []
        self._outputs: list[Slots | None] = []
        self._latencies: dict[str, list[float]] = {name: [] for name in self.latency_columns}
        self._extra: dict[str, list[str]] = {name: [] for name in self._extra_at}

    def add(self, row: CsvRow) -> None:
        report = self._report
        report.rows_read += 1
        where = f"{report.source}:{row.line}"
        if len(row.cells) < self._width:
            report.reject("short_row", where)
            return
        if any(cell.strip() for cell in row.cells[self._width :]):
            report.reject("long_row", where)  # an unquoted comma shifts every cell after it
            return
        inputs = self._tensors(row.cells, "Input")
        if isinstance(inputs, str):
            report.reject(inputs, where)
            return
        if all(spec is None for spec in inputs):
            report.reject("input_shapes_missing", where)
            return
        latencies, problem = self._read_latencies(row.cells)
        if problem:
            report.reject(problem, where)
            return
        outputs = self._tensors(row.cells, "Output")
        report.rows_usable += 1
        self._lines.append(row.line)
        self._inputs.append(inputs)
        self._outputs.append(None if isinstance(outputs, str) else outputs)
        for name, value in latencies.items():
            self._latencies[name].append(value)
        for name, i in self._extra_at.items():
            self._extra[name].append(row.cells[i].strip())

    def _tensors(self, cells: list[str], side: str) -> Slots | str:
        texts = tuple(
            cells[self._at[f"{side} {field}"]] if f"{side} {field}" in self._at else ""
            for field in ("Shapes", "Data Types", "Formats")
        )
        key = (texts[0], texts[1], texts[2])
        found = self._slots.get(key)
        if found is None:
            found = _parse_tensors(*key)
            self._slots[key] = found
        return found

    def _read_latencies(self, cells: list[str]) -> tuple[dict[str, float], str]:
        values: dict[str, float] = {}
        problems: list[str] = []
        for name, i in self.latency_columns.items():
            value, problem = parse_latency(cells[i])
            values[name] = value
            if problem:
                problems.append(problem)
        if any(value > 0 for value in values.values()):
            return values, ""
        return values, next((p for p in problems if p != "latency_blank"), "latency_blank")

    def table(self, synthetic: bool) -> TensorTable:
        import numpy as np

        return TensorTable(
            kernel=self._kernel,
            source=self._report.source,
            lines=tuple(self._lines),
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            latencies={name: np.asarray(values) for name, values in self._latencies.items()},
            extra={name: tuple(values) for name, values in self._extra.items()},
            report=self._report,
            synthetic=synthetic,
        )


def parse_latency(cell: str) -> tuple[float, str]:
    """Microseconds, or NaN and the reason: `latency_blank`, `latency_zero` or `latency_invalid`."""
    text = cell.strip()
    if not text or text.upper() == "N/A":
        return math.nan, "latency_blank"
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan, "latency_invalid"
    if value == 0:
        return math.nan, "latency_zero"
    if not math.isfinite(value) or value < 0:
        return math.nan, "latency_invalid"
    return value, ""


def _parse_tensors(shapes: str, dtypes: str, formats: str) -> Slots | str:
    """Tensors by slot, or the rejection reason.  Names align with the non-empty slots or with all slots."""
    try:
        slots = parse_shape_slots(shapes)
    except ShapeTextError as error:
        return error.code
    names = _align(list(_names(dtypes)), slots)
    if names is None:
        return "dtype_count_mismatch"
    storage = _align(list(_names(formats)), slots) if formats.strip(' "') else ["ND"] * len(slots)
    if storage is None:
        return "format_count_mismatch"
    return tuple(
        None if shape is None else _spec(shape, name, layout)
        for shape, name, layout in zip(slots, names, storage, strict=True)
    )


@lru_cache(maxsize=4096)
def _names(cell: str) -> tuple[str, ...]:
    return tuple(split_slots(cell))


def _align(names: list[str], slots: list[Shape | None]) -> list[str] | None:
    while len(names) > len(slots) and not names[-1]:
        names = names[:-1]
    filled = [i for i, shape in enumerate(slots) if shape is not None]
    by_slot = len(names) == len(slots)
    if by_slot and all(names[i] for i in filled):
        return names
    while len(names) > len(filled) and not names[-1]:
        names = names[:-1]
    if len(names) != len(filled):
        return names + [""] * (len(slots) - len(names)) if by_slot else None
    aligned = [""] * len(slots)
    for i, name in zip(filled, names, strict=True):
        aligned[i] = name
    return aligned


@lru_cache(maxsize=1 << 16)
def _spec(shape: Shape, dtype: str, storage: str) -> TensorSpec:
    return TensorSpec(shape, canonical_ascend_dtype(dtype), storage.strip().upper() or "ND")
