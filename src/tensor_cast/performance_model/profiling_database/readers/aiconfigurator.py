"""GPU databases: parquet tables laid out as `<root>/<system>/<family>/<framework>/<version>/<table>.parquet`.

The root is the data folder of the `aiconfigurator-core` package, which the `gpu` extra installs, or any folder with the
same layout.  The package is located, never imported.  Source: GPU table facts, sections 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_cast.errors import DataFileError, InvalidValueError, UnknownNameError, how_to_install, nearest
from tensor_cast.performance_model.profiling_database.database import (
    MAPPING_FILE,
    DatabaseName,
    ProfilingDatabase,
)
from tensor_cast.performance_model.profiling_database.kernel_table import ColumnTable, LoadReport
from tensor_cast.performance_model.profiling_database.op_mapping import OpMapping, load_op_mapping
from tensor_cast.safe_yaml import load_yaml

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.table_layout import TableLayout

__all__ = ["FORMAT", "GpuTables", "find_gpu_databases", "open_gpu_database", "package_root"]

FORMAT: Final = "aiconfigurator"
_PACKAGE: Final = "aiconfigurator_core"
_INSTALL: Final = how_to_install("gpu")
_COLLECTIVES: Final = "comm"
_SHIPPED: Final = Path(__file__).parent.parent / "data"


def package_root() -> Path:
    """The data folder of the installed package.  Raises InvalidValueError with the install command if absent."""
    spec = find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        root = Path(place) / "systems" / "data"
        if root.is_dir():
            return root
    raise InvalidValueError(f"the GPU tables are not installed: {_INSTALL}, or name a folder as FOLDER::NAME")


def find_gpu_databases(root: Path | None = None) -> Iterator[DatabaseName]:
    """Every `system/framework/version` that has a table outside `comm`, sorted; None searches the package.

    Raises InvalidValueError when `root` is None and the package is not installed.
    """
    place = package_root() if root is None else root
    names = {
        (folder.parts[-4], folder.parts[-2], folder.parts[-1])
        for folder in {table.parent for table in place.glob("*/*/*/*/*.parquet")}
        if folder.parts[-3] != _COLLECTIVES
    }
    for system, framework, version in sorted(names):
        yield DatabaseName(system, framework, version, place / system, FORMAT)


def open_gpu_database(name: str, root: Path | None = None) -> ProfilingDatabase:
    """The database `system/framework/version`; its tables are read on first use.

    Raises UnknownNameError with the nearest spelling, and InvalidValueError when the package or pyarrow is missing or
    `root` is no folder.
    """
    if root is not None and not root.is_dir():
        raise InvalidValueError(f"{root}: is not a folder; expected <system>/<family>/<framework>/<version> below it")
    found = {str(item): item for item in find_gpu_databases(root)}
    if name not in found:
        place = _PACKAGE if root is None else str(root)
        hint = nearest(name, found) or f"; known: {', '.join(found) or 'none'}"
        raise UnknownNameError(f"no GPU database {name!r} in {place}{hint}")
    if find_spec("pyarrow") is None:
        raise InvalidValueError(f"reading GPU tables needs pyarrow, which is not installed: {_INSTALL}")
    database = found[name]
    mapping = _mapping(database)
    return ProfilingDatabase(database.path, mapping, GpuTables(database, mapping), name=str(database))


def _mapping(name: DatabaseName) -> OpMapping:
    own = _SHIPPED / name.device / name.framework / name.version / MAPPING_FILE
    generic = _SHIPPED / "gpu" / f"{name.framework}.yaml"
    for path in (own, generic):
        if path.is_file():
            return load_op_mapping(path)
    return OpMapping(header={"notes": f"no mapping is shipped for the framework {name.framework}"})


class GpuTables:
    """Reads one kernel's tables; whatever is wrong with a file stands in the report and stops nothing."""

    def __init__(self, name: DatabaseName, mapping: OpMapping) -> None:
        self.name = name
        self._layouts = mapping.layouts

    @property
    def root(self) -> Path:
        """The folder of the tables' root, above the system folders."""
        return self.name.path.parent

    def path_of(self, table: str) -> Path:
        """The file of `<family>/<table>`, whether or not it exists."""
        family, _, stem = table.partition("/")
        return self.name.path / family / self.name.framework / self.name.version / f"{stem}.parquet"

    @cached_property
    def tables_on_disk(self) -> tuple[str, ...]:
        """`<family>/<table>` of every table of this database, `comm` left out."""
        found = self.name.path.glob(f"*/{self.name.framework}/{self.name.version}/*.parquet")
        names = (f"{path.parts[-4]}/{path.stem}" for path in found)
        return tuple(sorted(name for name in names if not name.startswith(f"{_COLLECTIVES}/")))

    @cached_property
    def unknown_tables(self) -> tuple[str, ...]:
        """Tables on disk that no kernel of the mapping reads."""
        known = {table for layout in self._layouts.values() for table in (*layout.files, layout.add)}
        return tuple(name for name in self.tables_on_disk if name not in known)

    def read(self, kernel: str) -> tuple[ColumnTable | None, LoadReport]:
        """The kernel's points with repeats merged, or None; the report says what was read and what was left out."""
        report = LoadReport(kernel)
        report.notes += self._database_notes
        layout = self._layouts.get(kernel)
        if layout is None:
            report.problems.append(f"table_unmapped: the mapping has no 'tables' entry for {kernel}")
            return None, report
        table = next((name for name in layout.files if self.path_of(name).exists()), layout.files[0])
        report.source = self._relative(self.path_of(table))
        report.notes += self._reuse_notes(table)
        try:
            return self._load(table, layout, report), report
        except DataFileError as error:
            report.problems.append(f"{error.code}: {error}")
            return None, report

    def _load(self, table: str, layout: TableLayout, report: LoadReport) -> ColumnTable | None:
        from tensor_cast.performance_model.profiling_database.readers.column_table import load_column_table

        for name in (table, layout.add):
            if name is not None and not self.path_of(name).exists():
                raise DataFileError(self._relative(self.path_of(name)), "no such table", code="table_not_found")
        return load_column_table(
            self.path_of(table),
            None if layout.add is None else self.path_of(layout.add),
            layout,
            report,
            self.root,
        )

    @cached_property
    def _database_notes(self) -> tuple[str, ...]:
        notes = []
        if self.unknown_tables:
            notes.append(f"tables that no kernel reads, skipped: {', '.join(self.unknown_tables)}")
        if (self.name.path / _COLLECTIVES).is_dir():
            notes.append(f"the {_COLLECTIVES} tables (collectives) are skipped")
        return tuple(notes)

    def _reuse_notes(self, table: str) -> list[str]:
        path = self.path_of(table).parent / "reuse.yaml"
        if not path.is_file():
            return []
        try:
            document = load_yaml(path).value
        except (DataFileError, OSError) as error:
            return [f"reuse.yaml cannot be read and is not followed: {error}"]
        entries = document.get("reuse") if isinstance(document, dict) else None
        stem = table.partition("/")[2]
        return [
            f"reuse.yaml would serve {stem} from version {entry.get('from_version')}: not followed, a version is never"
            " filled from another"
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict) and entry.get("table") == stem
        ]

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()
