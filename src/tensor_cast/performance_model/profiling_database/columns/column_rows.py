"""Checked rows of one table with named columns, whatever file it came from; latencies in microseconds.

Values are compared, never their storage types.
Source: docs/facts/gpu-tables.md, "Columns and units", "Rows that are rejected".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from tensor_cast.errors import DataFileError
from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import (
        BoolArray,
        FloatArray,
        IntArray,
        LoadReport,
    )

__all__ = ["Coded", "ColumnSource", "Rows", "checked_names", "read_rows"]

_VERSION: Final = "version"
_MAX_COORDINATE: Final = 2.0**53


class ColumnSource(Protocol):
    """The columns of one file."""

    path: Path
    names: tuple[str, ...]
    count: int

    def number(self, name: str) -> FloatArray:
        """A numeric column as floats, NaN where empty.  Raises DataFileError `column_type` for anything else."""

    def coded(self, name: str) -> Coded:
        """Any column of scalars as codes."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column as codes into its distinct values; `valid` is False where the cell is empty."""

    codes: IntArray
    values: tuple[object, ...]
    valid: BoolArray

    def kept(self, keep: BoolArray) -> Coded:
        return Coded(self.codes[keep], self.values, self.valid[keep])


@dataclass(frozen=True, slots=True)
class Rows:
    """The usable rows of one file, in file order.

    Row `i` lies in regime `regime_keys[regime_codes[i]]`, ran `variants[variant_codes[i]]`, and stood in row `rows[i]`
    (0-based) of the file.  `metadata_codes` are equal where every metadata column is.
    """

    axes: dict[str, FloatArray]
    regime_keys: tuple[tuple[object, ...], ...]
    regime_codes: IntArray
    variants: tuple[str, ...]
    variant_codes: IntArray
    metadata_codes: IntArray
    latency_us: FloatArray
    rows: IntArray
    versions: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.latency_us)


def checked_names(path: Path, present: Sequence[str], layout: TableLayout) -> tuple[str, ...]:
    """The columns of a file that its layout reads.

    Raises DataFileError with code `missing_column`, or `duplicate_column` for a name that stands there twice.
    """
    missing = [name for name in (*layout.required, layout.latency) if name not in present]
    if missing:
        raise DataFileError(path, f"column {', '.join(map(repr, missing))} is missing", code="missing_column")
    wanted = dict.fromkeys(name for name in (*layout.columns, layout.latency, _VERSION) if name in present)
    for name in wanted:
        if present.count(name) > 1:
            raise DataFileError(path, f"has {present.count(name)} columns {name!r}", code="duplicate_column")
    return tuple(wanted)


def read_rows(source: ColumnSource, layout: TableLayout, report: LoadReport, *, zero_is_valid: bool = False) -> Rows:
    """The usable rows of a file as `layout` names them; what is left out is counted in `report`.

    A row is counted once, under the first that applies: `filtered_out` (the layout's `where`), `coordinate_invalid`,
    `regime_missing`, `latency_zero`, `latency_invalid`.  `zero_is_valid` keeps latencies of 0, for a table that holds a
    difference.  Raises DataFileError with code `column_type`.
    """
    columns = _Columns(source, layout)
    report.rows_read += columns.count
    keep = _Keep(columns.count, report, source.path.name)
    keep.drop("filtered_out", ~columns.wanted())
    axes = {axis: columns.total(names) for axis, names in layout.axes.items()}
    for values in axes.values():
        keep.drop("coordinate_invalid", ~_is_coordinate(values))
    facts = columns.facts()
    for fact in facts:
        keep.drop("regime_missing", ~fact.valid)
    latency = columns.number(layout.latency) * layout.microseconds
    if not zero_is_valid:
        keep.drop("latency_zero", latency == 0)
    with np.errstate(invalid="ignore"):
        keep.drop("latency_invalid", ~(np.isfinite(latency) & (latency >= 0)))
    rows = np.flatnonzero(keep.mask)
    codes, keys = _combined([fact.kept(keep.mask) for fact in facts], len(rows))
    variants, variant_codes = columns.variants(keep.mask)
    report.rows_usable += len(rows)
    return Rows(
        {axis: values[rows] for axis, values in axes.items()},
        keys,
        codes,
        variants,
        variant_codes,
        _combined([column.kept(keep.mask) for column in columns.metadata()], len(rows))[0],
        latency[rows],
        rows,
        columns.versions(),
    )


class _Keep:
    """Which rows are still in; each is counted out once."""

    def __init__(self, count: int, report: LoadReport, name: str) -> None:
        self.mask: BoolArray = np.ones(count, dtype=bool)
        self._report = report
        self._name = name

    def drop(self, reason: str, bad: BoolArray) -> None:
        found = np.flatnonzero(self.mask & bad)
        if len(found):
            self._report.rejected[reason] += len(found)
            self._report.examples.setdefault(reason, f"{self._name}:{found[0]}")
            self.mask[found] = False


