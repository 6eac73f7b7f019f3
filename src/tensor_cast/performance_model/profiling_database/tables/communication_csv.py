"""Communication micro-benchmarks (`hcom_*.csv`): latency by message bytes, devices and topology tier.

Source: docs/facts/database-layout.md, "Communication tables".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tensor_cast.files.decimal_text import parse_whole
from tensor_cast.performance_model.profiling_database.evidence import RowRef
from tensor_cast.performance_model.profiling_database.tables.ascend_csv import CUT_OFF, parse_latency
from tensor_cast.performance_model.profiling_database.tables.csv_file import CsvFile
from tensor_cast.performance_model.profiling_database.tables.kernel_table import LoadReport

__all__ = ["CommunicationRow", "CommunicationTable", "read_communication_table"]

_REQUIRED: Final = ("message_bytes", "num_devices", "Duration(us)")


@dataclass(frozen=True, slots=True)
class CommunicationRow:
    """One measured collective; `tier` is None where the table has no such column.

    `suspect` says why the latency may not be what was measured, where there is a reason to think so.
    """

    message_bytes: int
    num_devices: int
    tier: int | None
    latency_us: float
    line: int
    dtype: str
    suspect: str = ""

    def ref(self, source: str) -> RowRef:
        """Where the latency comes from."""
        return RowRef(
            source, self.latency_us, line=self.line, message_bytes=self.message_bytes, suspect=self.suspect or ""
        )


@dataclass(frozen=True)
class CommunicationTable:
    """Rows by (devices, tier), each list sorted by message bytes, file order kept among equals."""

    kernel: str
    source: str
    report: LoadReport
    has_tier: bool
    groups: dict[tuple[int, int | None], tuple[CommunicationRow, ...]] = field(default_factory=dict)
    synthetic: bool = False

    def rows(self, num_devices: int, tier: int | None) -> tuple[CommunicationRow, ...]:
        """Rows of one group; without a tier on either side every tier of the device count counts."""
        if tier is not None and self.has_tier:
            return self.groups.get((num_devices, tier), ())
        rows = [row for (devices, _), group in self.groups.items() if devices == num_devices for row in group]
        return tuple(sorted(rows, key=lambda row: (row.message_bytes, row.line)))


def read_communication_table(path: Path, *, synthetic: bool = False) -> CommunicationTable:
    """Read one collective's table; DataFileError as in the tensor reader, rows rejected with a count."""
    report = LoadReport(path.stem, path.name)
    file = CsvFile(path, _REQUIRED)
    at = {name: i for i, name in enumerate(file.header)}
    rows: list[CommunicationRow] = []
    line = 0
    for line, cells in file:
        report.rows_read += 1
        parsed = _parse(cells, at, line) if len(cells) >= len(file.header) else "short_row"
        if isinstance(parsed, str):
            report.reject(parsed, f"{path.name}:{line}")
            continue
        report.rows_usable += 1
        rows.append(parsed)
    if file.note_cut(report, line) and rows and rows[-1].line == line:
        rows[-1] = replace(rows[-1], suspect=CUT_OFF)
    return CommunicationTable(path.stem, path.name, report, "topology_tier" in at, _grouped(rows), synthetic)


def _grouped(rows: list[CommunicationRow]) -> dict[tuple[int, int | None], tuple[CommunicationRow, ...]]:
    groups: dict[tuple[int, int | None], list[CommunicationRow]] = {}
    for row in rows:
        groups.setdefault((row.num_devices, row.tier), []).append(row)
    return {key: tuple(sorted(group, key=lambda row: (row.message_bytes, row.line))) for key, group in groups.items()}


def _parse(cells: list[str], at: dict[str, int], line: int) -> CommunicationRow | str:
    tier_text = cells[at["topology_tier"]].strip() if "topology_tier" in at else ""
    size, devices, tier = (
        parse_whole(text) for text in (cells[at["message_bytes"]], cells[at["num_devices"]], tier_text)
    )
    if size is None or devices is None or (tier is None and tier_text):
        return "number_unparsable"
    if size <= 0 or devices <= 0:
        return "dimension_not_positive"
    latency, problem = parse_latency(cells[at["Duration(us)"]])
    if problem:
        return problem
    dtype = cells[at["dtype"]] if "dtype" in at else ""
    return CommunicationRow(size, devices, tier, latency, line, dtype)
