"""A profiling database on disk: its mapping, its tables (read on first use) and what loading them found."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tensor_cast.errors import DataFileError, InvalidValueError
from tensor_cast.performance_model.profiling_database.kernel_table import (
    ColumnTable,
    LoadReport,
    TensorTable,
)
from tensor_cast.performance_model.profiling_database.op_mapping import OpMapping, load_op_mapping
from tensor_cast.performance_model.profiling_database.readers.communication_csv import (
    CommunicationTable,
    read_communication_table,
)

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.readers.column_tables import ReadOptions

__all__ = ["ColumnReader", "DatabaseName", "ProfilingDatabase", "find_databases", "open_database"]

MAPPING_FILE: Final = "op_mapping.yaml"
_DATA: Final = Path(__file__).parent / "data"


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
        from tensor_cast.performance_model.profiling_database.readers.ascend_csv import read_tensor_table

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
    return LoadReport(kernel, problems=[f"csv_not_found: no {kernel}.csv"], absent=f"{kernel}.csv")


def _failed(kernel: str, error: DataFileError) -> LoadReport:
    report = LoadReport(kernel, Path(error.path).name)
    report.fail(error, report.source)
    return report


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


def open_database(
    where: str | Path, *, mapping: str | Path | None = None, options: ReadOptions | None = None
) -> ProfilingDatabase:
    """The database at `where`: a versioned folder, a folder with exactly one database below it, or a GPU database.

    GPU databases are named `system/framework/version`, from the `gpu` extra's package or, as
    `ROOT::system/framework/version`, from another root of the same layout; the last parts may be left out where one
    database is left.  `mapping` is a mapping file used instead of the database's own, `options` how its column tables
    are read.  Raises InvalidValueError or UnknownNameError for what is no database, DataFileError for a mapping that
    cannot be read.
    """
    from tensor_cast.performance_model.profiling_database.locating import locate
    from tensor_cast.performance_model.profiling_database.readers.column_tables import ReadOptions

    place = locate(where, own_mapping=mapping is not None)
    own = None if mapping is None else load_op_mapping(Path(mapping))
    chosen = options or ReadOptions.from_environment()
    if isinstance(place, Path):
        return _open_folder(place, own, chosen)
    from tensor_cast.performance_model.profiling_database.readers.aiconfigurator import gpu_database

    return gpu_database(place, own, chosen)


def shipped_mapping(path: Path) -> Path:
    """Where the mapping shipped for a folder `device/framework/version` stands, if there is one."""
    return _DATA / path.parent.parent.name / path.parent.name / path.name / MAPPING_FILE


def _own_mapping(path: Path) -> OpMapping:
    """The folder's own mapping, or the one shipped for its name; what stands in its place is read, or refused."""
    if os.path.lexists(path / MAPPING_FILE):
        return load_op_mapping(path / MAPPING_FILE)
    if shipped_mapping(path).is_file():
        return load_op_mapping(shipped_mapping(path))
    return OpMapping(path=None, header={"notes": f"no {MAPPING_FILE} in {path.name}"})


def _open_folder(path: Path, mapping: OpMapping | None, options: ReadOptions) -> ProfilingDatabase:
    mapping = mapping or _own_mapping(path)
    if not mapping.layouts:
        return ProfilingDatabase(path, mapping)
    from tensor_cast.performance_model.profiling_database.readers.column_tables import FolderTables

    return ProfilingDatabase(path, mapping, FolderTables(path, mapping.layouts, options))


def find_databases(root: Path | None = None) -> Iterator[DatabaseName]:
    """Every database under `root`, or those of the installed `gpu` package when `root` is None."""
    from tensor_cast.performance_model.profiling_database.readers.aiconfigurator import find_gpu_databases

    if root is None:
        if find_spec("aiconfigurator_core") is not None:
            yield from find_gpu_databases(None)
        return
    if not root.is_dir():
        raise InvalidValueError(f"{root}: is not a folder")
    gpu = list(find_gpu_databases(root))
    roots = {name.path.parent for name in gpu}
    for mapping in sorted(root.rglob(MAPPING_FILE)):
        folder = mapping.parent
        if folder not in roots:
            parts = (*folder.resolve().parts, "")[-4:-1]
            yield DatabaseName(parts[0], parts[1], parts[2], folder, "ascend_csv", str(folder))
    yield from gpu
