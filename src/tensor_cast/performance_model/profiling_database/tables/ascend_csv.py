"""The Ascend layout: one CSV per kernel, tensors as `;`-separated shape cells.

A row that cannot be used is counted under a reason with its first line as example; a file that cannot be used raises
DataFileError.  Source: docs/facts/database-layout.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from tensor_cast.errors import DataFileError
from tensor_cast.files.decimal_text import parse_real, parse_whole
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.tables.csv_file import CsvFile, in_another_unit
from tensor_cast.performance_model.profiling_database.tables.kernel_table import (
    CANDIDATE_LATENCY_COLUMNS,
    EXACT_LATENCY_COLUMNS,
    LEGACY_LATENCY_COLUMNS,
    LoadReport,
    TensorTable,
)
from tensor_cast.performance_model.profiling_database.tables.quiet_collector import collector_at_rest
from tensor_cast.performance_model.profiling_database.tables.slot_rows import SlotRows, Slots
from tensor_cast.performance_model.profiling_database.tables.tensor_cells import TensorCells

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import FloatArray

__all__ = ["CUT_OFF", "WHOLE_COLUMNS", "parse_latency", "read_tensor_table"]

CUT_OFF: Final = "no line end: the row may be cut off"
_REQUIRED: Final = ("Input Shapes", "Input Data Types")
_TENSOR_FIELDS: Final = ("Shapes", "Data Types", "Formats")
_LATENCY_COLUMNS: Final = tuple(
    dict.fromkeys((*EXACT_LATENCY_COLUMNS, *CANDIDATE_LATENCY_COLUMNS, *LEGACY_LATENCY_COLUMNS))
)
_KERNEL_COLUMNS: Final = ("Type", "OP Type")
_EXTRA_PREFIXES: Final = ("Runtime ",)
_EXTRA_COLUMNS: Final = (
    "EP Size",
    "avg_seq_len",
    "API Path",
    "aicore_time(us)",
    "aiv_time(us)",
    "Accelerator Core",
)
# Columns that hold one whole number or nothing.  `EP Size` is not among them: a row without a usable one is kept for
# the base, which compares it, and refused by the fused path under a reason of its own.
WHOLE_COLUMNS: Final = (
    "avg_seq_len",
    "Runtime avg_seq_len",
    "Runtime batch_size",
    "Runtime block_size",
    "Runtime num_heads",
    "Runtime num_key_value_heads",
    "Runtime sparse_block_size",
    "Runtime sparse_indices_valid_count",
    "Runtime sparse_mode",
    "Runtime topk",
)
_BLANK: Final = frozenset({"", "NAN", "N/A"})
_PLAIN_LENGTH: Final = 32
_LAUNCH_SUFFIX: Final = re.compile(r"_[0-9]+$")


def read_tensor_table(path: Path, *, synthetic: bool = False) -> TensorTable:
    """Read `<Kernel>.csv`.

    Raises DataFileError (codes `missing_column`, `duplicate_column`, `no_header`, `separator`, `csv_syntax`, and those
    of the line reader).  Rows are rejected, with a count, as `short_row`, `long_row`, `other_kernel`,
    `shape_unparsable`, `dimension_not_positive`, `dtype_count_mismatch`, `format_count_mismatch`,
    `input_shapes_missing` or `number_invalid`; a row without usable latency is kept out as `latency_blank`,
    `latency_zero` or `latency_invalid`.  A last row without a line end is used and marked as suspect.
    """
    file = CsvFile(path, _REQUIRED)
    reader = _TensorRows(path.stem, file.header, LoadReport(path.stem, path.name))
    if not reader.latency_columns:
        raise DataFileError(
            path,
            f"no latency column; expected one of {', '.join(EXACT_LATENCY_COLUMNS)}{in_another_unit(file.header)}",
            line=1,
            code="missing_column",
        )
    line = 0
    with collector_at_rest():
        for lines, records in file.chunks():
            line = lines[-1]
            reader.add_many(lines, records)
        return reader.table(synthetic, line if file.note_cut(reader.report, line) else None)


class _TensorRows:
    """Collects accepted rows."""

    def __init__(self, kernel: str, header: list[str], report: LoadReport) -> None:
        self.report = report
        self._kernel = kernel
        self._width = len(header)
        self._at = {name: i for i, name in enumerate(header)}
        self.latency_columns: dict[str, int] = {}
        for name in _LATENCY_COLUMNS:  # legacy spellings come last and never replace the current one
            if name in self._at:
                self.latency_columns.setdefault(LEGACY_LATENCY_COLUMNS.get(name, name), self._at[name])
        self._inputs_at, self._outputs_at = (
            tuple(self._at.get(f"{side} {field}", -1) for field in _TENSOR_FIELDS) for side in ("Input", "Output")
        )
        self._kernel_at = next((self._at[name] for name in _KERNEL_COLUMNS if name in self._at), -1)
        self._kernels = {"": True, kernel: True}
        self._whole_at = [(name, self._at[name]) for name in WHOLE_COLUMNS if name in self._at]
        self._whole: dict[str, bool] = {}
        self._cells = TensorCells()
        self._plain = True  # so far every record's input slots were filled
        self._lines: list[int] = []
        self._inputs: SlotRows[Slots | None] = SlotRows()
        self._outputs: SlotRows[Slots | None] = SlotRows()
        self._latencies: list[list[float]] = [[] for _ in self.latency_columns]
        self._extra: dict[str, list[str]] = {
            name: [] for name in self._at if name.startswith(_EXTRA_PREFIXES) or name in _EXTRA_COLUMNS
        }
        self._extra_at = [(column, self._at[name]) for name, column in self._extra.items()]

    def add_many(self, lines: list[int], records: list[list[str]]) -> None:
        """As `add` of each record in turn, a column at a time where the records are alike.

        A record that some column speaks against goes to `add`, which rejects it under its reason; the order of the
        others is theirs.
        """
        if set(map(len, records)) != {self._width}:
            for line, cells in zip(lines, records, strict=True):
                self.add(line, cells)
            return
        columns = list(zip(*records, strict=True))
        count = len(records)
        inputs, outputs = (self._side(columns, at) for at in (self._inputs_at, self._outputs_at))
        alike = self._cells.read_alike(*inputs)
        read = self._cells.read_many(*inputs) if alike is None else ()
        latencies = [read_latencies(columns[i]) for i in self.latency_columns.values()]
        suspects = self._suspects(columns, read, latencies)
        for i in sorted(suspects):
            self.add(lines[i], records[i])
        good = [i not in suspects for i in range(count)] if suspects else [True] * count
        self._keep_side(self._inputs, alike, read, good)
        alike = self._cells.read_alike(*outputs)
        read = self._cells.read_many(*outputs) if alike is None else ()
        self._keep_side(self._outputs, alike, read, good)
        self.report.rows_read += count - len(suspects)
        self.report.rows_usable += count - len(suspects)
        self._lines.extend(compress(lines, good))
        for values, found in zip(self._latencies, latencies, strict=True):
            values.extend(compress(found, good))
        for texts, at in self._extra_at:
            texts.extend(compress(map(str.strip, columns[at]), good))

    def _keep_side(
        self,
        kept: SlotRows[Slots | None],
        alike: list[list[TensorSpec]] | None,
        read: Sequence[Slots | str],
        good: list[bool],
    ) -> None:
        if alike is not None:
            kept.add_columns([list(compress(slot, good)) for slot in alike])
            return
        kept.add_rows([None if isinstance(slots, str) else slots for slots in compress(read, good)])
        self._plain &= kept is not self._inputs

    def _side(
        self, columns: list[tuple[str, ...]], at: tuple[int, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        blank = ("",) * len(columns[0])
        shapes, dtypes, formats = (columns[i] if i >= 0 else blank for i in at)
        return shapes, dtypes, formats

    def _suspects(
        self, columns: list[tuple[str, ...]], inputs: Sequence[Slots | str], latencies: list[list[float]]
    ) -> set[int]:
        """Records that `add` would reject."""
        found = {i for i, slots in enumerate(inputs) if isinstance(slots, str) or not any(slots)}
        best = list(map(max, *latencies)) if len(latencies) > 1 else latencies[0]
        if not min(best) > 0:
            found |= {i for i, value in enumerate(best) if not value > 0}
        if self._kernel_at >= 0:
            other = {cell for cell in set(columns[self._kernel_at]) if not self._own(cell)}
            found |= {i for i, cell in enumerate(columns[self._kernel_at]) if cell in other} if other else set()
        for _, at in self._whole_at:
            wrong = {cell for cell in set(columns[at]) if not self._is_whole(cell)}
            found |= {i for i, cell in enumerate(columns[at]) if cell in wrong} if wrong else set()
        return found

    def add(self, line: int, cells: list[str]) -> None:
        """Keep a row, or count it under the reason why it cannot be used."""
        self.report.rows_read += 1
        problem = self._misfit(cells)
        inputs = problem or self._tensors(cells, self._inputs_at)
        if isinstance(inputs, str):
            self._reject(inputs, line)
            return
        if not any(inputs):
            self._reject("input_shapes_missing", line)
            return
        found = [parse_latency(cells[i]) for i in self.latency_columns.values()]
        if not any(value > 0 for value, _ in found):
            blank = "latency_blank"
            self._reject(next((why for _, why in found if why and why != blank), blank), line)
            return
        wrong = self._not_whole(cells) if self._whole_at else ""
        if wrong:
            self._reject("number_invalid", line, wrong)
            return
        self._keep(line, cells, inputs, found)

    def _keep(self, line: int, cells: list[str], inputs: Slots, found: list[tuple[float, str]]) -> None:
        self._plain = False
        outputs = self._tensors(cells, self._outputs_at)
        self.report.rows_usable += 1
        self._lines.append(line)
        self._inputs.add_rows([inputs])
        self._outputs.add_rows([None if isinstance(outputs, str) else outputs])
        for values, (value, _) in zip(self._latencies, found, strict=True):
            values.append(0.0 if math.isnan(value) else value)
        for texts, i in self._extra_at:
            texts.append(cells[i].strip())

    def _misfit(self, cells: list[str]) -> str:
        """Why a record is no row of this table at all, or nothing."""
        if len(cells) != self._width:
            if len(cells) < self._width:
                return "short_row"
            if any(cell.strip() for cell in cells[self._width :]):
                return "long_row"  # an unquoted comma shifts every cell after it
        return "" if self._kernel_at < 0 or self._own(cells[self._kernel_at]) else "other_kernel"

    def _own(self, cell: str) -> bool:
        """Whether a `Type` cell names this table's kernel; a profiler may number its launches."""
        own = self._kernels.get(cell)
        if own is None:
            name = cell.strip()
            own = name in ("", self._kernel) or _LAUNCH_SUFFIX.sub("", name) == self._kernel
            self._kernels[cell] = own
        return own

    def _tensors(self, cells: list[str], at: tuple[int, ...]) -> Slots | str:
        shapes, dtypes, formats = at
        return self._cells.read(
            cells[shapes] if shapes >= 0 else "",
            cells[dtypes] if dtypes >= 0 else "",
            cells[formats] if formats >= 0 else "",
        )

    def _not_whole(self, cells: list[str]) -> str:
        """The first column that should hold a whole number and holds something else, with its cell."""
        return next((f"{name} {cells[i]!r}" for name, i in self._whole_at if not self._is_whole(cells[i])), "")

    def _is_whole(self, cell: str) -> bool:
        whole = self._whole.get(cell)
        if whole is None:
            whole = cell.strip().upper() in _BLANK or parse_whole(cell) is not None
            self._whole[cell] = whole
        return whole

    def _reject(self, reason: str, line: int, cell: str = "") -> None:
        where = f"{self.report.source}:{line}"
        self.report.reject(reason, f"{where}: {cell}" if cell else where)

    def table(self, synthetic: bool, cut_line: int | None) -> TensorTable:
        """The accepted rows; `cut_line` is the line of a last record without a line end."""
        import numpy as np

        cut = cut_line is not None and self._lines[-1:] == [cut_line]
        return TensorTable(
            kernel=self._kernel,
            source=self.report.source,
            lines=tuple(self._lines),
            inputs=cast(SlotRows[Slots], self._inputs),
            outputs=self._outputs,
            latencies={
                name: _without_zeros(np.asarray(values, dtype=np.float64))
                for name, values in zip(self.latency_columns, self._latencies, strict=True)
            },
            extra={name: tuple(values) for name, values in self._extra.items()},
            report=self.report,
            synthetic=synthetic,
            plain=self._plain and self._cells.plain,
            suspect={len(self._lines) - 1: CUT_OFF} if cut else {},
        )


