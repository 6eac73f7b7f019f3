"""Which profiling databases there are, and what is in one."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from castq.repeated_rows import RepeatedRows, TableRepeats, repeated_collectives, repeated_rows
from tensor_cast.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.database import DatabaseName, ProfilingDatabase
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import LoadReport, TensorTable

__all__ = ["DatabaseCheck", "check_database", "list_databases", "listing_to_json"]

_ABSENT: Final = ("csv_not_found", "table_not_found")
Progress = Callable[[str, int, int], None]


def list_databases(root: Path | None = None) -> list[DatabaseName]:
    """Every database under `root`, or those of the installed GPU data package.

    Raises OSError where `root` is a folder that cannot be read.
    """
    from tensor_cast.performance_model.profiling_database.catalogue import find_databases

    if root is not None and root.is_dir():
        os.scandir(root).close()
    return sorted(find_databases(root))


def listing_to_json(names: list[DatabaseName]) -> list[dict[str, str]]:
    """The listing as plain JSON values."""
    return [
        {
            "name": str(name),
            "device": name.device,
            "framework": name.framework,
            "version": name.version,
            "format": name.format,
            "path": str(name.path),
            "database": name.spelling,
        }
        for name in names
    ]


@dataclass(frozen=True)
class DatabaseCheck:
    """What loading every table of a database found.

    A regime of a tensor table is one signature: dtypes, formats and ranks of inputs and outputs.  `unmeasured` are
    kernels the mapping names without a table, `unreferenced` tables no entry names, `contradictions` what the mapping
    says of itself and the folder names say otherwise, `unread` column tables that no kernel of the mapping reads,
    `repeats` coordinates of tensor tables that were measured several times with different latencies, the widest first.
    """

    path: str
    synthetic: bool
    provenance: str
    operators: int
    tables: tuple[LoadReport, ...]
    unknown_keys: tuple[str, ...]
    inert_policies: tuple[str, ...]
    unmeasured: tuple[str, ...]
    unreferenced: tuple[str, ...]
    contradictions: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    repeats: tuple[RepeatedRows, ...] = ()

    @property
    def notes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each note once, with the kernels whose tables it is about; none where it is about all of them."""
        found: dict[str, list[str]] = {}
        for report in self.tables:
            for note in report.notes:
                found.setdefault(note, []).append(report.kernel)
        everywhere = len(self.tables)
        return tuple((note, () if len(kernels) == everywhere else tuple(kernels)) for note, kernels in found.items())

    @property
    def ok(self) -> bool:
        """Whether every table that exists could be used."""
        return not any(report.problems for report in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "ok": self.ok,
            "synthetic": self.synthetic,
            "provenance": self.provenance,
            "operators": self.operators,
            "tables": [report.to_json() for report in self.tables],
            "unknown_keys": list(self.unknown_keys),
            "inert_policies": list(self.inert_policies),
            "mapped_kernels_without_table": list(self.unmeasured),
            "tables_without_entry": list(self.unreferenced),
            "contradictions": list(self.contradictions),
            "tables_no_kernel_reads": list(self.unread),
            "repeats": [rows.to_json() for rows in self.repeats],
        }


def check_database(
    database: ProfilingDatabase, kernel: str | None = None, progress: Progress | None = None
) -> DatabaseCheck:
    """Load every table (or one kernel's) and report what was found; `progress(kernel, done, total)` is told of each.

    Raises UnknownNameError for a kernel that has neither a table nor an entry.
    """
    mapping = database.mapping
    mapped, present = mapping.kernel_names(), database.kernels_on_disk()
    names = tuple(dict.fromkeys((*present, *mapped)))
    if kernel is not None and kernel not in names:
        raise UnknownNameError(f"no kernel {kernel!r} in {database.name}{nearest(kernel, names)}")
    wanted = sorted(names) if kernel is None else [kernel]
    reports: list[LoadReport] = []
    repeats: list[RepeatedRows] = []
    for i, name in enumerate(wanted):
        report, repeated = _report(database, name)
        reports.append(report)
        repeats += repeated
        if progress is not None:
            progress(name, i + 1, len(wanted))
    tables = tuple(report for report in reports if not _absent(report))
    return DatabaseCheck(
        database.name,
        database.synthetic,
        mapping.header.get("provenance", ""),
        len(mapping.operators),
        tables,
        mapping.unknown_keys,
        mapping.inert_policies,
        tuple(report.kernel for report in reports if _absent(report)),
        tuple(name for name in wanted if name in present and name not in mapped),
        _contradictions(database),
        database.unread_tables,
        tuple(sorted(repeats, key=lambda rows: (-rows.ratio, rows.kernel, rows.lines))),
    )


def _contradictions(database: ProfilingDatabase) -> tuple[str, ...]:
    """What the mapping's header declares against `<device>/<framework>/<version>`, the folder it stands in.

    A folder of another version name says nothing about device and framework: a copy may lie anywhere.
    """
    if database.mapping.path is None or database.mapping.path.parent.resolve() != database.path.resolve():
        return ()
    folder = database.path.resolve()
    places = {"version": folder.name, "framework": folder.parent.name, "device": folder.parent.parent.name}
    declared = {key: database.mapping.header[key] for key in places if key in database.mapping.header}
    if declared.get("version", folder.name) != folder.name:
        declared = {"version": declared["version"]}
    return tuple(
        f"the mapping says {key} {value!r}, the folder {places[key]!r}"
        for key, value in declared.items()
        if value != places[key]
    )


def _absent(report: LoadReport) -> bool:
    return report.status in _ABSENT


def _report(database: ProfilingDatabase, kernel: str) -> tuple[LoadReport, tuple[RepeatedRows, ...]]:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

    report = database.report(kernel)
    sizes: list[int] = []
    repeats = TableRepeats(report.repeats_merged)
    if kernel.startswith("hcom_"):
        collective = database.communication_table(kernel)
        if collective is not None:
            sizes = [len(rows) for rows in collective.groups.values()]
            repeats = repeated_collectives(collective)
    else:
        table = database.table(kernel)
        if isinstance(table, TensorTable):
            sizes, repeats = _signatures(table), repeated_rows(table)
            report = replace(report, problems=[*report.problems, *_lacking(database, table)])
    if sizes:
        spans = (min(sizes), int(statistics.median(sizes)), max(sizes))
        report = replace(report, regimes=len(sizes), points_per_regime=spans, repeats_merged=repeats.merged)
    return report, repeats.differ


def _lacking(database: ProfilingDatabase, table: TensorTable) -> list[str]:
    """Columns without which no operator that is mapped to the table gets an answer from it."""
    from tensor_cast.performance_model.profiling_database.dispatch import path_for
    from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

    entries = [entry for entry in database.mapping.operators.values() if table.kernel in entry.kernels]
    paths = [path for entry in entries if isinstance(path := path_for(entry), OperatorPath)]
    needed = {path.needed_column for path in paths}
    if not paths or any(not names or any(name in table.extra for name in names) for names in needed):
        return []
    names = " or ".join(repr(name) for column in sorted(needed) for name in column)
    return [f"missing_column: {table.source}: no column {names}: no row can answer {entries[0].name}"]


def _signatures(table: TensorTable) -> list[int]:
    """How many rows each signature has."""
    counts: Counter[object] = Counter()
    for row in range(len(table)):
        tensors = (*table.row_inputs(row), None, *(table.row_outputs(row) or ()))
        counts[tuple(None if spec is None else (spec.rank, spec.dtype, spec.format) for spec in tensors)] += 1
    return list(counts.values())
