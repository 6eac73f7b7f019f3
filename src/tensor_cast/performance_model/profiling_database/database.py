"""A profiling database on disk: its mapping, its tables (read on first use) and what loading them found."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tensor_cast.errors import DataFileError
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OpMapping
from tensor_cast.performance_model.profiling_database.tables.communication_csv import (
    CommunicationTable,
    read_communication_table,
)
from tensor_cast.performance_model.profiling_database.tables.kernel_table import (
    ColumnTable,
    LoadReport,
    TensorTable,
)

__all__ = ["MAPPING_FILE", "ColumnReader", "DatabaseName", "ProfilingDatabase"]

MAPPING_FILE: Final = "op_mapping.yaml"
_CAUSES: Final = {"lfs_pointer": "Git-LFS pointer", "no_header": "empty file"}


class ColumnReader(Protocol):
    """Reads one kernel's column table, or says in the report why it cannot."""

    root: Path

    def reads(self, kernel: str) -> bool: ...

    def read(self, kernel: str) -> tuple[ColumnTable | None, LoadReport]: ...

    @property
    def unread(self) -> tuple[str, ...]: ...


class ProfilingDatabase:
    """One device, framework and version.  Tables load on first use and are kept; a failed load is kept as absent.

    `name` is `device/framework/version` for a GPU database, the folder otherwise.
    Thread-safe: one lock guards loading, finished tables are immutable.
    """

    def __init__(
        self, path: Path, mapping: OpMapping, columns: ColumnReader | None = None, name: str | None = None
    ) -> None:
        self.path = path
        self.name = name or str(path)
        self.mapping = mapping
        self._columns = columns
        self._tables: dict[str, TensorTable | ColumnTable | None] = {}
        self._communication: dict[str, CommunicationTable | None] = {}
        self._reports: dict[str, LoadReport] = {}
        self._lock = threading.RLock()

    @property
    def synthetic(self) -> bool:
        """Whether the rows were generated from formulas instead of measured."""
        return self.mapping.synthetic

    def table(self, kernel: str) -> TensorTable | ColumnTable | None:
        """The kernel's rows, or None where there are none; `report(kernel)` then says why."""
        try:
            return self._tables[kernel]
        except KeyError:
            pass
        with self._lock:
            if kernel not in self._tables:
                self._tables[kernel] = self._load(kernel)
            return self._tables[kernel]

    def communication_table(self, kernel: str) -> CommunicationTable | None:
        """The collective's rows; looked for in `communication_data_ref` first, then beside the mapping."""
        with self._lock:
            if kernel not in self._communication:
                self._communication[kernel] = self._load_communication(kernel)
            return self._communication[kernel]

    def report(self, kernel: str) -> LoadReport:
        """What loading the kernel's table found (loads it if need be)."""
        if kernel.startswith("hcom_"):
            self.communication_table(kernel)
        else:
            self.table(kernel)
        return self._reports[kernel]

    def kernels_on_disk(self) -> tuple[str, ...]:
        """Kernels that have a file, whether or not the mapping names them."""
        if self._columns is not None and self._columns.root != self.path:
            return tuple(self.mapping.layouts)
        files = {name for layout in self.mapping.layouts.values() for name in layout.files}
        names = {path.stem for path in self.path.glob("*.csv")} - files | set(self.mapping.layouts)
        for folder in self._communication_folders()[:-1]:
            names.update(path.stem for path in folder.glob("hcom_*.csv"))
        return tuple(sorted(names))

    @property
    def unread_tables(self) -> tuple[str, ...]:
        """Column tables on disk that no kernel reads."""
        return () if self._columns is None else self._columns.unread

    def _load(self, kernel: str) -> TensorTable | ColumnTable | None:
        if self._columns is not None and self._columns.reads(kernel):
            table, self._reports[kernel] = self._columns.read(kernel)
            return table
        from tensor_cast.performance_model.profiling_database.tables.ascend_csv import read_tensor_table

        path = self._kernel_file(self.path, kernel)
        if path is None:
            self._reports[kernel] = _absent(kernel)
            return None
        try:
            loaded = read_tensor_table(path, synthetic=self.synthetic)
        except DataFileError as error:
            self._reports[kernel] = _failed(kernel, error)
            return None
        self._reports[kernel] = loaded.report
        return loaded

    def _load_communication(self, kernel: str) -> CommunicationTable | None:
        for folder in self._communication_folders():
            path = self._kernel_file(folder, kernel)
            if path is None:
                continue
            try:
                table = read_communication_table(path, synthetic=self.synthetic)
            except DataFileError as error:
                self._reports[kernel] = _failed(kernel, error)
                return None
            self._reports[kernel] = table.report
            return table
        self._reports[kernel] = _absent(kernel)
        return None

    def _communication_folders(self) -> Sequence[Path]:
        reference = self.mapping.communication_data_ref
        if not reference:
            return (self.path,)
        folder = (self.path / reference).resolve()
        home = self.path.resolve().parent.parent
        if not folder.is_relative_to(home) or not folder.is_dir():
            return (self.path,)
        return (folder, self.path)

    @staticmethod
    def _kernel_file(folder: Path, kernel: str) -> Path | None:
        """What stands in the kernel's place, whatever it is: the reader says of a folder or a pipe that it is one."""
        if "/" in kernel or "\\" in kernel or kernel.startswith("."):
            return None
        path = folder / f"{kernel}.csv"
        return path if os.path.lexists(path) else None


def _absent(kernel: str) -> LoadReport:
    return LoadReport(kernel, problems=[f"csv_not_found: no {kernel}.csv"])


def _failed(kernel: str, error: DataFileError) -> LoadReport:
    name = Path(error.path).name
    cause = _CAUSES.get(error.code, error.problem)
    return LoadReport(kernel, name, problems=[f"{error.code}: {error}"], unreadable=f"{cause} ({name})")


@dataclass(frozen=True, slots=True, order=True)
class DatabaseName:
    """Where a database was found: `device/framework/version`, its folder, its format, and what opens it."""

    device: str
    framework: str
    version: str
    path: Path
    format: str
    spelling: str = ""

    def __str__(self) -> str:
        return f"{self.device}/{self.framework}/{self.version}"