def parse_latency(cell: str) -> tuple[float, str]:
    """Microseconds, or NaN and the reason: `latency_blank`, `latency_zero` or `latency_invalid`."""
    if not cell:
        return math.nan, "latency_blank"
    value = parse_real(cell)
    if value is None:
        blank = cell.strip().upper() in ("", "N/A")
        return math.nan, "latency_blank" if blank else "latency_invalid"
    if value > 0:
        return value, ""
    return math.nan, "latency_zero" if value == 0 else "latency_invalid"


def read_latencies(cells: Sequence[str]) -> list[float]:
    """`parse_latency` of each cell, 0 where it gives a reason."""
    together = "".join(cells)
    if not together:
        return [0.0] * len(cells)
    if together.isascii() and "_" not in together and max(map(len, cells)) <= _PLAIN_LENGTH:
        try:
            values = list(map(float, cells if all(cells) else [cell or "0" for cell in cells]))
        except ValueError:
            values = [math.nan]
        if min(values) >= 0 and max(values) < math.inf and not any(map(math.isnan, values)):
            return values
    return [0.0 if math.isnan(value := parse_latency(cell)[0]) else value for cell in cells]


def _without_zeros(values: FloatArray) -> FloatArray:
    """Microseconds, NaN where there are none."""
    values[values == 0] = math.nan
    return values
