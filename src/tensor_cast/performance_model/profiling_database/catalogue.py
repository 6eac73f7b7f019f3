"""From what a user writes to an open database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tensor_cast.performance_model.profiling_database.database import MAPPING_FILE, ProfilingDatabase
from tensor_cast.performance_model.profiling_database.locating import find_databases, locate, shipped_mapping
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OpMapping, load_op_mapping

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.columns.column_tables import ReadOptions

__all__ = ["find_databases", "open_database"]


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
    place = locate(where, own_mapping=mapping is not None)
    own = None if mapping is None else load_op_mapping(Path(mapping))
    chosen = options or _from_environment()
    if isinstance(place, Path):
        return _open_folder(place, own, chosen)
    from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import gpu_database

    return gpu_database(place, own, chosen)


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
    from tensor_cast.performance_model.profiling_database.columns.column_tables import FolderTables

    return ProfilingDatabase(path, mapping, FolderTables(path, mapping.layouts, options))


def _from_environment() -> ReadOptions:
    from tensor_cast.performance_model.profiling_database.columns.column_tables import ReadOptions

    return ReadOptions.from_environment()
