"""The column tables of one database: which file holds a kernel's rows, from the cache or from the file itself."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_cast.errors import DataFileError, InvalidValueError
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, LoadReport

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout

__all__ = ["MAX_ROWS", "ColumnTables", "FolderTables", "ReadOptions"]

MAX_ROWS: Final = 5_000_000
_SUFFIXES: Final = (".parquet", ".csv")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How column tables are read: at most `max_rows` of them, kept in the folder `cache` (None keeps nothing)."""

    max_rows: int = MAX_ROWS
    cache: Path | None = None

    @classmethod
    def from_environment(cls, *, cache: bool = True) -> ReadOptions:
        """The user's cache folder and CASTQ_MAX_ROWS.  `cache=False` or CASTQ_NO_CACHE keeps nothing.

        Raises InvalidValueError for a limit that is no whole number above 0.
        """
        text = os.environ.get("CASTQ_MAX_ROWS", "")
        if text and not (text.isascii() and text.isdigit() and int(text) > 0):
            raise InvalidValueError(f"CASTQ_MAX_ROWS: expected a whole number above 0, got {text!r}")
        kept = cache and not os.environ.get("CASTQ_NO_CACHE")
        return cls(int(text) if text else MAX_ROWS, _user_cache() if kept else None)


def _user_cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("castq", appauthor=False) / "tables"


class ColumnTables(ABC):
    """Reads one kernel's tables; whatever is wrong with a file stands in the report and stops nothing."""

    def __init__(self, layouts: Mapping[str, TableLayout], options: ReadOptions) -> None:
        self._layouts = layouts
        self._options = options

    root: Path

    @abstractmethod
    def path_of(self, table: str) -> Path:
        """The file of a table named in a layout, whether or not it exists."""

    @abstractmethod
    def named(self, path: Path) -> str:
        """What answers call a file."""

    def reads(self, kernel: str) -> bool:
        """Whether the kernel's rows are a column table of this database."""
        return kernel in self._layouts

    def notes(self, table: str) -> Sequence[str]:
        """What a reader of the load report should know besides the table itself."""
        return ()

    @property
    def unread(self) -> tuple[str, ...]:
        """Tables on disk that no kernel of the mapping reads."""
        return ()

    def refused(self, layout: TableLayout) -> str:
        """Why the layout cannot be used here, or an empty text."""
        return ""

    def read(self, kernel: str) -> tuple[ColumnTable | None, LoadReport]:
        """The kernel's points with repeats merged, or None; the report says what was read and what was left out."""
        report = LoadReport(kernel)
        layout = self._layouts.get(kernel)
        if layout is None:
            report.problems.append(f"table_unmapped: the mapping has no 'tables' entry for {kernel}")
            return None, report
        notes: Sequence[str] = ()
        loaded = None
        try:
            table = next((name for name in layout.files if self.path_of(name).exists()), layout.files[0])
            report.source = self.named(self.path_of(table))
            notes = self.notes(table)
            loaded = self._load(table, layout, report)
            report = report if loaded is None else loaded.report
        except (DataFileError, OSError) as error:
            code = error.code if isinstance(error, DataFileError) else "unreadable"
            report.problems.append(f"{code}: {error}")
        report.notes[:0] = notes
        return loaded, report

    def _load(self, table: str, layout: TableLayout, report: LoadReport) -> ColumnTable | None:
        names = [table] if layout.add is None else [table, layout.add]
        paths = [self.path_of(name) for name in names]
        for path in paths:
            if not path.exists():
                raise DataFileError(self.named(path), "no such table", code="table_not_found")
        if problem := self.refused(layout):
            raise DataFileError(self.named(paths[0]), problem, code="unit_missing")
        return self._kept(layout, paths, report)

    def _kept(self, layout: TableLayout, paths: list[Path], report: LoadReport) -> ColumnTable | None:
        """From the cache where that can be trusted, else from the files."""
        limit, folder = self._options.max_rows, self._options.cache
        if folder is None:
            return _from_files(layout, paths, report, limit)
        from tensor_cast.performance_model.profiling_database.columns.table_cache import CachedTable

        kept = CachedTable(folder, layout, paths, report.source)
        found = kept.read(limit)
        if found is None:
            found = _from_files(layout, paths, report, limit)
            if found is not None:
                kept.write(found)
        return found


def _from_files(layout: TableLayout, paths: list[Path], report: LoadReport, limit: int) -> ColumnTable | None:
    from importlib.util import find_spec

    if paths[0].suffix == ".parquet" and find_spec("pyarrow") is None:
        problem = "reading parquet needs pyarrow, which is not installed: pip install 'castq[gpu]'"
        raise DataFileError(report.source, problem, code="pyarrow_missing")
    from tensor_cast.performance_model.profiling_database.columns.column_table import load_column_table

    added = paths[1] if len(paths) > 1 else None
    return load_column_table(paths[0], added, layout, report, report.source, limit)


class FolderTables(ColumnTables):
    """Column tables beside their mapping: `<folder>/<table>.parquet` or `.csv`, each with its unit stated."""

    def __init__(self, folder: Path, layouts: Mapping[str, TableLayout], options: ReadOptions) -> None:
        super().__init__(layouts, options)
        self.root = folder

    def path_of(self, table: str) -> Path:
        if not (self.root / table).resolve().is_relative_to(self.root.resolve()):
            raise DataFileError(table, f"lies outside {self.root}", code="outside_folder")
        paths = [self.root / f"{table}{suffix}" for suffix in _SUFFIXES]
        return next((path for path in paths if path.exists()), paths[-1])

    def named(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @property
    def unread(self) -> tuple[str, ...]:
        """Tables on disk that no kernel of the mapping reads."""
        return ()

    def refused(self, layout: TableLayout) -> str:
        if layout.latency_unit is not None:
            return ""
        return f"in which unit is column {layout.latency!r}?  Give tables.{layout.kernel}.latency_unit: us or ms"
