"""From checked rows to a kernel's `ColumnTable`: a second table added where asked, repeats merged, report filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensor_cast.performance_model.profiling_database.columns.column_rows import ColumnSource, Rows, read_rows
from tensor_cast.performance_model.profiling_database.columns.repeats import (
    TOLERANCE,
    Points,
    group_codes,
    merge_repeats,
)
from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, LoadReport

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import (
        BoolArray,
        FloatArray,
        IntArray,
    )

__all__ = ["load_column_table"]


def load_column_table(
    path: Path, added: Path | None, layout: TableLayout, report: LoadReport, name: str, max_rows: int
) -> ColumnTable | None:
    """The points of `path`, each plus the latency `added` has at the same regime and axes; None without a usable row.

    Points are named by their row in the file `name`.  Raises DataFileError as `ParquetColumns`, `CsvColumns` and
    `read_rows` do.
    """
    rows = read_rows(_columns(path, layout, max_rows), layout, report, zero_is_valid=added is not None)
    _note_versions(rows, path.parent.name, report)
    file = name
    doubtful: BoolArray = np.zeros(len(rows), dtype=bool)
    if added is not None:
        rows, doubtful = _sum(rows, _columns(added, layout, max_rows), layout, report)
        file = f"{file} (+ {added.name} at equal coordinates)"
    points = merge_repeats(rows)
    if not len(points.source):
        return None
    _describe(points, len(rows), report)
    return _table(rows, points, doubtful, layout, file, report)


def _columns(path: Path, layout: TableLayout, max_rows: int) -> ColumnSource:
    if path.suffix == ".csv":
        from tensor_cast.performance_model.profiling_database.columns.csv_columns import CsvColumns

        return CsvColumns(path, layout, max_rows)
    from tensor_cast.performance_model.profiling_database.columns.parquet_columns import ParquetColumns

    return ParquetColumns(path, layout, max_rows)


def _table(
    rows: Rows, points: Points, doubtful: BoolArray, layout: TableLayout, file: str, report: LoadReport
) -> ColumnTable:
    source = points.source
    return ColumnTable(
        kernel=layout.kernel,
        axes={axis: values[source] for axis, values in rows.axes.items()},
        fact_names=layout.fact_names,
        regime_keys=rows.regime_keys,
        regime_codes=rows.regime_codes[source],
        variants=rows.variants,
        variant_codes=rows.variant_codes[source],
        latency_us=points.latency_us,
        files=(file,),
        file_codes=np.zeros(len(source), dtype=np.int64),
        rows=rows.rows[source],
        repeat_counts=points.counts,
        spread=points.spread,
        ambiguous=points.ambiguous | doubtful[source],
        report=report,
        constants=dict(layout.constants),
        assumed=dict(layout.assumed),
    )


def _sum(rows: Rows, added: ColumnSource, layout: TableLayout, report: LoadReport) -> tuple[Rows, BoolArray]:
    """`rows` with the added table's latencies; and where that table's repeats disagree.

    The rows hold a difference, which is 0 where it could not be measured: the sum then is the added latency alone.
    """
    other_report = LoadReport(layout.kernel, added.path.name)
    other = read_rows(added, layout, other_report)
    points = merge_repeats(other)
    place = _places(rows, other, points)
    found = place >= 0
    missing = int(len(rows) - found.sum())
    if missing:
        report.rejected["added_coordinate_missing"] += missing
        report.examples.setdefault("added_coordinate_missing", f"row {rows.rows[np.flatnonzero(~found)[0]]}")
        report.rows_usable -= missing
    kept = _taken(rows, found)
    rejected = ", ".join(f"{reason} {count}" for reason, count in other_report.rejected.items()) or "none"
    report.notes += [
        f"{added.path.stem} is added: {other_report.rows_read} rows read, rejected: {rejected}",
        f"the difference was zero in {int((kept.latency_us == 0).sum())} rows",
    ]
    total = kept.latency_us + points.latency_us[place[found]]
    return replace(kept, latency_us=total), points.ambiguous[place[found]]


def _places(rows: Rows, other: Rows, points: Points) -> IntArray:
    """Per row the index of the point of `other` with equal regime and axes, or -1.

    Where the other table ran several kernels at one coordinate there is no one sum: such a row has no place.
    """
    numbers = {key: i for i, key in enumerate(dict.fromkeys((*rows.regime_keys, *other.regime_keys)))}
    columns: dict[str, FloatArray | IntArray] = {"regime": _joined(rows, other, points, numbers)}
    for axis, values in rows.axes.items():
        columns[axis] = np.r_[values, other.axes[axis][points.source]]
    codes = group_codes(columns)
    mine, theirs = codes[: len(rows)], codes[len(rows) :]
    count = int(codes.max()) + 1 if len(codes) else 0
    where: IntArray = np.full(count, -1, dtype=np.int64)
    where[theirs] = np.arange(len(theirs))
    where[np.bincount(theirs, minlength=count) > 1] = -1
    return np.asarray(where[mine])


def _joined(rows: Rows, other: Rows, points: Points, numbers: Mapping[tuple[object, ...], int]) -> IntArray:
    mine = np.array([numbers[key] for key in rows.regime_keys], dtype=np.int64)[rows.regime_codes]
    theirs = np.array([numbers[key] for key in other.regime_keys], dtype=np.int64)
    joined: IntArray = np.r_[mine, theirs[other.regime_codes[points.source]]]
    return joined


def _taken(rows: Rows, keep: BoolArray) -> Rows:
    return Rows(
        {axis: values[keep] for axis, values in rows.axes.items()},
        rows.regime_keys,
        rows.regime_codes[keep],
        rows.variants,
        rows.variant_codes[keep],
        rows.metadata_codes[keep],
        rows.latency_us[keep],
        rows.rows[keep],
        rows.versions,
    )


def _describe(points: Points, usable: int, report: LoadReport) -> None:
    sizes = np.bincount(points.cloud)
    sizes = sizes[sizes > 0]
    report.repeats_merged = usable - len(points.source)
    report.regimes = len(sizes)
    report.points_per_regime = (int(sizes.min()), int(np.median(sizes)), int(sizes.max()))
    apart = int((points.ambiguous & ~points.contradictory).sum())
    if apart:
        report.notes.append(f"{apart} points are ambiguous: their repeats differ by more than {TOLERANCE - 1:.0%}")
    refused = len(np.unique(points.cloud[points.contradictory]))
    if refused:
        report.notes.append(f"{refused} regimes are refused: one coordinate under two capacities, with two latencies")


def _note_versions(rows: Rows, folder: str, report: LoadReport) -> None:
    if rows.versions and rows.versions != (folder,):
        report.notes.append(f"rows say version {', '.join(rows.versions)}; the folder's {folder} counts")
