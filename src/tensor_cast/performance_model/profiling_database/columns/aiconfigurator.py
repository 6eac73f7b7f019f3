"""GPU databases: parquet tables laid out as `<root>/<system>/<family>/<framework>/<version>/<table>.parquet`.

The root is the data folder of the `aiconfigurator-core` package, which the `gpu` extra installs, or any folder with the
same layout.  The package is located, never imported.
Source: docs/facts/gpu-tables.md, "Folders and files".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tensor_cast.errors import DataFileError, InvalidValueError, how_to_install
from tensor_cast.files.located_yaml import load_yaml
from tensor_cast.performance_model.profiling_database.columns.column_tables import ColumnTables, ReadOptions
from tensor_cast.performance_model.profiling_database.database import MAPPING_FILE, DatabaseName, ProfilingDatabase
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import (
    SHIPPED_MAPPINGS,
    OpMapping,
    load_op_mapping,
)

__all__ = [
    "FORMAT",
    "GpuTables",
    "find_gpu_databases",
    "gpu_database",
    "installed_database",
    "package_root",
]

FORMAT: Final = "aiconfigurator"
PACKAGE: Final = "aiconfigurator_core"
_INSTALL: Final = how_to_install("gpu")
_COLLECTIVES: Final = "comm"


def package_root() -> Path:
    """The data folder of the installed package.  Raises InvalidValueError with the install command if absent."""
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        root = Path(place) / "systems" / "data"
        if root.is_dir():
            return root
    raise InvalidValueError(f"the GPU tables are not installed: {_INSTALL}, or name a folder as FOLDER::NAME")


def find_gpu_databases(root: Path | None = None) -> Iterator[DatabaseName]:
    """Every `system/framework/version` that has a table outside `comm`, sorted; None searches the package.

    `root` may be the root itself, a folder above it, or one of its system folders.  Raises InvalidValueError when it is
    None and the package is not installed.
    """
    place = package_root() if root is None else root
    found = set()
    for folder in {table.parent for table in place.rglob("*.parquet")}:
        if len(folder.relative_to(place).parts) < 3:
            continue
        system, family, framework, version = folder.absolute().parts[-4:]
        if family != _COLLECTIVES:
            found.add((system, framework, version, folder.parents[2]))
    for system, framework, version, path in sorted(found):
        yield _name(system, framework, version, path, packaged=root is None)


def installed_database(parts: Sequence[str]) -> DatabaseName | None:
    """The database of the package with exactly this system, framework and version, found without searching."""
    system, framework, version = parts
    if any(part in ("", ".", "..") or "*" in part for part in parts):
        return None
    path = package_root() / system
    families = {table.parts[-4] for table in path.glob(f"*/{framework}/{version}/*.parquet")}
    return _name(system, framework, version, path, packaged=True) if families - {_COLLECTIVES} else None


def _name(system: str, framework: str, version: str, path: Path, *, packaged: bool) -> DatabaseName:
    name = f"{system}/{framework}/{version}"
    return DatabaseName(system, framework, version, path, FORMAT, name if packaged else f"{path.parent}::{name}")


def gpu_database(name: DatabaseName, mapping: OpMapping | None, options: ReadOptions) -> ProfilingDatabase:
    """The database at a place that was found; its tables are read on first use.

    Its mapping is the one given, that of the root's own `op_mapping.yaml`, or the one shipped for its framework.
    Raises InvalidValueError when pyarrow is missing.
    """
    if find_spec("pyarrow") is None:
        raise InvalidValueError(f"reading GPU tables needs pyarrow, which is not installed: {_INSTALL}")
    used = mapping or _mapping(name)
    return ProfilingDatabase(name.path, used, GpuTables(name, used, options), name=name.spelling)


def _mapping(name: DatabaseName) -> OpMapping:
    own = SHIPPED_MAPPINGS / name.device / name.framework / name.version / MAPPING_FILE
    generic = SHIPPED_MAPPINGS / "gpu" / f"{name.framework}.yaml"
    for path in (name.path.parent / MAPPING_FILE, own, generic):
        if path.is_file():
            return load_op_mapping(path)
    return OpMapping(header={"notes": f"no mapping is shipped for the framework {name.framework}"})


class GpuTables(ColumnTables):
    """The tables of one version folder of every family; latencies are milliseconds unless a layout says otherwise."""

    def __init__(self, name: DatabaseName, mapping: OpMapping, options: ReadOptions | None = None) -> None:
        super().__init__(mapping.layouts, options or ReadOptions())
        self.name = name
        self.root = name.path.parent

    def reads(self, kernel: str) -> bool:
        return True

    def path_of(self, table: str) -> Path:
        family, _, stem = table.partition("/")
        return self.name.path / family / self.name.framework / self.name.version / f"{stem}.parquet"

    def named(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @cached_property
    def tables_on_disk(self) -> tuple[str, ...]:
        """`<family>/<table>` of every table of this database, `comm` left out."""
        found = self.name.path.glob(f"*/{self.name.framework}/{self.name.version}/*.parquet")
        names = (f"{path.parts[-4]}/{path.stem}" for path in found)
        return tuple(sorted(name for name in names if not name.startswith(f"{_COLLECTIVES}/")))

    @cached_property
    def unread(self) -> tuple[str, ...]:
        known = {table for layout in self._layouts.values() for table in (*layout.files, layout.add)}
        return tuple(name for name in self.tables_on_disk if name not in known)

    def notes(self, table: str) -> list[str]:
        return [*self._database_notes, *self._reuse_notes(table)]

    @cached_property
    def _database_notes(self) -> tuple[str, ...]:
        notes = []
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