def _is_coordinate(values: FloatArray) -> BoolArray:
    with np.errstate(invalid="ignore"):
        inside = (values >= 0) & (values <= _MAX_COORDINATE)
        whole: BoolArray = np.asarray(inside & (np.floor(values) == values))
    return whole


class _Columns:
    """Access to the columns of one table, with the layout's defaults and spellings applied."""

    def __init__(self, source: ColumnSource, layout: TableLayout) -> None:
        self._source = source
        self._layout = layout
        self.count = source.count

    def number(self, name: str) -> FloatArray:
        """A numeric column as floats, NaN where empty."""
        if name in self._source.names:
            return self._source.number(name)
        return np.full(self.count, float(self._layout.defaults[name]))

    def total(self, names: Sequence[str]) -> FloatArray:
        """The sum of several numeric columns."""
        return np.asarray(np.sum([self.number(name) for name in names], axis=0), dtype=np.float64)

    def coded(self, name: str) -> Coded:
        """Any scalar column as codes."""
        if name in self._source.names:
            return self._source.coded(name)
        return _constant(self._layout.defaults.get(name), self.count)

    def wanted(self) -> BoolArray:
        """Which rows pass the layout's `where`."""
        mask: BoolArray = np.ones(self.count, dtype=bool)
        for name, allowed in self._layout.where.items():
            column = self.coded(name)
            mask &= column.valid & np.array([value in allowed for value in column.values])[column.codes]
        return mask

    def facts(self) -> list[Coded]:
        """The regime columns, then the derived facts, in the layout's order."""
        spellings = self._layout.values
        plain = [_respelt(self.coded(name), spellings.get(fact, {})) for fact, name in self._layout.regime.items()]
        derived = [self._derived(rule) for rule in self._layout.derive.values()]
        return [*plain, *derived]

    def _derived(self, rule: str) -> Coded:
        if rule == "kv_head_class":
            heads, groups = self.number("num_heads"), self.number("num_key_value_heads")
            found, codes = np.unique(np.where(heads == groups, -1.0, groups), return_inverse=True)
            values = tuple("MHA" if value == -1 else int(value) if np.isfinite(value) else None for value in found)
            return Coded(codes, values, np.isfinite(heads) & np.isfinite(groups) & (groups > 0))
        isl = self.number("isl")
        return Coded((isl == 1).astype(np.int64), ("prefill", "decode"), np.isfinite(isl))

    def metadata(self) -> list[Coded]:
        """The metadata columns the file has; an empty cell is a value of its own."""
        present = [name for name in self._layout.metadata if name in self._source.names]
        return [_with_empty(self.coded(name)) for name in present]

    def variants(self, keep: BoolArray) -> tuple[tuple[str, ...], IntArray]:
        if self._layout.variant is None:
            return (), np.zeros(int(keep.sum()), dtype=np.int64)
        column = _with_empty(self.coded(self._layout.variant)).kept(keep)
        used, codes = np.unique(column.codes, return_inverse=True)
        return tuple(str(column.values[i] or "") for i in used), codes

    def versions(self) -> tuple[str, ...]:
        """The distinct entries of the `version` column, which can differ from the folder."""
        if _VERSION not in self._source.names:
            return ()
        return tuple(sorted(str(value) for value in self.coded(_VERSION).values if value is not None))


def _constant(value: object, count: int) -> Coded:
    return Coded(np.zeros(count, dtype=np.int64), (value,), np.ones(count, dtype=bool))


def _with_empty(column: Coded) -> Coded:
    codes = np.where(column.valid, column.codes, len(column.values))
    return Coded(codes, (*column.values, None), np.ones(len(codes), dtype=bool))


def _respelt(column: Coded, spellings: Any) -> Coded:
    ours = [spellings.get(value, value) for value in column.values]
    places = {value: i for i, value in enumerate(dict.fromkeys(ours))}
    moved = np.array([places[value] for value in ours], dtype=np.int64)
    return Coded(moved[column.codes], tuple(places), column.valid)


def _combined(columns: Sequence[Coded], count: int) -> tuple[IntArray, tuple[tuple[object, ...], ...]]:
    """One code per distinct combination of values, and the combinations."""
    codes: IntArray = np.zeros(count, dtype=np.int64)
    for column in columns:
        _, codes = np.unique(codes * len(column.values) + column.codes, return_inverse=True)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    keys = tuple(tuple(column.values[column.codes[i]] for column in columns) for i in first)
    return codes, keys
